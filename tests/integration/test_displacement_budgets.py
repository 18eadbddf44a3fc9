"""Budgets of displacements: of so many runs of a series in a row, only a few give way."""

from __future__ import annotations

from uuid import UUID

import pytest

from node.model import times
from node.model.classes import SchedulingClass
from node.model.wire.participants import Introduction, Obstacle
from node.model.wire.tasks import Schedule
from tests.support.booking import HOUR, BookingLead
from tests.support.worlds import (
    DURATION,
    ON_ONE_LOOP,
    commit_request,
    exchange_of,
    hold_request,
    introduction,
    release_of,
    run_request,
)

pytestmark = ON_ONE_LOOP

STEP = 2 * DURATION
SLOTS = 30


async def _series(booker: BookingLead, budget: str) -> tuple[Introduction, list[UUID]]:
    """Book runs of a series with this budget on b, and return their ids."""
    schedule = Schedule(start=HOUR, repeat=STEP, slip=DURATION, displacement_budget=budget)
    task = introduction([booker.lead, booker.site], schedule=schedule)
    await booker.lead.keep(task, booker.lead)
    await booker.site.keep(task, booker.lead)
    request = await booker.book(task, *(HOUR + number * STEP for number in range(SLOTS)))
    return task, [run.run for run in request.runs]


async def _displace(booker: BookingLead, *numbers: int) -> int:
    """Book a run of higher priority in the time of these; return how many gave way."""
    task = await booker.task(5)
    request = hold_request(task, [HOUR + it * STEP for it in numbers], displacing=True)
    exchange = exchange_of(request)
    answer = await booker.hold(request, exchange)
    held = tuple(run for run in request.runs if run.run in answer.held)
    if held:
        kept = request.model_copy(update={"runs": held})
        await booker.site.node.time_line.commit(exchange, commit_request(kept))
    return answer.set_aside


async def _offered(booker: BookingLead) -> list[int]:
    """Return the numbers of the slots that b offers to a higher priority."""
    end = HOUR + SLOTS * STEP
    free = await booker.displacing((HOUR, end), priority=5)
    starts = (HOUR + number * STEP for number in range(SLOTS))
    return [
        number
        for number, at in enumerate(starts)
        if any(start <= at and at + DURATION <= stop for start, stop in free)
    ]


@pytest.mark.parametrize(
    ("budget", "lost", "left"),
    [
        ("1/20", [0], range(20, SLOTS)),
        ("1/20", [10], []),
        ("1/3", [10], [*range(8), *range(13, SLOTS)]),
        ("2/5", [10, 12], [*range(8), *range(15, SLOTS)]),
        ("2/5", [10, 15], [it for it in range(SLOTS) if it not in {10, 15}]),
    ],
)
async def test_no_more_give_way_than_the_budget_says(
    booker: BookingLead, budget: str, lost: list[int], left: list[int]
) -> None:
    """A run that may give way is offered, and set aside; one that is spared is neither."""
    await _series(booker, budget)
    for number in lost:
        assert await _displace(booker, number) == 1
    spared = sorted({*range(SLOTS)} - {*lost} - {*left})
    assert [it for it in await _offered(booker) if it not in lost] == [*left]
    if spared:
        assert await _displace(booker, spared[-1]) == 0
    if left:
        assert await _displace(booker, [*left][-1]) == 1


async def test_one_hold_takes_no_two_of_a_series(booker: BookingLead) -> None:
    """A hold of several runs, or of a long one, counts what it takes itself."""
    _, runs = await _series(booker, "1/20")
    assert await _displace(booker, 3, 5, 29) == 1
    states = [await booker.site.state(run) for run in runs]
    assert states.count("displaced") == 1
    long = await booker.task(5, duration=STEP + DURATION)
    request = hold_request(long, [HOUR + 25 * STEP], displacing=True)
    assert (await booker.hold(request)).held == ()
    assert [await booker.site.state(run) for run in runs] == states


async def test_what_came_back_is_not_lost(booker: BookingLead) -> None:
    """A hold that ends without a commit leaves the budget as it was."""
    await _series(booker, "1/20")
    task = await booker.task(5)
    request = hold_request(task, [HOUR + 3 * STEP], displacing=True)
    assert (await booker.hold(request)).set_aside == 1
    assert await _offered(booker) == list(range(23, SLOTS))
    await booker.site.node.time_line.release(exchange_of(request), release_of(task))
    assert await _offered(booker) == [*range(SLOTS)]


async def test_what_is_placed_again_is_not_lost(booker: BookingLead) -> None:
    """A run that is booked again within its slip leaves the budget as it was."""
    task, _ = await _series(booker, "1/20")
    assert await _displace(booker, 3) == 1
    slot = HOUR + 3 * STEP
    again = hold_request(task, [slot], epoch=2)
    [first] = again.runs
    moved = {"starts_at": first.starts_at + DURATION, "ends_at": first.ends_at + DURATION}
    run = run_request(task.task, slot, slot + DURATION, attempt=2).model_copy(update=moved)
    answer = await booker.hold(again.model_copy(update={"runs": (run,)}))
    assert answer.held == (run.run,)
    assert [it for it in await _offered(booker) if it != 3] == [
        it for it in range(SLOTS) if it != 3
    ]


async def test_the_reason_says_that_a_series_may_lose_no_more(booker: BookingLead) -> None:
    """A lead without time is told why a run of lower priority stays."""
    await _series(booker, "1/20")
    assert await _displace(booker, 3) == 1
    asked = await booker.task(5)
    window = HOUR + 4 * STEP, HOUR + 4 * STEP + DURATION
    proposal = await booker.ask(asked, window)
    [obstacle] = proposal.obstacles
    assert isinstance(obstacle, Obstacle)
    assert obstacle.spared
    assert "priority 0" in obstacle.why()
    assert obstacle.why().endswith("; its task may lose no further run (displacement_budget)")


async def test_the_owner_of_the_host_comes_first(booker: BookingLead) -> None:
    """A run of the host's own tasks takes what it needs: no budget of another node binds it."""
    _, runs = await _series(booker, "1/20")
    own = introduction([booker.site])
    await booker.site.keep(own, booker.site)
    request = hold_request(own, [HOUR + it * STEP for it in (3, 4, 5)], displacing=True)
    answer = await booker.site.node.time_line.hold(
        exchange_of(request), booker.site.identity, request
    )
    assert answer.set_aside == 3
    assert [await booker.site.state(run) for run in runs[3:6]] == ["set-aside"] * 3


async def test_a_series_without_a_budget_loses_all(booker: BookingLead) -> None:
    """Nothing is spared of tasks that ask for nothing, nor read for them."""
    task = await booker.task(0, SchedulingClass.EXCLUSIVE)
    await booker.book(task, *(HOUR + number * STEP for number in range(5)))
    assert await _displace(booker, 0, 1, 2) == 3
    assert await booker.site.rows("SELECT 1 FROM run WHERE spared") == []


async def test_the_time_of_spared_runs_is_theirs_as_the_highest_priority(
    booker: BookingLead,
) -> None:
    """Spared runs of a series that b leads count as the highest priority there is."""
    schedule = Schedule(start=HOUR, repeat=STEP, displacement_budget="1/2")
    own = introduction([booker.site], schedule=schedule)
    await booker.site.keep(own, booker.site)
    request = hold_request(own, [HOUR, HOUR + STEP])
    await booker.site.node.time_line.hold(exchange_of(request), booker.site.identity, request)
    await booker.site.node.time_line.commit(exchange_of(request), commit_request(request))
    high = introduction([booker.site], priority=times.DAY // times.SECOND)
    await booker.site.keep(high, booker.site)
    taking = hold_request(high, [HOUR, HOUR + STEP], displacing=True)
    answer = await booker.site.node.time_line.hold(
        exchange_of(taking), booker.site.identity, taking
    )
    assert answer.set_aside == 1
