"""Replanning of a changed task over slots that have had runs: none twice, none left out."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from lead.planning.agenda import Limits, PlanningProgress, agenda
from node.model.recurrence import Recurrence, nominal_starts
from node.model.times import DAY, HOUR, MINUTE, SECOND
from tests.support.clocks import START

HOURLY = Recurrence(anchor=START, repeat=HOUR, slip=5 * MINUTE)
SLOTS = nominal_starts(HOURLY, START - 1, START + DAY, 100)
TOUCHED = st.dictionaries(st.sampled_from(SLOTS), st.none() | st.integers(2, 9))


def _asked(
    touched: dict[int, int | None], batch: int, remaining: int | None
) -> tuple[list[tuple[int, int]], int | None]:
    """Return the slots and attempts planned, batch by batch, and what is left at the end."""
    limits = Limits(horizon=DAY, margin=SECOND, batch=batch)
    planned_to, result = None, list[tuple[int, int]]()
    for _ in range(len(SLOTS) + 2):
        rest = None if remaining is None else remaining - len(result)
        standing = PlanningProgress(SLOTS[0], planned_to, [], rest, touched)
        done = agenda(HOURLY, MINUTE, standing, limits, START)
        result += [(slot.nominal, slot.attempt) for slot in done.slots]
        planned_to = done.planned_to
        if not done.full:
            return result, done.next_slot
    raise AssertionError("the slots never come to an end")


@given(TOUCHED, st.integers(1, 30))
def test_each_slot_is_planned_once_or_never(touched: dict[int, int | None], batch: int) -> None:
    """Free slots have their next attempt, untouched ones their first, and others none."""
    result, following = _asked(touched, batch, None)
    entered = [slot for slot in SLOTS if slot <= START + DAY - MINUTE - HOURLY.slip]
    assert result == [
        (slot, attempt) for slot in entered if (attempt := touched.get(slot, 1)) is not None
    ]
    assert following is not None
    assert following > entered[-1]


@given(TOUCHED, st.integers(1, 30), st.integers(0, 30))
def test_a_limit_counts_only_planned_slots(
    touched: dict[int, int | None], batch: int, remaining: int
) -> None:
    """Slots that already have their run do not count against the remaining number."""
    unlimited, _ = _asked(touched, batch, None)
    result, following = _asked(touched, batch, remaining)
    assert result == unlimited[:remaining]
    assert (following is None) == (remaining <= len(unlimited))
