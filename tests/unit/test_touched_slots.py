"""A changed task is planned anew over slots that have had runs: none twice, none left out."""

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
    """Slots and attempts asked for, batch by batch, and what is left at the end."""
    limits = Limits(horizon=DAY, margin=SECOND, batch=batch)
    planned_to, found = None, list[tuple[int, int]]()
    for _ in range(len(SLOTS) + 2):
        left = None if remaining is None else remaining - len(found)
        standing = PlanningProgress(SLOTS[0], planned_to, [], left, touched)
        done = agenda(HOURLY, MINUTE, standing, limits, START)
        found += [(slot.nominal, slot.attempt) for slot in done.slots]
        planned_to = done.planned_to
        if not done.full:
            return found, done.next_slot
    raise AssertionError("the slots never come to an end")


@given(TOUCHED, st.integers(1, 30))
def test_each_slot_is_asked_for_once_or_never(touched: dict[int, int | None], batch: int) -> None:
    """Free slots as their next attempt, untouched ones as their first, the others not at all."""
    found, following = _asked(touched, batch, None)
    entered = [slot for slot in SLOTS if slot <= START + DAY - MINUTE - HOURLY.slip]
    assert found == [
        (slot, attempt) for slot in entered if (attempt := touched.get(slot, 1)) is not None
    ]
    assert following is not None
    assert following > entered[-1]


@given(TOUCHED, st.integers(1, 30), st.integers(0, 30))
def test_a_limit_counts_only_what_is_asked_for(
    touched: dict[int, int | None], batch: int, remaining: int
) -> None:
    """Slots that already have their run do not use up what remains."""
    unlimited, _ = _asked(touched, batch, None)
    found, following = _asked(touched, batch, remaining)
    assert found == unlimited[:remaining]
    assert (following is None) == (remaining <= len(unlimited))
