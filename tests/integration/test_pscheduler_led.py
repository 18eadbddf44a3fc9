"""A node as participant of tasks that a node of pScheduler leads, call by call, over TLS."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode
from uuid import UUID, uuid4

import pytest
import pytest_asyncio

from node.model import times
from node.model.wire.campaigns import CampaignDocument, CampaignPatch
from node.model.wire.participants import HoldAnswer
from node.model.wire.tasks import Participant, Schedule
from node.pscheduler.listener import listening
from node.store import clock_steps, tasks
from node.tasks.acceptance import stored_task
from node.trust.sealing import POSTED, SealingKey
from tests.conftest import NewDatabase
from tests.support.clocks import START, ManualClock
from tests.support.loopback import free_port
from tests.support.pscheduler.lead import Lead, LedTask, RefusedByParticipant
from tests.support.served_nodes import Asker, asker
from tests.support.worlds import exchange_of, hold_request, introduce

HOUR = START + times.HOUR
SECOND = times.SECOND
IDLE: dict[str, Any] = {"duration": "PT10S", "host": ["127.0.0.1", "127.0.0.2"], "schema": 2}
DURATION = 19 * SECOND
"""The time that a throughput of ten seconds is booked, by pScheduler's formula."""
OWN_DURATION = 20 * SECOND
LEAD = "pScheduler at 127.0.0.1"


@contextlib.asynccontextmanager
async def serving(
    dsn: str, clock: ManualClock, directory: Path, **settings: Any
) -> AsyncIterator[Asker]:
    """Serve a node to leads of pScheduler meanwhile; none of its loops runs."""
    given = {"pscheduler_allow": "127.0.0.0/8", **settings}
    given |= {"pscheduler_listen": f"127.0.0.1:{free_port()}"}
    async with (
        asker("b", dsn, clock, directory, tls=True, **given) as served,
        listening(served.node),
    ):
        yield served


@pytest_asyncio.fixture
async def node(
    new_database: NewDatabase, clock: ManualClock, tmp_path: Path
) -> AsyncIterator[Asker]:
    """A node that serves leads on its host."""
    async with serving(await new_database(), clock, tmp_path) as served:
        yield served


def lead_of(node: Asker, address: str = "127.0.0.1") -> Lead:
    """Return a lead at an address that knows a node."""
    return Lead(node.node.settings.pscheduler_listen or "", address, node.node.clock)


@pytest.fixture
def lead(node: Asker) -> Lead:
    """A lead on this host."""
    return lead_of(node)


async def asked(node: Asker, method: str, path: str) -> Any:
    """Return what the node answers its owner, who is on its host."""
    url = f"http://{node.node.settings.listen}{path}"
    async with node.session.request(method, url) as response:
        assert response.ok, await response.text()
        return await response.json() if response.status == 200 else None


async def idling(lead: Lead, **more: Any) -> LedTask:
    """A task of two hosts that idle."""
    return await lead.create("idle", IDLE, "sleep", IDLE["host"], **more)


async def expire(node: Asker, clock: ManualClock, span: int) -> None:
    """Let time pass, and the holds that ran out be settled."""
    clock.advance(span)
    await node.node.holds.run_once()


async def test_a_run_is_held_and_committed(node: Asker, lead: Lead) -> None:
    """A run is held by its start and final with the data of all; people see who leads it."""
    task = await idling(lead)
    run, data = await lead.arrange(task, HOUR, HOUR + times.HOUR)
    assert data == [{}, {}]
    found = await lead.run(task, run)
    assert times.parse_instant(found["start-time"]) == HOUR
    assert (found["participant"], found["state"]) == (1, "pending")
    assert found["participants"] == IDLE["host"]
    assert (found["participant-data"], found["participant-data-full"]) == ({}, [{}, {}])
    assert (found["duration"], found["result"], found["result-full"]) == ("PT11S", None, None)
    told = (await lead.ask("GET", f"/tasks/{task.id}", query={"detail": True})).json
    assert (told["tool"], told["_key"], "participants" in told) == ("sleep", None, False)
    assert told["detail"]["participants"] == IDLE["host"]
    shown = await asked(node, "GET", f"/v1/tasks/{task.id}")
    assert (shown["lead"], shown["led_here"]) == (LEAD, False)
    [listed] = (await asked(node, "GET", f"/v1/runs?task={task.id}"))["items"]
    assert (listed["id"], listed["state"], listed["lead"]) == (str(run), "scheduled", LEAD)
    why = await asked(node, "GET", f"/v1/tasks/{task.id}/explain")
    assert f"it is led by {LEAD}, which chooses the times of its runs" in why["sentence"]
    why = await asked(node, "GET", f"/v1/runs/{run}/explain")
    assert f"; led by {LEAD}, which has the parts of the others" in why["sentence"]


async def test_a_lead_that_is_gone_after_the_hold(
    node: Asker, lead: Lead, clock: ManualClock
) -> None:
    """A hold that is not committed ends by itself: no run is left, and the reason is told."""
    task = await idling(lead)
    run = await lead.hold(task, HOUR)
    await expire(node, clock, times.MINUTE)
    assert (await lead.run(task, run))["state"] == "pending"
    await expire(node, clock, 90 * SECOND)
    assert await node.rows("SELECT id FROM run") == []
    assert await node.rows("SELECT id FROM outbox") == []
    with pytest.raises(RefusedByParticipant, match=r"404 Run was held until .* part-data-full"):
        await lead.tell(task, run, [{}, {}])
    with pytest.raises(RefusedByParticipant, match="404 Run was held until"):
        await lead.run(task, run)


async def test_runs_that_are_given_up(node: Asker, lead: Lead) -> None:
    """A hold that is deleted is gone; a final run that is deleted is cancelled, with its reason."""
    task = await idling(lead)
    held = await lead.hold(task, HOUR)
    assert (await lead.give_up(task, held)).text == "OK\n"
    assert await node.rows("SELECT id FROM run") == []
    assert "deleted by its lead" in (await lead.give_up(task, held)).text
    run, _ = await lead.arrange(task, HOUR, HOUR + times.HOUR)
    assert (await lead.give_up(task, run)).status == 200
    assert (await lead.give_up(task, run)).status == 200
    found = await lead.run(task, run)
    assert (found["state"], found["errors"]) == ("canceled", f"cancelled by its lead, {LEAD}")
    assert await node.rows("SELECT id FROM outbox") == []


async def test_a_task_that_is_ended(node: Asker, lead: Lead) -> None:
    """A deleted task has no time any more, which its lead is told; deleting again is harmless."""
    task = await idling(lead)
    run, _ = await lead.arrange(task, HOUR, HOUR + times.HOUR)
    assert (await lead.end(task)).text == "OK\n"
    assert (await lead.end(task)).status == 200
    assert (await lead.run(task, run))["state"] == "canceled"
    with pytest.raises(RefusedByParticipant, match="404 The task is cancelled here"):
        await lead.runtimes(task, HOUR, HOUR + times.HOUR)
    with pytest.raises(RefusedByParticipant, match="404 The task is cancelled here"):
        await lead.hold(task, HOUR)
    assert await node.rows("SELECT id FROM outbox") == []


async def test_the_owner_ends_a_task(node: Asker, lead: Lead) -> None:
    """The owner's end of a task is told to the lead when it asks; no message waits for it."""
    task = await idling(lead)
    await asked(node, "DELETE", f"/v1/tasks/{task.id}")
    with pytest.raises(RefusedByParticipant, match="404 The task is refused here: b withdrew"):
        await lead.runtimes(task, HOUR, HOUR + times.HOUR)
    assert await node.rows("SELECT id FROM outbox") == []


async def test_whole_seconds(lead: Lead) -> None:
    """Offers lie inside what was asked for in whole seconds, and starts are cut to seconds."""
    task = await idling(lead)
    end = HOUR + 30 * SECOND + 700_000
    assert await lead.runtimes(task, HOUR + 250_000, end) == [(HOUR, HOUR + 30 * SECOND)]
    assert await lead.runtimes(task, HOUR, HOUR + 5 * SECOND) == []
    run = await lead.hold(task, HOUR + 999_999)
    found = await lead.run(task, run)
    assert times.parse_instant(found["start-time"]) == HOUR
    assert times.parse_instant(found["end-time"]) == HOUR + 11 * SECOND


async def test_a_hold_is_repeated(lead: Lead, clock: ManualClock) -> None:
    """The same hold again changes nothing; at another start, or in the past, it is a conflict."""
    task = await idling(lead)
    run = await lead.hold(task, HOUR)
    await lead.hold(task, HOUR, run)
    with pytest.raises(RefusedByParticipant, match="409 Run would create a scheduling conflict"):
        await lead.hold(task, HOUR + times.MINUTE, run)
    with pytest.raises(RefusedByParticipant, match=r"409 .*its start has passed"):
        await lead.hold(task, clock.now() - 10 * SECOND)
    await lead.tell(task, run, [{}, {}])
    await lead.tell(task, run, [{}, {}])
    with pytest.raises(RefusedByParticipant, match="400 Participant data is of 3 participants"):
        await lead.tell(task, run, [{}, {}, {}])


async def test_who_may_ask(node: Asker, lead: Lead) -> None:
    """A task answers its key; another key is refused, and so is no key from another host."""
    task = await idling(lead)
    stranger = Lead(lead.host, "127.0.0.9")
    other = LedTask(task.id, task.document, "another key")
    with pytest.raises(RefusedByParticipant, match="403"):
        await stranger.runtimes(other, HOUR, HOUR + times.HOUR)
    with pytest.raises(RefusedByParticipant, match="403"):
        await stranger.hold(other, HOUR)
    assert (await stranger.end(other)).status == 403
    assert await node.rows("SELECT id FROM run") == []
    assert task.key not in (await stranger.ask("GET", f"/tasks/{task.id}")).text


async def test_a_key_that_cannot_be_read_is_one(node: Asker, lead: Lead) -> None:
    """A lead that posted a task with a key does not change it by its address alone."""
    task = await idling(lead)
    lost = SealingKey.generate().seal(task.key, POSTED)
    await node.rows("UPDATE pscheduler_task SET key = $1", lost)
    assert (await lead.end(task)).status == 403
    assert (await lead.ask("DELETE", f"/tasks/{task.id}")).status == 403


async def test_the_same_task_twice(lead: Lead) -> None:
    """A task that is known here cannot be posted again: two participants would be one host."""
    task = await idling(lead)
    with pytest.raises(RefusedByParticipant, match="400 Task error: All participants must be on"):
        await lead.post(task)
    path, query = f"/tasks/{uuid4()}", {"participant": 1}
    replies = await asyncio.gather(
        *(lead.ask("POST", path, task.document, query) for _ in range(3))
    )
    assert sorted(reply.status for reply in replies) == [200, 400, 400]


WAITING = """
SELECT pid FROM pg_locks
WHERE relation = 'pscheduler_task'::regclass AND NOT granted
"""


async def test_a_task_and_its_document_are_one(node: Asker, lead: Lead) -> None:
    """A connection that is lost between a task and its document leaves neither behind."""
    document = {
        "test": {"type": "idle", "spec": IDLE},
        "tool": "sleep",
        "schedule": {},
        "participants": IDLE["host"],
    }
    path, query = f"/tasks/{uuid4()}", {"participant": 1}
    async with node.node.database.transaction() as other:
        await other.execute("LOCK TABLE pscheduler_task IN SHARE MODE")
        posting = asyncio.create_task(lead.ask("POST", path, document, query))
        while not (waiting := await other.fetch(WAITING)):
            assert not posting.done(), posting.result()
        await other.fetch("SELECT pg_terminate_backend($1)", waiting[0]["pid"])
        reply = await posting
    assert (reply.status, reply.content_type) == (503, "text/plain"), reply
    assert await node.rows("SELECT id FROM task") == []
    assert (await lead.ask("POST", path, document, query)).status == 200
    assert (await lead.ask("GET", path)).json["tool"] == "sleep"


@pytest.mark.parametrize(
    ("change", "status", "words"),
    [
        ({"schema": 6}, 400, "Schema version 6 is not supported (highest is 5)"),
        ({"tool": "nuttcp"}, 422, "tools for that here: sleep, snooze"),
        ({"tool": None}, 400, "tool"),
        ({"test": {"type": "nonsense", "spec": {}}}, 422, 'No test "nonsense" is available.'),
        ({"test": {"type": "idle", "spec": {"duration": "10"}}}, 400, "duration"),
        ({"test": {"type": "idle", "spec": {"duration": "PT10S"}}}, 400, "Participant 1 is not"),
        ({"test": {"type": "rtt", "spec": {"dest": "127.0.0.1"}}}, 422, "cannot measure rtt"),
        ({"contexts": [[], [{"context": "changed", "data": {}}]]}, 422, "changed"),
        ({"schedule": {"start": "soon"}}, 400, "start"),
    ],
)
@pytest.mark.mostly_nightly
async def test_tasks_that_are_refused(
    node: Asker, lead: Lead, change: dict[str, Any], status: int, words: str
) -> None:
    """A task that cannot be measured is refused with a line of text, and nothing of it is left."""
    document = {
        "test": {"type": "idle", "spec": IDLE},
        "tool": "sleep",
        "schedule": {},
        "participants": IDLE["host"],
        **change,
    }
    path = f"/tasks/{uuid4()}"
    reply = await lead.ask("POST", path, document, {"participant": 1})
    assert (reply.status, reply.content_type) == (status, "text/plain"), reply
    assert words in reply.text
    assert (await lead.ask("GET", path)).status == 404
    assert await node.rows("SELECT id FROM task") == []


@pytest.mark.parametrize("participant", [0, -1, 2, "first", ""])
@pytest.mark.mostly_nightly
async def test_places_that_do_not_exist(lead: Lead, participant: object) -> None:
    """A task is refused whose participant is its lead, or does not exist."""
    document = {"test": {"type": "idle", "spec": IDLE}, "tool": "sleep", "schedule": {}}
    query = {"participant": participant}
    reply = await lead.ask("POST", f"/tasks/{uuid4()}", document, query)
    assert reply.status == 400, reply
    assert (await lead.ask("POST", f"/tasks/{uuid4()}", document)).status == 400


async def _end(node: Asker, clock: ManualClock) -> int:
    """End the tasks of silent leads, as at a node whose hourly jobs ran all the time."""
    async with node.node.database.connection() as connection:
        while await clock_steps.judge_age(connection, clock.now()) < clock.now():
            pass
    return await node.node.leases.run_once()


async def test_tasks_that_are_left_behind(node: Asker, lead: Lead, clock: ManualClock) -> None:
    """A task ends here after its only run, or a week without one, for its lead does not say it."""
    once, repeated, used = [
        await idling(lead, schedule=schedule)
        for schedule in ({"slip": "PT5M"}, {"repeat": "PT1H"}, {"repeat": "PT1H"})
    ]
    await lead.arrange(once, HOUR, HOUR + times.HOUR)
    clock.advance(3 * times.HOUR)
    await node.node.launcher.recover()
    await node.node.launcher.run_once()
    assert await _end(node, clock) == 1
    clock.advance(8 * times.DAY)
    await lead.hold(used, clock.now() + times.HOUR)
    assert await _end(node, clock) == 1
    rows = await node.rows("SELECT id, state::text, reason FROM task")
    left = "its lead has nothing to come for it"
    assert {row[0]: row[1:] for row in map(tuple, rows)} == {
        once.id: ("finished", left),
        repeated.id: ("finished", left),
        used.id: ("active", None),
    }
    with pytest.raises(RefusedByParticipant, match="404 The task is finished here"):
        await lead.runtimes(once, clock.now(), clock.now() + times.HOUR)
    assert await node.rows("SELECT id FROM outbox") == []


async def test_bad_bodies(lead: Lead) -> None:
    """Every bad body is answered with a line of text, and never with a fault of this node."""
    task = await idling(lead)
    path = f"/tasks/{task.id}/runs/{uuid4()}"
    bodies: list[Any] = [None, [], {}, {"start-time": 5}, {"start-time": "soon"}]
    for body in [*bodies, {"part-data-full": 1}]:
        reply = await lead.ask("PUT", path, body, {"key": task.key})
        assert (reply.status, reply.content_type) == (400, "text/plain"), (body, reply)
    for path in (f"/tasks/{task.id}/runs/5", f"/tasks/{uuid4()}/runs/{uuid4()}"):
        begun = {"start-time": "2026-01-01T00:00:00Z"}
        reply = await lead.ask("PUT", path, begun, {"key": task.key})
        assert reply.status == 404, reply


LIMITS = """
version = 1

[who.neighbours]
match = { address = { in-network = "127.0.0.0/30" } }

[[rule]]
name = "neighbours"
who = ["neighbours"]
duration_max = "PT1M"
most.tasks = 1
"""


async def test_a_limit_refuses_with_its_sentence(
    new_database: NewDatabase, clock: ManualClock, tmp_path: Path
) -> None:
    """A task beyond a limit of the owner is refused with the sentence of the limit, and 403."""
    file = tmp_path / "limits.toml"
    file.write_text(LIMITS)
    async with serving(await new_database(), clock, tmp_path, limits=file) as node:
        lead = lead_of(node)
        await idling(lead)
        with pytest.raises(RefusedByParticipant, match="403 Task forbidden by limits:") as refused:
            await idling(lead)
        assert "limit 'neighbours': its lead has 1 of 1 open tasks here" in str(refused.value)
        spec = {**IDLE, "duration": "PT1H"}
        with pytest.raises(RefusedByParticipant, match="403 Task forbidden by limits:"):
            await lead.create("idle", spec, "sleep", IDLE["host"])
        with pytest.raises(RefusedByParticipant, match="403 Task forbidden by limits:"):
            await idling(lead_of(node, "127.0.0.9"))
        assert len(await node.rows("SELECT id FROM task")) == 1


LIMITS_OF_USERS = """
version = 1

[who.unknown]
others = true

[who.visitors]
campaigns = ["visitors"]

[[rule]]
name = "visitors"
who = ["visitors"]
tests = ["idle"]
duration_max = "PT1M"
most.runs_at_once = 1

[[rule]]
name = "unknown"
who = ["unknown"]
"""


async def test_limits_of_users_bind_a_lead(
    new_database: NewDatabase, clock: ManualClock, tmp_path: Path
) -> None:
    """A lead is bound like a user who asks for the campaign of the setting."""
    file = tmp_path / "limits.toml"
    file.write_text(LIMITS_OF_USERS)
    settings = {"limits": file, "pscheduler_campaign": "visitors"}
    async with serving(await new_database(), clock, tmp_path, **settings) as node:
        lead = lead_of(node)
        with pytest.raises(RefusedByParticipant, match="403 Task forbidden by limits:") as refused:
            await measuring(lead)
        assert "limit 'visitors': throughput is not among its tests" in str(refused.value)
        task = await idling(lead)
        await lead.arrange(task, HOUR, HOUR + times.HOUR)
        # What is offered is refused in words, which an empty offer could not have.
        asked = (HOUR, HOUR + 15 * SECOND)
        assert await lead.runtimes(task, *asked) == [asked]
        with pytest.raises(RefusedByParticipant, match=r"403 .*limit 'visitors': 1 of 1 runs at"):
            await lead.hold(task, HOUR + 5 * SECOND)


async def test_a_suspended_campaign_books_nothing(
    new_database: NewDatabase, clock: ManualClock, tmp_path: Path
) -> None:
    """While the campaign of these tasks is suspended, nothing is booked, and its lead reads why."""
    campaign = {"pscheduler_campaign": "visitors"}
    async with serving(await new_database(), clock, tmp_path, **campaign) as node:
        lead, campaigns = lead_of(node), node.node.campaigns
        for name, parent in (("guests", None), ("visitors", "guests")):
            document = {"name": name, "parent": parent}
            await campaigns.create(CampaignDocument.model_validate(document))
        task = await idling(lead)
        booked, _ = await lead.arrange(task, HOUR, HOUR + times.HOUR)
        await campaigns.edit("guests", CampaignPatch.model_validate({"level": 0}))
        later = HOUR + times.MINUTE
        assert await lead.runtimes(task, later, HOUR + times.HOUR) == [(later, HOUR + times.HOUR)]
        with pytest.raises(RefusedByParticipant, match=r"403 .*campaign guests is suspended"):
            await lead.hold(task, later)
        assert (await lead.run(task, booked))["state"] == "pending"


@pytest.mark.nightly
async def test_ended_tasks_do_not_pile_up(
    new_database: NewDatabase, clock: ManualClock, tmp_path: Path
) -> None:
    """The latest ended tasks of each lead stay, as many as the owner keeps of another node."""
    async with serving(await new_database(), clock, tmp_path, peer_ended_tasks=10) as node:
        ended = []
        for address in [*["127.0.0.1"] * 12, "127.0.0.5"]:
            ended.append(await idling(lead_of(node, address)))
            assert (await lead_of(node, address).end(ended[-1])).status == 200
            clock.advance(SECOND)
        kept = await idling(lead_of(node))
        await node.node.surplus_purger.purge(0)
        left = {row[0] for row in await node.rows("SELECT id FROM task")}
        assert left == {task.id for task in [*ended[2:], kept]}


async def test_a_network_that_is_not_allowed(
    new_database: NewDatabase, clock: ManualClock, tmp_path: Path
) -> None:
    """A lead outside the networks that the owner allows is refused in a sentence."""
    allow = {"pscheduler_allow": "127.0.0.8/32"}
    async with serving(await new_database(), clock, tmp_path, **allow) as node:
        with pytest.raises(RefusedByParticipant, match=r"403 127\.0\.0\.1 may not"):
            await idling(lead_of(node))
        task = await idling(lead_of(node, "127.0.0.8"))
        shown = await asked(node, "GET", f"/v1/tasks/{task.id}")
        assert shown["lead"] == "pScheduler at 127.0.0.8"
        start, end = (times.to_datetime(at).isoformat() for at in (HOUR, HOUR + times.HOUR))
        span = urlencode({"start": start, "end": end})
        path = f"/tasks/{task.id}/runtimes"
        # A scheduler asks without its key, and writes its second list behind a question mark, too.
        for query in (span, f"priority=5&api=4?{span}"):
            reply = await lead_of(node, "127.0.0.8").ask("GET", f"{path}?{query}")
            assert reply.json == [{"lower": start, "upper": end}], reply
        assert (await lead_of(node).ask("GET", f"{path}?{span}&key=other")).status == 403


async def test_many_at_once(node: Asker, lead: Lead) -> None:
    """Holds of one task that come at the same time are all booked, each in an exchange."""
    task = await idling(lead)
    starts = [HOUR + number * times.MINUTE for number in range(8)]
    await asyncio.gather(*(lead.hold(task, start) for start in starts))
    assert len(await node.rows("SELECT DISTINCT exchange_id FROM run")) == len(starts)


async def measuring(lead: Lead, **more: Any) -> LedTask:
    """Create a task whose server is the node, which is named by its host and port."""
    spec = {"source": "127.0.0.1", "dest": "127.0.0.2", "dest-node": lead.host}
    named = ["127.0.0.1", lead.host]
    return await lead.create("throughput", {**spec, "duration": "PT10S"}, "iperf3", named, **more)


async def own_run(node: Asker, priority: int, start: int, lead: str | None = None) -> HoldAnswer:
    """Let the node itself, or another lead, hold an exclusive run; return the answer."""
    card = node.node.card
    leading = lead or card.identity
    listed = Participant(node=card.identity, name="b", url=card.url, address=card.address)
    schedule = Schedule(start=start, slip=0)
    made = introduce([listed], priority=priority, schedule=schedule, duration=OWN_DURATION)
    async with node.node.database.transaction() as connection:
        await tasks.keep(connection, stored_task(made, leading))
    request = hold_request(made, [start], displacing=True)
    return await node.node.time_line.hold(exchange_of(request), leading, request)


async def test_two_leads_at_once(node: Asker, lead: Lead) -> None:
    """One of two leads gets the time, and the other one a conflict and then the next time."""
    second = Lead(lead.host, "127.0.0.7")
    first, other = await measuring(lead), await measuring(second)
    outcomes = await asyncio.gather(
        lead.hold(first, HOUR), second.hold(other, HOUR), return_exceptions=True
    )
    [won] = [at for at, each in enumerate(outcomes) if isinstance(each, UUID)]
    [refused] = [each for each in outcomes if isinstance(each, RefusedByParticipant)]
    assert str(refused).startswith("409 Run would create a scheduling conflict: its time was")
    loser, task = [(second, other), (lead, first)][won]
    free = await loser.runtimes(task, HOUR, HOUR + times.HOUR)
    assert free == [(HOUR + DURATION, HOUR + times.HOUR)]
    await loser.arrange(task, HOUR, HOUR + times.HOUR)
    starts = await node.rows("SELECT starts_at FROM run ORDER BY starts_at")
    assert [row[0] for row in starts] == [HOUR, HOUR + DURATION]


async def test_a_run_of_the_node_itself_is_in_the_way(node: Asker, lead: Lead) -> None:
    """Time that the node has booked is neither offered nor booked, and ports differ."""
    task = await measuring(lead)
    assert (await own_run(node, 0, HOUR)).held
    free = await lead.runtimes(task, HOUR, HOUR + times.MINUTE)
    assert free == [(HOUR + OWN_DURATION, HOUR + times.MINUTE)]
    with pytest.raises(RefusedByParticipant, match="409 Run would create a scheduling"):
        await lead.hold(task, HOUR - 5 * SECOND)
    assert len(await node.rows("SELECT id FROM run")) == 1


async def test_a_run_of_higher_priority_before_the_commit(node: Asker, lead: Lead) -> None:
    """A hold gives way to a run of higher priority, which its lead is told at its commit."""
    task = await measuring(lead)
    run = await lead.hold(task, HOUR)
    assert (await own_run(node, 0, HOUR)).held == ()
    assert (await own_run(node, 5, HOUR)).held
    data = await lead.data_of(task, run)
    with pytest.raises(RefusedByParticipant, match="409 Run is in conflict by now: it gave"):
        await lead.tell(task, run, [{}, data])
    states = await node.rows("SELECT state::text FROM run WHERE id = $1", run)
    assert [row[0] for row in states] == ["cancelled"]


async def test_a_run_of_higher_priority_after_the_commit(node: Asker, lead: Lead) -> None:
    """A committed run gives way to nobody: its lead could not be told."""
    task = await measuring(lead)
    run, _ = await lead.arrange(task, HOUR, HOUR + times.MINUTE)
    refused = await own_run(node, 5, HOUR)
    assert (refused.held, len(refused.refused)) == ((), 1)
    assert (await lead.run(task, run))["state"] == "pending"
    assert await node.rows("SELECT id FROM run WHERE state <> 'booked'") == []


async def test_a_task_with_priority(node: Asker, lead: Lead) -> None:
    """A lead that asks with its priority is offered the time of runs of other nodes."""
    assert (await own_run(node, 0, HOUR, "ed25519:another node")).held
    urgent = await measuring(lead, schema=3, priority=7)
    window = HOUR, HOUR + DURATION
    assert await lead.runtimes(urgent, *window) == []
    assert await lead.runtimes(urgent, *window, priority=7, api=4) == [window]
    run = await lead.hold(urgent, HOUR)
    await lead.tell(urgent, run, [{}, await lead.data_of(urgent, run)])
    states = await node.rows("SELECT state::text FROM run ORDER BY priority")
    assert [row[0] for row in states] == ["displaced", "booked"]
    more = await measuring(lead, schema=3, priority=8)
    assert await lead.runtimes(more, *window, priority=8, api=4) == []


async def test_what_is_told_of_the_server(node: Asker, lead: Lead) -> None:
    """The data of the server are its port and version, and a lead must give its own."""
    task = await measuring(lead)
    run = await lead.hold(task, HOUR)
    data = await lead.data_of(task, run)
    assert set(data) == {"schema", "iperf3-version", "server_port"}
    assert (await lead.run(task, run))["duration"] == "PT19S"
    other = await measuring(lead)
    later = await lead.hold(other, HOUR + times.MINUTE)
    assert (await lead.data_of(other, later))["server_port"] != data["server_port"]
    assert node.node.settings.port_first <= data["server_port"]
