"""``parley plan``: requests, the view, alternatives, and exit codes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from node.cli.plans import plan_view

TASK = "aaaaaaaa-aaaa-4aaa-8aaa-aaaaaaaaaaaa"
RUN = "11111111-1111-4111-8111-111111111111"
START = "2026-12-01T10:00:00Z"


def _hours(**changed: tuple[float, float]) -> list[dict[str, Any]]:
    empty = (0.0, 0.0)
    return [
        {
            "starts_at": f"2026-12-01T{hour:02}:00:00Z",
            "before": changed.get(f"h{hour}", empty)[0],
            "after": changed.get(f"h{hour}", empty)[1],
        }
        for hour in range(24)
    ]


def _participant(name: str, **changes: Any) -> dict[str, Any]:
    return {
        "name": name,
        "node": f"ed25519:{name}",
        "answer": "accepts",
        "reason": None,
        "tools": ["iperf3"],
        "windows_free": 2,
        **changes,
    }


def a_plan(**changes: Any) -> dict[str, Any]:
    """Return a plan of the API in which one run displaces and one would wait."""
    lost = {"scheduling_class": "normal", "priority": -1, "starts_at": START, "ends_at": START}
    busy = "b: no 10 s free: busy with an exclusive idle run of priority 7"
    return {
        "outcome": "partly",
        "sentence": "1 of 2 runs would be booked",
        "now": START,
        "test": "throughput",
        "tool": "iperf3",
        "scheduling_class": "exclusive",
        "duration": "PT10S",
        "priority": 3,
        "expected_bytes": None,
        "asked": 2,
        "placed": 1,
        "starts": [
            {
                "slot": START,
                "starts_at": "2026-12-01T10:02:00Z",
                "ends_at": "2026-12-01T10:02:10Z",
                "displacing": True,
                "nodes": [],
            }
        ],
        "drawn": True,
        "seats": [],
        "unplaced": [{"slot": "2026-12-01T11:00:00Z", "reason": busy}],
        "displaced": [{"name": "b", "run": RUN, "task": TASK, "test": "idle", "by": START, **lost}],
        "displaced_count": 14,
        "participants": [_participant("a"), _participant("b", windows_free=1, reason=busy)],
        "occupancy": [
            {
                "name": "b",
                "added_s": -590.0,
                "before": 0.1,
                "after": 0.09,
                "others": 0.05,
                "hours": _hours(h10=(1.0, 0.5), h11=(0.2, 0.2)),
            }
        ],
        "alternatives": [
            {
                "kind": "later",
                "differs": "starts at 2026-12-01T10:09:00Z, 9 min later",
                "distance": 0.01,
                "asked": 2,
                "placed": 2,
                "starts_at": "2026-12-01T10:09:00Z",
                "displacing": 1,
                "document": {"test": {"type": "throughput", "spec": {"dest": "b"}}},
            }
        ],
        "no_alternatives": [{"kind": "tool", "reason": "there is none"}],
        **changes,
    }


@pytest.fixture
def planning(node: Any) -> Any:
    """A node that answers with a plan."""
    node.documents["/v1/plans"] = a_plan()
    return node


async def test_it_asks_with_the_options_of_a_task(parley: Any, planning: Any) -> None:
    """A preview posts the document of task create, and prints the API's plan in a pipe."""
    given = ("throughput", "--spec", "dest=b", "--repeat", "1h", "--priority", "3")
    ended = await parley("plan", "task", *given, "--runs", "4")
    assert (ended.code, json.loads(ended.out)) == (0, a_plan())
    planning.created = planning.add_task(TASK)
    await parley("task", "create", *given)
    (previewed, _), (created, _) = planning.posted
    assert previewed == {**created, "runs": 4}
    ended = await parley("plan", "task", "--file", "-", stdin=json.dumps(created))
    assert planning.posted[-1][0] == created


async def test_the_view_of_a_plan(parley: Any, planning: Any) -> None:
    """The view has starts, other runs, participants, occupancy, and alternatives."""
    out = (await parley("plan", "task", "throughput", "--spec", "dest=b", "-o", "table")).out
    assert out.splitlines()[0] == "throughput  a → b: 1 of 2 runs would be booked"
    sections = {part.splitlines()[0]: part for part in out.split("\n\n")}
    starts = sections["Starts"]
    assert "10:02:00Z  2 min after its nominal start, displacing lower priorities" in starts
    assert "the task will draw others" in starts
    assert "11:00:00Z  b: no 10 s free" in sections["Would wait"]
    displaced = sections["Would give way to priority 3"]
    assert "b  idle of task aaaaaaaa  run 11111111  normal  priority -1" in displaced
    assert "and 13 more" in displaced
    assert "b  accepts  iperf3  time for 1 of 2" in sections["Participants"]
    full = sections["Occupancy of the next 24 h, hour by hour"]
    assert "b  -590 s  10.0% → 9.0%  now   ··········█▂············" in full
    assert "then  ··········▅▂············" in full
    assert "fullest hour that changes: from 2026-12-01 10:00:00Z on b, 100.0% → 50.0%" in full
    others = sections["Alternatives, the nearest first"]
    assert "1  starts at 2026-12-01 10:09:00Z, 9 min later  2 of 2, first at" in others
    assert "none with another tool: there is none" in others
    assert "--alternative N | parley task create --file -" in others


async def test_an_alternative_is_ready_to_post(parley: Any, planning: Any) -> None:
    """--alternative prints only one document, which task create accepts unchanged."""
    ended = await parley("plan", "task", "throughput", "--alternative", "1", "-o", "table", "-q")
    assert (ended.code, ended.err) == (0, "")
    planning.created = planning.add_task(TASK)
    assert (await parley("task", "create", "--file", "-", stdin=ended.out)).code == 0
    assert planning.posted[-1][0] == a_plan()["alternatives"][0]["document"]


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({}, "only 1"),
        ({"alternatives": [], "outcome": "found"}, "time was found for all runs"),
        ({"alternatives": [], "outcome": "refused", "sentence": "b: will not"}, "b: will not"),
    ],
)
async def test_an_alternative_that_is_not_there(
    parley: Any, planning: Any, changes: dict[str, Any], text: str
) -> None:
    """A missing alternative exits with 6, and prints nothing that could be posted by mistake."""
    planning.documents["/v1/plans"] = a_plan(**changes)
    ended = await parley("plan", "task", "throughput", "--alternative", "2")
    assert (ended.code, ended.out) == (6, "")
    assert text in " ".join(ended.err.split())


@pytest.mark.parametrize(
    ("outcome", "code"),
    [
        ("found", 0),
        ("beyond-horizon", 0),
        ("no-time", 4),
        ("clock", 4),
        ("refused", 3),
        ("unreachable", 5),
    ],
)
async def test_exit_codes(parley: Any, planning: Any, outcome: str, code: int) -> None:
    """The exit code is that of the outcome, and the plan is printed anyway."""
    planning.documents["/v1/plans"] = a_plan(outcome=outcome)
    ended = await parley("plan", "task", "throughput")
    assert (ended.code, json.loads(ended.out)["outcome"]) == (code, outcome)


def test_a_refusal_is_short() -> None:
    """A refused plan shows only the sentence, the participants, and no alternatives."""
    nothing: dict[str, Any] = {
        "asked": 0, "placed": 0, "starts": [], "unplaced": [], "displaced": [],
        "displaced_count": 0, "occupancy": [], "alternatives": [], "tool": None,
    }  # fmt: skip
    silent = _participant("b", answer="refuses", reason="no iperf3", windows_free=None, tools=[])
    text = plan_view(
        a_plan(outcome="refused", sentence="b: no iperf3", participants=[silent], **nothing),
        {"dest": "b"},
    )
    heads = [part.splitlines()[0] for part in text.split("\n\n")]
    assert heads == ["throughput  b → b: b: no iperf3", "Participants", "No alternatives"]
    assert "  b  refuses  no iperf3" in text
    assert "none with another tool: there is none" in text
