"""Limits of campaigns bind tasks whose participants are named, at each instant."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from node.model import times
from node.model.wire.campaigns import CampaignDocument, CampaignPatch
from node.model.wire.tasks import TaskDocument
from tests.support import previews
from tests.support.clocks import START
from tests.support.pool_worlds import pooled
from tests.support.worlds import ON_ONE_LOOP, Site, World

pytestmark = ON_ONE_LOOP

AT = START + times.HOUR
MINUTES = 10


def document(
    *names: str, campaign: str = "ops", slip: str = "PT0S", **changes: Any
) -> dict[str, Any]:
    """Return a task of one run of ten minutes at ``AT``, which leaves room for other runs."""
    return {
        "test": {
            "type": "idle",
            "spec": {
                "duration": f"PT{MINUTES}M",
                "class": "background-multi",
                "participants": list(names),
            },
        },
        "schedule": {"start": times.format_instant(AT), "slip": slip},
        "campaign": campaign,
    }


async def _campaign(site: Site, name: str = "ops", **settings: Any) -> None:
    settings.setdefault("limits", {})
    created = CampaignDocument.model_validate({"name": name, **settings})
    await site.node.campaigns.create(created)


async def _create(site: Site, task: dict[str, Any]) -> UUID:
    created, _ = await site.node.admission.create(TaskDocument.model_validate(task), None)
    return created


async def _starts(site: Site) -> list[int]:
    """Return the minutes after ``AT`` at which the booked runs start."""
    rows = await site.rows("SELECT starts_at FROM run WHERE state = 'booked' ORDER BY 1")
    return [(row[0] - AT) // times.MINUTE for row in rows]


async def _waiting(site: Site) -> list[str]:
    rows = await site.rows("SELECT reason FROM run WHERE state = 'waiting' ORDER BY slot, 1")
    return [row[0] for row in rows]


async def test_a_second_named_run_waits_while_the_campaign_has_all_its_runs(world: World) -> None:
    """A campaign of one run at once has one, on whatever nodes; the reason names the limit."""
    a, _ = await world.two()
    await _campaign(a, limits={"runs": {"soft": 1, "hard": 1}})
    for name in ("a", "b"):
        await _create(a, document(name))
        await a.plan()
        await world.settle()
    assert await _starts(a) == [0]
    until = times.to_the_second(AT + MINUTES * times.MINUTE)
    [reason] = await _waiting(a)
    assert reason == (
        f"campaign ops: ops would have 2 runs at once, of at most 1 (hard), until {until}"
    )


async def test_a_run_that_may_slip_starts_when_there_is_room(world: World) -> None:
    """A run slips behind those that fill the limit, as behind a busy participant."""
    a, _ = await world.two()
    await _campaign(a, limits={"runs": {"hard": 1}})
    for name in ("a", "b"):
        await _create(a, document(name, slip="PT30M"))
        await a.plan()
        await world.settle()
    assert await _starts(a) == [0, MINUTES]


async def test_tasks_planned_at_the_same_time_do_not_both_take_the_last_place(
    world: World,
) -> None:
    """Runs are counted again when they are decided, one decision after the other."""
    a, b = await world.two()
    await _campaign(a, limits={"runs": {"hard": 2}})
    for name in ("a", "b", "a", "b", "a"):
        await _create(a, document(name))
    await a.plan()
    await world.settle()
    assert await _starts(a) == [0, 0]
    assert len(await _waiting(a)) == 3
    assert all("of at most 2 (hard)" in reason for reason in await _waiting(a))
    held = await b.rows("SELECT count(*) FROM run WHERE state = 'booked'")
    assert held[0][0] <= 2


@pytest.mark.parametrize(
    ("limit", "runs"),
    [
        ({"limits": {"nodes": {"hard": 3}}}, [0]),
        ({"limits": {"nodes": {"hard": 4}}}, [0, 0]),
        ({"limits": {"seconds": {"hard": 1200}}}, [0, 0]),
        ({"limits": {"seconds": {"hard": 1199}}}, [0]),
        ({"limits": {"seat_seconds": {"hard": 2399}}}, [0]),
        ({"limits": {"runs": {"hard": 0}}}, []),
        ({"seats_max": 1}, [0, 0]),
    ],
)
@pytest.mark.mostly_nightly
async def test_each_limit_binds(world: World, limit: dict[str, Any], runs: list[int]) -> None:
    """Nodes, outstanding time, and seats bind named runs; a background run takes no seat."""
    a, _ = await world.two()
    await _campaign(a, **limit)
    for _ in range(2):
        await _create(a, document("a", "b"))
        await a.plan()
        await world.settle()
    assert await _starts(a) == runs


async def test_a_maximum_of_seats_binds_exclusive_runs(world: World) -> None:
    """An exclusive run takes a seat on each of its nodes."""
    a, _ = await world.two()
    await _campaign(a, seats_max=1)
    for name in ("a", "b"):
        task = document(name, slip="PT30M")
        task["test"]["spec"]["class"] = "exclusive"
        await _create(a, task)
        await a.plan()
        await world.settle()
    assert await _starts(a) == [0, MINUTES]


async def test_a_cap_on_deliveries_binds_what_is_booked_and_what_was_delivered(
    world: World,
) -> None:
    """A cap counts deliveries of the last days and bookings; only the rest may be booked."""
    a = await world.site("a")
    cap = {"hard": 1500}  # seconds: two runs of ten minutes, and half of a third one
    await _campaign(a, limits={"delivered_seat_seconds": cap})
    task = document("a")
    task["test"]["spec"]["class"] = "exclusive"
    for number in range(2):
        start = AT + 2 * number * MINUTES * times.MINUTE
        task["schedule"]["start"] = times.format_instant(start)
        await _create(a, task)
        await a.plan()
        await world.settle()
    assert await _starts(a) == [0, 2 * MINUTES]
    await a.execute("UPDATE run SET state = 'finished', finished_at = ends_at")
    world.clock.move_to(AT + times.HOUR)
    task["schedule"]["start"] = times.format_instant(AT + 2 * times.HOUR)
    await _create(a, task)
    await a.plan()
    [reason] = await _waiting(a)
    assert reason.startswith("campaign ops: ops would have been delivered 30 min of seat time; ")


async def test_a_quota_of_seat_time_binds_a_repeating_named_task(world: World) -> None:
    """Only the runs within the quota are booked, and what ended leaves room for the next ones."""
    a, _ = await world.two()
    await _campaign(a, limits={"seat_seconds": {"hard": 2 * 2 * MINUTES * 60}})
    task = document("a", "b")
    task["schedule"] |= {"repeat": "PT30M", "max_runs": 4}
    await _create(a, task)
    await a.plan()
    await world.settle()
    assert await _starts(a) == [0, 30]
    for reason in await _waiting(a):
        assert reason == (
            "campaign ops: ops would have 1 h of seat time booked, of at most 40 min (hard)"
        )
    await a.execute("UPDATE run SET state = 'finished', finished_at = ends_at WHERE slot = $1", AT)
    world.clock.move_to(AT + 20 * times.MINUTE)
    await a.plan()
    assert await _starts(a) == [30, 60]


async def test_a_quota_of_a_resource_binds_named_runs(world: World) -> None:
    """Runs beyond what their campaign may use at once wait or slip, though their nodes are idle."""
    a, _, _ = await world.three()
    await world.site("d")
    await world._make_known()
    await _campaign(a, quotas={"mbps": 1000})
    for source, dest, slip in (("a", "b", "PT0S"), ("c", "d", "PT0S"), ("d", "c", "PT30M")):
        task = document(slip=slip)
        spec = {"source": source, "dest": dest, "rate_bps": 400_000_000, "duration": "PT1M"}
        task["test"] = {"type": "throughput", "spec": spec}
        await _create(a, task)
        await a.plan()
        await world.settle()
    [reason] = await _waiting(a)
    assert "ops uses 800 mbps and wants 800 more, of at most 1000, until " in reason
    rows = await a.rows("SELECT starts_at, ends_at FROM run WHERE state = 'booked' ORDER BY 1")
    assert rows[1][0] >= rows[0][1]


async def test_a_parent_s_limit_binds_its_children_together(world: World) -> None:
    """The runs of all descendants count toward a limit."""
    a, _ = await world.two()
    await _campaign(a, "ops", limits={"runs": {"hard": 1}})
    for name in ("left", "right"):
        await _campaign(a, name, parent="ops")
        await _create(a, document("a", campaign=name))
    await a.plan()
    await world.settle()
    assert await _starts(a) == [0]
    assert "ops would have 2 runs at once, of at most 1" in (await _waiting(a))[0]


async def test_a_soft_limit_binds_while_others_wait_for_the_nodes(world: World) -> None:
    """A soft limit applies once a task of another campaign waits for the node."""
    a, _ = await world.two()
    await _campaign(a, limits={"runs": {"soft": 1, "hard": 3}})
    for _ in range(2):
        await _create(a, document("a"))
        await a.plan()
    assert await _starts(a) == [0, 0]
    exclusive = document("a", campaign="default")
    exclusive["test"]["spec"]["class"] = "exclusive"
    for task in (exclusive, exclusive, document("a")):
        await _create(a, task)
        await a.plan()
    assert await _starts(a) == [0, 0, 0]
    assert any("of at most 1 (soft)" in reason for reason in await _waiting(a))


async def test_a_raised_limit_has_what_waits_planned_at_once(world: World) -> None:
    """The new limit needs no patience: waiting runs of the campaign are planned now."""
    a, _ = await world.two()
    await _campaign(a, limits={"runs": {"hard": 1}})
    for _ in range(2):
        await _create(a, document("a"))
        await a.plan()
    assert await _starts(a) == [0]
    patch = CampaignPatch.model_validate({"limits": {"runs": {"hard": 2}}})
    await a.node.campaigns.edit("ops", patch)
    await a.plan()
    assert await _starts(a) == [0, 0]


async def test_what_waits_is_planned_when_its_campaign_may_have_more(world: World) -> None:
    """A campaign that becomes urgent displaces others after its delay, whatever the pause was."""
    a, _ = await world.two()
    await _campaign(a)
    waiting = document("a")
    waiting["test"]["spec"]["class"] = "exclusive"
    await _create(a, waiting | {"campaign": "default", "priority": 9})
    await a.plan()
    last = await _create(a, waiting)
    await a.plan()
    world.clock.advance(20 * times.SECOND)
    later = START + 5 * times.MINUTE
    await a.execute("UPDATE planning SET plan_at = $1 WHERE task_id = $2", later, last)
    await a.node.campaigns.edit("ops", CampaignPatch.model_validate({"level": "urgent"}))
    await a.plan()
    await world.settle()
    states = await a.rows("SELECT state::text FROM run WHERE task_id = $1", last)
    assert [row[0] for row in states] == ["booked"]


async def test_what_ended_leaves_room(world: World) -> None:
    """The time of a cancelled run is counted no longer."""
    a, _ = await world.two()
    await _campaign(a, limits={"runs": {"hard": 1}})
    first = await _create(a, document("a"))
    await a.plan()
    await a.node.termination.cancel_task(first)
    await _create(a, document("b"))
    await a.plan()
    await world.settle()
    assert await _starts(a) == [0]
    assert await _waiting(a) == []


async def test_a_plan_sees_the_limits(world: World) -> None:
    """A plan finds the same time, and gives the same reason, as the task would get."""
    a, _ = await world.two()
    await _campaign(a, limits={"runs": {"hard": 1}})
    await _create(a, document("a"))
    await a.plan()
    refused = await previews.plan(world, a, document("b"))
    assert "ops would have 2 runs at once, of at most 1 (hard)" in refused.sentence
    later = await previews.plan(world, a, document("b", slip="PT30M"))
    assert [start.starts_at for start in later.starts] == [AT + MINUTES * times.MINUTE]


async def test_other_campaigns_have_no_limit(world: World) -> None:
    """A limit binds nobody else."""
    a, _ = await world.two()
    await _campaign(a, limits={"runs": {"hard": 1}})
    for campaign in ("ops", "default", "default"):
        await _create(a, document("a", campaign=campaign))
    await a.plan()
    assert await _starts(a) == [0, 0, 0]


@pytest.mark.parametrize("limited", [{"seats_max": 2}, {"limits": {"runs": {"hard": 2}}}])
@pytest.mark.nightly
async def test_a_pool_task_has_as_many_seats_as_a_limit_permits(
    world: World, limited: dict[str, Any]
) -> None:
    """Two of three seats are given, the reason is the limit alone, and the third one follows."""
    pool = await pooled(world, [{}, {}, {}])
    await _campaign(pool.lead, **limited)
    once = {"start": times.format_instant(AT), "repeat": None, "slip": "PT0S"}
    task = await pool.create(3, campaign="ops", schedule=once, request={"min_k": 1})
    assert len((await pool.seats(task))[1]) == 2
    reason = (await pool.told(task))[-1][1]
    assert "of at most 2" in reason
    assert "(soft)" not in reason
    [left] = {"n1", "n2", "n3"} - {*(await pool.seats(task))[1].values()}
    assert f"{left}: has time, but no more seats are permitted" in reason
    more = {"seats_max": None, "limits": {"runs": {"hard": 3}}}
    await pool.lead.node.campaigns.edit("ops", CampaignPatch.model_validate(more))
    await pool.seat()
    assert len((await pool.seats(task))[1]) == 3


@pytest.mark.parametrize(
    "limited",
    [
        {"seats_max": 1},
        {"limits": {"runs": {"hard": 1}}},
        {"limits": {"nodes": {"hard": 1}}},
        {"limits": {"seats": {"soft": 1, "hard": 1}}},
    ],
)
@pytest.mark.mostly_nightly
async def test_seats_are_given_where_there_is_room_within_the_slip(
    world: World, limited: dict[str, Any]
) -> None:
    """Runs of pool tasks slip until their campaign has room; what cannot waits, and says so."""
    pool = await pooled(world, [{}, {}, {}])
    await _campaign(pool.lead, **limited)
    first = document("n1")
    first["test"]["spec"]["class"] = "exclusive"
    await _create(pool.lead, first)
    await pool.lead.plan()
    await world.settle()
    once = {"start": times.format_instant(AT), "repeat": None, "slip": "PT25M"}
    length = f"PT{MINUTES}M"
    tasks = [await pool.create(1, campaign="ops", schedule=once, length=length) for _ in range(3)]
    assert await _starts(pool.lead) == [0, 10, 20]
    until = times.to_the_second(AT + 3 * MINUTES * times.MINUTE)
    why = (await pool.told(tasks[-1]))[-1][1]
    assert why.replace(" (hard)", "").endswith(f"at once, of at most 1, until {until}")


@pytest.mark.nightly
async def test_the_seats_of_a_term_slip_one_by_one(world: World) -> None:
    """Each run of a term starts when there is room, and only as late as it must."""
    pool = await pooled(world, [{}, {}])
    await _campaign(pool.lead, limits={"runs": {"hard": 1}})
    hourly = {"start": times.format_instant(AT), "repeat": "PT1H", "max_runs": 3, "slip": "PT30M"}
    await _create(
        pool.lead, document("lead") | {"schedule": {"start": times.format_instant(AT + times.HOUR)}}
    )
    await pool.lead.plan()
    length = f"PT{MINUTES}M"
    for _ in range(2):
        await pool.create(1, campaign="ops", schedule=hourly, length=length)
    assert await _starts(pool.lead) == [0, 10, 60, 70, 80, 120, 130]


@pytest.mark.parametrize(
    "limited",
    [{"seats_max": 1}, {"limits": {"runs": {"hard": 1}}}, {"limits": {"seconds": {"hard": 300}}}],
)
@pytest.mark.mostly_nightly
async def test_a_resumed_pool_task_waits_for_a_limit_that_runs_elsewhere_fill(
    world: World, limited: dict[str, Any]
) -> None:
    """No seat is given and taken back: a run outside the pool counts, of a child too, and why."""
    pool = await pooled(world, [{}, {}])
    a = pool.lead
    await _campaign(a, "all", **limited)
    await _campaign(a, "ops", parent="all")
    name = "all" if "seats_max" in limited else "ops"
    at = times.format_instant(AT)
    named = await _create(a, previews.idle(a, campaign=name, schedule={"start": at}))
    await a.plan()
    assert await _starts(a) == [0]
    await a.node.campaigns.edit("all", CampaignPatch.model_validate({"level": 0}))
    once = {"start": at, "repeat": None, "slip": "PT0S"}
    task = await pool.create(1, campaign="all", schedule=once)
    assert "is suspended" in (await pool.told(task))[-1][1]
    await a.node.campaigns.edit("all", CampaignPatch.model_validate({"level": 3}))
    await pool.seat()
    await pool.seat()
    [(reason,)] = await a.rows("SELECT reason FROM term WHERE pool_task = $1", task)
    assert reason is not None
    assert "all would have" in reason or "all would hold" in reason
    assert await a.rows("SELECT place FROM seat WHERE pool_task = $1", task) == []
    await a.node.termination.cancel_task(named)
    await pool.changed()
    assert len((await pool.seats(task))[1]) == 1
