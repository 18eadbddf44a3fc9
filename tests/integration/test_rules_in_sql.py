"""Rules that exist in Python and in SQL give the same results on a real server."""

from __future__ import annotations

import random
from typing import Any
from uuid import UUID

import pytest

from lead.store import planning
from node.model import times
from node.model.classes import SchedulingClass
from node.model.ranks import OWN, PEER
from node.model.reservations import Applicant, access_of, admits
from node.model.timeline import Booking, TimelineQuestion, answer_question
from node.runtime.settings import Settings
from tests.support.booking import HOUR, BookingLead
from tests.support.clocks import START
from tests.support.limits import RANKED_ALIKE, set_limits
from tests.support.sql_rules import AgendaTask, displaced_bookings, select
from tests.support.worlds import (
    ON_ONE_LOOP,
    World,
    exchange_of,
    hold_request,
    introduction,
    release_of,
)

pytestmark = ON_ONE_LOOP

SEEDS = [0, 1, *(pytest.param(it, marks=pytest.mark.nightly) for it in range(2, 6))]
TASKS = 40
STEP = times.MINUTE
MARGIN = 5 * STEP
LENGTH = 4 * STEP


def _some(rng: random.Random, *values: int | None) -> int | None:
    """Return one of a few instants, so that ties and borders are common."""
    return rng.choice(values)


async def _agenda(world: World, rng: random.Random) -> list[AgendaTask]:
    """Insert tasks of a lead in all states of planning, and return them."""
    [site] = world.sites
    candidates = []
    for _ in range(TASKS):
        added = START - rng.randrange(10**9)
        task = introduction([site]).model_copy(update={"created_at": added})
        await site.keep(task, site)
        agenda_task = AgendaTask(
            task=str(task.task),
            next_run_at=_some(rng, None, START, START + 1, START + 2),
            plan_at=_some(rng, None, START - 1, START, START, START + 1),
            leased_until=_some(rng, None, None, START, START + 1),
            added_at=added,
        )
        await site.execute(
            "UPDATE planning SET next_run_at = $2, plan_at = $3, lease_until = $4 "
            "WHERE task_id = $1",
            task.task,
            agenda_task.next_run_at,
            agenda_task.plan_at,
            agenda_task.leased_until,
        )
        candidates.append(agenda_task)
    return candidates


@pytest.mark.parametrize("seed", SEEDS)
async def test_the_query_claims_what_the_rule_selects(world: World, seed: int) -> None:
    """The query claims the tasks that the rule selects, in the same order."""
    rng = random.Random(seed)
    site = await world.site("a")
    candidates = await _agenda(world, rng)
    idle = rng.choice([1, 3, TASKS])
    expected = [agenda_task.task for agenda_task in select(candidates, START, START + 2, idle)]
    async with site.database.transaction() as connection:
        claims = await planning.claim(
            connection, planning.LeaseRequest("w", START, START + 1), START + 2, idle
        )
    assert [str(claim.task) for claim in claims] == expected
    assert expected


async def _booked(booker: BookingLead, rng: random.Random) -> list[Booking]:
    """Book runs of all classes and priorities where there is time, some of them running."""
    booked = []
    for _ in range(TASKS):
        kind = rng.choice(list(SchedulingClass))
        task = await booker.task(rng.randrange(-2, 3), kind, rng.randrange(1, 5) * STEP)
        start = HOUR + rng.randrange(60) * STEP
        request = hold_request(task, [start], epoch=rng.getrandbits(128) >> 96)
        if not (await booker.hold(request)).held:
            continue
        [run] = request.runs
        rank = rng.choice((OWN, PEER))
        await booker.site.execute("UPDATE run SET rank = $2 WHERE id = $1", run.run, rank)
        running = rng.random() < 0.2
        if running:
            await booker.site.execute("UPDATE run SET state = 'running' WHERE id = $1", run.run)
        fixed = running or run.starts_at < HOUR + MARGIN
        booked.append(
            Booking(
                run.run,
                task.task,
                "idle",
                kind,
                task.priority,
                run.starts_at,
                run.ends_at,
                fixed,
                rank=rank,
            )
        )
    return booked


CRITERIA: dict[str, list[Any]] = {
    "campaigns": [[], ["ops"], ["default", "lab"]],
    "tasks": [
        [],
        [str(UUID(int=1))],
        [str(UUID(int=2)), str(UUID(int=3))],
        [f"{UUID(int=number)}@ed25519:a" for number in (1, 3)],
    ],
    "leads": [[], ["ed25519:a"], ["ed25519:b", "ed25519:c"]],
    "tests": [[], ["idle"], ["rtt", "latency"]],
    "classes": [[], ["exclusive"], ["background", "background-multi"]],
    "priority": [None, 2, -1],
}
_ADMITS = "SELECT admits($1, $2, $3, $4, $5, $6, $7::text::scheduling_class, $8, $9)"


@pytest.mark.parametrize("seed", SEEDS)
async def test_a_reservation_admits_whom_the_rule_admits(world: World, seed: int) -> None:
    """The database admits applicants as the rule does, by single and combined criteria."""
    rng, site = random.Random(seed), await world.site("a")
    outcomes = []
    for _ in range(300):
        access = {
            name: rng.choice(values) if rng.random() < 0.3 else values[0]
            for name, values in CRITERIA.items()
            if rng.random() < 0.8
        }
        applicant = Applicant(
            task=UUID(int=rng.randrange(1, 5)),
            lead=rng.choice(("ed25519:a", "ed25519:b", "ed25519:x")),
            own=rng.random() < 0.5,
            campaign=rng.choice((None, "ops", "lab", "else")),
            test=rng.choice(("idle", "rtt", "throughput")),
            scheduling_class=rng.choice(list(SchedulingClass)),
            priority=rng.randrange(-3, 4),
            pool_task=rng.choice((None, UUID(int=3), UUID(int=5))),
        )
        [row] = await site.rows(_ADMITS, access, *vars(applicant).values())
        assert row[0] is admits(access_of(access), applicant), (access, applicant)
        outcomes.append(row[0])
    assert 50 < sum(outcomes) < 250


@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.nightly
async def test_a_hold_sets_aside_what_the_rule_says(
    booker: BookingLead, seed: int, *, named: bool
) -> None:
    """A hold sets aside exactly the runs that the rule names."""
    rng = random.Random(seed)
    booked = await _booked(booker, rng)
    yielding = tuple(booking.run for booking in booked if rng.random() < 0.7) if named else None
    kind = rng.choice(list(SchedulingClass)[:2])
    rank = rng.choice((OWN, PEER))
    task = await booker.task(1, kind, LENGTH)
    if rank == OWN:
        set_limits(booker.site.node, RANKED_ALIKE)
    booker.world.clock.move_to(HOUR + MARGIN - Settings().start_margin)
    outcomes = set()
    for minute in range(MARGIN // STEP, 50, 3):
        start = HOUR + minute * STEP
        window = (start, start + LENGTH)
        yielding_set = None if yielding is None else frozenset(yielding)
        question = TimelineQuestion(
            [window], kind, LENGTH, 1, *window, yielding=yielding_set, rank=rank
        )
        possible = answer_question(question, booked).free_displacing == [window]
        expected = (
            {booking.run for booking in displaced_bookings(question, start, booked)}
            if possible
            else set()
        )
        request = hold_request(task, [start], epoch=minute, displacing=True)
        exchange = exchange_of(request)
        request = request.model_copy(update={"yielding": yielding})
        answer = await booker.hold(request, exchange)
        states = await booker.site.states()
        assert bool(answer.held) is possible
        assert {run for run, state in states.items() if state == "set-aside"} == expected
        assert answer.set_aside == len(expected) or not possible
        outcomes.add((possible, bool(expected)))
        await booker.site.node.time_line.release(exchange_of(request), release_of(request))
    assert rank == OWN or (False, False) in outcomes
    assert named or (True, True) in outcomes
