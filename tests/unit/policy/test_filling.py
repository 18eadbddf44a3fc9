"""Protected slots and backfill, compared with counting every instant."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations, pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lead.policy.axes.fill import Protected
from lead.policy.axes.order import BackfillOrder
from lead.policy.fill.backfill import BackfillChoice, RunWorth, free_windows, runs_to_start
from lead.policy.fill.reservations import find_overlap_refusal, find_slot
from lead.policy.sets import PolicyComposition
from lead.policy.timetable import (
    Placement,
    PlacementRequest,
    earliest_placement,
    first_gap,
    free_times,
    timetable_for,
    timetables_by_class,
)
from lead.policy.view import Candidate, PoolView, PostedRun, ReservationView, View
from node.model.classes import SchedulingClass
from node.model.spans import normalise
from tests.golden.maui_rounds import starting_now
from tests.support.policies import COMPOSITIONS

NODES = ("n1", "n2", "n3", "n4")
END = 60
spans = st.lists(
    st.tuples(st.integers(0, 30), st.integers(1, 9)).map(lambda it: (it[0], it[0] + it[1])),
    max_size=4,
).map(normalise)
timetables = st.fixed_dictionaries(dict.fromkeys(NODES, spans))
requests = st.lists(st.tuples(st.integers(1, 4), st.integers(1, 12)), max_size=7).map(
    lambda some: [
        PlacementRequest(f"t{at}", k, length, NODES) for at, (k, length) in enumerate(some)
    ]
)
frees = st.fixed_dictionaries(dict.fromkeys(NODES, st.one_of(st.none(), st.integers(1, 15))))


def is_free(table: dict[str, list[tuple[int, int]]], name: str, start: int, end: int) -> bool:
    """Return whether nothing overlaps ``[start, end)`` on a node."""
    return all(b <= start or end <= a for a, b in table.get(name, ()))


@given(timetables, st.integers(1, 4), st.integers(1, 12), st.integers(0, 20))
def test_the_earliest_place_agrees_with_trying_every_instant(
    table: dict[str, list[tuple[int, int]]], k: int, length: int, now: int
) -> None:
    """No earlier start has enough free nodes, and the chosen nodes are free throughout."""
    result = earliest_placement(table, PlacementRequest("t", k, length, NODES), now)
    assert result is not None
    assert len(set(result.nodes)) == k
    assert all(is_free(table, name, result.start, result.start + length) for name in result.nodes)
    assert result.start == next(
        at
        for at in range(now, END)
        if sum(is_free(table, name, at, at + length) for name in NODES) >= k
    )


def test_slots_take_the_nodes_that_become_free_last() -> None:
    """Nodes that are free already remain available to backfill."""
    table = {"a": [], "b": [(0, 5)], "c": [(0, 5)], "d": []}
    assert earliest_placement(table, PlacementRequest("t", 3, 10, "abcd"), 0) == Placement(
        5, ("b", "c", "a")
    )
    assert earliest_placement(table, PlacementRequest("t", 5, 10, "abcd"), 0) is None


@given(timetables, st.integers(0, 40))
def test_how_long_nodes_stay_free(table: dict[str, list[tuple[int, int]]], at: int) -> None:
    """A node that is free now stays free until its next span; busy nodes are left out."""
    result = free_times(table, at)
    for name in NODES:
        later = [start for start, _ in table[name] if start > at]
        if is_free(table, name, at, at + 1):
            assert result[name] == (min(later) - at if later else None)
            assert first_gap(table[name], at, 1) == at
        else:
            assert name not in result
            assert first_gap(table[name], at, 1) == next(
                t for t in range(at, END) if is_free(table, name, t, t + 1)
            )


def posted(table: dict[str, list[tuple[int, int]]]) -> list[PostedRun]:
    """Return a run for every span."""
    return [
        PostedRun(f"{name}-{start}", "x", "all", [name], start, end)
        for name, some in table.items()
        for start, end in some
    ]


def policy(
    choice: BackfillChoice, depth: int, worth: RunWorth = RunWorth.SEATS
) -> PolicyComposition:
    """Return a backfill policy of one kind with ``depth`` slots."""
    order = BackfillOrder(choice, worth, depth=depth)
    return replace(COMPOSITIONS["maui-backfill"], order=order, fill=Protected(depth))


@settings(max_examples=30)
@given(requests, timetables, st.integers(0, 3), st.sampled_from(BackfillChoice))
def test_backfill_delays_no_slot_and_double_books_no_node(
    queue: list[PlacementRequest],
    table: dict[str, list[tuple[int, int]]],
    depth: int,
    choice: BackfillChoice,
) -> None:
    """No node ever has two runs at once, slots of blocked tasks included."""
    outcome = starting_now(queue, posted(table), 0, policy(choice, depth))
    for name in NODES:
        taken = [(it.start, it.end) for it in outcome.placed if name in it.nodes]
        taken += [(it.start, it.end) for it in outcome.reservations if name in it.nodes]
        assert all(b <= c for (_, b), (c, _) in pairwise(sorted([*table[name], *taken])))
    assert len(outcome.reservations) <= depth
    started = {run.task for run in outcome.placed}
    assert started.isdisjoint(task for it in outcome.reservations for task in it.tasks)


@settings(max_examples=30)
@given(requests, timetables)
def test_the_first_blocked_task_gets_the_earliest_slot(
    queue: list[PlacementRequest], table: dict[str, list[tuple[int, int]]]
) -> None:
    """Its slot depends only on the tasks before it in the list."""
    outcome = starting_now(queue, posted(table), 0, policy(BackfillChoice.FIRST, 1))
    for slot in outcome.reservations:
        [task] = slot.tasks
        ahead = queue[: int(task[1:]) + 1]
        alone = starting_now(ahead, posted(table), 0, policy(BackfillChoice.FIRST, 1))
        assert alone.reservations == [slot]


@settings(max_examples=30)
@given(requests, timetables)
def test_without_overtaking_a_blocked_task_stops_all_others(
    queue: list[PlacementRequest], table: dict[str, list[tuple[int, int]]]
) -> None:
    """The started tasks are a prefix of the list, and all later ones are refused with a reason."""
    strict = replace(COMPOSITIONS["maui-fifo"], fill=Protected(0, overtaking=False))
    outcome = starting_now(queue, posted(table), 0, strict)
    started = [run.task for run in outcome.placed]
    assert [it.task for it in queue][: len(started)] == started
    for request in queue[len(started) + 1 :]:
        assert "no-overtaking" in {refusal.rule.name for refusal in outcome.refused[request.task]}


@pytest.mark.parametrize(
    ("choice", "worth", "started"),
    [
        (BackfillChoice.FIRST, RunWorth.SEATS, ["e", "g", "f"]),
        (BackfillChoice.BEST, RunWorth.SEATS, ["d", "g"]),
        (BackfillChoice.BEST, RunWorth.TIME, ["g", "h", "f"]),
        (BackfillChoice.COMBINATION, RunWorth.SEAT_TIME, ["d", "g"]),
    ],
)
def test_an_episode_fills_as_its_set_chooses(
    choice: BackfillChoice, worth: RunWorth, started: list[str]
) -> None:
    """Once the blocked task has its slot, the runs chosen to backfill come first."""
    names = [f"n{at}" for at in range(8)]
    running = [PostedRun("r", "x", "all", names[:4], 0, 3600)]
    waiting = {"wide": (7, 7200), "e": (2, 1800), "d": (3, 3000), "g": (1, 3600)}
    waiting |= {"f": (1, 10_000), "h": (2, 3600)}
    queue = [PlacementRequest(task, k, length, names) for task, (k, length) in waiting.items()]
    outcome = starting_now(queue, running, 0, policy(choice, 1, worth))
    assert [run.task for run in outcome.placed] == started
    assert [(slot.tasks, slot.start) for slot in outcome.reservations] == [
        (frozenset({"wide"}), 3600)
    ]


@given(frees)
def test_windows_are_wider_the_shorter_they_are(free: dict[str, int | None]) -> None:
    """Each window has all nodes that are free for its length, and each length occurs once."""
    result = free_windows(free)
    for window in result:
        fits = {
            n
            for n, has in free.items()
            if has is None or (window.length is not None and has >= window.length)
        }
        assert set(window.nodes) == fits
    sizes = [len(window.nodes) for window in result]
    assert sizes == sorted(sizes, reverse=True)
    assert len({window.length for window in result}) == len(set(free.values()))


@given(
    requests, frees, st.sampled_from(BackfillChoice), st.sampled_from(RunWorth), st.integers(0, 3)
)
def test_backfilled_runs_fit(
    queue: list[PlacementRequest],
    free: dict[str, int | None],
    choice: BackfillChoice,
    worth: RunWorth,
    considered: int,
) -> None:
    """Each run has nodes of its own for its duration, and only the first are examined."""
    started = runs_to_start(queue, free, choice, worth, considered)
    taken = [name for nodes in started.values() for name in nodes]
    assert len(taken) == len(set(taken))
    for request in queue:
        for name in started.get(request.task, ()):
            has = free[name]
            assert has is None or has >= request.duration
    allowed = queue[:considered] if considered else queue
    assert started.keys() <= {it.task for it in allowed}


@given(requests, st.integers(1, 4), st.sampled_from([RunWorth.SEATS, RunWorth.SEAT_TIME]))
def test_a_combination_is_worth_the_most(
    queue: list[PlacementRequest], size: int, worth: RunWorth
) -> None:
    """No other set of runs that fit one window is worth more."""
    free = dict.fromkeys(NODES[:size], 10)

    def value(some: list[PlacementRequest]) -> int:
        return sum(it.k * (it.duration if worth is RunWorth.SEAT_TIME else 1) for it in some)

    chosen = runs_to_start(queue, free, BackfillChoice.COMBINATION, worth)
    fitting = [it for it in queue if it.duration <= 10]
    best = max(
        value(list(some))
        for count in range(len(fitting) + 1)
        for some in combinations(fitting, count)
        if sum(it.k for it in some) <= size
    )
    assert value([it for it in queue if it.task in chosen]) == best


# -- what an episode asks --------------------------------------------------------------------------

BLOCKED = Candidate("wide", "ops", 0, 10, NODES[:2], slip=20, k=2)
RUN = PostedRun("r", "t", "net", ["n1"], 0, 15)


def view(*runs: PostedRun, reservations: tuple[ReservationView, ...] = ()) -> View:
    """Return the view of a pool at instant 0."""
    return View(0, 1000, PoolView("p", NODES), {}, {}, [], runs, (), reservations)


def test_a_blocked_candidate_gets_a_slot() -> None:
    """The slot begins when all its nodes are free, and admits that task alone."""
    slot = find_slot(BLOCKED, view(RUN), timetables_by_class([RUN]), [])
    assert slot is not None
    assert (slot.start, slot.end, set(slot.nodes)) == (15, 25, {"n1", "n2"})
    other = replace(BLOCKED, task="other")
    assert find_overlap_refusal(BLOCKED, ["n2"], (10, 20), [slot]) is None
    assert find_overlap_refusal(other, ["n2"], (0, 15), [slot]) is None
    assert find_overlap_refusal(other, ["n3"], (0, 99), [slot]) is None
    refusal = find_overlap_refusal(other, ["n3", "n2"], (0, 16), [slot])
    assert refusal is not None
    epoch = "1970-01-01T00:00:00Z"
    instants = dict.fromkeys(("start", "free", "end"), epoch)
    assert dict(refusal.figures) == {"node": "n2", "holder": "wide", **instants}


def test_a_slot_that_would_be_too_late_is_not_reserved() -> None:
    """No slot is reserved for a run that could not start any more by then."""
    assert find_slot(replace(BLOCKED, slip=14), view(RUN), timetables_by_class([RUN]), []) is None
    assert find_slot(replace(BLOCKED, k=3), view(RUN), timetables_by_class([RUN]), []) is None


def test_slots_and_reservations_block_others() -> None:
    """A second slot follows the first, and a reservation blocks only runs it does not admit."""
    first = find_slot(BLOCKED, view(RUN), timetables_by_class([RUN]), [])
    assert first is not None
    second = find_slot(
        replace(BLOCKED, task="second", slip=99), view(RUN), timetables_by_class([RUN]), [first]
    )
    assert second is not None
    assert second.start == 25
    kept = ReservationView("demo", ["n2"], 10, 90, campaigns=frozenset({"ops"}))
    slot = find_slot(BLOCKED, view(RUN, reservations=(kept,)), timetables_by_class([RUN]), [])
    assert slot is not None
    assert slot.start == 15
    stranger = replace(BLOCKED, campaign="net")
    assert (
        find_slot(stranger, view(RUN, reservations=(kept,)), timetables_by_class([RUN]), []) is None
    )


@pytest.mark.parametrize(
    ("asking", "present", "busy"),
    [
        ("normal", "normal", False),
        ("normal", "exclusive", True),
        ("exclusive", "background", False),
    ],
)
def test_only_conflicting_classes_block(asking: str, present: str, *, busy: bool) -> None:
    """A candidate's timetable contains only runs that its class must not overlap."""
    run = replace(RUN, scheduling_class=SchedulingClass(present))
    candidate = replace(BLOCKED, scheduling_class=SchedulingClass(asking))
    expected = {"n1": [(0, 15)] if busy else [], "n2": []}
    result = timetable_for(candidate, timetables_by_class([run]), [])
    assert {name: list(some) for name, some in result.items()} == expected
