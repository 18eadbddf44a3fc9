"""Views of thousands of runs, of unknown figures, and of removed meshes."""

from __future__ import annotations

from typing import Any

import pytest

from node.cli.meshes import MESH
from node.cli.meshplan import plan_view
from node.cli.reservations import reservation_view
from node.client.answers import non_finite_faults

AT = "2026-12-01T01:00:00Z"


def _reservation(tasks: int, runs: int, inside_count: int) -> dict[str, Any]:
    access = dict.fromkeys(("campaigns", "tasks", "leads", "tests", "classes"), ())
    inside = [
        {
            "run": f"{number:08x}-0000",
            "task": f"{number % tasks:08x}-1111",
            "displaced": False,
            "test": "rtt",
            "scheduling_class": "normal",
            "priority": 0,
            "starts_at": AT,
            "ends_at": AT,
        }
        for number in range(runs)
    ]
    return {
        "id": "7c1e", "kind": "demo", "name": "SC26", "pool": None, "owner": "alice",
        "description": None, "state": "upcoming", "next_starts_at": AT, "next_ends_at": AT,
        "duration": "PT1H", "revision": 1, "created_at": AT, "access": {**access, "priority": None},
        "schedule": {"start": AT, "repeat": None, "cron": None, "timezone": None, "until": None},
        "inside": inside, "inside_count": inside_count, "displaced_count": 0,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("tasks", "runs", "count", "more"),
    [(1, 3, 3, None), (10, 40, 40, None), (20, 1000, 1000, 500), (20, 1000, 1700, 1200)],
)
def test_runs_inside_are_summed_up(tasks: int, runs: int, count: int, more: int | None) -> None:
    """A reservation shows one line for each of ten tasks, and counts the other runs."""
    lines = reservation_view(_reservation(tasks, runs, count)).splitlines()
    kept = [line for line in lines if line.startswith("  kept: ")]
    assert len(kept) == min(tasks, 10)
    assert kept[0].startswith(f"  kept: {runs // tasks} runs of task 00000000 (rtt, normal,")
    rest = [line for line in lines if line.startswith("  and ")]
    assert rest == ([] if more is None else [f"  and {more} more"])


def _plan(others: float | None, outcome: str) -> dict[str, Any]:
    shares = {"booked": 0.5, "exclusive": 0.5, "normal": 0.0, "background": 0.0, "others": others}
    answer = {"outcome": outcome, "placed": 3, "asked": 4, "starts_at": AT, "displaced": 0}
    return {
        "mesh": "lab", "file": "lab.toml", "sentence": "2 to create", "findings": [],
        "create": ["k1", "k2"], "edit": [], "end": [], "asked": 2, "sampled": False,
        "plans": [{**answer, "key": key, "reason": "reserved for demo 'SC26'"}
                  for key in ("k1", "k2")],
        "nodes": [{"name": "b", **shares}],
    }  # fmt: skip


def test_partly_placed_tasks_have_a_reason() -> None:
    """A reason that several tasks share is printed once, and placed tasks have none."""
    shown = plan_view(_plan(0.0, "partly"))
    assert "  partly: k1 and 1 more: reserved for demo 'SC26'\n" in shown
    assert "reserved" not in plan_view(_plan(0.0, "found"))


def test_unknown_bookings_of_others() -> None:
    """Bookings by others are unknown if a node was not asked, and its share is a lower bound."""
    known, unknown = (plan_view(_plan(others, "found")) for others in (0.0, None))
    assert ("unknown" in known, "50.0%+" in known) == (False, False)
    assert unknown.splitlines()[-1].split() == ["b", "50.0%+", "50.0%", "0.0%", "0.0%", "unknown"]
    assert "+: at least" in unknown


def test_a_removed_mesh_is_shown_as_removed() -> None:
    """A mesh is removed if all its tasks were cancelled, not if some ended by themselves."""
    [column] = [column for column in MESH.columns if column.heading == "tasks"]
    assert column.cell({"tasks": {"cancelled": 21}}) == "removed (21 cancelled)"
    assert column.cell({"tasks": {"cancelled": 1, "finished": 2}}) == "1 cancelled, 2 finished"


def test_numbers_that_json_cannot_represent() -> None:
    """Each number that JSON cannot represent is reported with its pointer in the document."""
    document = {"weight": float("nan"), "a/b": [1.5, {"x": float("-inf")}], "n": 10**400}
    faults = [(fault.pointer, fault.detail) for fault in non_finite_faults(document)]
    assert faults == [
        ("/weight", "is nan; give a finite number"),
        ("/a~1b/1/x", "is -inf; give a finite number"),
    ]
    assert non_finite_faults({"weight": 1.5, "name": "inf"}) == []
