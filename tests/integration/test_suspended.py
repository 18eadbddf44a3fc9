"""A campaign at level 0: nothing new is booked for it, neither on a pool's nor on named nodes."""

from __future__ import annotations

from lead.model.reasons import campaign_suspended
from node.model import times
from node.model.ids import TaskId, run_id
from node.model.wire.campaigns import CampaignDocument, CampaignPatch
from node.model.wire.plans import Outcome
from node.model.wire.tasks import Schedule, TaskDocument
from tests.support.clocks import START
from tests.support.pool_worlds import pooled
from tests.support.previews import idle, plan
from tests.support.worlds import ON_ONE_LOOP, World, introduction

pytestmark = ON_ONE_LOOP


async def test_those_below_a_suspended_campaign_are_suspended(world: World) -> None:
    """Neither named runs nor seats are booked until it is resumed, and a plan says so."""
    pool = await pooled(world, [{}, {}], policy={"set": "campaign-default"})
    a = pool.lead
    for name, settings in (("ops", {"level": 0}), ("lab", {"parent": "ops"})):
        document = CampaignDocument.model_validate({"name": name, **settings})
        await a.node.campaigns.create(document)
    once = {"start": times.format_instant(START + times.HOUR), "repeat": None, "slip": "PT0S"}
    seat = await pool.create(1, campaign="lab", schedule=once)
    assert await pool.seats(seat) == {}
    assert "the campaign ops is suspended" in (await pool.told(seat))[-1][1]
    named = idle(a, campaign="lab", schedule=once)
    planned = await plan(world, a, named)
    why = "the campaign ops is suspended; resume: parley campaign edit ops --level 5"
    assert (planned.outcome, planned.sentence) == (Outcome.NO_TIME, why)
    assert {each.reason for each in planned.no_alternatives} == {why}
    task, _ = await a.node.admission.create(TaskDocument.model_validate(named), None)
    await a.plan()
    [(state, reason)] = await a.rows("SELECT state::text, reason FROM run WHERE task_id = $1", task)
    assert (state, reason) == ("waiting", why)
    await a.node.campaigns.edit("ops", CampaignPatch.model_validate({"level": 3}))
    await a.plan()
    await pool.seat()
    assert len(await pool.seats(seat)) == 1
    states = await a.rows("SELECT state::text FROM run WHERE task_id = $1", task)
    assert [row[0] for row in states] == ["booked"]


async def test_nothing_of_a_suspended_campaign_is_booked(world: World) -> None:
    """Its slots wait and say why, and are booked at once when the campaign is resumed."""
    a, b = await world.two()
    campaigns = a.node.campaigns
    await campaigns.create(CampaignDocument.model_validate({"name": "ops", "level": 0}))
    asked = introduction((a, b), schedule=Schedule(start=START, slip=10**9))
    task = asked.model_copy(update={"campaign": "ops"})
    for site in (a, b):
        await site.keep(task, a)
    run = run_id(TaskId(task.task), START, 1)
    for _ in range(8):
        await a.plan()
        world.clock.advance(10**6)
    assert await a.state(run) == "waiting"
    assert await a.reason(run) == campaign_suspended("ops")
    await campaigns.edit("ops", CampaignPatch.model_validate({"level": 3}))
    await a.plan()
    assert (await a.state(run), await b.state(run)) == ("scheduled", "scheduled")
