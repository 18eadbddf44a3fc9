"""Lists of tasks leave out long references, which a single task shows whole."""

from __future__ import annotations

from pathlib import Path

from tests.conftest import NewDatabase
from tests.support.clocks import ManualClock
from tests.support.served_nodes import asker


async def test_a_list_leaves_out_long_references(
    new_database: NewDatabase, clock: ManualClock, tmp_path: Path
) -> None:
    """A reference of more than 4 kB as JSON is left out of lists, and marked as left out."""
    async with asker("a", await new_database(), clock, tmp_path) as a:
        whole = {}
        for reference in (None, {"ticket": 7}, "x" * 4094, "x" * 4095):
            test = {"type": "idle", "spec": {"duration": "PT2S"}}
            body = {"test": test, "reference": reference}
            status, task = await a.ask("POST", "/v1/tasks", body)
            assert (status, task["reference"], task["reference_left_out"]) == (
                201,
                reference,
                False,
            )
            whole[task["id"]] = reference
        _, page = await a.ask("GET", "/v1/tasks")
        left_out = "x" * 4095
        assert {each["id"]: each["reference"] for each in page["items"]} == {
            task: None if reference == left_out else reference for task, reference in whole.items()
        }
        marked = {each["id"] for each in page["items"] if each["reference_left_out"]}
        assert marked == {task for task, reference in whole.items() if reference == left_out}
        [task] = marked
        assert (await a.ask("GET", f"/v1/tasks/{task}"))[1]["reference"] == left_out
