"""The owner of a host limits what other nodes may have of it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from prometheus_client.exposition import generate_latest

from node.cli import services
from node.model import times
from node.model.errors import HostError, LimitUsedUp
from node.model.host_limits.document import EVERYTHING
from node.model.wire.participants import HoldAnswer, HostLimit, Introduction
from node.operation.metrics import registry_of
from node.runtime.settings import Settings
from node.sharing.host_limits import LimitKeeper
from node.store import tasks
from tests.conftest import NewDatabase
from tests.support.booking import HOUR, BookingLead
from tests.support.clocks import START, ManualClock
from tests.support.limits import NOTHING, limit, set_limits
from tests.support.patience import PATIENCE_S
from tests.support.served_nodes import Asker, asker, served
from tests.support.served_pairs import Pair, paired
from tests.support.worlds import ON_ONE_LOOP, hold_request

SMALL = """
version = 1

[who.all]
others = true

[[rule]]
name = "small"
who = ["all"]
tests = ["idle"]
spec = { duration = { "<=" = "PT1M" } }
priority_max = 5
most.tasks = 2
"""
IDLE: dict[str, Any] = {"duration": "PT30S", "class": "exclusive", "participants": ["a", "b"]}


@pytest.fixture
async def pair(
    new_database: NewDatabase, clock: ManualClock, tmp_path: Path
) -> AsyncIterator[Pair]:
    """Return a, which has a user, and b, whose owner has written limits into a file."""
    file = tmp_path / "limits.toml"
    file.write_text(SMALL)
    async with contextlib.AsyncExitStack() as stack:
        a = await stack.enter_async_context(asker("a", await new_database(), clock, tmp_path / "a"))
        b = await stack.enter_async_context(
            served("b", await new_database(), clock, tmp_path / "b", limits=file)
        )
        clock.advance(times.HOUR)
        yield await paired(a, b, clock)


def _document(priority: int = 0, **spec: Any) -> dict[str, Any]:
    start = times.format_instant(START + 3 * times.HOUR)
    test = {"type": "idle", "spec": {**IDLE, **spec}}
    return {"test": test, "schedule": {"start": start}, "priority": priority}


async def _post(a: Asker, **changes: Any) -> tuple[int, Any]:
    return await a.ask("POST", "/v1/tasks", _document(**changes))


async def test_a_task_beyond_the_limits_is_refused_with_what_would_be_allowed(pair: Pair) -> None:
    """The user is told whose limit it is, which rule, at which field, and what it would allow."""
    status, problem = await _post(pair.a, duration="PT2M")
    assert (status, problem["type"].rsplit("/", 1)[-1]) == (403, "limit-refused")
    sentence = 'limit \'small\': the spec\'s duration is "PT2M"; allowed: duration <= "PT1M"'
    assert problem["detail"] == f"b: {sentence}"
    assert problem["limits"] == [
        {
            "node": "b",
            "rule": "small",
            "pointer": "/test/spec/duration",
            "detail": 'the spec\'s duration is "PT2M"',
            "allowed": 'duration <= "PT1M"',
        }
    ]
    assert await pair.at_b("SELECT FROM task") == []
    assert (await _post(pair.a))[0] == 201
    assert [row[0] for row in await pair.at_b("SELECT limit_rule FROM task")] == ["small"]


async def test_the_owner_is_not_limited(pair: Pair) -> None:
    """The limits are for other nodes; a task that the host leads itself may be longer."""
    set_limits(pair.a.node, NOTHING)
    document = _document(duration="PT10M", participants=["a"])
    assert (await pair.a.ask("POST", "/v1/tasks", document))[0] == 201


async def test_a_rule_has_a_number_of_open_tasks(pair: Pair) -> None:
    """Beyond it a task waits with the reason, and is asked about again."""
    statuses = [await _post(pair.a) for _ in range(3)]
    assert [status for status, _ in statuses] == [201, 201, 201]
    participant = statuses[2][1]["participants"][1]
    assert participant["accepted"] is None
    assert participant["reason"] == (
        "b: limit 'small': its lead has 2 of 2 open tasks here; end some, or ask again later"
    )
    assert len(await pair.at_b("SELECT FROM task")) == 2


async def test_an_edit_beyond_the_limits_is_refused(pair: Pair) -> None:
    """A task that is within the limits cannot be edited out of them; it stays as it was."""
    _, task = await _post(pair.a)
    patch = {"test": {"spec": {"duration": "PT2M"}}}
    status, problem = await pair.a.ask("PATCH", f"/v1/tasks/{task['id']}", patch)
    assert (status, problem["limits"][0]["pointer"]) == (403, "/test/spec/duration")


async def test_priority_counts_up_to_what_the_rule_allows(pair: Pair) -> None:
    """A task of a higher priority is accepted, and its runs are booked with the rule's."""
    assert (await _post(pair.a, priority=1000))[0] == 201
    await pair.plan()
    [[there]] = await pair.at_b("SELECT priority FROM run")
    [[here]] = await pair.a.rows("SELECT priority FROM run")
    assert (there, here) == (5, 1000)
    _, task = await pair.a.ask("GET", "/v1/tasks")
    patch = {"priority": 2}
    assert (await pair.a.ask("PATCH", f"/v1/tasks/{task['items'][0]['id']}", patch))[0] == 200
    await pair.a.node.outbox.run_once()
    assert [row[0] for row in await pair.at_b("SELECT priority FROM run")] == [2]


async def test_a_broken_file_changes_nothing(pair: Pair, tmp_path: Path) -> None:
    """The limits that were read before stay in force, and the API says since when and why."""
    file = tmp_path / "limits.toml"
    file.write_text(SMALL.replace('"all"', '"al"'))
    await pair.b.limits.reload()
    shown = await pair.b.limits.for_people()
    assert shown.fault == (
        f"{file}: /rule/0/who/0: there is no [who.al]; did you mean all?; see parley limits check "
        f"{file}"
    )
    assert (shown.text, shown.fault_at) == (SMALL, pair.clock.now())
    assert (await _post(pair.a, duration="PT2M"))[0] == 403
    file.write_text(SMALL.replace("PT1M", "PT3M"))
    await pair.b.limits.reload()
    assert (await pair.b.limits.for_people()).fault is None
    assert (await _post(pair.a, duration="PT2M"))[0] == 201


@pytest.mark.parametrize(
    ("written", "instead", "place"),
    [
        ("duration =", "durration =", "/rule/0/spec/durration: no spec of its tests has this"),
        ('["idle"]', '["idlest"]', "/rule/0/tests: there is no test 'idlest'"),
    ],
)
async def test_a_file_with_an_unknown_word_changes_nothing(
    pair: Pair, tmp_path: Path, written: str, instead: str, place: str
) -> None:
    """A node refuses what its command refuses: a misspelt field could let everything pass."""
    (tmp_path / "limits.toml").write_text(SMALL.replace(written, instead))
    await pair.b.limits.reload()
    shown = await pair.b.limits.for_people()
    assert (shown.text, place in str(shown.fault)) == (SMALL, True)


async def test_changed_limits_bind_tasks_that_were_admitted(pair: Pair, tmp_path: Path) -> None:
    """A task that no rule admits any more gets no time, and gets it again once one does."""
    file = tmp_path / "limits.toml"
    assert (await _post(pair.a))[0] == 201
    file.write_text(NOTHING)
    await pair.b.limits.reload()
    assert (await pair.b.limits.for_people()).refused_tasks == 1
    await pair.plan()
    [[state, reason]] = await pair.a.rows("SELECT state, reason FROM run")
    assert state == "waiting"
    assert "limits of this host: the owner of this host lets this node measure nothing" in reason
    file.write_text(SMALL)
    await pair.b.limits.reload()
    pair.clock.advance(5 * times.MINUTE)
    await pair.plan()
    assert [row[0] for row in await pair.a.rows("SELECT state FROM run")] == ["booked"]


@ON_ONE_LOOP
async def test_a_hold_of_a_task_that_is_not_admitted_is_refused(booker: BookingLead) -> None:
    """A lead that holds without asking gets no time either."""
    task = await _refused(booker)
    answered = await booker.hold(hold_request(task, [HOUR]))
    assert isinstance(answered, HoldAnswer)
    assert (answered.held, answered.refused[0].reason) == ((), "limit 'x': no")


@ON_ONE_LOOP
async def test_time_that_limits_refuse_is_not_offered(booker: BookingLead) -> None:
    """A proposal names the limit."""
    task = await _refused(booker)
    offered = await booker.ask(task, (HOUR, HOUR + times.HOUR))
    assert not offered.free
    [obstacle] = offered.obstacles
    assert isinstance(obstacle, HostLimit)
    assert offered.reason == "no 5 min free: limit 'x': no"


async def _refused(booker: BookingLead) -> Introduction:
    """Return a task of a that the limits of b do not admit any more."""
    task = await booker.task()
    await booker.site.execute("UPDATE task SET limit_refusal = $1", "limit 'x': no")
    return task


async def test_an_edit_does_not_evade_the_number_of_tasks(pair: Pair) -> None:
    """A task that an edit brings under another rule counts there; if that is full, it stays out."""
    brief = SMALL[SMALL.index("[[rule]]") :].replace('"small"', '"brief"').replace("PT1M", "PT20S")
    small = SMALL.index("[[rule]]")
    two = SMALL[:small] + brief.replace("most.tasks = 2", "most.tasks = 1") + SMALL[small:]
    await limit(pair.b, two)
    assert (await _post(pair.a, duration="PT10S"))[0] == 201
    _, task = await _post(pair.a, duration="PT30S")
    async with pair.a.node.database.connection() as connection:
        known = await tasks.fetch(connection, UUID(task["id"]))
    assert known is not None
    introduced = known.introduction(1)
    spec = {**introduced.spec, "duration": "PT10S"}
    edited = introduced.model_copy(update={"spec": spec, "revision": 2, "duration": 10_000_000})
    with pytest.raises(LimitUsedUp, match="'brief': its lead has 1 of 1 open tasks"):
        await pair.b.acceptance.consider(pair.a.node.card.identity, edited)
    assert await pair.at_b("SELECT revision FROM task WHERE revision > 1") == []


async def test_a_task_can_be_tried(pair: Pair) -> None:
    """The owner learns what would become of another node's task, and what that node has left."""
    await limit(pair.a.node, SMALL.replace("most.tasks = 2", 'most.runs = "3/P1D"'))
    body = {"as": "b", "task": _document(priority=9)}
    status, trial = await pair.a.ask("POST", "/v1/limits/trials", body)
    assert (status, trial["allowed"], trial["rule"]) == (200, True, "small")
    assert trial["counted_priority"] == 5
    [left] = trial["left"]
    assert (left["quota"], left["used"], left["left"]) == ("3 runs per day", "0 runs", "3 runs")
    body = {"as": pair.b.card.identity, "task": _document(duration="PT2M")}
    _, trial = await pair.a.ask("POST", "/v1/limits/trials", body)
    assert (trial["allowed"], trial["refusal"]["pointer"]) == (False, "/test/spec/duration")
    for wrong, pointer in (({"as": "x"}, "/as"), ({"as": "a"}, "/as")):
        status, problem = await pair.a.ask("POST", "/v1/limits/trials", {**body, **wrong})
        assert (status, problem["errors"][0]["pointer"]) == (422, pointer)
    elsewhere = {"as": "b", "task": _document(participants=["b"])}
    status, problem = await pair.a.ask("POST", "/v1/limits/trials", elsewhere)
    assert (status, problem["errors"][0]["pointer"]) == (422, "/task/test/spec")
    assert await pair.a.rows("SELECT FROM task") == []


async def test_a_trial_knows_the_targets_that_are_never_reached(pair: Pair) -> None:
    """A task that the node would refuse for its target is not said to be allowed."""
    await limit(pair.a.node, EVERYTHING)
    for host, allowed in (("10.7.7.7", False), ("169.254.169.254", False), ("192.0.2.7", True)):
        test = {"type": "rtt", "spec": {"source": "a", "dest": host}}
        body = {"as": "b", "task": {"test": test}}
        status, trial = await pair.a.ask("POST", "/v1/limits/trials", body)
        assert (status, trial["allowed"]) == (200, allowed), host
        assert (trial["rule"] is None) is not allowed
        refusal = trial["refusal"]
        assert allowed or f"{host} is " in refusal["detail"], refusal


async def test_a_node_tells_others_what_they_may_have(pair: Pair, tmp_path: Path) -> None:
    """A node that is asked answers with its rules for the one that asks, and what is left."""
    (tmp_path / "limits.toml").write_text(SMALL + 'most.runs = "3/P1D"\n')
    await pair.b.limits.reload()
    status, granted = await pair.a.ask("GET", "/v1/nodes/b/limits")
    assert (status, granted["node"]) == (200, "b")
    [rule] = granted["rules"]
    assert rule["what"] == 'idle; duration <= "PT1M"'
    assert rule["most"] == "priority 5; 2 open tasks; 3 runs per day"
    assert rule["left"][0]["left"] == "3 runs"
    [given] = await pair.b.limits.granted_to({"a": pair.a.node.card.identity})
    assert given.model_dump(mode="json") == {**granted, "node": "a"}
    assert (await pair.a.ask("GET", "/v1/nodes/a/limits"))[0] == 409
    assert (await pair.a.ask("GET", "/v1/nodes/x/limits"))[0] == 404


async def test_shares_of_leads_are_in_the_same_file(pair: Pair, tmp_path: Path) -> None:
    """Shares in the file apply once it is read, and end once it is read without them."""
    shares = f'[shares]\n"{pair.a.node.card.identity}" = 3\nothers = 2\n'
    (tmp_path / "limits.toml").write_text(SMALL + shares)
    await pair.b.limits.reload()
    listed = await pair.b.lead_shares.all()
    assert {each.lead: each.share for each in listed} == {"a": 3, "others": 2}
    (tmp_path / "limits.toml").write_text(SMALL)
    await pair.b.limits.reload()
    assert await pair.b.lead_shares.all() == []


@pytest.mark.nightly
async def test_use_is_measured(pair: Pair) -> None:
    """Metrics say how much of the quotas is used, and not by whom."""
    await limit(pair.b, SMALL.replace("most.tasks = 2", 'most.time = "PT5M/P1D"'))
    assert (await _post(pair.a))[0] == 201
    await pair.plan()
    pair.b.settings.state_dir.mkdir(exist_ok=True)
    start = START + 3 * times.HOUR
    pair.clock.advance(start - pair.clock.now())
    text = generate_latest(await registry_of(pair.b)).decode()
    [line] = [each for each in text.splitlines() if each.startswith("parley_limit_used{")]
    assert line.startswith('parley_limit_used{period="P1D",quantity="time",rule="small"} 3')
    assert 'parley_limit_reached{rule="small"} 0.0' in text.splitlines()


async def test_a_missing_or_faulty_file_stops_the_start(
    new_database: NewDatabase, clock: ManualClock, tmp_path: Path
) -> None:
    """A node does not serve with other limits than its owner has written."""
    for text, says in ((None, "there is no file"), ("version = 3", "/version: is 3")):
        file = tmp_path / "limits.toml"
        if text is not None:
            file.write_text(text)
        with pytest.raises(HostError, match=says):
            async with served("a", await new_database(), clock, tmp_path, limits=file):
                pass


@pytest.mark.nightly
async def test_a_hangup_reads_the_limits_again(
    new_database: NewDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SIGHUP lets a running service read the file again."""
    ready, reread = asyncio.Event(), asyncio.Event()
    monkeypatch.setattr(services, "_announce_ready", lambda *_, **__: ready.set())
    reload = LimitKeeper.reload

    async def reloaded(keeper: LimitKeeper) -> None:
        await reload(keeper)
        reread.set()

    monkeypatch.setattr(LimitKeeper, "reload", reloaded)
    file = tmp_path / "limits.toml"
    file.write_text(SMALL)
    settings = Settings(
        dsn=await new_database(empty=True),
        state_dir=tmp_path / "state",
        listen="127.0.0.1:0",
        url="http://127.0.0.1:8642",
        limits=file,
    )
    serving = asyncio.create_task(services._serve(settings, with_node=True, with_lead=False))
    loop = asyncio.get_running_loop()
    try:
        await asyncio.wait_for(ready.wait(), PATIENCE_S)
        os.kill(os.getpid(), signal.SIGHUP)
        await asyncio.wait_for(reread.wait(), PATIENCE_S)
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.wait_for(serving, PATIENCE_S)
    finally:
        for each in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            loop.remove_signal_handler(each)
