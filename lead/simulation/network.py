"""The network between simulated nodes: delays, losses, duplicates, cut links, slow nodes.

A request travels to its receiver, is served there in the receiver's process, and the answer travels
back. Either can be lost or duplicated, and messages can overtake each other. The sender sees what a
real client sees: the answer, the receiver's error, a refused connection, or a timeout, even if the
request has taken effect.
"""

from __future__ import annotations

import asyncio
import math
import random
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextvars import Context
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar
from uuid import UUID

import structlog

from lead.simulation.loop import PROCESS, Process, VirtualLoop
from node.client.peers import SAME_TIME, Peer, Peers
from node.model.errors import ParleyError, PeerUnreachable
from node.model.times import SECOND
from node.model.wire.comparisons import NodeComparison
from node.model.wire.fields import Document
from node.model.wire.host_limits import GrantedLimits
from node.model.wire.impacts import Impact, ImpactRequest
from node.model.wire.nodes import NodeCard
from node.model.wire.participants import (
    BatchReplies,
    BookedRun,
    CommitRequest,
    ConfirmationAnswer,
    ConfirmationRequest,
    DecisionAnswer,
    Differences,
    DigestRequest,
    ExchangeHold,
    FreedTime,
    IntervalsMessage,
    Introduction,
    IntroductionAnswer,
    PartMessage,
    ProposalRequest,
    Release,
    Ruling,
    RunEnd,
    TaskEnd,
)
from node.model.wire.problems import peer_error_of, problem_of
from node.model.wire.shared_campaigns import CampaignUse, CampaignUseRequest
from node.service import NodeService
from node.sharing.shared_campaigns import tell_use

T = TypeVar("T")

log = structlog.get_logger()


class SimulatedService(NodeService, ABC):
    """A node that others reach over the simulated network."""

    @abstractmethod
    def hold_served(self) -> None:
        """Note that a hold was placed here, so that its expiry is awaited."""


class Station(Protocol):
    """A host as the network sees it; ``service`` is None while the host is down."""

    name: str
    identity: str
    card: NodeCard
    service: SimulatedService | None
    process: Process


@dataclass(frozen=True)
class NetworkConditions:
    """The conditions for messages: durations in microseconds, shares of all messages."""

    delay_min: int
    delay_max: int
    loss: float
    duplicates: float
    time_limit: int


@dataclass
class _Request(Generic[T]):
    sender: Station
    receiver: Station
    what: str
    serve: Callable[[SimulatedService], Awaitable[T]]
    answer: asyncio.Future[T | ParleyError]


class Network:
    """The carrier of requests and answers."""

    def __init__(
        self, loop: VirtualLoop, conditions: NetworkConditions, rng: random.Random
    ) -> None:
        self.sent: Counter[str] = Counter()
        self.lost = 0
        self.cut: Counter[frozenset[str]] = Counter()
        self.slow: dict[str, int] = {}
        self._loop = loop
        self._conditions = conditions
        self._rng = rng
        self._places: dict[str, tuple[float, float]] = {}
        self._nobody = Context()
        """The context of messages in transit: they belong to no process, so a crash leaves them."""

    def place(self, station: Station) -> None:
        """Place a host on the map; the delay grows with the distance."""
        self._places[station.name] = (self._rng.random(), self._rng.random())

    async def ask(
        self,
        sender: Station,
        receiver: Station,
        what: str,
        serve: Callable[[SimulatedService], Awaitable[T]],
    ) -> T:
        """Send a request and return the answer.

        :raises ParleyError: the error that the receiver answered, or :class:`PeerUnreachable`.
        """
        process = PROCESS.get()
        if process is not None and not process.alive:
            raise PeerUnreachable("the sender is down")
        self.sent[what] += 1
        answer: asyncio.Future[T | ParleyError] = self._loop.create_future()
        request = _Request(sender, receiver, what, serve, answer)
        for delay in self._copy_delays(sender, receiver):
            self._loop.call_in(delay, self._arrive, request, context=self._nobody)
        limit = self._conditions.time_limit
        timeout = f"{receiver.name} cannot be reached: no answer within {limit / SECOND:g} s"
        expiry = self._loop.call_in(
            limit, _answer, answer, PeerUnreachable(timeout), context=self._nobody
        )
        try:
            outcome = await answer
        finally:
            expiry.cancel()
        if isinstance(outcome, ParleyError):
            raise outcome
        return outcome

    def _copy_delays(self, sender: Station, receiver: Station) -> list[int]:
        """Return the delays of the copies of a message; none if it is lost."""
        conditions = self._conditions
        if self.cut[frozenset((sender.name, receiver.name))] > 0:
            self.lost += 1
            return []
        if conditions.loss and self._rng.random() < conditions.loss:
            self.lost += 1
            return []
        delays = [self._delay(sender, receiver)]
        if conditions.duplicates and self._rng.random() < conditions.duplicates:
            delays.append(self._delay(sender, receiver) * 3)
        return delays

    def _delay(self, sender: Station, receiver: Station) -> int:
        """Return the delay: by distance, a tenth of it on average for queues, and slow hosts."""
        conditions = self._conditions
        far = math.dist(self._places[sender.name], self._places[receiver.name]) / math.sqrt(2)
        base = conditions.delay_min + far * (conditions.delay_max - conditions.delay_min)
        slow = self.slow.get(sender.name, 0) + self.slow.get(receiver.name, 0)
        return round(base + self._rng.expovariate(10) * base) + slow

    def _arrive(self, request: _Request[T]) -> None:
        """Deliver a request to its receiver, which may be down."""
        service = request.receiver.service
        if service is None:
            name = request.receiver.name
            refused = PeerUnreachable(f"{name} cannot be reached: connection refused")
            self._return(request, refused)
            return
        request.receiver.process.start(self._serve(request, service), request.what)

    async def _serve(self, request: _Request[T], service: SimulatedService) -> None:
        outcome: T | ParleyError
        try:
            outcome = await request.serve(service)
        except ParleyError as error:
            outcome = _as_received(error, request.receiver)
        except Exception:
            log.exception("request failed", what=request.what, node=request.receiver.name)
            outcome = _as_received(ParleyError("the node failed"), request.receiver)
        process = PROCESS.get()
        if process is not None and process.alive:
            self._return(request, outcome)

    def _return(self, request: _Request[T], outcome: T | ParleyError) -> None:
        for delay in self._copy_delays(request.receiver, request.sender):
            self._loop.call_in(delay, _answer, request.answer, outcome, context=self._nobody)


def _answer(future: asyncio.Future[T], outcome: T) -> None:
    """Deliver an answer; a duplicate, or one after the timeout, has no effect."""
    if not future.done():
        future.set_result(outcome)


def _serve_item(service: SimulatedService, item: Document, sender: str) -> Awaitable[Document]:
    time_line = service.time_line
    match item:
        case ProposalRequest():
            return service.freed_time.propose(sender, item)
        case ExchangeHold():
            return _hold(service, item, sender)
        case Ruling(commit=CommitRequest() as commit):
            return time_line.commit(item.exchange, commit, sender)
        case Ruling(release=Release() as release):
            return time_line.release(item.exchange, release, sender)
        case _:
            raise TypeError(f"{item!r} is not a request that a node serves")


async def _hold(service: SimulatedService, item: ExchangeHold, sender: str) -> Document:
    """Serve a hold, then have its expiry awaited, whatever the sender hears of it."""
    try:
        return await service.time_line.hold(item.exchange, sender, item.hold)
    finally:
        service.hold_served()


def _as_received(error: ParleyError, receiver: Station) -> ParleyError:
    """Return an error of a receiver as it arrives at the sender."""
    return peer_error_of(problem_of(error), receiver.name)


def _answer_or_error(answer: Document | BaseException, receiver: Station) -> Document | ParleyError:
    """Return an answer, or an error as it arrives at the sender."""
    if isinstance(answer, ParleyError):
        return _as_received(answer, receiver)
    if isinstance(answer, BaseException):
        raise answer
    return answer


class SimulatedPeers(Peers):
    """The other nodes as one host reaches them over the simulated network."""

    def __init__(self, network: Network, here: Station, stations: dict[str, Station]) -> None:
        """Create the peers of ``here``; ``stations`` by identity."""
        self._batches = {}
        self._network = network
        self._here = here
        self._stations = stations

    async def card(self, url: str, identity: str | None = None) -> NodeCard:  # noqa: ARG002
        """Return the card of the node at this URL."""
        station = next(s for s in self._stations.values() if s.card.url == url.rstrip("/"))

        async def card(service: SimulatedService) -> NodeCard:
            return service.card

        return await self._network.ask(self._here, station, "card", card)

    async def has_time(self, url: str, identity: str, now: Callable[[], int]) -> bool:  # noqa: ARG002
        """Return whether a node has the time of this clock."""

        async def time(service: SimulatedService) -> int:
            return service.clock.now()

        try:
            there = await self._network.ask(self._here, self._stations[identity], "card", time)
        except ParleyError:
            return False
        return abs(now() - there) <= SAME_TIME

    def client_of(
        self,
        identity: str,
        name: str,
        url: str | None,
        attributes: Mapping[str, Any] | None = None,  # noqa: ARG002 - all have one version
    ) -> Peer:
        """Return a client for one other node."""
        return SimulatedPeer(
            self, identity, name, url, self._network, self._here, self._stations[identity]
        )


class SimulatedPeer(Peer):
    """A client for one other node over the simulated network; it calls as the sender."""

    def __init__(  # noqa: PLR0913, PLR0917 - the fields of a peer, and both ends
        self,
        peers: Peers,
        identity: str,
        name: str,
        url: str | None,
        network: Network,
        sender: Station,
        receiver: Station,
    ) -> None:
        """Create a client; use :meth:`SimulatedPeers.to`."""
        super().__init__(peers, identity, name, url)
        self._network = network
        self._sender = sender
        self._receiver = receiver

    async def _over(self, what: str, serve: Callable[[SimulatedService], Awaitable[T]]) -> T:
        return await self._network.ask(self._sender, self._receiver, what, serve)

    async def introduce(self, introduction: Introduction) -> IntroductionAnswer:
        """Introduce a task as over HTTP."""
        lead = self._sender.identity
        return await self._over("introduce", lambda s: s.acceptance.consider(lead, introduction))

    async def consider(self, introduction: Introduction) -> IntroductionAnswer:
        """Ask whether the node would accept a task, as over HTTP."""
        lead = self._sender.identity
        return await self._over("consider", lambda s: s.acceptance.judge(lead, introduction))

    async def limits(self) -> GrantedLimits:
        """Ask what its limits allow the sender, as over HTTP."""
        sender = self._sender.identity
        return await self._over("limits", lambda s: s.limits.granted(sender))

    async def impact(self, request: ImpactRequest) -> Impact:
        """Ask for the impact of a task as over HTTP."""
        sender = self._sender.identity
        return await self._over("impact", lambda s: s.impacts.impact(request, sender))

    async def report_freed_time(self, message: FreedTime) -> None:
        """Report freed time as over HTTP."""
        sender = self._sender.identity
        await self._over("freed", lambda s: s.freed_time.plan_waiting_slots(sender, message))

    async def ask_together(
        self,
        path: str,
        answered: type[BatchReplies[Any]],  # noqa: ARG002 - nothing has to be parsed
        items: Sequence[Any],
    ) -> list[Any]:
        """Send several requests in one message as over HTTP: an answer or an error to each."""
        sender = self._sender.identity

        async def each(service: SimulatedService) -> list[Any]:
            pending = (_serve_item(service, item, sender) for item in items)
            answers = await asyncio.gather(*pending, return_exceptions=True)
            return [_answer_or_error(answer, self._receiver) for answer in answers]

        return await self._over(path, each)

    async def decision(self, exchange: UUID) -> DecisionAnswer:
        """Ask for the lead's decision as over HTTP."""
        return await self._over("decision", lambda s: s.time_line.decision(exchange))

    async def booked_run(self, run: UUID) -> BookedRun:
        """Ask another participant for a run, as over HTTP."""
        sender = self._sender.identity
        return await self._over("booked-run", lambda s: s.agreement.answer(sender, run))

    async def end_run(self, end: RunEnd) -> None:
        """Report the end of a run as over HTTP."""
        sender = self._sender.identity
        await self._over("end-run", lambda s: s.termination.apply_run_end(sender, end))

    async def end_task(self, end: TaskEnd) -> None:
        """Report the end of a task as over HTTP."""
        sender = self._sender.identity
        await self._over("end-task", lambda s: s.termination.apply_task_end(sender, end))

    async def confirm(self, request: ConfirmationRequest) -> ConfirmationAnswer:
        """Ask which tasks are still open as over HTTP."""
        sender = self._sender.identity
        return await self._over("confirm", lambda s: s.confirmer.answer(sender, request))

    async def send_part(self, part: PartMessage) -> None:
        """Send a part of a result as over HTTP."""
        sender = self._sender.identity
        await self._over("part", lambda s: s.collector.receive(sender, part))

    async def send_intervals(self, intervals: IntervalsMessage) -> None:
        """Send intermediate results as over HTTP."""
        sender = self._sender.identity
        await self._over("intervals", lambda s: s.collector.receive_intervals(sender, intervals))

    async def compare(self, request: DigestRequest) -> Differences:
        """Compare runs as over HTTP."""
        sender = self._sender.identity
        return await self._over("compare", lambda s: s.compare_digests(sender, request))

    async def campaign_use(self, request: CampaignUseRequest) -> CampaignUse:
        """Ask the other node as over HTTP."""
        sender = self._sender.identity
        return await self._over("uses", lambda s: tell_use(s.database, sender, request))

    async def compare_with_sender(self) -> NodeComparison:
        """Have the other node compare as over HTTP."""
        sender = self._sender.identity
        return await self._over("comparison", lambda s: s.compare_for(sender))
