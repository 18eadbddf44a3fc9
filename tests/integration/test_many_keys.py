"""Nodes whom no rule names, over HTTP: what twenty keys of one hand leave to an honest one.

The limits are those of a host whose owner has written none. Each key signs its own requests.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import pytest

from node.client.peers import Peer, Peers
from node.model import times
from node.model.classes import SchedulingClass
from node.model.host_limits.document import DEFAULT
from node.model.wire.nodes import NodeCard
from node.model.wire.participants import HoldAnswer, Introduction
from node.model.wire.tasks import Participant as Listed
from node.model.wire.tasks import Schedule
from node.store import nodes
from node.trust.keys import NodeKey
from node.trust.signer import Signer
from tests.conftest import NewDatabase
from tests.support.clocks import START, ManualClock
from tests.support.limits import limit
from tests.support.served_nodes import Asker, asker
from tests.support.worlds import commit_request, exchange_of, hold_request, introduce

HOUR = START // times.HOUR * times.HOUR + 5 * times.HOUR
CROWD = 20
MINUTE = times.MINUTE
PING = 20 * times.SECOND


@dataclass
class Key:
    """A key that the host knows, with whatever it has been granted."""

    identity: str
    host: Peer
    held: int = 0
    reasons: tuple[str, ...] = ()

    async def book(self, task: Introduction, starts_at: int, slot: int = HOUR) -> None:
        """Introduce a task, hold its run of a slot at an instant, and commit it."""
        answer = await self.host.introduce(task)
        assert answer.accepted, answer
        request = hold_request(task, [slot])
        [run] = request.runs
        placed = run.model_copy(
            update={"starts_at": starts_at, "ends_at": starts_at + task.duration}
        )
        request = request.model_copy(update={"runs": (placed,), "tool": task.tool})
        exchange = exchange_of(request)
        held: HoldAnswer = await self.host.hold(exchange, request)
        self.held += len(held.held)
        self.reasons += tuple(each.reason for each in held.refused)
        if held.held:
            await self.host.commit(exchange, commit_request(request))


@dataclass
class Crowd:
    """A host with default limits; twenty greedy keys, and an honest one."""

    host: Asker
    greedy: list[Key]
    honest: Key

    def exclusive(self) -> Introduction:
        """Return a task of a minute each hour that may slip for most of it."""
        schedule = Schedule(start=HOUR, repeat=times.HOUR, slip=50 * MINUTE)
        spec = {"duration": "PT1M", "class": "exclusive", "participants": ["h"]}
        made = introduce([self._host()], duration=MINUTE, schedule=schedule)
        return made.model_copy(update={"spec": spec, "created_at": START})

    def background(self, number: int) -> Introduction:
        """Return a task of some 0.7 Mb/s to a target of its own."""
        kind = SchedulingClass.BACKGROUND
        schedule = Schedule(start=HOUR, repeat=times.HOUR, slip=MINUTE)
        made = introduce([self._host()], scheduling_class=kind, duration=PING, schedule=schedule)
        spec = {
            "source": "h",
            "dest": f"198.51.100.{number}",
            "count": 750,
            "interval": "PT0.02S",
            "length": 1_200,
        }
        changes = {"test": "rtt", "tool": "ping", "spec": spec, "created_at": START}
        return made.model_copy(update=changes)

    def _host(self) -> Listed:
        card = self.host.node.card
        return Listed(
            node=card.identity,
            name=card.name,
            url=card.url,
            address=card.address,
            accepted=True,
            tools=("sleep", "ping"),
        )


@pytest.fixture
async def crowd(
    new_database: NewDatabase, clock: ManualClock, tmp_path: Path
) -> AsyncIterator[Crowd]:
    """Return a host over HTTP that knows twenty-one keys."""
    async with AsyncExitStack() as stack:
        host = await stack.enter_async_context(asker("h", await new_database(), clock, tmp_path))
        session = await stack.enter_async_context(aiohttp.ClientSession(auto_decompress=False))
        keys = []
        for number in range(CROWD + 1):
            key = NodeKey.generate()
            card = NodeCard(
                identity=key.identity, name=f"k{number}", url=None, address="192.0.2.9", version="1"
            )
            async with host.node.database.transaction() as connection:
                await nodes.keep(connection, card, clock.now())
            peers = Peers(session, Signer(key, clock.now), timeout_s=30)
            there = peers.client_of(host.node.core.identity, "h", host.node.card.url)
            keys.append(Key(key.identity, there))
        await host.node.directory.refresh()
        await limit(host.node, DEFAULT)
        yield Crowd(host, keys[:-1], keys[-1])


@pytest.mark.nightly
async def test_two_keys_leave_an_honest_node_its_part(crowd: Crowd) -> None:
    """Two keys, as often as they ask, leave a third of all kinds to another node."""
    asked = 0
    for greedy in crowd.greedy[:2]:
        for _ in range(9):
            asked += 1
            await greedy.book(crowd.exclusive(), HOUR + 2 * asked * MINUTE)
            await greedy.book(crowd.background(asked), HOUR)
    assert {each.held for each in crowd.greedy[:2]} == {1 + 4}
    assert "limit 'background runs of each other': 3 Mb/s at one time used" in str(
        crowd.greedy[0].reasons
    )
    await crowd.honest.book(crowd.exclusive(), HOUR)
    for number in range(4):
        await crowd.honest.book(crowd.background(100 + number), HOUR)
    assert (crowd.honest.held, crowd.honest.reasons) == (1 + 4, ())


@pytest.mark.nightly
async def test_twenty_keys_take_what_all_have_together_and_no_more(crowd: Crowd) -> None:
    """Twenty keys of one hand use up what all have together; a node with a rule keeps its own."""
    for number, greedy in enumerate(crowd.greedy):
        await greedy.book(crowd.exclusive(), HOUR + 2 * number * MINUTE)
        await greedy.book(crowd.background(number), HOUR)
    assert sum(each.held for each in crowd.greedy) == 3 + 13
    # In this hour nothing is left to an honest node, …
    await crowd.honest.book(crowd.exclusive(), HOUR + 45 * MINUTE)
    await crowd.honest.book(crowd.background(100), HOUR)
    time, rate = crowd.honest.reasons
    assert time.startswith("limit 'exclusive runs of all others': 3 min of 3 min per hour used")
    assert rate.startswith("limit 'background runs of all others': 10 Mb/s at one time used")
    # … but in the next one, and by a rule that names it at once.
    await crowd.honest.book(crowd.exclusive(), HOUR + times.HOUR, HOUR + times.HOUR)
    mine = f'{DEFAULT}\n[who.mine]\nkeys = ["{crowd.honest.identity}"]\n'
    await limit(crowd.host.node, f'{mine}\n[[rule]]\nname = "mine"\nwho = ["mine"]\n')
    await crowd.honest.book(crowd.exclusive(), HOUR + 45 * MINUTE)
    await crowd.honest.book(crowd.background(101), HOUR)
    assert crowd.honest.held == 3
