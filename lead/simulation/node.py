"""One simulated host: the real service and lead of a node over a database in memory.

A host has its tables, its clock and its place in the network. Everything that runs on it (the
service, its loops, the requests it serves) is one process that can be killed at any await; the next
start takes the service's own start-up path over the same tables.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import random
from collections.abc import Awaitable, Callable
from functools import lru_cache, partial
from typing import Any, Protocol
from uuid import UUID

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource

from lead.assembly import lead_functions, lead_of
from lead.service import Lead
from lead.simulation.clock import SimulatedClock
from lead.simulation.history import History
from lead.simulation.launcher import SimulatedLauncher
from lead.simulation.loop import Process, VirtualLoop
from lead.simulation.memory.database import MemoryDatabase, Point
from lead.simulation.network import Network, SimulatedPeers, SimulatedService
from lead.simulation.scenario import Scenario, ScenarioNodes, Value
from node.core import Core
from node.execution.launcher import Launcher
from node.housekeeping import PeriodicJob
from node.local_participant import LocalParticipant
from node.model import times
from node.model.errors import ParleyError
from node.model.host_limits.document import EVERYTHING
from node.model.wire.nodes import NodeCard
from node.model.wire.tasks import PRIORITY_MAX
from node.service import NodeDependencies
from node.settings import Settings
from node.store import nodes
from node.trust.keys import NodeKey

_HOLD_RETRY = times.SECOND
"""Pause before a hold whose lead gave no decision is checked again."""


class SimulatedSettings(Settings):
    """Settings that come from the scenario alone."""

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],  # noqa: ARG003 - pydantic's signature
        init_settings: PydanticBaseSettingsSource,
        *_others: PydanticBaseSettingsSource,
        **_named: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Return the arguments as the only source, so that the environment has no effect."""
        return (init_settings,)


class SimulatedNode(SimulatedService):
    """A node's service that does its housekeeping when it is due instead of by polling."""

    def __init__(
        self, host: Host, dependencies: NodeDependencies, database: MemoryDatabase
    ) -> None:
        """Create a node; nothing runs before :meth:`start`."""
        super().__init__(Core(database, host.clock, host.identity, host.settings), dependencies)
        self.capabilities.assume_all()
        self._host = host
        self._world = host.world
        self._tables = database.tables
        self._hold_made = asyncio.Event()
        self.local_participant = _SimulatedParticipant(self)
        # Nothing follows events in a simulation, and nobody reads the log of its nodes; keeping
        # what they are told would take much memory.
        self._listeners.remove(self.hub.on_notice)
        self._listeners.remove(self.ended_runs.on_notice)

    def hold_served(self) -> None:
        """Wake the loop that settles expired holds."""
        self._hold_made.set()

    async def _ensure_owner(self, connection: Any) -> None:
        """Create no token: nothing in a simulation authenticates with one."""

    async def repair_instants(self) -> None:
        """Repair nothing: simulated clocks are set by seconds."""

    async def ask_others(self) -> None:
        """Ask nobody: no simulated database goes back."""

    async def start(self) -> None:
        """Start the node's services, and settle holds when they are due instead of each second."""
        await super().start()
        self._loops.append(asyncio.create_task(self._keep_holds(), name="settle holds"))

    def _periodic_jobs(self) -> tuple[PeriodicJob, ...]:
        world = self._world.nodes
        keep = max(times.HOUR, world.keep)
        return (
            PeriodicJob("end what is over", world.tend / times.SECOND, self._overdue),
            PeriodicJob("purge", keep / times.SECOND, self._harvest_and_purge),
        )

    async def _keep_holds(self) -> None:
        """Settle each hold when it expires; sleep while there are none."""
        held = self._tables.exchanges.held
        while True:
            with contextlib.suppress(ParleyError):  # the failed ones are retried below
                await self.holds.run_once()
            if not held:
                self._hold_made.clear()
                await self._hold_made.wait()
            now = self.clock.now()
            ends = min((hold.expires_at for hold in held.values()), default=now)
            await self.clock.sleep(max(_HOLD_RETRY, ends - now) / times.SECOND)

    async def _harvest_and_purge(self) -> None:
        self._host.harvest(self.clock.now() - self._world.nodes.keep)
        await self.purger.run_once()


class _SimulatedParticipant(LocalParticipant):
    """The node as a participant of its own tasks; reports its holds to the expiry loop."""

    def __init__(self, node: SimulatedNode) -> None:
        super().__init__(node.core, node.time_line, node.freed_time, node.acceptance, node.impacts)
        self._node = node

    async def hold(self, exchange: UUID, request: Any) -> Any:
        """Book provisionally."""
        try:
            return await super().hold(exchange, request)
        finally:
            self._node.hold_served()


class Host:
    """A simulated host: tables, clock, settings, and the services that run on it."""

    node_type: type[SimulatedNode] = SimulatedNode
    launcher_type: Callable[..., Launcher] = SimulatedLauncher

    def __init__(
        self,
        name: str,
        scenario: Scenario,
        loop: VirtualLoop,
        network: Network,
        history: History,
        point: Point | None,
    ) -> None:
        """Create a host that is down; ``point`` is awaited before and after each statement."""
        self.name = name
        self.world = scenario
        self.clock = SimulatedClock(loop)
        self.key = key_of(name)
        self.identity = self.key.identity
        attributes = _attributes(name, scenario)
        self.settings = _settings(name, scenario, attributes)
        self.rng = random.Random(f"{scenario.seed} {name}")
        self.process = Process(name)
        self.service: SimulatedService | None = None
        self.database = MemoryDatabase(point)
        self.starts = 0
        self.up_since = 0
        url = f"http://{name}:8642"
        self.card = NodeCard(
            identity=self.identity,
            name=name,
            url=url,
            address=name,
            version="simulated",
            attributes=attributes,
        )
        self.broken: Callable[[SimulatedNode, Lead], None] | None = None
        """A test's hook that replaces parts of this node's program by faulty ones."""
        self.harvest: Callable[[int], None] = _nothing
        """Called with an instant before the runs that ended before it are deleted."""
        self._loop = loop
        self._network = network
        self._history = history
        network.place(self)

    async def know(self, others: dict[str, Host]) -> None:
        """Write the directory of all hosts into the tables; ``others`` by identity."""
        self._peers = SimulatedPeers(self._network, self, {**others})
        now = self.clock.now()
        async with self.database.transaction() as connection:
            await nodes.keep_self(connection, self.card, now)
            for other in others.values():
                if other is not self:
                    await nodes.keep(connection, other.card, now)

    def boot(self) -> asyncio.Task[None]:
        """Start the services, as after a crash; the task ends when other nodes can reach them."""
        self.starts += 1
        self.process = Process(self.name)
        return self.process.start(self._start(), f"start {self.name}")

    async def _start(self) -> None:
        node = self.build_node(self.database)
        lead = self.build_lead(node)
        if self.broken is not None:
            self.broken(node, lead)
        node.add_notification_listener(lead.on_notice)
        await node.start()
        self.service = node
        self.up_since = self._loop.now
        await lead.start()

    def build_node(self, database: MemoryDatabase) -> SimulatedNode:
        """Build the node's service over a database, not started."""
        dependencies = NodeDependencies(
            peers=self._peers,
            lead=lead_functions(),
            launcher=partial(self.launcher_type, node=self.name, history=self._history),
            rng=self.rng,
            new_id=lambda: UUID(int=self.rng.getrandbits(128), version=4),
            poll_s=self.world.nodes.poll / times.SECOND,
            limits=_limits(self.world),
        )
        return self.node_type(self, dependencies, database)

    def build_lead(self, node: SimulatedNode) -> Lead:
        """Build the lead of a node, not started."""
        return lead_of(
            node,
            owner=f"{self.name} {self.starts}",
            rng=self.rng,
            poll_s=self.world.nodes.poll / times.SECOND,
            compare_every_s=(self.world.nodes.compare or times.LONGEST) / times.SECOND,
        )

    def crash(self) -> None:
        """Stop as by ``kill -9``: the tables stay, everything else is lost."""
        self.service = None
        self.database = self.database.survivor()
        self.process.kill()
        self._history.crashed(self.name)

    async def try_as_user(
        self, action: Callable[[SimulatedService], Awaitable[Any]]
    ) -> ParleyError | None:
        """Run an action of a user of this host; return its error, or None if it succeeded."""
        service = self.service
        if service is None:
            return ParleyError("the node is down")
        try:
            await self.process.start(_awaited(action(service)))
        except ParleyError as error:
            return error
        except asyncio.CancelledError:
            return ParleyError("the node went down")
        return None


def _limits(world: Scenario) -> str:
    """Return the limits of every host: everything for all, in the shares of the scenario."""
    if not world.lead_shares:
        return EVERYTHING
    shares = [f'"{key_of(name).identity}" = {share}' for name, share in world.lead_shares.items()]
    return "\n".join([EVERYTHING, "[shares]", *shares, "others = 0", ""])


class SimulatedWorld(Protocol):
    """The part of a simulated world that faults, checks, and the report use."""

    scenario: Scenario
    loop: VirtualLoop
    history: History
    network: Network
    hosts: list[Host]
    created: int
    """Number of tasks created so far."""
    refused: int
    """Number of tasks refused so far."""

    @property
    def end(self) -> int:
        """The end of the simulated days, in true time (microseconds)."""
        ...

    def boot(self, host: Host) -> None:
        """Start a host's services again."""
        ...


async def _awaited(action: Awaitable[Any]) -> Any:
    return await action


def _nothing(_instant: int) -> None:
    """Ignore the call: no harvest was set."""


@lru_cache(maxsize=1024)
def key_of(name: str) -> NodeKey:
    """Return the key of a name; the same name always has the same key."""
    secret = hashlib.sha256(f"simulated {name}".encode()).digest()
    return NodeKey(Ed25519PrivateKey.from_private_bytes(secret))


def _attributes(name: str, scenario: Scenario) -> dict[str, Value]:
    place = int(name.removeprefix("n")) - 1
    values_by_name = scenario.attributes
    return {word: values[place % len(values)] for word, values in values_by_name.items()}


def _settings(name: str, scenario: Scenario, attributes: dict[str, Value]) -> SimulatedSettings:
    terms = _terms(scenario.nodes, scenario.network.time_limit)
    own = {"name": name, "address": name, "attributes": attributes}
    return terms.model_copy(update=own)


@lru_cache(maxsize=1)
def _terms(terms: ScenarioNodes, time_limit: int) -> SimulatedSettings:
    """Return the settings of all hosts; cached, as creating them dominates in a small world."""
    keep = max(times.HOUR, terms.keep)
    return SimulatedSettings(
        horizon=terms.horizon,
        workers=terms.workers,
        batch=terms.batch,
        hold_life=terms.hold_life,
        lease=terms.lease,
        start_margin=terms.start_margin,
        clock_limit=terms.clock_limit,
        peer_timeout=time_limit,
        part_grace=terms.part_grace,
        # All hosts of a simulated world have one owner.
        peer_tasks=1_000_000,
        peer_introductions=10_000,
        peer_priority_max=PRIORITY_MAX,
        keep_exchanges=times.HOUR,
        keep_finished=keep,
        keep_failed=keep,
        keep_decisions=keep,
        keep_tasks=keep,
        keep_charges=keep,
        keep_hours=keep,
        keep_reserved=keep,
    )
