"""The offset between two clocks, computed from the output of our STAMP programs."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from node.plugins.contracts import Merged, Part
from node.plugins.tests.clock import TEST, ClockSpec
from node.plugins.tools.stamp import TOOL
from tests.unit.plugins.parts import context, printed, spec

MS = 1_000_000
CLOCK = {"synchronised": True, "error_bound_ns": 2 * MS, "stepped_ns": 0, "identity": "aa"}
OTHER = CLOCK | {"identity": "bb"}


def compared(
    answers: list[tuple[int, int]], *, dest: dict[str, Any] = OTHER, **told: Any
) -> Merged:
    """Merge a run whose answers took these nanoseconds there and back, by the two clocks."""
    listed = [[at, there, 0, back, at, 255, 255] for at, (there, back) in enumerate(answers)]
    count = max(1, len(answers))
    sender = {"sent": count, "unsent": 0, "unreachable": 0, "answers": listed, "clock": CLOCK}
    reflector = {"duplicates": 0, "reordered": 0, "strays": 0, "unsent": 0, "clock": dest}
    part = context("clock", 0, count=count)
    other = context("clock", 1, count=count)
    results = [
        TOOL.read(part, printed(sender | told)),
        TOOL.read(other, printed(reflector | {"received": len(answers)})),
    ]
    return TEST.merge(part.spec, [Part(at, "ab"[at], it) for at, it in enumerate(results)])


def test_the_best_answer_tells() -> None:
    """The offset comes from the shortest round trip, and half of that is its bound."""
    outcome = compared([(30 * MS, 10 * MS), (12 * MS, 8 * MS), (50 * MS, 10 * MS)])
    assert outcome.reason is None
    result = outcome.result or {}
    assert (result["offset_ms"], result["bound_ms"], result["offset_median_ms"]) == (2, 10, 10)
    assert (result["plausible"], result["claimed_error_ms"], result["same_clock"]) == (
        True,
        4,
        False,
    )
    assert TEST.summary(result) == "+2.000 ms ± 10.000 ms"
    assert [(it.name, it.value) for it in TEST.metrics(result)] == [
        ("offset_ms", 2),
        ("bound_ms", 10),
        ("claimed_error_ms", 4),
    ]


@given(
    st.integers(-(10**12), 10**12),
    st.lists(st.tuples(st.integers(0, 10**8), st.integers(0, 10**8)), min_size=1, max_size=20),
)
def test_the_truth_is_within_the_bound(ahead_ns: int, ways: list[tuple[int, int]]) -> None:
    """The true offset is within the bound of the measured one, whatever each way takes."""
    outcome = compared([(there + ahead_ns, back - ahead_ns) for there, back in ways])
    result = outcome.result or {}
    assert abs(result["offset_ms"] - ahead_ns / 1e6) <= result["bound_ms"] + 1e-5


@pytest.mark.parametrize(
    ("answers", "dest", "plausible", "line"),
    [
        ([(25 * MS, -5 * MS)], OTHER, False, "+15.000 ms ± 10.000 ms (not what the kernels claim)"),
        (
            [(12 * MS, 8 * MS)],
            OTHER | {"synchronised": False, "error_bound_ns": None},
            None,
            "+2.000 ms ± 10.000 ms (clocks not synchronised)",
        ),
        ([(12 * MS, 8 * MS)], CLOCK, True, "+2.000 ms ± 10.000 ms (one and the same clock)"),
    ],
)
def test_plausibility_of_the_offset(
    answers: list[tuple[int, int]], dest: dict[str, Any], plausible: object, line: str
) -> None:
    """An offset beyond both kernels' errors and its own bound is implausible."""
    result = compared(answers, dest=dest).result or {}
    assert result["plausible"] is plausible
    assert TEST.summary(result) == line


def test_no_answer_is_a_failed_run() -> None:
    """Without an answer there is no offset; the clocks are kept."""
    outcome = compared([])
    assert outcome.reason == "no packet came back in time; 0 of 1 reached dest"
    assert (outcome.result or {})["clocks"]["dest"]["identity"] == "bb"
    assert TEST.summary(outcome.result or {}) == "no packet came back"
    assert str(compared([], unreachable=1).reason).startswith("dest's port was unreachable")


def test_a_missing_part() -> None:
    """Without dest's part the run fails but keeps the offset; without source's, nothing is kept."""
    sender = {"sent": 1, "unsent": 0, "unreachable": 0, "clock": CLOCK}
    document = sender | {"answers": [[0, 12 * MS, 0, 8 * MS, 0, 255, 255]]}
    own = TOOL.read(context("clock", count=1), printed(document))
    outcome = TEST.merge(spec("clock"), [Part(0, "a", own), Part(1, "b", None, "it crashed")])
    assert outcome.reason == "b: it crashed"
    assert (outcome.result or {})["offset_ms"] == 2
    assert (outcome.result or {})["plausible"] is None
    assert TEST.merge(spec("clock"), [Part(0, "a", None, "no"), Part(1, "b", {})]).result is None


@pytest.mark.parametrize(
    "wrong",
    [
        {"source": "b"},
        {"count": 0},
        {"count": 1001},
        {"count": 1000, "interval": "PT4S"},
        {"interval": "PT0.001S"},
        {"port": 80},
    ],
)
def test_specs_outside_the_limits_are_refused(wrong: dict[str, Any]) -> None:
    """Specs outside the limits are refused."""
    with pytest.raises(ValidationError):
        ClockSpec.model_validate({"dest": "b"} | wrong)


def test_dest_is_needed() -> None:
    """A clock can only be compared with another host's."""
    with pytest.raises(ValueError, match="clock needs dest"):
        TEST.with_participants(ClockSpec(), ())
    assert TEST.with_participants(ClockSpec(), ("a", "b")).dest == "b"
