"""The Python client works from its wheel, beside another package called ``node``."""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import AsyncIterator
from itertools import islice
from pathlib import Path
from typing import assert_type

import pytest

from deploy.client import build_wheel
from node.execution import process
from node.model.wire.nodes import TestDescription
from node.store.database import Notice
from parley_client import (
    AsyncParley,
    InvalidDocument,
    NotFound,
    Page,
    Parley,
    Task,
    to_datetime,
)
from tests.conftest import NewDatabase
from tests.support.clocks import ManualClock
from tests.support.served_nodes import Asker, asker

GUIDE = Path(__file__).parents[2] / "docs" / "how-to" / "python.md"
CHECK = """
import node
import parley_client
import parley_client.synchronous
assert node.SOMEBODY_ELSES
assert "_node" in parley_client.Task.__module__, parley_client.Task.__module__
assert parley_client.__file__.startswith({place!r}), parley_client.__file__
"""


@pytest.fixture
async def a(new_database: NewDatabase, clock: ManualClock, tmp_path: Path) -> AsyncIterator[Asker]:
    """Serve a node."""
    async with asker("a", await new_database(), clock, tmp_path / "a") as client:
        yield client


async def python(program: str, paths: list[Path], **environment: str) -> tuple[int, str, str]:
    """Run a program with these paths before all others; return exit code and output."""
    settings = {"PYTHONPATH": ":".join(map(str, paths)), "PATH": "/usr/bin:/bin", **environment}
    running = await process.start((sys.executable, "-P", "-c", program), env=settings)
    finished = await running.wait()
    return finished.exit_code, finished.stdout.decode(), finished.stderr.decode()


@pytest.mark.nightly
async def test_the_example_of_the_guide_works_beside_another_node(a: Asker, tmp_path: Path) -> None:
    """The wheel alone is enough for the program of the guide, whoever else is called node."""
    built, place, other = build_wheel(tmp_path / "dist"), tmp_path / "site", tmp_path / "other"
    (other / "node").mkdir(parents=True)
    (other / "node" / "__init__.py").write_text("SOMEBODY_ELSES = True\n")
    options = ("--quiet", "--no-deps", "--no-index", "--target", str(place))
    installing = await process.start(
        (sys.executable, "-m", "pip", "install", *options, str(built)), env={"PATH": "/usr/bin"}
    )
    installed = await installing.wait()
    assert installed.exit_code == 0, installed.stderr
    assert (place / "parley_client" / "py.typed").exists()
    [example] = re.findall(r"```python\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)
    program = CHECK.format(place=str(place)) + example
    code, out, err = await python(
        program,
        [other, place],
        PARLEY_SERVER=str(a.node.card.url),
        PARLEY_TOKEN="secret",
    )
    assert code == 0, err
    lines = out.splitlines()
    assert lines[0].startswith("a runs version ")
    assert lines[1].startswith("rtt  a → 127.0.0.1, created 20")
    [[task, state]] = await a.rows("SELECT id::text, state::text FROM task")
    assert lines[2].startswith(task)
    assert state == "cancelled"
    assert lines[-1] == f"there is no run {task} on this node"


async def test_the_asynchronous_client_has_types_pages_and_errors(a: Asker) -> None:
    """Documents are models, lists go on page by page, and problems are raised as their errors."""
    async with AsyncParley(str(a.node.card.url), "secret") as parley:
        document = {"test": {"type": "idle"}, "schedule": {"start": "PT1H"}}
        made, *_ = [await parley.create_task(document, key=f"k{number}") for number in range(3)]
        assert isinstance(made, Task)
        assert to_datetime(made.created_at).year == 2026
        assert (await parley.create_task(document, key="k0")).id == made.id
        page = await parley.tasks(limit=2)
        assert isinstance(page, Page)
        assert (len(page.items), page.next is None) == (2, False)
        assert len([each async for each in parley.every(parley.tasks, test="idle")]) == 3
        assert len([each async for each in parley.every(parley.tasks, limit=2)]) == 3
        rest = parley.every(parley.tasks, limit=2, cursor=page.next)
        assert len([each async for each in rest]) == 1
        assert [each async for each in parley.every(parley.tasks, participant="b")] == []
        with pytest.raises(NotFound):
            await parley.run(made.id)
        with pytest.raises(InvalidDocument) as refused:
            await parley.create_task({"test": {"type": "rtt", "spec": {"count": 0}}})
        assert {fault.pointer for fault in refused.value.faults} >= {"/test/spec/count"}


async def test_the_synchronous_client_reads_the_stream_of_events(a: Asker) -> None:
    """Events that are chosen come as from the asynchronous client; then the stream is closed."""
    place = a.node.hub.last

    def read() -> list[str]:
        with Parley(str(a.node.card.url), "secret") as parley:
            assert_type(parley.tests(), Page[TestDescription])
            assert list(parley.every(parley.runs, limit=500)) == []
            return [event.kind for event in islice(parley.events(place, types=["pool"]), 2)]

    a.node.hub.on_notice(Notice("archive", "one", ("added",)))
    for name in ("one", "two"):
        a.node.hub.on_notice(Notice("pool", name, ("added",)))
    assert await asyncio.to_thread(read) == ["pool", "pool"]
