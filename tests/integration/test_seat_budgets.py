"""Budgets of seat-time until a date bind named and pool tasks, and are given back."""

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

AT = START - START % times.HOUR + times.HOUR


async def _campaign(site: Site, hours: float, until: int, name: str = "ops", **more: Any) -> None:
    budget = {"seat_hours": hours, "until": times.format_instant(until)}
    created = CampaignDocument.model_validate({"name": name, "budget": budget, **more})
    await site.node.campaigns.create(created)


def _document(campaign: str = "ops", runs: int = 6) -> dict[str, Any]:
    """Return a task of a and b whose runs take an hour of seats each, every hour."""
    spec = {"duration": "PT30M", "class": "exclusive", "participants": ["a", "b"]}
    schedule = {
        "start": times.format_instant(AT),
        "repeat": "PT1H",
        "max_runs": runs,
        "slip": "PT0S",
    }
    return {"test": {"type": "idle", "spec": spec}, "schedule": schedule, "campaign": campaign}


async def _create(site: Site, document: dict[str, Any]) -> UUID:
    task, _ = await site.node.admission.create(TaskDocument.model_validate(document), None)
    await site.plan()
    return task


async def _hours(site: Site) -> list[int]:
    """Return the hours after ``AT`` in which booked runs start."""
    rows = await site.rows("SELECT starts_at FROM run WHERE state = 'booked' ORDER BY 1")
    return [(row[0] - AT) // times.HOUR for row in rows]


async def test_runs_are_booked_until_the_budget_is_spent(world: World) -> None:
    """Two seat-hours are two runs; what starts after the budget's end is booked, too."""
    a, _ = await world.two()
    until = AT + 4 * times.HOUR
    await _campaign(a, 2, until)
    plan = await previews.plan(world, a, _document())
    await _create(a, _document())
    assert await _hours(a) == [0, 1, 4, 5]
    assert [(it.starts_at - AT) // times.HOUR for it in plan.starts] == [0, 1, 4, 5]
    [first, *_] = [r[0] for r in await a.rows("SELECT reason FROM run WHERE state = 'waiting'")]
    assert first == (
        "campaign ops: ops has used or booked 2 of its 2 seat-hours, and wants 1 more, until "
        f"{times.to_the_second(until)}"
    )


@pytest.mark.nightly
async def test_what_does_not_take_place_is_given_back(world: World) -> None:
    """A cancelled run, and one that ended early, leave their time to the next ones."""
    a, _ = await world.two()
    await _campaign(a, 2, AT + times.DAY)
    await _create(a, _document(runs=4))
    assert await _hours(a) == [0, 1]
    [[run]] = await a.rows("SELECT id FROM run WHERE starts_at = $1", AT)
    await a.node.termination.cancel_run(run)
    await world.settle()
    await a.plan()
    assert await _hours(a) == [1, 2]


async def test_a_budget_holds_for_those_below_and_from_when_it_is_given(world: World) -> None:
    """Campaigns below take from it together; what was had before it was given is free."""
    a, _ = await world.two()
    await _campaign(a, 100, AT + times.DAY)
    for name in ("lab", "net"):
        child = CampaignDocument.model_validate({"name": name, "parent": "ops"})
        await a.node.campaigns.create(child)
    await _create(a, _document("lab", runs=2))
    clear = CampaignPatch.model_validate({"budget": None})
    await a.node.campaigns.edit("ops", clear)
    world.clock.move_to(AT + 3 * times.HOUR)
    given = {"seat_hours": 1, "until": times.format_instant(AT + times.DAY)}
    await a.node.campaigns.edit("ops", CampaignPatch.model_validate({"budget": given}))
    [[budget]] = await a.rows("SELECT budget FROM campaign WHERE name = 'ops'")
    assert times.parse_instant(budget["since"]) == AT + 3 * times.HOUR
    late = _document("net", runs=2)
    late["schedule"]["start"] = times.format_instant(AT + 5 * times.HOUR)
    await _create(a, late)
    booked = await a.rows("SELECT starts_at FROM run WHERE state = 'booked' AND starts_at > $1", AT)
    assert [(row[0] - AT) // times.HOUR for row in booked if row[0] > AT + 3 * times.HOUR] == [5]


@pytest.mark.nightly
async def test_seats_are_given_within_the_budget(world: World) -> None:
    """A pool task has as many nodes as its campaign can pay for."""
    pool = await pooled(world, [{}, {}, {}])
    await _campaign(pool.lead, 1, AT + times.DAY)
    once = {"start": times.format_instant(AT), "repeat": None, "slip": "PT0S"}
    tasks = [await pool.create(1, campaign="ops", schedule=once, length="PT30M") for _ in range(3)]
    given = [len((await pool.seats(task)).get(1, {})) for task in tasks]
    assert sorted(given) == [0, 1, 1]
    [empty] = [task for task, seats in zip(tasks, given, strict=True) if not seats]
    assert (
        "ops has used or booked 1 of its 1 seat-hours, and wants 0.5 more"
        in (await pool.told(empty))[-1][1]
    )
