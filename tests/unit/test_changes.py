"""The effect of edits on a task's document and slots, against slow oracles."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from node.model import times
from node.model.changes import (
    EVERY_SLOT,
    NO_SLOT,
    PlacementTerms,
    PlanningPosition,
    differences,
    first_given_up_slot,
    first_open,
    passed_slots,
    patched_document,
    position_after_edit,
)
from node.model.recurrence import Recurrence, nominal_starts, slip_of
from tests.support.clocks import START

JSON = st.recursive(
    st.none() | st.integers() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner, max_size=3)
    ),
    max_leaves=8,
)
OBJECT = st.dictionaries(st.text(max_size=2), JSON, max_size=4)

MINUTE = times.MINUTE
DURATION = MINUTE
RECURRENCES = st.builds(
    Recurrence,
    anchor=st.integers(0, 120).map(lambda m: START + m * MINUTE),
    repeat=st.integers(7, 90).map(lambda m: m * MINUTE),
    until=st.none() | st.integers(130, 900).map(lambda m: START + m * MINUTE),
    slip=st.integers(0, 30).map(lambda m: m * MINUTE),
)
INSTANTS = st.integers(0, 1000 * 60).map(lambda s: START + s * times.SECOND)
FAR = START + 1700 * MINUTE


def _no_null(value: Any) -> bool:
    """Return whether no object in it has a null: such a document is its own merge patch."""
    if isinstance(value, dict):
        return all(each is not None and _no_null(each) for each in value.values())
    return True


@given(OBJECT, OBJECT.filter(_no_null))
def test_a_merge_patch_is_idempotent(before: Any, patch: Any) -> None:
    """A patch without nulls applied to nothing is itself, and applied twice changes no more."""
    assert patched_document({}, patch) == patch
    once = patched_document(before, patch)
    assert patched_document(once, patch) == once


@given(OBJECT)
def test_null_removes(before: Any) -> None:
    """A patch that sets every field to null leaves nothing, and an empty one leaves all."""
    assert patched_document(before, dict.fromkeys(before)) == {}
    assert patched_document(before, {}) == before


def test_a_merge_patch_as_in_its_rfc() -> None:
    """The example of RFC 7396 holds: replaced, removed, added, and lists as a whole."""
    before = {"title": "x", "author": {"givenName": "John", "familyName": "Doe"}, "tags": [1, 2]}
    patch = {"title": "y", "phone": "1", "author": {"familyName": None}, "tags": [3]}
    after = {"title": "y", "author": {"givenName": "John"}, "tags": [3], "phone": "1"}
    assert patched_document(before, patch) == after


@given(OBJECT)
def test_equal_documents_do_not_differ(document: Any) -> None:
    """Equal documents have no differences."""
    assert differences(document, document) == []


def test_differences_are_listed_by_field() -> None:
    """Each field is listed with old and new value, but the reference only as changed."""
    before = {"test": {"spec": {"count": 5}}, "schedule": {"repeat": "PT1H"}, "reference": {"a": 1}}
    after = {"test": {"spec": {"count": 5}}, "schedule": {"repeat": "PT30M", "max_runs": 3}}
    assert differences(before, after) == [
        "repeat 1 h → 30 min",
        "reference changed",
        "max_runs none → 3",
    ]


def test_a_long_value_is_shortened() -> None:
    """Long values are shortened so that they do not fill the sentence."""
    assert len(differences({}, {"text": "x" * 500})[0]) < 100


def _terms(recurrence: Recurrence, **changes: Any) -> PlacementTerms:
    return replace(PlacementTerms(("spec", "tool"), recurrence, slip_random=False), **changes)


@given(RECURRENCES, RECURRENCES)
def test_only_slots_that_no_longer_fit_are_given_up(old: Recurrence, new: Recurrence) -> None:
    """The slots after the new end are given up on the same grid, and all on another grid."""
    bound = first_given_up_slot(_terms(old), _terms(new), None)
    same_grid = replace(old, until=None) == replace(new, until=None)
    if not same_grid:
        assert bound == EVERY_SLOT
        return
    kept = [slot for slot in nominal_starts(old, 0, FAR, 2000) if slot < bound]
    there = set(nominal_starts(new, 0, FAR, 2000))
    assert kept == [slot for slot in nominal_starts(old, 0, FAR, 2000) if slot in there]


@given(RECURRENCES, st.none() | INSTANTS, st.none() | INSTANTS)
def test_an_end_or_a_number_gives_up_the_tail(
    recurrence: Recurrence, until: int | None, surplus: int | None
) -> None:
    """The earlier of the new end and the first excess run counts, if there is either."""
    new = replace(recurrence, until=until)
    ends = [end for end in (until, surplus) if end is not None]
    assert first_given_up_slot(_terms(recurrence), _terms(new), surplus) == min([*ends, NO_SLOT])


@given(RECURRENCES)
def test_other_measurements_give_up_everything(recurrence: Recurrence) -> None:
    """Another spec, another tool, or a random slip replaces every future run."""
    old = _terms(recurrence)
    assert first_given_up_slot(old, replace(old, measured=("other",)), None) == EVERY_SLOT
    assert first_given_up_slot(old, replace(old, slip_random=True), None) == EVERY_SLOT


@given(
    RECURRENCES, INSTANTS, st.lists(INSTANTS, max_size=5).map(sorted), st.integers(0, 60 * MINUTE)
)
def test_a_new_grid_is_planned_from_now_on(
    recurrence: Recurrence, now: int, freed: list[int], slip: int
) -> None:
    """No future slot is left out, and of the past only open ones that were given up come again."""
    on = position_after_edit(
        recurrence, PlanningPosition(FAR, FAR), freed, now - slip, now, anew=True
    )
    every = nominal_starts(recurrence, 0, FAR, 2000)
    wanted = [slot for slot in every if slot > now or (slot in freed and slot >= now - slip)]
    assert on.next_slot == (wanted[0] if wanted else None)
    assert on.planned_to == (wanted[0] - 1 if wanted else FAR)


@given(RECURRENCES, st.data(), INSTANTS)
def test_on_the_same_grid_planning_continues(
    recurrence: Recurrence, data: st.DataObject, now: int
) -> None:
    """Every slot that was given up or not planned yet lies after the point of continuation."""
    every = nominal_starts(recurrence, 0, FAR, 2000)
    planned = every[: data.draw(st.integers(0, len(every)))]
    freed = sorted(data.draw(st.sets(st.sampled_from(planned), max_size=4))) if planned else []
    standing = PlanningPosition(planned[-1] if planned else every[0] - 1, None)
    open_from = data.draw(st.integers(0, now))
    on = position_after_edit(recurrence, standing, freed, open_from, now, anew=False)
    assert on.planned_to is not None
    behind = [slot for slot in every if slot > on.planned_to]
    wanted = {*freed, *(set(every) - set(planned))}
    assert {slot for slot in wanted if slot >= open_from} <= set(behind)
    assert min(behind, default=open_from) >= open_from
    if behind:
        assert on.next_slot == behind[0]
    else:  # there may be one behind those listed here
        assert on.next_slot is None or on.next_slot > every[-1]


@given(RECURRENCES, INSTANTS)
def test_the_first_open_slot(recurrence: Recurrence, soonest: int) -> None:
    """The first open slot is the first nominal start whose slip is not over."""
    every = nominal_starts(recurrence, 0, FAR, 2000)
    still = [slot for slot in every if slot + slip_of(recurrence, DURATION, slot) >= soonest]
    assert first_open(recurrence, DURATION, soonest) == (still[0] if still else None)


@given(RECURRENCES, INSTANTS, st.integers(0, 600).map(lambda m: m * MINUTE))
def test_missed_and_future_slots_are_all_slots(
    recurrence: Recurrence, paused: int, pause: int
) -> None:
    """Each slot since the pause began is either missed or in the future."""
    resumed = paused + pause
    first = first_open(recurrence, DURATION, paused)
    following = first_open(recurrence, DURATION, resumed)
    passed = passed_slots(recurrence, first, following, resumed, 5000)
    every = nominal_starts(recurrence, 0, FAR, 5000)
    since = [slot for slot in every if first is not None and slot >= first]
    coming = [slot for slot in every if following is not None and slot >= following]
    if following is None:
        coming = [slot for slot in since if slot >= resumed]
    assert passed + coming == since


@pytest.mark.parametrize("repeat", [None, times.HOUR])
def test_a_single_run_is_open_as_long_as_its_slip_lasts(repeat: int | None) -> None:
    """A task that runs once is resumed only while its run may still start."""
    once = Recurrence(anchor=START, repeat=repeat, until=None, slip=5 * MINUTE)
    assert first_open(once, DURATION, START + 5 * MINUTE) == START
    after = first_open(once, DURATION, START + 5 * MINUTE + 1)
    assert after == (None if repeat is None else START + repeat)
