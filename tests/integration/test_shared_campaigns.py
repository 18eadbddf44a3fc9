"""A campaign of several leads counts as one: what each has used counts at all of them."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from lead.assembly.with_node import shared_campaigns_of
from node.model import times
from node.model.errors import InvalidDocument
from node.model.wire.campaigns import Campaign, CampaignDocument, CampaignPatch
from node.model.wire.shared_campaigns import CampaignUseRequest
from node.model.wire.tasks import TaskDocument
from node.sharing import shared_campaigns
from node.sharing.shared_campaigns import tell_use
from tests.support.clocks import START
from tests.support.worlds import ON_ONE_LOOP, Site, World

pytestmark = ON_ONE_LOOP

AT = START + times.HOUR
BUDGET = {"seat_hours": 1, "until": times.format_instant(START + 7 * times.DAY)}


async def _campaign(site: Site, *leads: str, name: str = "ops", **settings: Any) -> None:
    made = CampaignDocument.model_validate({"name": name, "leads": leads, **settings})
    await site.node.campaigns.create(made)


async def _create(site: Site, runs: int, *, at: int = AT, campaign: str = "ops") -> UUID:
    """Create a task of exclusive runs of fifteen minutes on this node alone."""
    schedule = {"start": times.format_instant(at), "repeat": "PT15M", "max_runs": runs}
    spec = {"duration": "PT15M", "class": "exclusive", "participants": [site.name]}
    test = {"type": "idle", "spec": spec}
    document = {"test": test, "schedule": schedule, "campaign": campaign}
    created, _ = await site.node.admission.create(TaskDocument.model_validate(document), None)
    return created


async def _plan(world: World, site: Site) -> None:
    await site.plan()
    await world.settle()


async def _learn(site: Site) -> None:
    """Ask all leads, as housekeeping does."""
    await shared_campaigns_of(site.node).learn_from_all()


STATES = """
SELECT run.state::text, run.reason
FROM run
INNER JOIN task ON run.task_id = task.id
WHERE task.lead = $1
ORDER BY run.slot
"""
"""The states and reasons of the runs that a node leads, by slot."""


async def _states(site: Site) -> list[tuple[str, str | None]]:
    return [(row[0], row[1]) for row in await site.rows(STATES, site.identity)]


async def _shown(site: Site, name: str = "ops") -> Campaign:
    return next(each for each in await site.node.usage.all() if each.name == name)


async def test_a_budget_is_one_over_all_leads(world: World) -> None:
    """One lead leaves the other the rest of a budget; it is free again when it is given back."""
    a, b = await world.two()
    await _campaign(a, "b", budget=BUDGET)
    await _campaign(b, "a", budget=BUDGET)
    first = await _create(a, 3)
    await _plan(world, a)
    await _create(b, 3)
    await _plan(world, b)
    assert [state for state, _ in await _states(a)] == ["booked"] * 3
    (booked, _), *waiting = await _states(b)
    assert booked == "booked"
    assert {state for state, _ in waiting} == {"waiting"}
    assert all(
        "campaign ops: ops has used or booked 1 of its 1 seat-hours" in str(why)
        for _, why in waiting
    )
    [told] = (await _shown(b)).shared
    assert (told.lead, told.told_at, told.reason) == ("a", b.clock.now(), None)
    assert (await _shown(b)).used.booked_seat_seconds == 3600
    await a.node.termination.cancel_led_task(first, "for the others")
    await world.settle()
    await world.pass_time(5 * times.MINUTE)
    assert [state for state, _ in await _states(b)] == ["booked"] * 3
    await _learn(a)
    assert (await _shown(a)).used.booked_seat_seconds == 2700


async def test_each_has_to_name_the_other(world: World) -> None:
    """A lead that is not named is told nothing, and says why it counts nothing."""
    a, b = await world.two()
    await _campaign(a, budget=BUDGET)
    await _campaign(b, "a", budget=BUDGET)
    await _create(a, 4)
    await _plan(world, a)
    await _create(b, 4)
    await _plan(world, b)
    assert [state for state, _ in await _states(b)] == ["booked"] * 4
    [told] = (await _shown(b)).shared
    assert (told.lead, told.told_at) == ("a", None)
    assert told.reason == (
        "has no campaign of this name that names this lead: parley campaign edit NAME --lead"
    )
    answer = await tell_use(
        a.node.database, b.identity, CampaignUseRequest(campaigns=("ops", "none"), since=START)
    )
    assert (answer.campaigns, answer.hours) == ((), ())


@pytest.mark.nightly
async def test_of_a_lead_that_is_away_counts_what_it_told_last(world: World) -> None:
    """A lead that does not answer holds nothing up, and is asked again at intervals."""
    a, b = await world.two()
    await _campaign(a, "b", budget=BUDGET)
    await _campaign(b, "a", budget=BUDGET)
    await _create(a, 3)
    await _plan(world, a)
    await _learn(b)
    world.cut.add(frozenset({"a", "b"}))
    await _create(b, 3)
    await _plan(world, b)
    assert [state for state, _ in await _states(b)].count("booked") == 1
    asked = world.count("campaign_use")
    [told] = (await _shown(b)).shared
    assert (told.told_at, told.reason) == (START, "a cannot be reached: the wire is cut")
    await world.pass_time(times.MINUTE)
    await _create(b, 1, at=AT + times.HOUR)
    await _plan(world, b)
    assert world.count("campaign_use") == asked
    world.cut.clear()
    await _learn(b)
    assert [told.reason for told in (await _shown(b)).shared] == [None]


async def test_campaigns_below_count_once(world: World) -> None:
    """A campaign counts those below it, unless they are shared with that lead themselves."""
    a, b = await world.two()
    await _campaign(a, "b")
    await _campaign(a, name="ops-lab", parent="ops")
    await _campaign(a, "b", name="ops-own", parent="ops")
    for campaign, at in (
        ("ops", AT),
        ("ops-lab", AT + times.HOUR),
        ("ops-own", AT + 2 * times.HOUR),
    ):
        await _create(a, 1, at=at, campaign=campaign)
    await _plan(world, a)
    answer = await tell_use(
        a.node.database,
        b.identity,
        CampaignUseRequest(campaigns=("ops", "ops-lab", "ops-own"), since=START),
    )
    assert answer.campaigns == ("ops", "ops-own")
    assert [(it.campaign, it.hour, it.node) for it in answer.hours] == [
        ("ops", AT, a.identity),
        ("ops", AT + times.HOUR, a.identity),
        ("ops-own", AT + 2 * times.HOUR, a.identity),
    ]
    assert {it.amount for it in answer.hours} == {1000 * 15 * times.MINUTE}


async def test_many_hours_come_in_several_messages(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An answer ends with a whole hour, and the rest is asked for again."""
    a, b = await world.two()
    monkeypatch.setattr(shared_campaigns, "HOURS_MAX", 2)
    await _campaign(a, "b")
    await _campaign(b, "a", budget=BUDGET | {"seat_hours": 10})
    for number in range(5):
        await _create(a, 1, at=AT + number * times.HOUR)
    await _plan(world, a)
    await _create(b, 1)
    await _plan(world, b)
    assert (await _shown(b)).used.booked_seat_seconds == 6 * 900


async def test_what_was_told_goes_with_the_lead(world: World) -> None:
    """Once a campaign is no longer shared, or is removed, nothing of the other lead counts."""
    a, b = await world.two()
    for site, other in ((a, "b"), (b, "a")):
        await _campaign(site, other, budget=BUDGET)
    await _create(a, 4)
    await _plan(world, a)
    await _create(b, 1)
    await _plan(world, b)
    assert [state for state, _ in await _states(b)] == ["waiting"]
    await b.node.campaigns.edit("ops", CampaignPatch.model_validate({"leads": None}))
    assert await b.rows("SELECT FROM charge_hour WHERE lead <> ''") == []
    assert await b.rows("SELECT FROM campaign_lead") == []
    await _plan(world, b)
    assert [state for state, _ in await _states(b)] == ["booked"]


async def test_leads_are_known_nodes(world: World) -> None:
    """A lead that is not known, or is the node itself, is refused with what to do."""
    a, _ = await world.two()
    with pytest.raises(InvalidDocument) as refused:
        await _campaign(a, "b", "a", "nobody")
    assert [(it.pointer, it.detail) for it in refused.value.faults] == [
        ("/leads/1", "is this node itself; name the other leads that share the campaign"),
        ("/leads/2", "no node nobody is known here; add it first: parley node add"),
    ]


async def test_a_campaign_is_edited_though_a_lead_is_not_known_any_more(world: World) -> None:
    """A lead that was removed stays named, with the reason, until the campaign is edited so."""
    a, b = await world.two()
    await _campaign(a, "b", budget=BUDGET)
    a.node.directory.fill([known for known in a.node.directory.all if known.is_self])
    await _learn(a)
    await a.node.campaigns.edit("ops", CampaignPatch.model_validate({"weight": 3}))
    shown = await _shown(a)
    assert shown.weight == 3
    assert shown.leads == (b.identity,)
    assert [told.reason for told in shown.shared] == [
        f"no node with the key {b.identity} is known here"
    ]
    await a.node.campaigns.edit("ops", CampaignPatch.model_validate({"leads": []}))
    assert (await _shown(a)).leads == ()
