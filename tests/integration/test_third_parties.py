"""A peer learns nothing of third parties' work but when it keeps a node busy."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from node.model import times
from node.model.errors import NotFound
from node.model.wire.impacts import ImpactRequest
from node.model.wire.participants import (
    DecisionAnswer,
    HoldRequest,
    Introduction,
    Obstacle,
    ProposalRequest,
)
from node.model.wire.tasks import Participant, Schedule
from node.store import tasks
from node.tasks.acceptance import stored_task
from tests.conftest import NewDatabase
from tests.support.clocks import START, ManualClock
from tests.support.limits import RANKED_ALIKE, set_limits
from tests.support.served_nodes import Served, know, served
from tests.support.worlds import DURATION, exchange_of, hold_request, introduce

HOUR = START + times.HOUR
WINDOW = (HOUR, HOUR + DURATION)


@dataclass
class Trio:
    """Node b, busy with a run of c's task; a is another lead."""

    a: Served
    b: Served
    c: Served
    busy: Introduction
    hold: HoldRequest

    def secrets(self) -> list[str]:
        """Return what only c and the owner of b may know."""
        return [str(self.busy.task), str(self.hold.runs[0].run), "idle", "priority 7"]


@pytest.fixture
async def trio(
    new_database: NewDatabase, clock: ManualClock, tmp_path: Path
) -> AsyncIterator[Trio]:
    """Serve three nodes that know each other, and let c hold a run on b."""
    async with contextlib.AsyncExitStack() as stack:
        a, b, c = [
            await stack.enter_async_context(served(name, await new_database(), clock, tmp_path))
            for name in "abc"
        ]
        await know(a, b, c)
        await know(b, a, c)
        await know(c, a, b)
        set_limits(b, RANKED_ALIKE)
        busy = await _introduced(c, b, priority=7)
        hold = hold_request(busy, [HOUR])
        assert (await c.peer(b.card.identity).hold(exchange_of(busy), hold)).held
        yield Trio(a, b, c, busy, hold)


async def _introduced(lead: Served, participant: Served, **options: Any) -> Introduction:
    card = participant.card
    listed = Participant(node=card.identity, name=card.name, url=card.url, address=card.address)
    task = introduce([listed], schedule=Schedule(start=HOUR, slip=0), **options)
    assert (await lead.peer(card.identity).introduce(task)).accepted
    return task


def _proposal(task: Introduction, priority: int = 0) -> ProposalRequest:
    return ProposalRequest(
        task=task.task,
        lease_epoch=1,
        scheduling_class=task.scheduling_class,
        duration=DURATION,
        priority=priority,
        windows=(WINDOW,),
    )


async def test_what_keeps_a_node_busy(trio: Trio) -> None:
    """The class and the time of a third party's run are told; its lead and the owner hear more."""
    wanted = await _introduced(trio.a, trio.b)
    peer = trio.a.peer(trio.b.card.identity)
    proposal = await peer.propose(_proposal(wanted))
    sentence = "busy with an exclusive run that another node leads, 2026-12-01T01:00:00Z to 2026-"
    assert sentence in str(proposal.reason)
    held = await peer.hold(exchange_of(wanted), hold_request(wanted, [HOUR]))
    assert "taken by an exclusive run that another node leads" in held.refused[0].reason
    request = ImpactRequest(
        since=START,
        scheduling_class=wanted.scheduling_class,
        priority=9,
        runs=(WINDOW,),
        displacing=(0,),
    )
    impact = await peer.impact(request)
    assert impact.displaced_count == 1
    for told in (proposal, held, impact):
        document = told.model_dump_json()
        assert str(HOUR) in document
        assert not any(secret in document for secret in trio.secrets())
    [kept] = (await trio.c.peer(trio.b.card.identity).impact(request)).displaced
    assert (kept.run, kept.priority) == (trio.hold.runs[0].run, 7)
    own = await trio.b.local_participant.propose(_proposal(wanted))
    theirs = await trio.c.peer(trio.b.card.identity).propose(_proposal(trio.busy))
    for known in (own, theirs):
        assert "busy with an exclusive idle run of priority 7" in str(known.reason)
        [obstacle] = known.obstacles
        assert isinstance(obstacle, Obstacle)
        assert (obstacle.run, obstacle.task) == (trio.hold.runs[0].run, trio.busy.task)


async def test_a_decision_is_for_participants(trio: Trio) -> None:
    """A lead tells its decision to the participants of the task; others get 404."""
    a, b, c = trio.a, trio.b, trio.c
    exchange = exchange_of(trio.busy)
    async with c.database.transaction() as connection:
        await tasks.keep(connection, stored_task(trio.busy, c.card.identity))
        await connection.execute(
            "INSERT INTO negotiation (id, task_id, state, lease_epoch, run_ids, commit_message, "
            "opened_at, expires_at) VALUES ($1, $2, 'committed', 1, $3, $4, $5, $5)",
            exchange,
            trio.busy.task,
            [trio.hold.runs[0].run],
            {"runs": [str(trio.hold.runs[0].run)], "data": {"0": {"port": 8761}}},
            START,
        )
    there = c.card.identity
    with pytest.raises(NotFound, match=f"no exchange {exchange} of a task in which you take part"):
        await a.peer_of_parley(a.directory.by_identity(there))._ask(
            DecisionAnswer, "GET", f"exchanges/{exchange}"
        )
    answered = await b.peer(there).decision(exchange)
    assert answered.state == "committed"
    assert answered.commit is not None
    assert (await a.peer(there).decision(uuid4())).state == "aborted"
