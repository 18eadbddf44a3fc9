"""Rules that coordinators of today's clusters have beside the seeds, seen over HTTP."""

from __future__ import annotations

from datetime import UTC, timedelta

import pytest

from tests.acceptance.outsider import Json, Outsider, instant
from tests.acceptance.seeds.scene import Scene

pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.timeout(60),
    pytest.mark.usefixtures("scene", "tidy"),
]

WHOEVER = {"min_k": 1}
"""Asks for all wanted nodes, and is content with one."""


async def test_a_campaign_borrows_no_more_than_it_may(scene: Scene) -> None:
    """A campaign has its own node, and one of two that are free if it may borrow one."""
    await scene.policies("promised")
    lab = await scene.campaign("lab", target={"seats": 1, "borrow": 1})
    wide = await scene.pooled(3, campaign=lab, request=WHOEVER)
    assert await scene.booked(wide, 2) == [0, 0]
    await scene.unseated(wide, f"{lab} is promised 1 seat and may borrow 1;")
    # Once it may borrow one more, it has that, too.
    patch = {"target": {"borrow": 2}}
    assert (await scene.lead.ask("PATCH", f"/v1/campaigns/{lab}", patch)).status == 200
    assert await scene.booked(wide, 3) == [0, 0, 0]


async def test_a_campaign_lends_no_more_than_it_allows(scene: Scene) -> None:
    """Half of two promised nodes stays free for whom they were promised to."""
    await scene.policies("promised")
    ops = await scene.campaign("ops", target={"seats": 2, "lend": 0.5})
    lab = await scene.campaign("lab", target={"seats": 1})
    wide = await scene.pooled(3, campaign=lab, request=WHOEVER)
    assert await scene.booked(wide, 2) == [0, 0]
    await scene.unseated(wide, f"{ops} is promised 2 seats and lends 1 of them;", "keeps free")
    kept = await scene.pooled(1, campaign=ops)
    assert await scene.booked(kept, 1) == [0]


async def test_so_many_samples_by_a_deadline(scene: Scene) -> None:
    """Runs are spread evenly over the time, and each has its part to find time in."""
    busy = await scene.named(scene.lead, minutes=8)
    assert await scene.booked(busy, 1) == [0]
    until = scene.hour + timedelta(hours=1)
    document: Json = {
        "test": {"type": "idle", "spec": {"duration": "PT5M", "class": "exclusive"}},
        "schedule": {"start": scene.hour.isoformat(), "until": until.isoformat(), "samples": 4},
    }
    plan = (await scene.lead.ask("POST", "/v1/plans", document)).body
    created = await scene.lead.ask("POST", "/v1/tasks", document)
    assert created.status == 201, created
    terms = created.body["schedule"]
    assert (terms["repeat"], terms["slip"], terms["max_runs"]) == ("PT15M", "PT10M", 4)
    assert await scene.booked(created.body, 4) == [8, 15, 30, 45]
    promised = [instant(each["starts_at"]) - scene.hour for each in plan["starts"]]
    assert [each.total_seconds() / 60 for each in promised] == [8, 15, 30, 45]
    document["schedule"]["samples"] = 13
    refused = await scene.lead.ask("POST", "/v1/tasks", document)
    assert (refused.status, refused.pointers) == (422, ["/schedule/samples"])
    assert "13 runs of 5 min do not fit" in str(refused.body)
    patch = {"schedule": {"samples": 3}}
    edited = await scene.lead.ask("PATCH", f"/v1/tasks/{created.body['id']}", patch)
    assert (edited.status, edited.pointers) == (422, ["/schedule"])


async def test_a_budget_until_a_date(scene: Scene) -> None:
    """Runs are booked while the budget lasts; a cancelled one gives its time to the next."""
    until = scene.hour + timedelta(hours=6)
    budget = {"seat_hours": 0.5, "until": until.isoformat()}
    ops = await scene.campaign("ops", budget=budget)
    task = await scene.named(scene.lead, minutes=10, every=10, runs=5, campaign=ops)
    assert await scene.booked(task, 3) == [0, 10, 20]
    path = f"/v1/tasks/{task['id']}/runs?state=waiting"
    said = f"campaign {ops}: {ops} has used or booked 0.5 of its 0.5 seat-hours, and wants"

    def all_told(page: Json) -> bool:
        told = [it["reason"].startswith(said) for it in page["items"]]
        return bool(told) and all(told)

    await scene.lead.until(path, all_told)
    shown = await scene.lead.get(f"/v1/campaigns/{ops}?budgets=true")
    [used] = [each for each in shown["budgets"] if each["what"] == "seat_hours"]
    assert (used["hard"], used["used"], instant(used["until"])) == (0.5, 0.5, until)
    runs = (await scene.lead.get(f"/v1/tasks/{task['id']}/runs?state=scheduled"))["items"]
    first = min(runs, key=lambda run: str(run["starts_at"]))
    assert (await scene.lead.ask("DELETE", f"/v1/runs/{first['id']}")).status in {200, 204}
    assert await scene.booked(task, 3) == [10, 20, 30]


async def test_one_campaign_over_two_leads(scene: Scene, b: Outsider) -> None:
    """A lead counts what another one has booked of a budget, in plans too, until it is free."""
    until = scene.hour + timedelta(hours=6)
    ops = await scene.campaign("ops", budget={"seat_hours": 0.5, "until": until.isoformat()})
    there = Scene(b, scene.pool, scene.hour)
    settings = {"name": ops, "leads": [scene.lead.name]}
    assert (await b.ask("POST", "/v1/campaigns", settings)).status == 201
    theirs = await there.named(b, minutes=10, every=10, runs=2, campaign=ops)
    assert await there.booked(theirs, 2) == [0, 10]
    shared = await scene.lead.ask("PATCH", f"/v1/campaigns/{ops}", {"leads": [b.name]})
    assert (shared.status, shared.body["leads"]) == (200, [b.name])
    document = scene.idle(10, every=10, runs=3, campaign=ops)
    test = {"type": "idle", "spec": document.pop("spec")}
    plan = (await scene.lead.ask("POST", "/v1/plans", {"test": test, **document})).body
    task = await scene.named(scene.lead, minutes=10, every=10, runs=3, campaign=ops)
    assert (plan["placed"], await scene.booked(task, 1)) == (1, [0])
    spent = f"campaign {ops}: {ops} has used or booked 0.5 of its 0.5 seat-hours"
    assert all(it["reason"].startswith(spent) for it in plan["unplaced"])
    shown = await scene.lead.get(f"/v1/campaigns/{ops}?budgets=true")
    assert [(it["lead"], it["reason"]) for it in shown["shared"]] == [(b.name, None)]
    assert [it["used"] for it in shown["budgets"] if it["what"] == "seat_hours"] == [0.5]
    await b.cancel(theirs)
    assert await scene.booked(task, 3) == [0, 10, 20]
    closed = {"state": "closed", "level": 0, "leads": []}
    assert (await b.ask("PATCH", f"/v1/campaigns/{ops}", closed)).status == 200


async def test_a_budget_of_displacements(scene: Scene) -> None:
    """One run of a series gives way to a higher priority; the next are spared, and plans say so."""
    series = await scene.named(
        scene.lead, minutes=4, every=5, runs=9, schedule={"displacement_budget": "1/5"}
    )
    assert await scene.booked(series, 9) == [5 * number for number in range(9)]
    placed = []
    for minute in (10, 15, 0, 35):
        document = scene.idle(4, at=minute, priority=5)
        test = {"type": "idle", "spec": document.pop("spec")}
        plan = (await scene.lead.ask("POST", "/v1/plans", {"test": test, **document})).body
        task = await scene.named(scene.lead, minutes=4, at=minute, priority=5)
        placed.append(plan["placed"])
        if plan["placed"]:
            assert await scene.booked(task, 1) == [minute]
            assert plan["displaced_count"] == 1
        else:
            spared = "its task may lose no further run (displacement_budget)"
            assert spared in plan["unplaced"][0]["reason"]
            await scene.waits(task, spared)
    assert placed == [1, 0, 0, 1]


@pytest.mark.nightly
async def test_weights_by_time_of_day(scene: Scene) -> None:
    """In the hour in which it has three times the weight, a campaign has three quarters."""
    await scene.policies("gridserver-usage", share={"near": "P1D"})
    at = scene.hour.astimezone(UTC)
    timed = {"weight": 3, "cron": f"0 {at.hour} * * *", "duration": "PT1H", "timezone": None}
    day, night = await scene.campaign("day"), await scene.campaign("night", timed_weights=[timed])
    shown = await scene.lead.get(f"/v1/campaigns/{night}")
    assert (shown["weight"], shown["timed_weights"]) == (1, [timed])
    async with scene.together() as tasks:
        for campaign in (day, night):
            tasks += [await scene.pooled(minutes=15, slip=45, campaign=campaign) for _ in range(12)]
    assert await scene.given(12, tasks[:12], tasks[12:]) == [3, 9]
    never = {"timed_weights": [timed | {"cron": "61 * * * *"}]}
    refused = await scene.lead.ask("PATCH", f"/v1/campaigns/{night}", never)
    assert (refused.status, refused.pointers) == (422, ["/timed_weights/0"])
