"""Results, lanes and explanations as text."""

from __future__ import annotations

from typing import Any

import pytest

from node.cli.documents import request_rows
from node.cli.explain import decision_lines, explanation_view
from node.cli.output import aligned_text, pairs_text, printable_text, sanitise_line, value_at
from node.cli.results import histogram_text, result_view, sorted_result
from node.cli.runs import RUN
from node.cli.schedule import Bar, Frame, timeline_lines
from node.model.times import HOUR, MINUTE
from node.model.wire.seats import SeatRequest


@pytest.mark.parametrize(
    ("result", "line"),
    [
        ({"jitter_ms": 0.2042}, "jitter  0.204 ms"),
        (
            {"rtt_ms": {"median": 20.4123, "max": 105.04}},
            "rtt median  20.41 ms\nrtt max     105 ms",
        ),
        ({"delay_ms": {"forward": {"p95": 1.5}}}, "delay forward p95  1.5 ms"),
        ({"rate_bps": 941_300_000.0}, "rate  941.3 Mb/s"),
        ({"rate_bps": 900}, "rate  900 b/s"),
        ({"sent": {"bytes": 1_500_000}}, "sent bytes  1.5 MB"),
        ({"loss": {"forward": 0.0123}, "cpu": 0.5}, "loss forward  1.23 %\ncpu           50 %"),
        ({"sent": 5, "late": 0}, "sent  5\nlate  0"),
        ({"reverse": True, "congestion": "cubic"}, "reverse     yes\ncongestion  cubic"),
        ({"errors": ["a", "b"], "hops": [1] * 20}, "errors  a, b\nhops    20 entries"),
        (
            {"hops": [{"ttl": 1, "rtt_ms": 0.5}, {"ttl": 2, "by": ["a", "b"]}], "loss": 0},
            "loss  0 %\nhops:\n  ttl  rtt     by\n  1    0.5 ms\n  2            a, b",
        ),
        (
            {"chain": [{"names": ["a"] * 9, "key": "x" * 70}]},
            f"chain:\n  names      key\n  9 entries  {'x' * 59}…",
        ),
        ({"hops": [{"ttl": 1}] * 65, "rtt_ms": None}, "hops  65 entries"),
        (
            {
                "hops": [
                    {"ttl": 1, "addresses": [{"address": "::1", "rtts_ms": [2.0, 1]}], "lost": 0}
                ],
                "path": ["::1", None],
            },
            "path  ::1, -\nhops:\n  ttl  addresses       lost\n  1    ::1 2 ms, 1 ms  0",
        ),
        ({"offset_ms": -0.0}, "offset  0 ms"),
        ({}, ""),
    ],
)
def test_results_of_any_test(result: dict[str, Any], line: str) -> None:
    """Units come from the field names, also in nested fields, and null is left out."""
    assert result_view(result, indent="") == line


def test_results_come_in_the_order_of_their_schema() -> None:
    """Fields are sorted as in the schema, through references and "or null", unknown ones last."""
    figures: dict[str, Any] = {"properties": {"min": {}, "max": {}}}
    optional = {"anyOf": [{"$ref": "#/$defs/Figures"}, {"type": "null"}]}
    schema = {"properties": {"sent": {}, "rtt_ms": optional}, "$defs": {"Figures": figures}}
    result = {"new": 1, "rtt_ms": {"max": 2, "min": 1}, "sent": 5}
    ordered = sorted_result(result, schema)
    assert ordered == result
    assert list(ordered) == ["sent", "rtt_ms", "new"]
    assert list(ordered["rtt_ms"]) == ["min", "max"]
    assert sorted_result(result, {}) == result


def test_objects_in_lists_come_in_the_order_of_their_schema() -> None:
    """Objects in lists are sorted as in the schema, too."""
    schema = {
        "properties": {"hops": {"items": {"$ref": "#/$defs/Hop"}}},
        "$defs": {"Hop": {"properties": {"ttl": {}, "by": {}}}},
    }
    ordered = sorted_result({"hops": [{"by": "a", "ttl": 1}], "path": ["b"]}, schema)
    assert list(ordered["hops"][0]) == ["ttl", "by"]
    assert ordered["path"] == ["b"]


def test_lanes_stack_what_overlaps() -> None:
    """Each class has lanes, overlapping runs are in different ones, and now is a line."""
    frame = Frame(0, HOUR, 60)
    bars = [
        Bar("exclusive", "finished", 0, 10 * MINUTE),
        Bar("exclusive", "scheduled", 40 * MINUTE, 60 * MINUTE),
        Bar("normal", "running", 25 * MINUTE, 35 * MINUTE),
        Bar("normal", "failed", 30 * MINUTE, 32 * MINUTE),
    ]
    scale, exclusive, normal, second = timeline_lines(bars, frame, now=30 * MINUTE)
    margin = len("exclusive") + 2
    assert scale.split()[0].endswith(":00")
    assert scale.index(scale.split()[1]) == margin + 10
    assert exclusive == "exclusive  " + "█" * 10 + " " * 20 + "│" + " " * 9 + "░" * 20
    assert normal == "normal     " + " " * 25 + "▓" * 10
    assert second == " " * margin + " " * 30 + "✗✗"


def test_lanes_keep_within_the_frame() -> None:
    """Runs that exceed the frame are cut, and more than four at once share the last lane."""
    frame = Frame(HOUR, 2 * HOUR, 30)
    bars = [Bar("background", "finished", 0, 3 * HOUR)] * 9
    lines = timeline_lines(bars, frame, now=0)
    assert len(lines) == 1 + 4
    assert {len(line) for line in lines[1:]} == {len("background") + 2 + 30}
    assert timeline_lines([], frame, now=0)


def test_an_explanation_survives_an_unknown_trace() -> None:
    """Unknown parts of a trace are skipped."""
    decision = {
        "first_at": "2026-12-01T09:00:00Z",
        "decided_at": "2026-12-01T10:00:00Z",
        "times": 7,
        "outcome": "placed",
        "sentence": "ok",
        "asked": 2,
        "placed": 2,
        "trace": {
            "windows": [[1, "x"], 3, None],
            "offers": [
                {"node": "a", "free": [[0, 1], [2, 3], [4, 5], [6, 7]]},
                {"node": "c", "free": "everything", "free_displacing": []},
                "b",
            ],
            "choices": [[0, 5_000_000, True], [2, 3], {"strange": 1}],
            "refusals": {"b": "busy"},
            "before": ["displaced by a run of higher priority"],
        },
    }
    explanation = {
        "task": "a" * 36,
        "run": None,
        "headline": "rtt  a → b",
        "state": "active",
        "sentence": "Fine.",
        "decisions": [decision],
    }
    text = explanation_view(explanation, 3)
    assert text.startswith("rtt  a → b: Fine.\n(task aaaaaaaa, active)")
    assert "and 1 more" in text
    assert "5 s after its nominal start, displacing lower priorities" in text
    assert "  refused  b: busy" in text
    assert "free   everything" in text
    assert "placed, 2 of 2 runs placed, 7 times since 2026-12-01 " in text
    assert "  before   displaced by a run of higher priority" in text


def test_pieces_of_tables() -> None:
    """Columns are aligned, empty values are left out, and dotted paths are followed."""
    assert aligned_text([["a", "b"], ["long", "c"]]) == "a     b\nlong  c"
    assert pairs_text([("a", None), ("b", ""), ("c", 0)]) == "c  0"
    assert pairs_text([]) == ""
    assert value_at({"a": {"b": 1}}, "a.b") == 1
    assert value_at({"a": None}, "a.b") is None
    assert printable_text("a\n\tb") == "a b"
    assert sanitise_line("\x1b[2J\u202e") == "\ufffd[2J\ufffd"


def test_a_decision_on_seats_says_who_has_them_and_what_gives_way() -> None:
    """A decision on seats shows seats, displaced runs, policies, and verdicts."""
    verdict = {"axis": "share", "rule": "no-seats", "sentence": "all seats are taken"}
    decision = {
        "decided_at": "2026-12-01T00:00:00Z",
        "first_at": "2026-12-01T00:00:00Z",
        "times": 1,
        "outcome": "partly seated",
        "sentence": "1 of 2 seats",
        "asked": 2,
        "placed": 1,
        "trace": {
            "pool": "europe",
            "policies": "gridserver-urgent",
            "seats": {"1": "a"},
            "yielding": ["4ca58f7e-18af-4f1e-9d3f-0a6c1f1b2d3e"],
            "verdicts": [verdict],
            "refusals": {"b": "is busy"},
        },
    }
    assert [line.strip() for line in decision_lines(decision)[1:]] == [
        "1 of 2 seats",
        "seats    1 a",
        "yielding 4ca58f7e",
        "by       gridserver-urgent, pool europe",
        "no       all seats are taken (share/no-seats)",
        "refused  b: is busy",
    ]
    assert "1 of 2 seats given" in decision_lines(decision)[0]


def test_a_pool_task_shows_all_that_is_asked_of_its_nodes() -> None:
    """A pool task shows predicate, preference, spread and choice, and other tasks show nothing."""
    wanted = SeatRequest(
        pool="europe", k=4, match={"country": "DE"}, prefer={"site": ("x", "y")}, spread={"site": 1}
    )
    rows = dict(request_rows(wanted.model_dump(mode="json")))
    assert "country" in rows["match"]
    assert "DE" in rows["match"]
    assert rows["prefers"].startswith("site x")
    assert rows["spread"] == "at most 1 alike in site"
    assert rows["choice"] == "that of the pool"
    turns = wanted.model_copy(update={"choice": "rotating"}).model_dump(mode="json")
    assert dict(request_rows(turns))["choice"] == "rotating"
    assert request_rows(None) == []


@pytest.mark.parametrize(
    ("summary", "reason", "cell"),
    [
        ("3 Mb/s", None, "contaminated: 3 Mb/s"),
        (None, "no connection", "no connection (contaminated)"),
    ],
)
def test_a_verdict_is_not_why_a_run_failed(
    summary: str | None, reason: str | None, cell: str
) -> None:
    """In lists a verdict stands before a result, and after a reason."""
    outcome = next(column for column in RUN.columns if column.heading == "result or reason")
    run = {"summary": summary, "reason": reason, "verdict": "contaminated"}
    assert outcome.cell(run) == cell


def test_histograms_are_drawn_in_a_line() -> None:
    """A histogram is one line: the packets by delay, and the range; an empty one is a dash."""
    drawn = {"width_ms": 0.5, "buckets": [[40, 9], [41, 3], [43, 1]]}
    assert histogram_text(drawn) == "█▃ ▁ 20 to 22 ms"
    wide = {"width_ms": 1.0, "buckets": [[0, 1], [1000, 1]]}
    assert len(histogram_text(wide).split(" 0 to ")[0]) <= 24
    assert histogram_text({"width_ms": 1.0, "buckets": []}) == "-"
    view = result_view({"histogram": {"forward": drawn, "backward": drawn}})
    assert len(view.splitlines()) == 2


def test_one_clock_is_told_once() -> None:
    """A clock that both ends share is told once, and two clocks are told as two."""
    clock = {"synchronised": False, "identity": "boot"}
    result = {"clocks": {"source": clock, "dest": clock}, "clocks_synchronised": True}
    view = result_view(result)
    assert [line.split()[-1] for line in view.splitlines()].count("no") == 1
    assert "yes, both ends read the same clock" in view
    other = {**result, "clocks": {"source": clock, "dest": {**clock, "identity": "other"}}}
    assert "same clock" not in result_view(other)
