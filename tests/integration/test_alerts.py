"""Alerts are raised and over in the transaction that ends a run, listed, and told to webhooks."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest

from node.api.events import visible_events
from node.journal.events import Event
from node.model import times
from node.model.alerts import RunEvidence, rules_of
from node.model.ids import TaskId, run_id
from node.model.outcome import Judgement
from node.model.principals import Principal, PrincipalKind, Role
from node.model.wire.tasks import Schedule
from node.store import alerts, runs
from node.store.runs import KeptPart
from tests.conftest import NewDatabase
from tests.integration.test_webhooks import Receiver, add, receiver, tell
from tests.support.clocks import START, ManualClock
from tests.support.served_nodes import Asker, asker, give_token, user
from tests.support.worlds import World, introduction

__all__ = ("receiver",)

TASK = UUID("00000000-0000-4000-8000-00000000000a")
REFERENCE = {"mesh": "lab", "thresholds": {"loss": {"fair": 0.01, "bad": 0.05}}}
_TASK = """
    INSERT INTO task (
        id, lead, test, spec, scheduling_class, duration, participants, participant, schedule,
        created_at, reference, requester
    )
    SELECT
        $1, node.identity, 'rtt', '{"dest": "192.0.2.7"}', 'background-multi', interval '1 s',
        '[{"node": "x", "name": "a", "url": null, "address": "a"}]', 0, '{}', $2, $3, 'alice'
    FROM node WHERE node.is_self
"""
LINE = "rtt  a → 192.0.2.7"


@dataclass(frozen=True)
class Loss:
    """A figure of a result."""

    value: float
    name: str = "loss"
    labels: dict[str, str] = field(default_factory=lambda: {"direction": "forward"})


@pytest.fixture
async def a(new_database: NewDatabase, clock: ManualClock, tmp_path: Path) -> AsyncIterator[Asker]:
    """Serve a node that leads a task with thresholds."""
    async with asker("a", await new_database(), clock, tmp_path / "a") as client:
        await client.rows(_TASK, TASK, START, REFERENCE)
        yield client


async def _measure(a: Asker, clock: ManualClock, *values: float) -> None:
    """End a run for each of these values of loss, a minute apart."""
    for value in values:
        clock.advance(times.MINUTE)
        evidence = RunEvidence(Judgement.BAD, None, [Loss(value)])
        async with a.node.database.transaction() as connection:
            rules = rules_of(REFERENCE)
            await alerts.evaluate(connection, (uuid4(), TASK), rules, evidence, a.node.clock.now())


async def _listed(a: Asker, query: str = "") -> list[dict[str, Any]]:
    status, answer = await a.ask("GET", f"/v1/alerts{query}")
    assert status == 200, answer
    return list(answer["items"])


async def test_an_alert_is_listed_told_and_over(
    a: Asker, receiver: Receiver, clock: ManualClock
) -> None:
    """Two bad runs of three raise it, two good ones in a row end it, and each is told once."""
    await add(a, receiver, events=["alert"])
    await _measure(a, clock, 0.06, 0.0)
    assert await _listed(a) == []
    await _measure(a, clock, 0.06)
    [alert] = await _listed(a)
    assert (alert["rule"], alert["value"], alert["state"]) == ("loss.forward", 0.06, "raised")
    assert (alert["headline"], alert["mesh"]) == (LINE, "lab")
    assert alert["sentence"] == "loss.forward is 0.06, bad from 0.05 or more on"
    await tell(a)
    [message] = receiver.got
    assert message["sentence"] == f"{LINE}: {alert['sentence']}"
    assert receiver.told() == [("alert", "begun", alert["id"])]
    await _measure(a, clock, 0.06, 0.0)
    await tell(a)
    assert receiver.told() == []
    await _measure(a, clock, 0.0)
    assert await _listed(a) == []
    [over] = await _listed(a, "?state=over&mesh=lab")
    assert (over["id"], over["state"]) == (alert["id"], "over")
    await tell(a)
    assert [each["sentence"] for each in receiver.got] == [f"{LINE}: loss.forward is over"]
    assert receiver.told() == [("alert", "over", alert["id"])]


async def test_an_alert_is_acknowledged_and_silenced(
    a: Asker, receiver: Receiver, clock: ManualClock
) -> None:
    """Somebody says that they look after it; what is silent is told to no webhook, nor again."""
    await add(a, receiver, events=["alert"])
    await _measure(a, clock, 0.06, 0.06)
    [alert] = await _listed(a)
    at = f"/v1/alerts/{alert['id']}"
    until = times.format_instant(a.node.clock.now() + times.HOUR)
    wanted = {"acknowledged": True, "silent_until": until}
    status, changed = await a.ask("PATCH", at, wanted)
    assert status == 200, changed
    assert changed["acknowledged_at"] is not None
    assert changed["silent_until"] == until
    assert (await a.ask("GET", at))[1] == changed
    await tell(a)
    await _measure(a, clock, 0.0, 0.0, 0.06, 0.06)
    [again] = await _listed(a, f"?task={TASK}")
    assert again["id"] != alert["id"]
    assert (again["silent_until"], again["acknowledged_at"]) == (until, None)
    await tell(a)
    assert receiver.told() == []
    clock.advance(times.HOUR)
    await tell(a)
    assert receiver.told() == [("alert", "begun", again["id"])]
    await a.ask("PATCH", at, {"silent_until": times.format_instant(clock.now() + times.HOUR)})
    await a.ask("PATCH", f"/v1/alerts/{again['id']}", {"silent_until": "2000-01-01T00:00:00Z"})
    await _measure(a, clock, 0.0, 0.0, 0.06, 0.06)
    [third] = await _listed(a)
    assert third["id"] != again["id"]
    assert third["silent_until"] is None  # the end of the silence counts, not an older silence
    _, undone = await a.ask("PATCH", at, {"acknowledged": False})
    assert (undone["acknowledged_at"], undone["acknowledged_by"]) == (None, None)
    assert (await a.ask("GET", f"/v1/alerts/{uuid4()}"))[0] == 404


def test_a_run_that_changes_nothing_needs_no_query() -> None:
    """Only a run that marks its task otherwise than the ones before is looked at again."""
    rules = rules_of(REFERENCE)
    remembered = [{"outcome": "...", "loss.forward": "..."}, [], []]
    calm, bad = (RunEvidence(Judgement.GOOD, None, [Loss(value)]) for value in (0.0, 0.06))
    assert alerts.is_calm(remembered, rules, calm)
    assert not alerts.is_calm(remembered, rules, bad)
    assert not alerts.is_calm(None, rules, calm)
    assert not alerts.is_calm([{"loss.forward": ".."}, [], []], rules, calm)


async def test_a_user_with_the_role_run_has_the_alerts_of_their_own_tasks(
    a: Asker, clock: ManualClock
) -> None:
    """Alerts of others are in no list, at no id, in no stream, and are silenced by nobody else."""
    await _measure(a, clock, 0.06, 0.06)
    [alert] = await _listed(a)
    path, silenced = f"/v1/alerts/{alert['id']}", {"acknowledged": True}
    seen = Event(1, "alert", {"id": alert["id"], "task": str(TASK), "state": "raised"}, START)
    for label, own in (("alice", 1), ("bob", 0)):
        await give_token(a.node, f"of {label}", label, Role.RUN)
        async with user(a, f"of {label}") as asking:
            assert len(await _listed(asking)) == own
            assert len(await _listed(asking, f"?state=raised,over&task={TASK}&mesh=lab")) == own
            assert (await asking.ask("GET", path))[0] == (200 if own else 403)
            assert (await asking.ask("PATCH", path, silenced))[0] == (200 if own else 403)
        principal = Principal(PrincipalKind.TOKEN, label, Role.RUN)
        assert len(await visible_events(a.node, principal, [seen])) == own


async def test_a_task_that_is_over_has_no_raised_alerts(a: Asker, clock: ManualClock) -> None:
    """Nobody is woken by a task that measures no more."""
    await _measure(a, clock, 0.06, 0.06)
    assert len(await _listed(a)) == 1
    await a.rows("UPDATE task SET state = 'cancelled', reason = 'x', ended_at = $1", START)
    assert await _listed(a) == []


@pytest.mark.nightly
async def test_unknown_figures_are_refused_with_what_was_meant(a: Asker) -> None:
    """A threshold that no result can meet is a fault of the task."""
    document = {
        "test": {"type": "rtt", "spec": {"dest": "127.0.0.1"}},
        "reference": {"thresholds": {"los": {"fair": 0.01, "bad": 0.05}}},
    }
    status, answer = await a.ask("POST", "/v1/tasks", document)
    assert status == 422
    [fault] = answer["errors"]
    assert fault["pointer"] == "/reference/thresholds/los"
    assert "did you mean loss?" in fault["detail"]


@pytest.mark.asyncio(loop_scope="session")
async def test_runs_without_results_raise_an_alert(world: World) -> None:
    """Two runs that failed in a row are told, with the reason of the second one."""
    site = await world.site("a")
    hour = START + times.HOUR
    schedule = Schedule(start=hour, repeat=times.HOUR, slip=0)
    task = introduction([site], schedule=schedule).model_copy(update={"reference": REFERENCE})
    await site.keep(task, site)
    await site.plan()
    await world.settle()
    starts = [hour, hour + times.HOUR]
    ids = [run_id(TaskId(task.task), start, 1) for start in starts]
    for run, start in zip(ids, starts, strict=True):
        world.clock.move_to(start)
        async with site.database.transaction() as connection:
            assert await runs.begin(connection, run, start)
        part = KeptPart(0, "a", None, "no route", start, start + 1)
        await site.node.collector.keep_own(run, part)
    [[marks]] = await site.rows("SELECT marks FROM alert_memory")
    assert marks == {"outcome": "xx"}
    [row] = await site.rows("SELECT rule, sentence, run_id FROM alert")
    assert (row["rule"], row["run_id"]) == ("outcome", ids[-1])
    assert "no route" in row["sentence"]


async def test_alerts_of_a_clock_that_was_ahead_are_over(a: Asker, clock: ManualClock) -> None:
    """Alerts raised by runs that are still to come are over; usual values are learned again."""
    rules = rules_of({**REFERENCE, "alerts": {"loss": {"change": 3}}})
    await a.node.watch_clock()
    for judgement in (Judgement.MISSED, Judgement.MISSED, Judgement.MISSED, Judgement.BAD):
        clock.step(times.DAY if judgement is Judgement.MISSED else 0)
        await a.node.watch_clock()
        evidence = RunEvidence(judgement, "late", [Loss(0.06)])
        async with a.node.database.transaction() as connection:
            await alerts.evaluate(connection, (uuid4(), TASK), rules, evidence, a.node.clock.now())
    assert {alert["rule"] for alert in await _listed(a)} == {"loss.forward", "outcome"}
    clock.step(-3 * times.DAY)
    await a.node.watch_clock()
    assert [alert["rule"] for alert in await _listed(a)] == ["loss.forward"]
    assert [row[0] for row in await a.rows("SELECT raised FROM alert_memory")] == [["loss.forward"]]
    now = a.node.clock.now()
    assert await a.rows("SELECT FROM alert WHERE greatest(raised_at, over_at) > $1", now) == []
    assert {row[0] for row in await a.rows("SELECT last_at FROM alert_usual")} == {now}
