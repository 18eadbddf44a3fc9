"""The network between simulated nodes, as the sender of a request sees it."""

from __future__ import annotations

import inspect
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from lead.simulation.clock import pause
from lead.simulation.loop import Process, VirtualLoop, run
from lead.simulation.network import (
    Network,
    NetworkConditions,
    SimulatedPeer,
    SimulatedService,
    Station,
)
from node.client.peers import Peer
from node.model.errors import Conflict, ParleyError, PeerUnreachable
from node.model.times import MILLISECOND, SECOND
from node.model.wire.nodes import NodeCard

FAIR = NetworkConditions(
    10 * MILLISECOND, 10 * MILLISECOND, loss=0, duplicates=0, time_limit=5 * SECOND
)


@dataclass
class Place:
    """A host that serves every request."""

    name: str
    service: SimulatedService | None = field(
        default_factory=lambda: cast("SimulatedService", object())
    )
    process: Process = field(default_factory=lambda: Process("p"))
    served: int = 0

    @property
    def identity(self) -> str:
        """Return the identity."""
        return f"key of {self.name}"

    @property
    def card(self) -> NodeCard:
        """Return the card."""
        url = f"http://{self.name}"
        return NodeCard(
            identity=self.identity, name=self.name, url=url, address=self.name, version=""
        )

    async def serve(self, _service: SimulatedService) -> int:
        """Count the request and return the count."""
        self.served += 1
        return self.served


Work = Callable[[Network, Place, Place, VirtualLoop], Awaitable[Any]]


def between(work: Work, conditions: NetworkConditions = FAIR) -> Any:
    """Run ``work`` with a network of two hosts and return its result."""

    async def play(loop: VirtualLoop) -> Any:
        network = Network(loop, conditions, random.Random(1))
        here, there = Place("here"), Place("there")
        for place in (here, there):
            network.place(cast("Station", place))
        return await work(network, here, there, loop)

    return run(play)


async def ask(network: Network, here: Place, there: Place) -> int:
    """Send one request."""
    stations = cast("tuple[Station, Station]", (here, there))
    return await network.ask(*stations, "count", there.serve)


def test_an_answer_takes_the_way_there_and_back() -> None:
    """An answer arrives after the delays of both directions."""

    async def work(network: Network, here: Place, there: Place, loop: VirtualLoop) -> Any:
        return await ask(network, here, there), loop.now

    answer, now = between(work)
    assert answer == 1
    assert 20 * MILLISECOND <= now < 40 * MILLISECOND


@pytest.mark.parametrize("message", ["request", "answer"])
def test_a_loss_is_seen_as_silence(message: str) -> None:
    """A lost request or answer times out; a lost answer leaves the effect of the request."""

    async def work(network: Network, here: Place, there: Place, loop: VirtualLoop) -> Any:
        if message == "request":
            network.cut[frozenset(("here", "there"))] += 1
        else:
            loop.call_in(12 * MILLISECOND, network.cut.update, [frozenset(("here", "there"))])
            there.serve = _slowly(there.serve)  # type: ignore[assignment,method-assign]
        with pytest.raises(PeerUnreachable, match="there cannot be reached: no answer within 5 s"):
            await ask(network, here, there)
        return loop.now, there.served

    assert between(work) == (5 * SECOND, int(message == "answer"))


def _slowly(
    serve: Callable[[SimulatedService], Awaitable[int]],
) -> Callable[[SimulatedService], Awaitable[int]]:
    async def slow(service: SimulatedService) -> int:
        count = await serve(service)
        await pause(10 * MILLISECOND)
        return count

    return slow


def test_a_host_that_is_down_refuses() -> None:
    """A request to a host that is down fails at once, not after the timeout."""

    async def work(network: Network, here: Place, there: Place, loop: VirtualLoop) -> int:
        there.service = None
        with pytest.raises(PeerUnreachable, match="connection refused"):
            await ask(network, here, there)
        return loop.now

    assert between(work) < SECOND


def test_a_duplicate_is_served_twice() -> None:
    """The sender of a duplicated request gets one answer; the receiver serves it twice."""

    async def work(network: Network, here: Place, there: Place, loop: VirtualLoop) -> Any:
        first = await ask(network, here, there)
        await pause(SECOND)
        return first, there.served

    twice = NetworkConditions(
        10 * MILLISECOND, 10 * MILLISECOND, 0, duplicates=1, time_limit=SECOND
    )
    assert between(work, twice) == (1, 2)


def test_an_error_travels_as_over_http() -> None:
    """An error of the receiver is raised at the sender as another object of the same type."""
    error = Conflict("it is taken")

    async def work(network: Network, here: Place, there: Place, loop: VirtualLoop) -> ParleyError:
        async def refuse(_service: SimulatedService) -> int:
            raise error

        stations = cast("tuple[Station, Station]", (here, there))
        with pytest.raises(Conflict, match="it is taken") as caught:
            await network.ask(*stations, "refuse", refuse)
        return caught.value

    assert between(work) is not error


def test_nothing_comes_from_a_host_that_died_meanwhile() -> None:
    """A request is not answered if the receiver dies while serving it."""

    async def work(network: Network, here: Place, there: Place, loop: VirtualLoop) -> int:
        there.serve = _slowly(there.serve)  # type: ignore[assignment,method-assign]
        loop.call_in(15 * MILLISECOND, there.process.kill)
        with pytest.raises(PeerUnreachable, match="no answer"):
            await ask(network, here, there)
        return loop.now

    assert between(work) == 5 * SECOND


def test_the_wire_offers_all_that_a_peer_does() -> None:
    """The simulated peer replaces every request that a real one sends."""

    def requests(kind: type) -> set[str]:
        members = inspect.getmembers(kind, inspect.iscoroutinefunction)
        return {name for name, _ in members if not name.startswith("_")}

    batched = {"propose", "hold", "commit", "release"}  # these travel by ask_together
    diagnosis = {"check", "facts", "probe"}  # nobody looks for what is wrong with a simulated host
    keys = {"revoke"}  # no simulated node loses its key
    assert requests(Peer) - batched - diagnosis - keys <= {
        name for name in vars(SimulatedPeer) if name in requests(SimulatedPeer)
    }
