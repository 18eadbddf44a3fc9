"""``parley limits``: what another node may have here, and what this one may have there."""

from __future__ import annotations

import json
from pathlib import Path

from tests.conftest import NewDatabase
from tests.support.clocks import ManualClock
from tests.support.limits import limit
from tests.support.served_nodes import Asker, Command, know, served

LIMITS = """
version = 1

[who.all]
others = true

[[rule]]
name = "small"
who = ["all"]
spec = { duration = { "<=" = "PT1M" } }
priority_max = 5
most.runs = "3/P1D"

[[cap]]
name = "targets"
runs = "60/PT1H"
"""


async def test_limits_are_shown_and_tried(
    ask: Command, a: Asker, new_database: NewDatabase, clock: ManualClock, tmp_path: Path
) -> None:
    """The owner sees the limits, tries another node's task, and asks that node for its own."""
    await limit(a.node, LIMITS)
    shown = await ask("limits", "show", "-o", "table")
    assert shown.out.startswith("# no file: the default, read at ")
    assert 'name = "small"' in shown.out
    file = tmp_path / "task.json"
    async with served("b", await new_database(), clock, tmp_path / "b") as b:
        await know(a.node, b)
        await know(b, a.node)
        await limit(b, LIMITS)
        for duration, code, says in (
            (
                "PT10S",
                0,
                "✓ allowed by 'small', priority counts as 5\n  small: 3 runs per day: 0 runs",
            ),
            ("PT5M", 3, "✗ refused by 'small' at /test/spec/duration: the spec's duration is"),
        ):
            spec = {"duration": duration, "participants": ["a", "b"]}
            file.write_text(json.dumps({"test": {"type": "idle", "spec": spec}, "priority": 9}))
            tried = await ask("limits", "test", "--as", "b", str(file), "-o", "table")
            assert (tried.code, says in tried.out) == (code, True), tried
        there = await ask("limits", "show", "b", "-o", "table")
        assert there.out.splitlines()[0] == (
            'small: all tests; duration <= "PT1M"; priority 5; 3 runs per day'
        )
        assert there.out.splitlines()[-1] == "each target: 60 runs per hour to each /32 or /64"
