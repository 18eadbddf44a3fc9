"""``parley schedule`` of an earlier time, and ``parley schedule diff``."""

from __future__ import annotations

import json

from tests.integration.cli.conftest import START, Parley, StandIn
from tests.support.served_nodes import Asker

RUN, WINNER = "7c1e90ab-0000-4000-8000-000000000001", "90c23b2d-0000-4000-8000-000000000002"


async def test_changes_are_shown_with_their_reasons(parley: Parley, node: StandIn) -> None:
    """A table has what happened to each run, why, and by whom; deleted runs are pointed out."""
    change = {
        "run": RUN,
        "task": RUN,
        "headline": "rtt  a → b",
        "test": "rtt",
        "change": "displaced",
        "changed_at": START,
        "scheduling_class": "exclusive",
        "priority": 0,
        "starts_at": START,
        "ends_at": "2026-12-01T10:00:03Z",
        "was_starts_at": None,
        "participants": ["a", "b"],
        "reason": "displaced by a run of higher priority",
        "displaced_by": WINNER,
    }
    node.documents["/v1/schedule/changes"] = {
        "since": "2026-11-01T00:00:00Z",
        "until": START,
        "from": START,
        "to": START,
        "complete": False,
        "kept_since": "2026-11-02T00:00:00Z",
        "items": [change],
    }
    shown = await parley("schedule", "diff", "1d", "2026-11-27T00:00:00Z", "-o", "table")
    assert shown.code == 0, shown.err
    for part in ("displaced", "rtt  a → b", "higher priority (run 90c23b2d)"):
        assert part in shown.out
    assert "There are more" in shown.err
    assert "Runs that ended before 2026-11-02 00:00:00Z may have been deleted" in shown.err
    query = next(query for _, path, query in node.asked if "/schedule/changes" in path)
    assert query.keys() == {"since", "until"}
    assert query["until"] == "2026-11-27T00:00:00Z"


async def test_a_node_is_asked_for_its_past(ask: Parley, a: Asker) -> None:
    """The schedule is a command of its own, and a group with diff."""
    before = "2026-11-30"  # of the clock of the node, which stands still
    for words in (("--as-of", before), ("diff", before), ("diff", before, f"{before} 23:00")):
        told = await ask("schedule", *words, "-o", "json")
        assert told.code == 0, told.err
        assert json.loads(told.out) == []
    misplaced = await ask("schedule", "--from", "now", "diff")
    assert (misplaced.code, "give options behind diff" in misplaced.err) == (2, True)
    wrong = await ask("schedule", "diff", "sometime")
    assert (wrong.code, "sometime" in wrong.err) == (2, True)
    future = await ask("schedule", "--as-of", "2030-01-01T00:00:00Z")
    assert (future.code, "is in the future" in future.err) == (2, True)
