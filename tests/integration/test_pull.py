"""Nodes that fetch their work over real HTTP: permissions, lost messages, and absence."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from structlog.testing import capture_logs

from node.api.nodes import _node_document
from node.client.mailboxes import PRESENCE_TIMEOUT
from node.client.peers import Peer, Peers, via_own_node
from node.model import times
from node.model.errors import Conflict, InvalidDocument, NotAllowed, PeerUnreachable
from node.model.wire.nodes import NodeAddition
from node.model.wire.participants import HoldAnswer
from node.model.wire.tasks import Participant as Listed
from node.model.wire.work import Question, WorkRequest
from node.peers.pull import PAUSE_FIRST
from node.store import nodes, tasks
from node.tasks.acceptance import stored_task
from node.trust.signer import Signer
from tests.chaos.links import Wire, WireState
from tests.conftest import NewDatabase
from tests.support.clocks import START, ManualClock
from tests.support.served_nodes import Served, fetching, served
from tests.support.signing import signing_with
from tests.support.worlds import DURATION, commit_request, exchange_of, hold_request, introduce

HOUR = START + times.HOUR


@dataclass
class Pair:
    """A lead, a node that fetches its work from it, and the wire between them."""

    lead: Served
    far: Served
    wire: Wire
    clock: ManualClock

    @property
    def peer(self) -> Peer:
        """Return the node as its lead addresses it."""
        known = self.lead.directory.by_identity(self.far.card.identity)
        return self.lead.peer_of_parley(known)

    async def task(self) -> Any:
        """Create a task that both nodes know."""
        card = self.far.card
        listed = Listed(node=card.identity, name=card.name, url=card.url, address=card.address)
        task = introduce([listed])
        async with self.far.database.transaction() as connection:
            await tasks.keep(connection, stored_task(task, self.lead.card.identity))
        return task

    async def until(self, holds: Callable[[], Any], step: int = times.SECOND // 10) -> None:
        """Let time pass until a condition holds."""
        while not holds():
            self.clock.advance(step)
            async with self.lead.database.connection() as connection:
                await nodes.own_identity(connection)

    async def is_attended(self) -> None:
        """Wait until the lead knows the node's name and the node waits for requests.

        No time passes meanwhile, so that the poll cannot end however slow this is.
        """
        mailbox = self.lead.mailboxes.mailbox_of(self.far.card.identity)
        await self.until(lambda: self.lead.directory.find("b") and mailbox.is_attended, 0)

    async def booked(self) -> list[Any]:
        """Return the runs of the node."""
        async with self.far.database.connection() as connection:
            return list(await connection.fetch("SELECT id, state::text FROM run ORDER BY id"))


@pytest.fixture
async def pair(
    new_database: NewDatabase, clock: ManualClock, tmp_path: Path
) -> AsyncIterator[Pair]:
    """Return a lead that knows the node's key, and the node, which knows the wire; nobody polls."""
    async with contextlib.AsyncExitStack() as stack:
        lead = await stack.enter_async_context(served("a", await new_database(), clock, tmp_path))
        far = await stack.enter_async_context(
            served("b", await new_database(), clock, tmp_path, pull=True)
        )
        settings = lead.settings
        wire = Wire("b", "a", settings.listen_host, settings.listen_port)
        await wire.open()
        stack.push_async_callback(wire.close)
        await lead.registration.add(NodeAddition(identity=far.card.identity))
        async with far.database.transaction() as connection:
            card = lead.card.model_copy(update={"url": wire.url})
            await nodes.keep(connection, card, clock.now())
        await far.directory.refresh()
        yield Pair(lead, far, wire, clock)


def _poll(node: Served, **changes: object) -> WorkRequest:
    now = node.clock.now()
    poll = WorkRequest(card=node.card, now=now, shortfall=0, busy_until=now, wait=0)
    return poll.model_copy(update=changes)


async def _once(node: Served, lead: Served, **changes: object) -> None:
    """Poll once without waiting."""
    peer = node.peers.client_of(lead.card.identity, lead.card.name, lead.card.url)
    await node.peers.fetch(peer, _poll(node, **changes))


async def test_a_key_is_enough(pair: Pair) -> None:
    """A node added by its key alone gets its name and address with its first request."""
    known = pair.lead.directory.by_identity(pair.far.card.identity)
    assert known.name.startswith("unseen-")
    assert (known.url, known.seen_at) == (None, None)
    await pair.lead.peer_monitor.run_once()
    await pair.lead.directory.refresh()
    assert pair.lead.directory.by_identity(pair.far.card.identity) == known
    async with fetching(pair.far):
        await pair.is_attended()
        known = pair.lead.directory.by_identity(pair.far.card.identity)
        assert (known.name, known.url, known.address) == ("b", None, pair.far.card.address)
        assert known.seen_at is not None
        assert (await pair.peer.decision(uuid4())).state == "aborted"


async def test_a_node_that_says_it_has_no_url_is_not_looked_for(pair: Pair) -> None:
    """A node that reports no URL is stored without one, even if it was added by an address."""
    url = pair.far.settings.public_url
    known = await pair.lead.registration.add(NodeAddition(url=url))
    assert (known.name, known.url) == ("b", None)


async def test_a_key_of_ones_own_is_refused(pair: Pair) -> None:
    """A node refuses its own key."""
    with pytest.raises(InvalidDocument, match="is this node itself"):
        await pair.lead.registration.add(NodeAddition(identity=pair.lead.card.identity))


async def test_only_the_node_itself_fetches(pair: Pair, tmp_path: Path) -> None:
    """Requests for a node are not given to another one, even under its name."""
    await _once(pair.far, pair.lead)
    asking = asyncio.create_task(pair.peer.decision(uuid4()))
    box = pair.lead.mailboxes.mailbox_of(pair.far.card.identity)
    await pair.until(lambda: box._waiting)
    stranger = pair.lead.peers.client_of(pair.lead.card.identity, "a", pair.lead.card.url)
    for changes in ({}, {"card": pair.lead.card}):
        with pytest.raises(NotAllowed, match="is known here as a node to be reached at http"):
            await pair.lead.peers.fetch(stranger, _poll(pair.far, **changes))
    with pytest.raises(NotAllowed, match="is known here as a node to be reached at None"):
        await _once(pair.far, pair.lead, card=pair.lead.card)
    assert [waiting.given for waiting in box._waiting.values()] == [None]
    asking.cancel()


async def test_a_name_is_taken_once(pair: Pair) -> None:
    """A node with the name of another known node is refused."""
    with pytest.raises(Conflict, match="another node named a is known here already"):
        await _once(pair.far, pair.lead, card=pair.far.card.model_copy(update={"name": "a"}))


async def test_a_name_is_nobodys_address(pair: Pair) -> None:
    """A node cannot take what is meant for another: its address is not another node's name."""
    card = pair.far.card.model_copy(update={"name": "aa", "address": "a"})
    with pytest.raises(Conflict, match="the address of aa is a, the name of this node"):
        await _once(pair.far, pair.lead, card=card)
    await _once(pair.far, pair.lead)
    card = pair.far.card.model_copy(update={"address": "a"})
    await _once(pair.far, pair.lead, card=card)
    known = pair.lead.directory.find("b")
    assert known is not None
    assert known.address == pair.far.card.address
    assert "the address of b is a, the name of this node" in str(known.last_error)
    await _once(pair.far, pair.lead, card=card.model_copy(update={"address": "b.example"}))
    known = pair.lead.directory.find("b")
    assert known is not None
    assert (known.address, known.last_error) == ("b.example", None)


async def test_errands_are_run_for_the_own_lead_only(pair: Pair) -> None:
    """A node carries requests for its own lead in another process, but not for other nodes."""
    outside = Peers(pair.lead.peers._session, Signer(pair.lead.key, pair.clock.now), timeout_s=5)
    own = outside.client_of(pair.lead.card.identity, "a", pair.lead.card.url)
    outside.carry = via_own_node(outside, own)
    async with fetching(pair.far):
        await pair.is_attended()
        far = outside.client_of(pair.far.card.identity, "b", None)
        assert (await far.decision(uuid4())).state == "aborted"
    foreign = pair.far.peers.client_of(pair.lead.card.identity, "a", pair.lead.card.url)
    pair.far.peers.carry = via_own_node(pair.far.peers, foreign)
    with pytest.raises(NotAllowed, match="for its own lead only"):
        await pair.far.peers.client_of(pair.far.card.identity, "b", None).decision(uuid4())


async def test_a_question_must_be_signed_by_a_lead(pair: Pair) -> None:
    """A request must be signed by a lead; the carrier can neither invent nor change it."""
    path = f"/v1/participant/exchanges/{uuid4()}"
    forged = Question(method="GET", path=path, headers={})
    async with fetching(pair.far):
        await pair.is_attended()
        reply = await pair.lead.mailboxes.carry(pair.peer, forged)
    assert reply.status == 401
    assert "is not signed" in reply.body


@pytest.mark.parametrize("state", [WireState.LOSES_ANSWERS, WireState.CUT])
@pytest.mark.nightly
async def test_a_connection_is_cut_in_the_middle_of_a_hold(
    pair: Pair, state: WireState, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hold is made once and answered in time, whether it or its answer was lost."""
    task = await pair.task()
    request = hold_request(task, [HOUR])
    async with fetching(pair.far):
        await pair.is_attended()
        original = pair.far.time_line.hold

        async def hold_and_cut(*arguments: Any) -> HoldAnswer:
            answer = await original(*arguments)
            pair.wire.set_state(WireState.CUT if state is WireState.CUT else WireState.UP)
            return answer

        monkeypatch.setattr(pair.far.time_line, "hold", hold_and_cut)
        if state is WireState.LOSES_ANSWERS:
            pair.wire.set_state(state)
        exchange = exchange_of(request)
        holding = asyncio.create_task(pair.peer.hold(exchange, request))
        identity = pair.lead.card.identity
        await pair.until(lambda: pair.far.work_puller.fault(identity))
        pair.wire.set_state(WireState.UP)
        assert (pair.wire.lost_answers > 0) == (state is WireState.LOSES_ANSWERS)
        await pair.until(holding.done)
        assert holding.result().held == (request.runs[0].run,)
        committing = asyncio.create_task(pair.peer.commit(exchange, commit_request(request)))
        await pair.until(committing.done)
        assert not committing.result().late
    assert [tuple(row) for row in await pair.booked()] == [(request.runs[0].run, "booked")]


async def test_a_lead_that_is_away_is_found_again(pair: Pair) -> None:
    """Pauses grow while the lead does not answer, and end when it does."""
    pair.wire.set_state(WireState.CUT)
    identity = pair.lead.card.identity
    async with fetching(pair.far):
        await pair.until(lambda: pair.far.work_puller.fault(identity))
        assert "a cannot be reached" in (pair.far.work_puller.fault(identity) or "")
        pair.clock.advance(times.HOUR)
        pair.wire.set_state(WireState.UP)
        await pair.is_attended()
        await pair.until(lambda: pair.far.work_puller.fault(identity) is None)


async def test_a_node_that_is_away_is_said_to_be(pair: Pair) -> None:
    """Both sides report the fault: a lead that is not polled, and a node that is not admitted."""
    await _once(pair.far, pair.lead, shortfall=times.HOUR, busy_until=HOUR)
    await pair.lead.peer_monitor.run_once()
    known = pair.lead.directory.by_identity(pair.far.card.identity)
    pair.clock.advance(PRESENCE_TIMEOUT)
    with capture_logs() as lines:
        await pair.lead.peer_monitor.run_once()
        await pair.lead.peer_monitor.run_once()
    [line] = [line for line in lines if line["event"] == "a node does not answer"]
    assert (line["node"], "has not asked since" in line["error"]) == ("b", True)
    await pair.lead.directory.refresh()
    known = pair.lead.directory.by_identity(pair.far.card.identity)
    assert known.last_error == (
        "b cannot be reached: it fetches its work itself and has not asked since "
        "2026-12-01T00:00:00Z"
    )
    document = _node_document(pair.lead, known)
    assert (document.url, document.shortfall, document.busy_until) == (None, times.HOUR, HOUR)
    with pytest.raises(PeerUnreachable, match="has not asked since"):
        await pair.peer.decision(uuid4())
    with capture_logs() as lines:
        await _once(pair.far, pair.lead)
        await pair.lead.peer_monitor.run_once()
    assert [line["node"] for line in lines if line["event"] == "a node answers again"] == ["b"]
    assert pair.lead.directory.by_identity(pair.far.card.identity).last_error is None

    await pair.lead.node_removal.remove("b")
    async with fetching(pair.far):
        await pair.until(lambda: pair.far.work_puller.fault(pair.lead.card.identity))
        await pair.far.peer_monitor.run_once()
        await pair.far.directory.refresh()
        error = pair.far.directory.by_identity(pair.lead.card.identity).last_error or ""
    assert "does not know this node" in error


async def test_the_figures_are_those_of_the_run_table(pair: Pair) -> None:
    """The figures are computed from the run table: missing work and end of occupation."""
    task = await pair.task()
    begins = START + times.MINUTE
    await pair.far.time_line.hold(
        exchange_of(task), pair.lead.card.identity, hold_request(task, [begins])
    )
    pair.clock.move_to(begins + times.MINUTE)
    figures = await pair.far.free_time.read()
    assert figures.busy_until == begins + DURATION
    assert figures.missing == times.DAY - (DURATION - times.MINUTE)
    assert await pair.far.free_time.read() is figures


async def test_a_lead_that_never_waits_is_not_asked_without_end(
    pair: Pair,
) -> None:
    """A lead that answers long polls at once with nothing is polled after growing pauses."""

    async def nothing(_: web.Request) -> web.Response:
        return web.json_response({"questions": []})

    app = web.Application(middlewares=[signing_with(pair.lead.key)])
    app.router.add_post("/v1/participant/work", nothing)
    async with TestServer(app) as server:
        async with pair.far.database.transaction() as connection:
            card = pair.lead.card.model_copy(update={"url": str(server.make_url("")).rstrip("/")})
            await nodes.keep(connection, card, pair.clock.now())
        async with fetching(pair.far):
            for failures in range(5):
                await pair.until(lambda: pair.clock._sleeping, 0)
                pause = pair.clock._sleeping[0][0] - pair.clock.monotonic()
                undrawn = PAUSE_FIRST << failures
                assert undrawn // 2 <= pause <= undrawn + undrawn // 2
                fault = pair.far.work_puller.fault(pair.lead.card.identity)
                assert fault == "a returned no question and did not wait for one"
                pair.clock.advance(pause)
