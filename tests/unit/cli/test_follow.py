"""The line that describes a run in progress, and the progress output."""

from __future__ import annotations

import io
from typing import Any
from uuid import UUID

import pytest

from node.cli.follow import OPEN, status_line
from node.cli.outcomes import exit_code
from node.cli.progress import Progress
from node.model.classes import SchedulingClass
from node.model.times import MINUTE, SECOND
from node.model.wire.runs import Run

NOON = 1_796_126_400 * SECOND


def a_run(**changes: Any) -> Run:
    """A run planned for noon."""
    fields: dict[str, Any] = {
        "id": UUID(int=1),
        "task": UUID(int=2),
        "headline": "rtt  a → b",
        "test": "rtt",
        "tool": None,
        "state": "scheduled",
        "reason": None,
        "scheduling_class": SchedulingClass.BACKGROUND,
        "priority": 0,
        "starts_at": NOON,
        "ends_at": NOON + MINUTE,
        "slot": NOON,
        "attempt": 1,
        "participants": ("a", "b"),
        "participant": 0,
        "lead": "a",
        "started_at": None,
        "finished_at": None,
        "start_error_ms": None,
        "displaced_by": None,
        "summary": None,
        "result": None,
    }
    return Run(**fields | changes)


@pytest.mark.parametrize(
    ("state", "before_noon", "text"),
    [
        ("scheduled", 90 * SECOND, "rtt  a → b: planned for 12:00:00, starts in 1 min 30 s"),
        ("held", 0, "starting"),
        ("set-aside", SECOND, "starts in 1 s"),
        ("waiting", 0, "no time yet, because"),
        ("running", -20 * SECOND, "rtt  a → b: running, 40 s left"),
        ("running", -2 * MINUTE, "rtt  a → b: running"),
        ("merging", 0, "waiting for the parts"),
        ("failed", 0, "failed: because"),
    ],
)
def test_situations(state: str, before_noon: int, text: str) -> None:
    """Each state is described with what a waiting person wants to know next."""
    assert text in status_line(a_run(state=state, reason="because"), NOON - before_noon)


def test_only_what_was_measured_and_is_not_bad_is_success() -> None:
    """A finished run that is not bad exits with 0; one without a place exits with 4."""
    ends = {
        "finished": {"good": 0, "fair": 0, "unknown": 0, "bad": 1, "no-answer": 1},
        "failed": {"failed": 1},
        "missed": {"missed": 1},
        "cancelled": {"not-planned": 1},
        "displaced": {"not-planned": 4},
        "unplaced": {"not-planned": 4},
    }
    for state, codes in ends.items():
        for judgement, code in codes.items():
            assert exit_code({"state": state, "outcome": {"judgement": judgement}}) == code
    assert exit_code({"state": "running", "outcome": None}) == 1
    assert not set(ends) & set(OPEN)


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        """Return True."""
        return True


def test_progress_on_a_terminal_is_one_line() -> None:
    """The status line is overwritten, and removed before a note is printed."""
    stream = Terminal()
    progress = Progress(stream=stream)
    progress.status("in 2 s", "planned")
    progress.status("in 1 s", "planned")
    progress.note("done")
    assert stream.getvalue() == "\r\x1b[2Kin 2 s\r\x1b[2Kin 1 s\r\x1b[2Kdone\n"


def test_progress_elsewhere_is_a_line_for_each_phase() -> None:
    """Without a terminal each phase is printed once, without control characters."""
    stream = io.StringIO()
    progress = Progress(stream=stream)
    progress.status("in 2 s", "planned")
    progress.status("in 1 s", "planned")
    progress.status("measuring", "running")
    progress.note("done\x07")
    assert stream.getvalue() == "in 2 s\nmeasuring\ndone\ufffd\n"
    silent = Progress(quiet=True, stream=stream)
    silent.status("x", "x")
    silent.note("x")
    assert stream.getvalue().count("x") == 0
