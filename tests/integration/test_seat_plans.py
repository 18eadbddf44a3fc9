"""Plans of pool tasks: which nodes would get the seats, without storing anything."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from lead.assembly.with_node import pool_task_preview
from node.cli.plans import plan_view
from node.model import times
from node.model.errors import InvalidDocument
from node.model.wire.campaigns import CampaignDocument
from node.model.wire.plans import Outcome, Plan, PlanRequest
from node.model.wire.tasks import TaskDocument
from tests.support.clocks import START
from tests.support.limits import limit
from tests.support.pool_worlds import Pooled, idle, pooled
from tests.support.previews import task_previewer
from tests.support.reservations import WORDS, reserve
from tests.support.worlds import ON_ONE_LOOP, World

pytestmark = ON_ONE_LOOP

FEW = """
version = 1

[who.all]
others = true

[[rule]]
name = "few"
who = ["all"]
most.runs = "2/PT2H"
"""
ALIKE: Sequence[Mapping[str, Any]] = [{}, {}, {}]
ONCE = {"start": "2026-12-01T01:00:00Z", "max_runs": 2}
TABLES = (
    "task",
    "planning",
    "pool_task",
    "term",
    "seat",
    "run",
    "decision",
    "policy_state",
    "outbox",
)


async def preview(pool: Pooled, document: TaskDocument, **options: Any) -> Plan:
    """Return the plan of this task at the lead of the pool."""
    site = pool.lead

    previewer = pool_task_preview(site.node, site._participant, task_previewer(pool.world, site))
    body = document.model_dump(mode="json", exclude_unset=True)
    return await previewer.plan(PlanRequest.model_validate(body | options))


async def row_counts(pool: Pooled) -> list[tuple[str, int]]:
    """Return the number of rows of each table on each node."""
    return [
        (f"{site.name} {table}", (await site.rows(f"SELECT count(*) FROM {table}"))[0][0])
        for site in (pool.lead, *pool.nodes)
        for table in TABLES
    ]


@pytest.mark.nightly
async def test_who_would_be_chosen_then_is(world: World) -> None:
    """A plan names the seats of all terms within the horizon, and the first runs, as then given."""
    pool = await pooled(world, ALIKE)
    rows_before = await row_counts(pool)
    plan = await preview(pool, idle(2))
    assert await row_counts(pool) == rows_before, "a plan stores nothing on any node"
    assert (plan.outcome, plan.asked, plan.placed) == (Outcome.FOUND, 12, 12)
    assert plan.sentence.startswith("2 of 2 seats, 2026-12-01T00:00:")
    assert plan.sentence.endswith("; of 2 terms more 4 of 4 seats")
    task = await pool.create(2)
    seats = await pool.seats(task)
    planned_seats: dict[int, dict[int, str | None]] = {}
    for seat in plan.seats:
        planned_seats.setdefault((seat.term - START) // times.HOUR, {})[seat.number] = seat.node
    assert planned_seats == seats
    rows = await pool.lead.rows(
        "SELECT starts_at FROM run_known INNER JOIN task ON task_id = task.id "
        "WHERE parent = $1 ORDER BY starts_at LIMIT 10",
        task,
    )
    assert [start.starts_at for start in plan.starts] == [row[0] for row in rows]
    assert {start.nodes for start in plan.starts} == {(seats[0][1],), (seats[0][2],)}


async def test_what_else_waits_is_among_the_candidates(world: World) -> None:
    """Another waiting task of the pool comes before the planned one on a single free node."""
    pool = await pooled(world, [{}])
    slot = {"start": "2026-12-01T01:00:00Z", "max_runs": 1, "slip": "PT0S"}
    await pool.create(1, seat=False, schedule=slot, length="PT50M")
    await pool.episodes._open_terms()
    plan = await preview(pool, idle(1, schedule=slot, length="PT50M"))
    assert (plan.outcome, plan.placed) == (Outcome.NO_TIME, 0)
    assert [(seat.node, seat.asked) for seat in plan.seats] == [(None, None)]
    assert plan.sentence.startswith("0 of 1 seat, 2026-12-01T01:00:00Z")
    assert plan.no_alternatives[0].reason.startswith("no alternatives are searched for pool tasks")


async def test_a_node_that_all_have_is_not_counted_twice(world: World) -> None:
    """Exclusive runs to one host follow each other, and what does not fit would wait."""
    pool = await pooled(world, ALIKE[:2])
    document = TaskDocument.model_validate(
        {
            "test": {"type": "throughput", "spec": {"dest": "lead", "duration": "PT10S"}},
            "participants": {"pool": "europe", "k": 2},
            "schedule": {"start": "2026-12-01T01:00:00Z", "max_runs": 1, "slip": "PT2M"},
        }
    )
    plan = await preview(pool, document)
    assert (plan.outcome, plan.placed) == (Outcome.FOUND, 2)
    first, second = plan.starts
    assert second.starts_at >= first.ends_at
    assert sorted(participant.name for participant in plan.participants) == ["lead", "n1", "n2"]
    assert {full.name: full.added_s for full in plan.occupancy}["lead"] == 2 * (
        (first.ends_at - first.starts_at) / times.SECOND
    )


async def test_reserved_time_and_policies_have_their_say(world: World) -> None:
    """A plan respects reservations of the pool and suspended campaigns."""
    pool = await pooled(world, ALIKE)
    reservation = await reserve(pool.lead, pool="europe")
    plan = await preview(pool, idle(2, schedule=ONCE))
    assert (plan.outcome, plan.asked, plan.placed) == (Outcome.PARTLY, 4, 2)
    reason = (
        f"pool europe: no 1 min free: {WORDS} 2026-12-01T01:30:00Z, reservation {reservation.id}"
    )
    assert (reason in plan.sentence, {lost.reason for lost in plan.unplaced}) == (True, {reason})
    document = CampaignDocument.model_validate({"name": "idle", "level": 0})
    await pool.lead.node.campaigns.create(document)
    none = await preview(pool, idle(2, schedule=ONCE, campaign="idle"))
    assert (none.outcome, "suspended" in none.sentence) == (Outcome.NO_TIME, True)


async def test_what_is_silent_is_not_chosen(world: World) -> None:
    """A silent node is not chosen, and the plan names the reason."""
    pool = await pooled(world, ALIKE)
    world.cut.add(frozenset(("lead", "n1")))
    plan = await preview(pool, idle(2, schedule=ONCE))
    assert plan.outcome is Outcome.FOUND
    assert sorted(str(seat.node) for seat in plan.seats) == ["n2", "n3"]
    [silent] = [participant for participant in plan.participants if participant.name == "n1"]
    assert (silent.answer, bool(silent.reason)) == ("not-chosen", True)


async def test_what_is_beyond_the_horizon_and_what_is_refused(world: World) -> None:
    """A term beyond the horizon is reported with its instant; an invalid field is refused."""
    pool = await pooled(world, ALIKE)
    plan = await preview(pool, idle(2, schedule={"start": "2026-12-05T00:00:00Z", "max_runs": 1}))
    assert (plan.outcome, plan.seats) == (Outcome.LATER, ())
    assert plan.sentence == ("not known yet: its nodes are chosen from 2026-12-04T02:00:00Z on")
    with pytest.raises(InvalidDocument, match="is more than pool europe has: 3 nodes"):
        await preview(pool, idle(4))


async def test_what_is_over_before_nodes_can_be_chosen(world: World) -> None:
    """A slot that is over before nodes can be chosen gets no seats, with the reason."""
    pool = await pooled(world, ALIKE)
    start = times.format_instant(pool.lead.clock.now() + times.SECOND)
    soon = {"start": start, "max_runs": 1, "slip": "PT0S"}
    plan = await preview(pool, idle(1, schedule=soon))
    assert (plan.outcome, plan.asked) == (Outcome.NO_TIME, 0)
    assert plan.sentence.startswith("its time is over before nodes could be chosen")
    assert [(seat.node, seat.reason) for seat in plan.seats] == [(None, plan.sentence)]


async def test_a_person_reads_who_would_measure(world: World) -> None:
    """The view for people lists seats with nodes, the next starts, and a line per later term."""
    pool = await pooled(world, ALIKE)
    plan = await preview(pool, idle(2), runs=1)
    text = plan_view(plan.model_dump(mode="json"), {})
    lines = [" ".join(line.split()) for line in text.splitlines()]
    assert lines[0].startswith("idle: 2 of 2 seats")
    nodes = {seat.number: seat.node for seat in plan.seats}
    assert {f"{it} {nodes[it]} time for 6 of 6" for it in (1, 2)} <= set(lines)
    assert sum(f"2 of 2: {nodes[1]}, {nodes[2]}" in line for line in lines) == 2


@pytest.mark.parametrize("together", [False, True])
@pytest.mark.nightly
async def test_quotas_of_the_chosen_nodes_leave_what_is_planned(
    world: World, *, together: bool
) -> None:
    """A plan of seats counts their runs toward the quotas of the nodes, as booking them does."""
    pool = await pooled(world, ALIKE)
    for node in pool.nodes[:2]:
        await limit(node.node, FEW)
    schedule = {"start": "2026-12-01T01:00:00Z", "repeat": "PT30M", "max_runs": 8}
    request = {"together": True} if together else {}
    options: dict[str, Any] = {"request": request, "schedule": schedule}
    plan = await preview(pool, idle(2, **options), runs=100)
    task = await pool.create(2, **options)
    await pool.lead.plan()
    rows = await pool.lead.rows(
        "SELECT slot, starts_at, run.state::text, run.reason FROM run INNER JOIN task "
        "ON task_id = task.id WHERE parent = $1 AND slot < $2 ORDER BY slot, task.id",
        task,
        plan.seats[0].until,
    )
    booked = sorted(row[1] for row in rows if row[2] == "booked")
    waiting = sorted((row[0], row[3]) for row in rows if row[2] == "waiting")
    assert booked == sorted(start.starts_at for start in plan.starts)
    assert waiting == sorted((each.slot, each.reason) for each in plan.unplaced)
    assert waiting
    assert "limit 'few': 2 runs of 2 runs per 2 h used" in waiting[0][1]


@pytest.mark.parametrize("together", [False, True])
@pytest.mark.nightly
async def test_seats_go_to_nodes_whose_quotas_leave_room(world: World, *, together: bool) -> None:
    """A node whose quota is used up, or was given to another seat, gets none; the plan says so."""
    pool = await pooled(world, ALIKE)
    for node in pool.nodes[:2]:
        await limit(node.node, FEW)
    schedule = {"start": "2026-12-01T01:00:00Z", "repeat": "PT10M", "max_runs": 2}
    options: dict[str, Any] = {"request": {"together": together}, "schedule": schedule}
    first = await pool.create(3, **options)
    await pool.lead.plan()
    assert await pool.states(pool.lead, first) == {"scheduled": 2 if together else 6}
    later = {**schedule, "start": "2026-12-01T01:05:00Z"}
    one: dict[str, Any] = {"request": {}, "schedule": later}
    plan = await preview(pool, idle(1, **one))
    [seat] = plan.seats
    assert (seat.node, plan.placed) == ("n3", 2)
    second = await pool.create(1, **one)
    assert await pool.seats(second) == {1: {1: "n3"}}
    third = await pool.create(2, request={}, schedule={**later, "start": "2026-12-01T01:07:00Z"})
    assert await pool.seats(third) == {1: {1: "n3"}}
    why = dict(await pool.told(third))
    assert any("limit 'few': 2 runs of 2 runs per 2 h used" in each for each in why.values()), why


async def test_a_plan_of_urgent_seats_says_when_others_give_way(world: World) -> None:
    """Runs of a seat that displace others once the task has waited are planned as such."""
    pool = await pooled(world, ALIKE[:1])
    urgent = {"name": "outage", "level": "urgent"}
    await pool.lead.node.campaigns.create(CampaignDocument.model_validate(urgent))
    schedule = {"start": "2026-12-01T01:00:00Z", "repeat": "PT10M", "max_runs": 2, "slip": "PT0S"}
    await pool.create(1, schedule={**schedule, "max_runs": 1}, priority=3)
    plan = await preview(pool, idle(1, schedule=schedule, campaign="outage"))
    assert (plan.outcome, plan.placed) == (Outcome.FOUND, 2)
    assert "once it has waited" in plan.sentence


async def test_time_that_is_kept_for_a_blocked_task_is_kept_in_a_plan(world: World) -> None:
    """A task for which policies keep time counts in a plan, though it is tried again later."""
    pool = await pooled(world, ALIKE[:2])
    await limit(pool.nodes[0].node, FEW)
    often = {"start": "2026-12-01T01:30:00Z", "repeat": "PT10M", "max_runs": 2}
    await pool.create(2, request={"together": True}, schedule=often)
    slot: dict[str, Any] = {"start": "2026-12-01T01:00:00Z", "max_runs": 1, "slip": "PT0S"}
    blocked = await pool.create(2, request={"together": True}, schedule=slot, length="PT2M")
    assert await pool.seats(blocked) == {}
    plan = await preview(pool, idle(1, schedule=slot))
    task = await pool.create(1, schedule=slot)
    assert await pool.seats(task) == {}
    assert (plan.outcome, plan.seats[0].node) == (Outcome.NO_TIME, None)
    assert f"n2 is reserved for task {blocked}" in plan.sentence


async def test_a_quota_is_given_to_one_of_two_tasks_of_an_episode(world: World) -> None:
    """The runs of a seat that is given count for the next one, before they are booked."""
    pool = await pooled(world, ALIKE[:1])
    await limit(pool.nodes[0].node, FEW)
    schedule = {"start": "2026-12-01T01:00:00Z", "repeat": "PT10M", "max_runs": 2}
    tasks = [
        await pool.create(1, schedule=schedule, seat=False),
        await pool.create(1, schedule={**schedule, "start": "2026-12-01T01:05:00Z"}, seat=False),
    ]
    await pool.seat()
    assert sorted([len(await pool.seats(task)) for task in tasks]) == [0, 1]
