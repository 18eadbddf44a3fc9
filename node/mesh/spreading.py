"""The starts of a mesh's tasks, spread over their interval. Pure.

Tasks of one schedule would all begin at the same instant, run into each other, and leave the rest
of the interval idle. So each has a phase of its own: how much later than whole intervals its runs
start. Those of exclusive runs are chosen so that no two meet on a node (``rounds.py``). For all
others, and where there is no such phase, a hash of the key decides. Both are the same by whomever
the file is applied, and a task keeps its phase, whatever comes and goes beside it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from itertools import chain
from typing import Any

from node.model import times
from node.model.wire.tasks import ScheduleTerms, ScheduleTimes


def is_spread(schedule: ScheduleTerms) -> bool:
    """Return whether tasks of a schedule are spread: it has an interval, and names no start."""
    return schedule.repeat is not None and schedule.start is None


def phase_of(mesh: str, key: str, interval: int) -> int:
    """Return how much later than whole intervals the runs of a task start: whole seconds, in µs."""
    digest = hashlib.sha256(f"{mesh}/{key}".encode()).digest()
    return int.from_bytes(digest[:8]) % max(1, interval // times.SECOND) * times.SECOND


def start_of(phase: int) -> str:
    """Return the start of a task as its document has it: an instant long ago, as an anchor."""
    return times.format_instant(times.EARLIEST + phase)


def kept_phase(schedule: ScheduleTimes, interval: int) -> int | None:
    """Return the phase of a task with this schedule; None if it has none of this interval."""
    if schedule.repeat != interval or schedule.start is None:
        return None
    phase = schedule.start - times.EARLIEST
    return phase if phase < interval else None


def start_in_words(start: Any) -> Any:
    """Return a start of :func:`start_of` as people think of it; any other start as it is.

    >>> start_in_words("2000-01-01T00:00:37Z")
    'PT37S into each interval'
    >>> start_in_words("@1h")
    '@1h'
    """
    if not isinstance(start, str):
        return start
    try:
        phase = times.parse_instant(start) - times.EARLIEST
    except ValueError:  # counted from the creation, or from the next whole interval
        return start
    return f"{times.duration_text(phase)} into each interval" if phase < times.LONGEST else start


def longest_wait(runs: Sequence[tuple[int, int]], interval: int) -> int:
    """Return how long a run waits at most, if runs take place one at a time, again and again.

    ``runs`` are phases and durations. There is no limit if they take longer than the interval.
    """
    free_at = waited = 0
    laps = chain(sorted(runs), ((phase + interval, each) for phase, each in sorted(runs)))
    for phase, duration in laps:
        waited = max(waited, free_at - phase)
        free_at = max(free_at, phase) + duration
    return waited
