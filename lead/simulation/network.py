"""The network between simulated nodes: delays, losses, duplicates, cuts, slow nodes.

A request travels to its receiver, is served there in the receiver's process, and its answer travels
back. Either can be lost or come twice, and one sent later may arrive earlier. Who asks sees what a
real client sees: the answer, the receiver's error, a refused connection, or nothing until the time
is over, also where the request has had its effect.
"""

from __future__ import annotations

import asyncio
import math
import random
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextvars import Context
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar
from uuid import UUID

import structlog

from lead.simulation.loop import PROCESS, Process, VirtualLoop
from node.client.peers import Peer, Peers
from node.model.errors import ParleyError, PeerUnreachable
from node.model.times import SECOND
from node.model.wire.fields import Document
from node.model.wire.impacts import Impact, ImpactRequest
from node.model.wire.nodes import NodeCard
from node.model.wire.participants import (
    BatchReplies,
    CommitRequest,
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
    Ruling,
    RunEnd,
    TaskEnd,
)
from node.model.wire.problems import error_of, problem_of
from node.service import NodeService

T = TypeVar("T")

log = structlog.get_logger()


class SimulatedService(NodeService, ABC):
    """A node that others reach over the simulated network."""

    @abstractmethod
    def hold_served(self) -> None:
        """A hold was made here: it will run out."""


class Station(Protocol):
    """A host as the network sees it; ``service`` is None while it is down."""

    name: str
    identity: str
    card: NodeCard
    service: SimulatedService | None
    process: Process


@dataclass(frozen=True)
class NetworkConditions:
    """What messages meet. Durations in microseconds, the others are shares of all messages."""

    delay_min: int
    delay_max: int
    loss: float
    duplicates: float
    time_limit: int


@dataclass
class _Question(Generic[T]):
    """A request on its way."""

    sender: Station
    receiver: Station
    what: str
    serve: Callable[[SimulatedService], Awaitable[T]]
    answer: asyncio.Future[T | ParleyError]


class Network:
    """Carries requests and answers."""

    def __init__(self, loop: VirtualLoop, weather: NetworkConditions, rng: random.Random) -> None:
        """All hosts reach each other until something is cut."""
        self.sent: Counter[str] = Counter()
        self.lost = 0
        self.cut: Counter[frozenset[str]] = Counter()
        self.slow: dict[str, int] = {}
        self._loop = loop
        self._weather = weather
        self._rng = rng
        self._places: dict[str, tuple[float, float]] = {}
        self._nobody = Context()
        """Messages under way belong to no process: they arrive whoever dies meanwhile."""

    def place(self, station: Station) -> None:
        """Put a host somewhere on the map; the farther, the longer the delay."""
        self._places[station.name] = (self._rng.random(), self._rng.random())

    async def ask(
        self,
        sender: Station,
        receiver: Station,
        what: str,
        serve: Callable[[SimulatedService], Awaitable[T]],
    ) -> T:
        """Send a request and wait for what comes back.

        :raises ParleyError: what the receiver answered, or :class:`PeerUnreachable`.
        """
        process = PROCESS.get()
        if process is not None and not process.alive:
            raise PeerUnreachable("the sender is down")
        self.sent[what] += 1
        answer: asyncio.Future[T | ParleyError] = self._loop.create_future()
        question = _Question(sender, receiver, what, serve, answer)
        for delay in self._journeys(sender, receiver):
            self._loop.call_in(delay, self._arrive, question, context=self._nobody)
        limit = self._weather.time_limit
        silence = f"{receiver.name} cannot be reached: no answer within {limit / SECOND:g} s"
        over = self._loop.call_in(
            limit, _answer, answer, PeerUnreachable(silence), context=self._nobody
        )
        try:
            outcome = await answer
        finally:
            over.cancel()
        if isinstance(outcome, ParleyError):
            raise outcome
        return outcome

    def _journeys(self, sender: Station, receiver: Station) -> list[int]:
        """How long each copy of a message is under way; none if it is lost."""
        weather = self._weather
        if self.cut[frozenset((sender.name, receiver.name))] > 0:
            self.lost += 1
            return []
        if weather.loss and self._rng.random() < weather.loss:
            self.lost += 1
            return []
        journeys = [self._delay(sender, receiver)]
        if weather.duplicates and self._rng.random() < weather.duplicates:
            journeys.append(self._delay(sender, receiver) * 3)
        return journeys

    def _delay(self, sender: Station, receiver: Station) -> int:
        """Distance, plus a tenth of it on average for queues, plus what makes either slow."""
        weather = self._weather
        far = math.dist(self._places[sender.name], self._places[receiver.name]) / math.sqrt(2)
        base = weather.delay_min + far * (weather.delay_max - weather.delay_min)
        slow = self.slow.get(sender.name, 0) + self.slow.get(receiver.name, 0)
        return round(base + self._rng.expovariate(10) * base) + slow

    def _arrive(self, question: _Question[T]) -> None:
        """A request reaches its receiver, which may be down."""
        service = question.receiver.service
        if service is None:
            name = question.receiver.name
            refused = PeerUnreachable(f"{name} cannot be reached: connection refused")
            self._return(question, refused)
            return
        question.receiver.process.start(self._serve(question, service), question.what)

    async def _serve(self, question: _Question[T], service: SimulatedService) -> None:
        outcome: T | ParleyError
        try:
            outcome = await question.serve(service)
        except ParleyError as error:
            outcome = error_of(problem_of(error))
        except Exception:
            log.exception("request failed", what=question.what, node=question.receiver.name)
            outcome = ParleyError("the node failed")
        process = PROCESS.get()
        if process is not None and process.alive:
            self._return(question, outcome)

    def _return(self, question: _Question[T], outcome: T | ParleyError) -> None:
        for delay in self._journeys(question.receiver, question.sender):
            self._loop.call_in(delay, _answer, question.answer, outcome, context=self._nobody)


def _answer(waiting: asyncio.Future[T], outcome: T) -> None:
    """An answer arrives; nobody waits for the second copy, nor for one that comes too late."""
    if not waiting.done():
        waiting.set_result(outcome)


def _answered(service: SimulatedService, item: Document, sender: str) -> Awaitable[Document]:
    """What a node does with one of the questions in a message."""
    time_line = service.time_line
    match item:
        case ProposalRequest():
            return service.freed_time.propose(sender, item)
        case ExchangeHold():
            service.hold_served()
            return time_line.hold(item.exchange, sender, item.hold)
        case Ruling(commit=CommitRequest() as commit):
            return time_line.commit(item.exchange, commit, sender)
        case Ruling(release=UUID() as task):
            return time_line.release(item.exchange, task, sender)
        case _:
            raise TypeError(f"nobody asks for {item!r}")


def _told(answer: Document | BaseException) -> Document | ParleyError:
    """An answer, or an error as it arrives at who asked."""
    if isinstance(answer, ParleyError):
        return error_of(problem_of(answer))
    if isinstance(answer, BaseException):
        raise answer
    return answer


class SimulatedPeers(Peers):
    """The other nodes, as one host reaches them over the simulated network."""

    def __init__(self, network: Network, here: Station, stations: dict[str, Station]) -> None:
        """``stations`` by identity."""
        self._mail = {}
        self._network = network
        self._here = here
        self._stations = stations

    async def card(self, url: str) -> NodeCard:
        """What the node at this URL says of itself."""
        station = next(s for s in self._stations.values() if s.card.url == url.rstrip("/"))

        async def card(service: SimulatedService) -> NodeCard:
            return service.card

        return await self._network.ask(self._here, station, "card", card)

    def to(self, identity: str, name: str, url: str | None) -> Peer:
        """One other node."""
        return SimulatedPeer(
            self, identity, name, url, self._network, self._here, self._stations[identity]
        )


class SimulatedPeer(Peer):
    """One other node, over the simulated network: every call in the name of the sender."""

    def __init__(  # noqa: PLR0913, PLR0917 - what a peer is, and both ends
        self,
        peers: Peers,
        identity: str,
        name: str,
        url: str | None,
        network: Network,
        sender: Station,
        receiver: Station,
    ) -> None:
        """Made by :meth:`SimulatedPeers.to`."""
        super().__init__(peers, identity, name, url)
        self._network = network
        self._sender = sender
        self._receiver = receiver

    async def _over(self, what: str, serve: Callable[[SimulatedService], Awaitable[T]]) -> T:
        return await self._network.ask(self._sender, self._receiver, what, serve)

    async def introduce(self, introduction: Introduction) -> IntroductionAnswer:
        """As over HTTP."""
        lead = self._sender.identity
        return await self._over("introduce", lambda s: s.acceptance.consider(lead, introduction))

    async def consider(self, introduction: Introduction) -> IntroductionAnswer:
        """As over HTTP."""
        lead = self._sender.identity
        return await self._over("consider", lambda s: s.acceptance.judge(lead, introduction))

    async def outlook(self, request: ImpactRequest) -> Impact:
        """As over HTTP."""
        return await self._over("outlook", lambda s: s.impacts.outlook(request))

    async def freed(self, message: FreedTime) -> None:
        """As over HTTP."""
        sender = self._sender.identity
        await self._over("freed", lambda s: s.freed_time.freed(sender, message))

    async def ask_together(
        self,
        path: str,
        answered: type[BatchReplies[Any]],  # noqa: ARG002 - nothing has to be parsed
        items: Sequence[Any],
    ) -> list[Any]:
        """As over HTTP: several questions in one message, an answer or an error to each."""
        sender = self._sender.identity

        async def each(service: SimulatedService) -> list[Any]:
            asked = (_answered(service, item, sender) for item in items)
            answers = await asyncio.gather(*asked, return_exceptions=True)
            return [_told(answer) for answer in answers]

        return await self._over(path, each)

    async def decision(self, exchange: UUID) -> DecisionAnswer:
        """As over HTTP."""
        return await self._over("decision", lambda s: s.time_line.decision(exchange))

    async def end_run(self, end: RunEnd) -> None:
        """As over HTTP."""
        sender = self._sender.identity
        await self._over("end-run", lambda s: s.termination.heard(sender, end))

    async def end_task(self, end: TaskEnd) -> None:
        """As over HTTP."""
        sender = self._sender.identity
        await self._over("end-task", lambda s: s.termination.heard_task(sender, end))

    async def send_part(self, part: PartMessage) -> None:
        """As over HTTP."""
        sender = self._sender.identity
        await self._over("part", lambda s: s.collector.receive(sender, part))

    async def send_intervals(self, intervals: IntervalsMessage) -> None:
        """As over HTTP."""
        sender = self._sender.identity
        await self._over("intervals", lambda s: s.collector.receive_intervals(sender, intervals))

    async def compare(self, request: DigestRequest) -> Differences:
        """As over HTTP."""
        sender = self._sender.identity
        return await self._over("compare", lambda s: s.time_line.compare(sender, request))
