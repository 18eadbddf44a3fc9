"""The placement of slots, against an oracle that tries every start."""

from __future__ import annotations

import random
from collections import Counter
from itertools import combinations, pairwise
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lead.planning import placement
from lead.planning.agenda import Slot
from lead.planning.placement import ChosenStart, Offer, choose, common_ranges
from node.model.spans import Span, normalise
from node.model.times import SECOND

LAST = 40
DURATIONS = st.integers(1, 6)

patient = settings(deadline=None, max_examples=70)


def slot(start: int, end: int) -> Slot:
    """Return a slot whose nominal start is the start of its window."""
    return Slot(start, 1, start, end)


@st.composite
def span_sets(draw: st.DrawFn) -> list[Span]:
    """Draw free ranges as a node may offer them; adjacent ones may touch."""
    cuts = sorted(draw(st.lists(st.integers(0, LAST), max_size=10, unique=True)))
    pieces = list(pairwise(cuts))
    return [piece for piece in pieces if draw(st.booleans())]


@st.composite
def offers(draw: st.DrawFn) -> Offer:
    """Draw what one participant offers: pass 2 may have more than pass 1."""
    free = draw(span_sets())
    return Offer("node", free, normalise(free + draw(span_sets())))


OFFERS = st.lists(offers(), min_size=1, max_size=3)
SLOTS = st.lists(
    st.builds(
        lambda start, length: slot(start, start + length),
        st.integers(0, 30),
        DURATIONS | st.integers(1, 14),
    ),
    max_size=6,
    unique_by=lambda one: one.nominal,
)
DRAWN = st.none() | st.integers(0, 9).map(random.Random)


def ranges_of(offer: Offer, *, displacing: bool) -> list[Span]:
    """Return the ranges of one pass, joined where they touch."""
    return normalise(offer.free_displacing if displacing else offer.free)


def offered(found: list[Offer], start: int, end: int, *, displacing: bool) -> bool:
    """Return whether every participant is free from start to end."""
    return all(
        any(low <= start and end <= high for low, high in ranges_of(offer, displacing=displacing))
        for offer in found
    )


def possible(
    asked: Slot, found: list[Offer], duration: int, taken: list[Span], *, displacing: bool
) -> list[int]:
    """Return every start of this slot at which all are free and no other run of the task is."""
    return [
        start
        for start in range(asked.start, asked.latest_start(duration) + 1)
        if offered(found, start, start + duration, displacing=displacing)
        and not any(low < start + duration and start < high for low, high in taken)
    ]


@patient
@given(SLOTS, OFFERS, DURATIONS, DRAWN)
def test_every_choice_is_offered_by_all(
    slots: list[Slot], found: list[Offer], duration: int, rng: random.Random | None
) -> None:
    """A choice lies in its slot's window and in what every participant offers in that pass."""
    for choice in choose(slots, found, duration, rng):
        start, end = choice.starts_at, choice.starts_at + duration
        assert choice.slot.start <= start < end <= choice.slot.end
        assert offered(found, start, end, displacing=choice.displacing)


@patient
@given(SLOTS, OFFERS, DURATIONS, DRAWN)
def test_runs_of_one_task_never_overlap(
    slots: list[Slot], found: list[Offer], duration: int, rng: random.Random | None
) -> None:
    """No two runs overlap, however the windows lie and in whatever order they come."""
    choices = choose(slots, found, duration, rng)
    for rest, right in combinations(choices, 2):
        assert abs(rest.starts_at - right.starts_at) >= duration


@patient
@given(SLOTS, OFFERS, DURATIONS, DRAWN)
def test_no_possible_slot_is_skipped(
    slots: list[Slot], found: list[Offer], duration: int, rng: random.Random | None
) -> None:
    """Each slot in turn that has a start gets one, by displacement only if there is no other."""
    chosen = {choice.slot: choice for choice in choose(slots, found, duration, rng)}
    taken: list[Span] = []
    for asked in slots:
        quiet = possible(asked, found, duration, taken, displacing=False)
        displacing = possible(asked, found, duration, taken, displacing=True)
        assert (asked in chosen) == bool(quiet or displacing)
        if asked in chosen:
            choice = chosen[asked]
            assert choice.displacing is not bool(quiet)
            assert choice.starts_at in (quiet or displacing)
            taken.append((choice.starts_at, choice.starts_at + duration))


@patient
@given(SLOTS, OFFERS, DURATIONS)
def test_the_earliest_start_is_chosen(slots: list[Slot], found: list[Offer], duration: int) -> None:
    """Without randomness, no start before the chosen one was possible in its pass."""
    taken: list[Span] = []
    for choice in choose(slots, found, duration, None):
        open_starts = possible(choice.slot, found, duration, taken, displacing=choice.displacing)
        assert choice.starts_at == open_starts[0]
        taken.append((choice.starts_at, choice.starts_at + duration))


@patient
@given(SLOTS, OFFERS, DURATIONS, DRAWN, st.lists(st.integers(0, LAST), unique=True).map(sorted))
def test_a_known_start_is_kept_if_it_is_still_free(
    slots: list[Slot],
    found: list[Offer],
    duration: int,
    rng: random.Random | None,
    before: list[int],
) -> None:
    """The first such start of a slot precedes earlier and drawn ones."""
    taken: list[Span] = []
    for choice in choose(slots, found, duration, rng, before):
        open_starts = possible(choice.slot, found, duration, taken, displacing=choice.displacing)
        kept = [start for start in before if start in open_starts]
        assert choice.starts_at in open_starts
        assert not kept or choice.starts_at == kept[0]
        taken.append((choice.starts_at, choice.starts_at + duration))


@patient
@given(SLOTS, OFFERS, DURATIONS)
def test_choices_come_in_the_order_of_the_slots(
    slots: list[Slot], found: list[Offer], duration: int
) -> None:
    """Each slot is chosen at most once, and the order is kept."""
    chosen = [choice.slot for choice in choose(slots, found, duration, None)]
    assert chosen == [asked for asked in slots if asked in chosen]


@patient
@given(SLOTS, OFFERS, DURATIONS, st.integers())
def test_the_same_seed_draws_the_same(
    slots: list[Slot], found: list[Offer], duration: int, seed: int
) -> None:
    """Two plans of the same state with the same seed are equal."""
    first = choose(slots, found, duration, random.Random(seed))
    assert choose(slots, found, duration, random.Random(seed)) == first


class Loaded(random.Random):
    """A generator that always draws the same number, and records the range it draws from."""

    def __init__(self, number: int) -> None:
        super().__init__(0)
        self.number = number
        self.of: int | None = None

    def randrange(self, start: int, stop: int | None = None, step: int = 1) -> int:
        """Return the fixed number."""
        self.of = start
        assert (stop, step) == (None, 1)
        return self.number


HALF = SECOND // 2


def in_halves(offer: Offer) -> Offer:
    """Return the same offer on a grid of half seconds."""
    free = [(start * HALF, end * HALF) for start, end in offer.free]
    return Offer(offer.name, free, free)


@patient
@given(offers(), DURATIONS)
def test_each_whole_second_is_equally_likely(offer: Offer, duration: int) -> None:
    """The draw is over all fitting whole seconds, and starts of ranges without any."""
    expected: list[int] = []
    for start, end in ranges_of(offer, displacing=False):
        fitting = range(start, end - duration + 1)
        expected += [at for at in fitting if at % 2 == 0] or list(fitting[:1])
    window, halves = slot(0, LAST * HALF), [in_halves(offer)]
    for number, start in enumerate(expected):
        rng = Loaded(number)
        assert choose([window], halves, duration * HALF, rng)[0].starts_at == start * HALF
        assert rng.of == len(expected)


def test_the_draw_is_even_over_all_ranges() -> None:
    """A start in a short range is as likely as one in a long range."""
    free = [(0, 3 * SECOND), (10 * SECOND, 19 * SECOND)]
    offer, window, rng = Offer("node", free, free), slot(0, 20 * SECOND), random.Random(1)
    picks = [choose([window], [offer], 2 * SECOND, rng)[0].starts_at for _ in range(10_000)]
    counts = Counter(start // SECOND for start in picks)
    assert set(counts) == {0, 1, *range(10, 18)}
    assert all(900 < count < 1100 for count in counts.values())


def test_less_than_a_second_to_spare_is_enough() -> None:
    """A range without a whole second that fits is used from its start, even if it just fits."""
    free = [(5, 5 + 2 * SECOND)]
    for spare in (0, SECOND // 2):
        chosen = choose(
            [slot(0, LAST * SECOND)],
            [Offer("node", free, free)],
            2 * SECOND - spare,
            random.Random(1),
        )
        assert [choice.starts_at for choice in chosen] == [5]


@pytest.mark.parametrize("rng", [None, random.Random(3)])
def test_without_common_time_there_is_no_choice(rng: random.Random | None) -> None:
    """Two participants that are free one after the other have no time in common."""
    result = [Offer("a", [(0, 10)], [(0, 10)]), Offer("b", [(10, 20)], [(10, 20)])]
    assert choose([slot(0, 20)], result, 1, rng) == []


def test_an_early_choice_is_remembered_behind_later_ones() -> None:
    """An early choice between two late ones does not displace the first of them from memory."""
    slots = [slot(0, 100), slot(5, 50), slot(20, 100)]
    free = [(5, 15), (90, 100)]
    result = [Offer("a", free, free), Offer("b", [(90, 100)], [(5, 15), (90, 100)])]
    assert choose(slots, result, 10, None) == [
        ChosenStart(slots[0], 90, displacing=False),
        ChosenStart(slots[1], 5, displacing=True),
    ]


def test_each_pass_needs_common_time_by_itself() -> None:
    """Pass 2 is tried only if pass 1 has no common time, slot by slot."""
    slots = [slot(0, 10), slot(10, 20)]
    result = [Offer("a", [(0, 20)], [(0, 20)]), Offer("b", [(4, 8)], [(0, 20)])]
    assert choose(slots, result, 3, None) == [
        ChosenStart(slots[0], 4, displacing=False),
        ChosenStart(slots[1], 10, displacing=True),
    ]


def instants(spans: list[Span]) -> set[int]:
    """Return every instant of these spans."""
    return {at for start, end in spans for at in range(start, end)}


@given(st.lists(span_sets(), min_size=1, max_size=4))
def test_common_ranges_are_the_instants_that_all_offer(sets: list[list[Span]]) -> None:
    """The common ranges hold every instant that each participant offers, in as few ranges."""
    common = common_ranges(sets)
    assert instants(common) == set.intersection(*map(instants, sets))
    assert all(start < end for start, end in common)
    assert all(before[1] < after[0] for before, after in pairwise(common))


@patient
@given(SLOTS, OFFERS, DURATIONS, st.none() | st.integers(0, 9))
def test_many_ranges_are_intersected_like_few(
    slots: list[Slot], found: list[Offer], duration: int, seed: int | None
) -> None:
    """A choice is the same whether offers are intersected by interval algebra or by a sweep."""
    choices = []
    for most in (0, 1000):
        rng = None if seed is None else random.Random(seed)
        with patch.object(placement, "ALGEBRA_RANGES_MAX", most):
            choices.append(choose(slots, found, duration, rng))
    assert choices[0] == choices[1]
