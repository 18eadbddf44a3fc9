"""The states of a run and the transitions between them.

This module alone says which state may follow which. The store calls :func:`predecessors` and writes
``WHERE state = ANY(…)``, so the statement that changes a state also checks it. The names are those
of the SQL enum ``run_state``; a booked run is shown as ``held`` while its exchange is held, and as
``scheduled`` once the exchange is committed.
"""

from __future__ import annotations

from enum import StrEnum


class RunState(StrEnum):
    """The state of a run, as one node sees it."""

    WAITING = "waiting"
    BOOKED = "booked"
    SET_ASIDE = "set-aside"
    RUNNING = "running"
    MERGING = "merging"
    FINISHED = "finished"
    FAILED = "failed"
    MISSED = "missed"
    CANCELLED = "cancelled"
    DISPLACED = "displaced"
    UNPLACED = "unplaced"


_NEXT: dict[RunState, frozenset[RunState]] = {
    RunState.WAITING: frozenset({RunState.BOOKED, RunState.UNPLACED, RunState.CANCELLED}),
    # A node that only keeps resources of a run hears of no part: it finishes it after its time.
    RunState.BOOKED: frozenset(
        {
            RunState.WAITING,
            RunState.RUNNING,
            RunState.MERGING,
            RunState.FINISHED,
            RunState.SET_ASIDE,
            RunState.MISSED,
            RunState.CANCELLED,
            RunState.DISPLACED,
        }
    ),
    RunState.SET_ASIDE: frozenset({RunState.BOOKED, RunState.DISPLACED, RunState.CANCELLED}),
    # A run may be missed although it is running: its program was prepared, but not released in time
    # (:mod:`.late_runs`).
    # And booked again: a clock that was ahead had begun it, and was set right.
    RunState.RUNNING: frozenset(
        {
            RunState.BOOKED,
            RunState.MERGING,
            RunState.FINISHED,
            RunState.FAILED,
            RunState.MISSED,
            RunState.CANCELLED,
        }
    ),
    # A lead that does not measure takes a run for begun; once its clock was set back, the start may
    # still be to come. One that was restored while its clock was ahead has the run placed again.
    RunState.MERGING: frozenset(
        {
            RunState.BOOKED,
            RunState.FINISHED,
            RunState.FAILED,
            RunState.CANCELLED,
            RunState.DISPLACED,
        }
    ),
    # A part that was cut off may arrive after the lead gave the run up. A participant may notice
    # that the other end was cancelled before the lead notifies it. What a clock that was ahead took
    # for over is booked again once it is right (``clock_steps.sql``).
    RunState.FAILED: frozenset({RunState.BOOKED, RunState.FINISHED, RunState.CANCELLED}),
    RunState.MISSED: frozenset({RunState.BOOKED}),
    RunState.FINISHED: frozenset(),
    RunState.CANCELLED: frozenset(),
    RunState.DISPLACED: frozenset(),
    RunState.UNPLACED: frozenset(),
}

LIVE = frozenset({RunState.BOOKED, RunState.RUNNING})
"""States that occupy their time; the exclusion constraint has the same list."""

OVER = frozenset(
    {
        RunState.FINISHED,
        RunState.FAILED,
        RunState.MISSED,
        RunState.CANCELLED,
        RunState.DISPLACED,
        RunState.UNPLACED,
    }
)
"""States in which nothing more happens, except that a part may arrive late."""

NOT_COUNTED = frozenset(
    {RunState.CANCELLED, RunState.DISPLACED, RunState.UNPLACED, RunState.WAITING}
)
"""States that do not count towards a task's ``max_runs``."""

TOOK_PLACE = frozenset({RunState.FINISHED, RunState.FAILED, RunState.MISSED})
"""States of runs that count towards ``max_runs`` for good: their lead cannot take them back."""


def predecessors(state: RunState) -> list[str]:
    """Return the states from which a run may enter this one, for ``WHERE state = ANY(…)``."""
    return sorted(before for before, after in _NEXT.items() if state in after)
