"""The network between simulated nodes: what who asks comes to see."""

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
    """A host that serves whatever it is asked."""

    name: str
    service: SimulatedService | None = field(
        default_factory=lambda: cast("SimulatedService", object())
    )
    process: Process = field(default_factory=lambda: Process("p"))
    served: int = 0

    @property
    def identity(self) -> str:
        """Its key."""
        return f"key of {self.name}"

    @property
    def card(self) -> NodeCard:
        """Its card."""
        url = f"http://{self.name}"
        return NodeCard(
            identity=self.identity, name=self.name, url=url, address=self.name, version=""
        )

    async def serve(self, _service: SimulatedService) -> int:
        """Count."""
        self.served += 1
        return self.served


Work = Callable[[Network, Place, Place, VirtualLoop], Awaitable[Any]]


def between(work: Work, weather: NetworkConditions = FAIR) -> Any:
    """Let two hosts speak."""

    async def played(loop: VirtualLoop) -> Any:
        network = Network(loop, weather, random.Random(1))
        here, there = Place("here"), Place("there")
        for place in (here, there):
            network.place(cast("Station", place))
        return await work(network, here, there, loop)

    return run(played)


async def ask(network: Network, here: Place, there: Place) -> int:
    """One question."""
    stations = cast("tuple[Station, Station]", (here, there))
    return await network.ask(*stations, "count", there.serve)


def test_an_answer_takes_the_way_there_and_back() -> None:
    """It comes after both delays, and nothing else has happened."""

    async def work(network: Network, here: Place, there: Place, loop: VirtualLoop) -> Any:
        return await ask(network, here, there), loop.now

    answer, now = between(work)
    assert answer == 1
    assert 20 * MILLISECOND <= now < 40 * MILLISECOND


@pytest.mark.parametrize("what", ["question", "answer"])
def test_a_loss_is_seen_as_silence(what: str) -> None:
    """Who asks waits for the whole time; a lost answer leaves its effect behind."""

    async def work(network: Network, here: Place, there: Place, loop: VirtualLoop) -> Any:
        if what == "question":
            network.cut[frozenset(("here", "there"))] += 1
        else:
            loop.call_in(12 * MILLISECOND, network.cut.update, [frozenset(("here", "there"))])
            there.serve = _slowly(there.serve)  # type: ignore[assignment,method-assign]
        with pytest.raises(PeerUnreachable, match="there cannot be reached: no answer within 5 s"):
            await ask(network, here, there)
        return loop.now, there.served

    assert between(work) == (5 * SECOND, int(what == "answer"))


def _slowly(
    serve: Callable[[SimulatedService], Awaitable[int]],
) -> Callable[[SimulatedService], Awaitable[int]]:
    async def slow(service: SimulatedService) -> int:
        served = await serve(service)
        await pause(10 * MILLISECOND)
        return served

    return slow


def test_a_host_that_is_down_refuses() -> None:
    """Who asks is told at once, not after the whole time."""

    async def work(network: Network, here: Place, there: Place, loop: VirtualLoop) -> int:
        there.service = None
        with pytest.raises(PeerUnreachable, match="connection refused"):
            await ask(network, here, there)
        return loop.now

    assert between(work) < SECOND


def test_a_duplicate_is_served_twice() -> None:
    """Who asks has one answer; the receiver has had two requests."""

    async def work(network: Network, here: Place, there: Place, loop: VirtualLoop) -> Any:
        first = await ask(network, here, there)
        await pause(SECOND)
        return first, there.served

    twice = NetworkConditions(
        10 * MILLISECOND, 10 * MILLISECOND, 0, duplicates=1, time_limit=SECOND
    )
    assert between(work, twice) == (1, 2)


def test_an_error_travels_as_over_http() -> None:
    """What the receiver raises is raised where it was asked: of the same kind, another object."""
    raised = Conflict("it is taken")

    async def work(network: Network, here: Place, there: Place, loop: VirtualLoop) -> ParleyError:
        async def refuse(_service: SimulatedService) -> int:
            raise raised

        stations = cast("tuple[Station, Station]", (here, there))
        with pytest.raises(Conflict, match="it is taken") as caught:
            await network.ask(*stations, "refuse", refuse)
        return caught.value

    assert between(work) is not raised


def test_nothing_comes_from_a_host_that_died_meanwhile() -> None:
    """A request that was being served when the receiver died has no answer."""

    async def work(network: Network, here: Place, there: Place, loop: VirtualLoop) -> int:
        there.serve = _slowly(there.serve)  # type: ignore[assignment,method-assign]
        loop.call_in(15 * MILLISECOND, there.process.kill)
        with pytest.raises(PeerUnreachable, match="no answer"):
            await ask(network, here, there)
        return loop.now

    assert between(work) == 5 * SECOND


def test_the_wire_offers_all_that_a_peer_does() -> None:
    """Nothing a node asks of another one could reach for a real network."""

    def questions(kind: type) -> set[str]:
        found = inspect.getmembers(kind, inspect.iscoroutinefunction)
        return {name for name, _ in found if not name.startswith("_")}

    gathered = {"propose", "hold", "commit", "release"}  # these travel by ask_together
    assert questions(Peer) - gathered <= {
        name for name in vars(SimulatedPeer) if name in questions(SimulatedPeer)
    }
