"""Commands of operators: how a pair is, how full the node is, why runs have no result."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from node.api.examples import EXAMPLES
from node.cli.capacity import PIECE, pieces_of
from node.cli.causes import CAUSE, cause_lines, runs_by_cause
from node.cli.pair import PAIR, pair_measurements, pair_view
from node.cli.runs import run_view
from node.model.times import HOUR, MINUTE, format_instant, parse_instant
from node.model.wire.runs import Run

START = parse_instant("2026-12-01T12:00:00Z")
RUN = EXAMPLES[Run]


def run(number: int, **changes: Any) -> dict[str, Any]:
    """Return a finished run of a pair, as the API tells it, with other members."""
    document = {
        **RUN,
        "id": str(UUID(int=number << 96)),
        "headline": "rtt  a → d",
        "test": "rtt",
        "state": "finished",
        "reason": None,
        "starts_at": format_instant(START + number * MINUTE),
        "slots": 1,
        "followed_by": [],
        "summary": f"{number} ms, loss 0 %",
        "verdict": "clean",
        "metrics": [
            {"name": "rtt_median_ms", "unit": "ms", "value": float(number), "labels": {}},
            {"name": "loss", "unit": "1", "value": 0.01, "labels": {"direction": "forward"}},
        ],
    }
    return document | changes


def lost(number: int, **changes: Any) -> dict[str, Any]:
    """Return a run without a result."""
    missing: dict[str, Any] = {"summary": None, "verdict": None, "metrics": []}
    failed = run(number, state="failed", **missing, **changes)
    return failed | {
        "outcome": {"judgement": "failed", "code": "failed", "reason": failed["reason"]}
    }


def test_causes_have_no_particulars() -> None:
    """Runs with reasons that differ in times are one cause; a gap counts with its slots."""
    away = "d cannot be reached since 2026-12-01T11:0{}:00Z: timed out after {} s, 5, 7.5"
    causes = runs_by_cause(
        [
            lost(1, reason=away.format(1, 5)),
            lost(2, reason=away.format(2, 7), headline="rtt  b → d"),
            lost(3, reason="the lead was away", slots=5),
            lost(4, reason=None),
        ]
    )
    assert [(each["count"], each["run"][:8]) for each in causes] == [
        (5, "00000003"),
        (2, "00000002"),
        (1, "00000004"),
    ]
    assert causes[1]["headlines"] == ["rtt  a → d", "rtt  b → d"]
    texts = [column.text(causes[1]) for column in CAUSE.columns]
    assert texts[:4] == [
        "2",
        "failed",
        "d cannot be reached since …: timed out after …, …, …",
        "rtt  a → d, rtt  b → d",
    ]
    assert cause_lines(causes[2:], "  ")[0].startswith("  1 failed: no reason is known (latest ")


def test_causes_have_what_is_common_to_them() -> None:
    """A cause has those of the common causes that explain a task of its runs."""
    common = [
        {"sentence": "d: 6 of 6 pairs", "tasks": [{"task": run(1)["task"]}, {"task": "other"}]},
        {"sentence": "all of ping", "tasks": [{"task": "other"}]},
    ]
    here, elsewhere = runs_by_cause(
        [lost(1, reason="no route"), lost(2, reason="refused", task="third")], common
    )
    assert (here["common"], elsewhere["common"]) == (["d: 6 of 6 pairs"], [])
    assert "common" in CAUSE.fields


def test_a_pair_has_each_direction_with_its_figures() -> None:
    """Runs of one headline are summed up: due, delivered, doubtful, figures and causes."""
    nothing = {"judgement": "no-answer", "code": "all-lost", "reason": "all packets were lost"}
    back = {"headline": "rtt  d → a", "verdict": "suspicious", "outcome": nothing}
    there, here = pair_measurements(
        [run(3), run(1), run(2), lost(4, reason="no time", slots=2), run(9, **back)]
    )
    assert (there["due"], there["delivered"], there["summary"]) == (5, 3, "3 ms, loss 0 %")
    assert there["figures"][0] == {
        "name": "rtt_median_ms",
        "unit": "ms",
        "latest": 3.0,
        "median": 2.0,
        "least": 1.0,
        "greatest": 3.0,
    }
    lines = pair_view(there).splitlines()
    assert lines[0] == "✗ rtt  a → d: 3 of 5 with a result"
    assert lines[2].split() == ["latest", "median", "least", "greatest"]
    assert " ".join(lines[3].split()) == "rtt median 3 ms 2 ms 1 ms 3 ms"
    assert " ".join(lines[4].split()) == "loss forward 1 % 1 % 1 % 1 %"
    assert lines[5].startswith("  2 failed: no time (latest ")
    assert pair_view(here).startswith("✗ rtt  d → a: 1 of 1 with a result, 1 suspicious\n")
    assert "  1 no-answer: all packets were lost (latest " in pair_view(here)
    assert PAIR.columns[2].text(here) == "1 of 1"


def test_an_old_value_is_not_the_latest_one() -> None:
    """A figure that the last run lacks has no latest value; tasks that fail name what is common."""
    loss = {"name": "loss", "unit": "1", "value": 1.0, "labels": {}}
    nothing = {"judgement": "no-answer", "code": "all-lost", "reason": "all packets were lost"}
    dead = run(2, summary="no answer", metrics=[loss], outcome=nothing)
    common = [{"sentence": "d: 6 of 6 tasks", "tasks": [{"task": dead["task"]}]}]
    [pair] = pair_measurements([run(1), dead], common)
    shown = {figure["name"]: (figure["latest"], figure["median"]) for figure in pair["figures"]}
    assert shown == {"rtt_median_ms": (None, 1.0), "loss.forward": (None, 0.01), "loss": (1.0, 1.0)}
    assert " ".join(pair_view(pair).splitlines()[3].split()) == "rtt median - 1 ms 1 ms 1 ms"
    assert pair["common"] == ["d: 6 of 6 tasks"]


def test_what_was_measured_because_of_a_fault_stands_beside_it() -> None:
    """Causes and pairs show what followed the latest run that anything followed."""
    trace = {
        "run": str(UUID(int=7 << 96)),
        "headline": "trace  a → d",
        "state": "finished",
        "starts_at": format_instant(START),
        "summary": "5 hops, 12 ms",
        "reason": None,
        "outcome": {"judgement": "good", "code": None, "reason": None},
    }
    runs = [lost(1, reason="x"), lost(2, reason="x", followed_by=[trace]), lost(3, reason="x")]
    [cause] = runs_by_cause(runs)
    assert (cause["run"][:8], cause["followed_by"]) == ("00000003", [trace])
    line = "✓ followed by trace  a → d: 5 hops, 12 ms ("
    assert cause_lines([cause], "  ")[1].startswith(f"    {line}")
    [good] = pair_measurements([run(1), run(2, followed_by=[trace])])
    assert f"\n  {line}" in pair_view(good)
    [wrong] = pair_measurements([run(1), *runs])
    assert pair_view(wrong).count("followed by") == 1
    ids = {"task": str(UUID(int=4)), "test": "trace"}
    asked = {"followed_by": [trace | ids], "asked_by": str(UUID(int=3))}
    shown = run_view(Run.model_validate(RUN | asked).model_dump(mode="json"))
    assert line in shown
    assert f"run {UUID(int=3)}" in shown


def test_pieces_have_the_share_of_each_class() -> None:
    """Exclusive and normal runs never overlap, so their shares add up; free time is empty."""
    span = (START, START + 2 * HOUR, HOUR)
    at = format_instant(START + HOUR)
    buckets = [
        {
            "starts_at": at,
            "scheduling_class": name,
            "busy": busy,
            "runs": {"scheduled": 2, "finished": 1},
        }
        for name, busy in (("exclusive", 0.25), ("normal", 0.5), ("background", 1))
    ]
    quiet = {
        "kind": "quiet",
        "name": "night",
        "starts_at": format_instant(START + MINUTE),
        "ends_at": at,
    }
    free, full = pieces_of(buckets, [quiet], span)
    assert free["reserved"] == ["quiet night"]
    assert full["reserved"] == []
    assert full["taken"] == 0.75
    texts = {column.heading: column.text(full) for column in PIECE.columns}
    assert (texts["exclusive"], texts["normal"], texts["background"]) == ("25 %", "50 %", "100 %")
    assert texts[""] == "█" * 15
    assert texts["runs"] == "6 scheduled, 3 finished"
    assert pieces_of([], [], span) == []
