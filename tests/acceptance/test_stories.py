"""Tasks of every class and recurrence, and every list, on three nodes."""

from __future__ import annotations

import asyncio
import itertools
import re
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from urllib.parse import urlencode
from uuid import uuid4
from zoneinfo import ZoneInfo

import pytest
import pytest_asyncio

from tests.acceptance.conftest import Everywhere
from tests.acceptance.outsider import Json, Outsider, booked, instant
from tests.support.patience import PATIENCE_S

pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.timeout(120),
    pytest.mark.usefixtures("tidy"),
]

CLASSES = ["exclusive", "normal", "background", "background-multi"]
MINUTE = timedelta(minutes=1)
HOUR = 60 * MINUTE


def soon(seconds: float = 3) -> str:
    """Return an instant in so many seconds."""
    return (datetime.now(UTC) + timedelta(seconds=seconds)).isoformat()


def hour_of(start: datetime, **schedule: Json) -> Json:
    """Return a schedule that begins then."""
    return {"start": start.isoformat(), **schedule}


@pytest_asyncio.fixture(scope="session", loop_scope="session", autouse=True)
async def minutely(a: Outsider, b: Outsider) -> AsyncIterator[Json]:
    """Create early a task that runs at every full minute, so that a run is over when read."""
    await a.ask("POST", "/v1/campaigns", {"name": "minutely"})
    task = await a.create(
        "idle", a, b, spec={"class": "background"}, campaign="minutely", schedule=EVERY_MINUTE
    )
    yield task
    await a.cancel(task)


EVERY_MINUTE = {"cron": "* * * * *", "timezone": "America/New_York", "slip": "PT0S"}


@pytest.mark.parametrize("scheduling_class", CLASSES)
async def test_a_task_of_each_class(
    scheduling_class: str, a: Outsider, b: Outsider, c: Outsider, everywhere: Everywhere
) -> None:
    """A task without a schedule runs at once, with the same time and id on all nodes."""
    spec = {"duration": "PT1S", "class": scheduling_class}
    task = await a.create("idle", a, b, c, spec=spec)
    assert (task["state"], task["scheduling_class"]) == ("active", scheduling_class)
    run = await a.finished(await a.run(task))
    assert {booked(each) for each in await everywhere(run)} == {booked(run)}
    assert run["result"] == {"participants": 3, "duration_ms": 1000.0}
    assert run["metrics"] == [{"name": "idle_ms", "value": 1000.0, "unit": "ms", "labels": {}}]
    assert [part["name"] for part in run["parts"]] == ["a", "b", "c"]
    assert all(part["reason"] is None for part in run["parts"])
    ended = await a.until(f"/v1/tasks/{task['id']}", lambda found: found["state"] == "finished")
    assert ended["runs"] == {"finished": 1}


async def test_a_start(b: Outsider, c: Outsider, everywhere: Everywhere) -> None:
    """A task with a start runs at that instant, to the microsecond."""
    start = soon()
    task = await b.create("idle", b, c, schedule={"start": start, "slip": "PT0S"})
    run = await b.finished(await b.run(task))
    assert instant(run["starts_at"]) == instant(run["slot"]) == instant(start)
    assert {booked(each) for each in await everywhere(run)} == {booked(run)}
    assert abs(run["start_error_ms"]) < 1000


@pytest.mark.nightly
async def test_repeat_and_max_runs(a: Outsider, c: Outsider, everywhere: Everywhere) -> None:
    """A repeated task runs at its start plus whole intervals, max_runs times, and is then over."""
    start = instant(soon())
    schedule = hour_of(start, repeat="PT2S", max_runs=3, slip="PT0S")
    task = await a.create("idle", a, c, spec={"class": "background-multi"}, schedule=schedule)
    runs = await a.runs(task)
    expected = [start + n * timedelta(seconds=2) for n in range(3)]
    assert [instant(run["starts_at"]) for run in runs] == expected
    ended = await a.until(f"/v1/tasks/{task['id']}", lambda found: found["state"] == "finished")
    assert ended["runs"] == {"finished": 3}
    for run in await a.runs(task):
        assert {booked(each) for each in await everywhere(run)} == {booked(run)}


async def test_repeat_until(
    a: Outsider, b: Outsider, free_hour: datetime, everywhere: Everywhere
) -> None:
    """No run has its nominal start at the end of the schedule or later."""
    until = free_hour + timedelta(hours=1)
    schedule = hour_of(free_hour, repeat="PT10M", until=until.isoformat(), slip="PT0S")
    runs = await a.runs(await a.create("idle", a, b, schedule=schedule))
    assert [instant(run["starts_at"]) for run in runs] == [
        free_hour + n * 10 * MINUTE for n in range(6)
    ]
    for run in runs:
        await b.until_state(run, "scheduled")
        assert {booked(each) for each in await everywhere(run)} == {booked(run)}


async def test_cron_with_a_zone(a: Outsider, b: Outsider, everywhere: Everywhere) -> None:
    """Cron fields are read in their zone: each matching minute of the next hours has its run."""
    zone = ZoneInfo("Asia/Kolkata")
    now = datetime.now(UTC)
    hours = sorted({(now + timedelta(hours=n)).astimezone(zone).hour for n in (5, 6)})
    cron = f"*/20 {','.join(map(str, hours))} * * *"
    schedule = {"cron": cron, "timezone": zone.key, "slip": "PT0S"}
    runs = await a.runs(await a.create("idle", a, b, schedule=schedule))
    minutes = (now.replace(second=0, microsecond=0) + n * MINUTE for n in range(1, 24 * 60 - 5))
    local = ((minute, minute.astimezone(zone)) for minute in minutes)
    expected = [at for at, here in local if here.hour in hours and here.minute % 20 == 0]
    assert len(expected) == 6
    assert [instant(run["starts_at"]) for run in runs] == expected
    for run in runs:
        await b.until_state(run, "scheduled")
        assert {booked(each) for each in await everywhere(run)} == {booked(run)}


async def test_cron_comes_round(a: Outsider, b: Outsider, minutely: Json) -> None:
    """A cron task's run takes place at the full minute."""
    first, *later = await a.runs(minutely)
    run = await a.over(first)
    for each in later:
        if run["state"] == "finished":
            break
        run = await a.over(each)  # one before was missed: tests that kill these nodes ran meanwhile
    assert run["state"] == "finished"
    assert (instant(run["starts_at"]).second, instant(run["starts_at"]).microsecond) == (0, 0)
    assert booked(await b.over(run)) == booked(run)


async def test_slip(a: Outsider, b: Outsider, c: Outsider, free_hour: datetime) -> None:
    """A run whose participant is busy starts later within its slip, or not at all."""
    spec = {"duration": "PT5M", "class": "exclusive"}
    busy = await c.create("idle", c, spec=spec, schedule=hour_of(free_hour, slip="PT0S"))
    in_the_way = await c.run(busy)
    slipping = hour_of(free_hour, slip="PT10M")
    run = await a.run(await a.create("idle", a, c, spec=spec, schedule=slipping))
    assert run["state"] in {"held", "scheduled"}
    assert (instant(run["slot"]), run["starts_at"]) == (free_hour, in_the_way["ends_at"])
    rigid = hour_of(free_hour + 4 * MINUTE, slip="PT4M59S")
    waiting = await b.run(await b.create("idle", b, c, spec=spec, schedule=rigid))
    assert waiting["state"] == "waiting"
    assert "c: no 5 min free: busy with an exclusive run that another" in waiting["reason"]


async def test_slip_never_reaches_into_the_next_interval(
    a: Outsider, b: Outsider, free_hour: datetime
) -> None:
    """Random starts lie within the slip, differ, and leave the next interval alone."""
    schedule = hour_of(free_hour, repeat="PT1M", slip="PT5M", slip_random=True, max_runs=40)
    spec = {"duration": "PT20S", "class": "normal"}
    runs = await a.runs(await a.create("idle", a, b, spec=spec, schedule=schedule))
    slips = [instant(run["starts_at"]) - instant(run["slot"]) for run in runs]
    assert [instant(run["slot"]) for run in runs] == [free_hour + n * MINUTE for n in range(40)]
    assert all(timedelta() <= slip <= timedelta(seconds=40) for slip in slips)
    assert len(set(slips)) > 12  # of 41 whole seconds, drawn 40 times: 26 are to be expected
    assert max(slips) - min(slips) > timedelta(seconds=20)
    for run in runs:
        await b.until_state(run, "scheduled")
        assert booked(await b.get(f"/v1/runs/{run['id']}")) == booked(run)


@pytest.mark.needs("ping", "iperf3", "cubic")
async def test_measurements(a: Outsider, b: Outsider) -> None:
    """Round trip, latency and throughput on loopback have plausible figures."""
    rtt = await a.create("rtt", spec={"dest": "b", "count": 10, "interval": "PT0.05S"})
    spec = {"count": 20, "interval": "PT0.05S"}
    latency = await b.create("latency", b, a, spec=spec)
    throughput = await a.create("throughput", a, b, spec={"duration": "PT1S", "omit": "PT0S"})
    results = {}
    for lead, task in ((a, rtt), (b, latency), (a, throughput)):
        run = await lead.finished(await lead.run(task))
        assert run["summary"]
        results[run["test"]] = run["result"]
    assert (results["rtt"]["sent"], results["rtt"]["loss"]) == (10, 0)
    assert 0 < results["rtt"]["rtt_ms"]["median"] < 20
    assert results["rtt"]["address"] == b.address
    figures = results["latency"]
    assert (figures["sent"], figures["received_back"]) == (20, 20)
    assert figures["clocks_synchronised"]
    assert all(0 <= figures["delay_ms"][way]["median"] < 20 for way in ("forward", "backward"))
    assert results["throughput"]["rate_bps"] > 100_000_000


async def test_a_lead_that_takes_no_part(a: Outsider, b: Outsider, c: Outsider) -> None:
    """A lead without a part has the result of two others, even if it is busy itself."""
    hog = await a.create("idle", a, spec={"duration": "PT10M", "class": "exclusive"})
    assert (await a.run(hog))["state"] in {"held", "scheduled", "running"}
    task = await a.create("latency", b, c, spec={"count": 10, "interval": "PT0.02S"})
    run = await a.finished(await a.run(task))
    assert (run["participant"], run["participants"], run["lead"]) == (None, ["b", "c"], "a")
    assert run["result"]["received_back"] == 10
    for other, place in ((b, 0), (c, 1)):
        seen = await other.over(run)
        assert booked(seen) == booked(run)
        assert (seen["state"], seen["participant"], seen["lead"]) == ("finished", place, "a")


async def test_explain(a: Outsider, b: Outsider, free_hour: datetime) -> None:
    """A task and a run are explained in one sentence, with the whole trace."""
    schedule = hour_of(free_hour, slip="PT5M")
    task = await a.create("idle", a, b, schedule=schedule)
    run = await a.run(task)
    explanation = await a.explain("task", task)
    assert explanation["sentence"].startswith("1 of 1 runs booked, the first at ")
    (decision,) = explanation["decisions"]
    assert (decision["outcome"], decision["asked"], decision["placed"]) == ("booked", 1, 1)
    assert [offer["node"] for offer in decision["trace"]["offers"]] == ["a", "b"]
    assert instant(decision["first_slot"]) == free_hour
    explanation = await a.explain("run", run)
    assert explanation["sentence"].startswith("scheduled: a and b, at ")
    assert [each["id"] for each in explanation["decisions"]] == [decision["id"]]


async def pages(node: Outsider, path: str, **query: object) -> list[list[str]]:
    """Return the ids on all the pages of a list."""
    pages_of_ids: list[list[str]] = []
    page = await node.get(path, **query)
    while page["items"]:
        pages_of_ids.append([item["id"] for item in page["items"]])
        if page["next"] is None:
            break
        page = await node.get(path, **query, cursor=page["next"])
    return pages_of_ids


async def test_lists(a: Outsider, b: Outsider, free_hour: datetime) -> None:
    """The pages of a list have every entry once, in order, and filters select."""
    schedule = hour_of(free_hour, repeat="PT1M", max_runs=25, slip="PT0S")
    await a.ask("POST", "/v1/campaigns", {"name": "lists"})
    task = await a.create("idle", a, b, schedule=schedule, campaign="lists")
    others = [await b.create("idle", b, schedule=hour_of(free_hour)) for _ in range(5)]
    runs = [run["id"] for run in await a.runs(task)]
    assert len(runs) == 25
    path = f"/v1/tasks/{task['id']}/runs"
    walked = await pages(a, path, order="asc", limit=7)
    assert [len(page) for page in walked] == [7, 7, 7, 4]
    assert list(itertools.chain(*walked)) == runs
    walked = await pages(a, path, limit=5)  # as many as fit exactly, newest first
    assert list(itertools.chain(*walked)) == runs[::-1]
    listed = list(itertools.chain(*await pages(b, "/v1/tasks", limit=3)))
    assert len(listed) == len(set(listed))
    assert {task["id"], *(other["id"] for other in others)} <= set(listed)
    until = (free_hour + 3 * MINUTE).isoformat()
    page = await b.get("/v1/runs", from_=free_hour.isoformat(), to=until, task=task["id"])
    assert {item["id"] for item in page["items"]} == set(runs[:3])
    assert (await b.get("/v1/runs", test="rtt", task=task["id"]))["items"] == []
    page = await b.get("/v1/runs", prefix=runs[3][:13], state="held,scheduled")
    assert [item["id"] for item in page["items"]] == [runs[3]]
    line = await a.get("/v1/schedule", from_=free_hour.isoformat(), to=until)
    mine = [entry["run"] for entry in line["items"] if entry["task"] == task["id"]]
    assert mine == runs[:3]
    assert line["complete"]


async def test_wait(a: Outsider, b: Outsider) -> None:
    """A request with ``wait`` is answered when there is something, or after that time."""
    task = await a.create("idle", a, b, schedule={"start": soon(2)})
    run = await a.run(task)
    loop = asyncio.get_running_loop()
    before = loop.time()
    seen = await a.get(f"/v1/runs/{run['id']}", wait=50)
    assert (seen["state"], loop.time() - before < 20) == ("finished", True)
    far = await a.create("idle", a, schedule={"start": soon(3000)})
    far_run = await a.until_state(await a.run(far), "scheduled")
    before = loop.time()
    seen = await a.get(f"/v1/runs/{far_run['id']}", wait=0.5)
    assert (seen["state"], loop.time() - before >= 0.5) == ("scheduled", True)


async def test_events(a: Outsider, b: Outsider) -> None:
    """The stream reports a run from start to end, and can be resumed after an event."""
    task = await a.create("idle", a, b, schedule={"start": soon(2)})
    run = await a.run(task)
    events = await _told_of(a, run, "0")
    states = [event["data"]["state"] for event in events]
    assert (states[0], states[-1]) == ("running", "finished")
    numbers = [int(event["id"]) for event in events]
    assert numbers == sorted(set(numbers))
    assert await _told_of(a, run, events[0]["id"]) == events[1:]


async def _told_of(node: Outsider, run: Json, after: str) -> list[dict[str, Json]]:
    """Return the events of a run, up to its end."""
    events = []
    async with asyncio.timeout(PATIENCE_S):
        async for event in node.events(after):
            if event["event"] == "run" and event["data"]["id"] == run["id"]:
                events.append(event)
                if event["data"]["state"] == "finished":
                    break
    return events


async def test_a_repeated_post(a: Outsider, b: Outsider, free_hour: datetime) -> None:
    """Equal POSTs with one key create one task, even concurrently; another document conflicts."""
    body = {
        "test": {"type": "idle", "spec": {"duration": "PT2S"}},
        "participants": ["a", "b"],
        "schedule": hour_of(free_hour),
    }
    key = {"Idempotency-Key": str(uuid4())}
    requests = (a.ask("POST", "/v1/tasks", body, key) for _ in range(8))
    answers = [*await asyncio.gather(*requests), await a.ask("POST", "/v1/tasks", body, key)]
    assert {answer.status for answer in answers} == {201}
    (created,) = {answer.body["id"] for answer in answers}
    other = await a.ask("POST", "/v1/tasks", {**body, "priority": 3}, key)
    assert (other.status, other.body["title"]) == (409, "Conflict with the current state")
    page = await b.get("/v1/tasks", limit=500)
    newer = itertools.takewhile(lambda task: task["id"] != created, page["items"])
    assert all(task["created_at"] > answers[0].body["created_at"] for task in newer)


@pytest.mark.nightly
async def test_twenty_compete_for_an_exclusive_hour(
    nodes: list[Outsider], free_hour: datetime, everywhere: Everywhere
) -> None:
    """The runs that fit are booked everywhere without overlap, and the others have the obstacle."""
    a, b, _ = nodes
    leads = list(itertools.islice(itertools.cycle(nodes), 20))
    spec = {"duration": "PT5M", "class": "exclusive"}
    schedule = hour_of(free_hour, slip="PT55M")
    tasks = await asyncio.gather(
        *(lead.create("idle", a, b, spec=spec, schedule=schedule) for lead in leads)
    )

    async def explained(lead: Outsider, task: Json) -> Json:
        seen = await lead.until(
            f"/v1/tasks/{task['id']}/runs",
            lambda found: (
                found["items"]
                and (found["items"][0]["state"] == "scheduled" or found["items"][0]["reason"])
            ),
        )
        return seen["items"][0]

    created = {task["id"] for task in tasks}
    within = {"from": free_hour.isoformat(), "to": (free_hour + HOUR).isoformat()}
    await a.until(
        f"/v1/runs?{urlencode({**within, 'state': 'scheduled', 'limit': 500})}",
        lambda found: sum(run["task"] in created for run in found["items"]) == 12,
    )
    runs = await asyncio.gather(*map(explained, leads, tasks))
    placed = sorted((run for run in runs if run["state"] == "scheduled"), key=booked_start)
    assert [instant(run["starts_at"]) for run in placed] == [
        free_hour + n * 5 * MINUTE for n in range(12)
    ]
    for run in placed:
        for node in (a, b):
            await node.until_state(run, "scheduled")
        assert {booked(each) for each in await everywhere(run)} == {booked(run)}
    waiting = [run for run in runs if run["state"] == "waiting"]
    assert len(waiting) == 8
    for run in waiting:
        assert re.match(
            r"[ab]: (no 5 min free: busy with|its time was just taken by) an exclusive "
            r"(idle run of priority 0|run that another node leads), "
            r"|a and b have no 5 min free at the same time in this window$",
            run["reason"],
        ), run["reason"]


def booked_start(run: Json) -> str:
    """Return the start by which runs are sorted."""
    return str(run["starts_at"])


async def test_priority(
    a: Outsider, b: Outsider, c: Outsider, free_hour: datetime, everywhere: Everywhere
) -> None:
    """A higher priority displaces a lower one, which moves in its window; an equal one waits."""
    spec = {"duration": "PT20M", "class": "exclusive"}
    flexible = hour_of(free_hour, slip="PT40M")
    rigid = hour_of(free_hour, slip="PT0S")
    low = await a.create("idle", a, b, spec=spec, schedule=flexible)
    first = await a.run(low)
    await b.until_state(first, "scheduled")
    high = await c.create("idle", b, c, spec=spec, schedule=rigid, priority=5)
    run = await c.until_state(await c.run(high), "scheduled")
    assert instant(run["starts_at"]) == free_hour
    lost = await a.until_state(first, "displaced")
    assert "displaced by a run of higher priority" in lost["reason"]
    path = f"/v1/tasks/{low['id']}/runs"
    seen = await a.until(
        path, lambda page: any(each["state"] == "scheduled" for each in page["items"])
    )
    (moved,) = [each for each in seen["items"] if each["state"] == "scheduled"]
    assert (moved["attempt"], moved["slot"]) == (2, first["slot"])
    assert moved["starts_at"] == run["ends_at"]
    await b.until_state(moved, "scheduled")
    assert {booked(each) for each in await everywhere(moved)} == {booked(moved)}
    equal = await b.create("idle", b, spec=spec, schedule=rigid, priority=5)
    waiting = await b.run(equal)
    assert (waiting["state"], "of priority 5" in waiting["reason"]) == ("waiting", True)
    assert (await c.get(f"/v1/runs/{run['id']}"))["state"] == "scheduled"
