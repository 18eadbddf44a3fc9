"""The gaps of a task: ranges of slots that nobody planned in time, for example during an absence.

After an absence of the lead a task has perhaps thousands of slots whose windows are over. They are
told as ranges: the work and the rows depend on the number of tasks, not on that of slots. A slot
whose window is still open is not in a gap, and is planned. Pure: instants in microseconds are
arguments.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from uuid import UUID

from node.model.reason import Reason
from node.model.reasons import slots_given_up
from node.model.recurrence import Recurrence, SlotRange, nominal_range, slip_of


@dataclass(frozen=True)
class Gap:
    """Slots of a task that were never planned, told as a range, with the reason."""

    task: UUID
    range: SlotRange
    reason: Reason


FORGOTTEN = (
    ", or it was booked, and measured on its participants, and its lead forgot that when its "
    "database was restored from a backup"
)
"""The rest of a reason after a restore of the lead's database."""

GAP_MIN = 4
"""Fewer slots than these are told one by one, as runs.

Three rows are no burden, and a restart of some seconds leaves no more than that to most tasks: each
of these slots is found where runs are looked for.
"""


def closed_slots(
    recurrence: Recurrence,
    duration: int,
    after: int,
    soonest: int,
    now: int,
    least: int = GAP_MIN,
) -> SlotRange | None:
    """Return the slots in ``(after, now]`` of which no run can start at ``soonest`` or later.

    None means that they are fewer than ``least``. Windows do not overlap, so only that of the
    last slot may still be open.
    """
    past = nominal_range(recurrence, after, now + 1)
    if past is not None and past.last + slip_of(recurrence, duration, past.last) >= soonest:
        past = nominal_range(recurrence, after, past.last)
    return None if past is None or past.slots < least else past


def split(recurrence: Recurrence, closed: SlotRange, known: Iterable[int]) -> tuple[SlotRange, ...]:
    """Return these slots as ranges without the ``known`` ones, which have runs that tell of them.

    There is at most one range more than slots that are left out.
    """
    left_out = sorted(slot for slot in known if closed.first <= slot <= closed.last)
    ends = [closed.first - 1, *left_out, closed.last + 1]
    ranges = (nominal_range(recurrence, after, before) for after, before in pairwise(ends))
    return tuple(each for each in ranges if each is not None)


def given_up(count: int, gaps: Sequence[SlotRange]) -> Reason:
    """Return the reason that so many slots are given up; those of ``gaps`` are among them."""
    return slots_given_up(count, gaps[0].first if gaps else None)
