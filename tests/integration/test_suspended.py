"""A campaign at level 0: nothing new is booked for it, neither on a pool's nor on named nodes."""

from __future__ import annotations

from node.model.ids import TaskId, run_id
from node.model.wire.campaigns import CampaignDocument, CampaignPatch
from node.model.wire.tasks import Schedule
from tests.support.clocks import START
from tests.support.worlds import ON_ONE_LOOP, World, introduction

pytestmark = ON_ONE_LOOP


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
    assert await a.reason(run) == (
        "the campaign ops is suspended; resume: parley campaign edit ops --level 5"
    )
    await campaigns.edit("ops", CampaignPatch.model_validate({"level": 3}))
    await a.plan()
    assert (await a.state(run), await b.state(run)) == ("scheduled", "scheduled")
