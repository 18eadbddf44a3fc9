"""One simulated host: the real service and lead of a node over a database of its own.

A host has its database, its clock and its place in the network. Everything that runs on it (the
service, its loops, the requests it serves) is one process that can be killed at any await; the next
start takes the service's own start-up path over the same tables.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import random
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Coroutine
from functools import lru_cache, partial
from typing import Any, Protocol
from uuid import UUID

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource

from lead.assembly.lead import Lead
from lead.assembly.with_node import lead_functions, lead_of
from lead.simulation.clock import START, SimulatedClock
from lead.simulation.database import SimulatedDatabase
from lead.simulation.history import History
from lead.simulation.loop import Process, VirtualLoop
from lead.simulation.network import Network, SimulatedPeers, SimulatedService
from lead.simulation.scenario import Scenario, ScenarioNodes, Value
from node.execution.launcher import TERM_BEFORE_END, Launcher, LaunchOutcome
from node.model import times
from node.model.classes import SchedulingClass
from node.model.errors import DatabaseUnavailable, ParleyError
from node.model.host_limits.document import EVERYTHING
from node.model.times import MILLISECOND
from node.model.wire.nodes import NodeCard
from node.model.wire.tasks import PRIORITY_MAX
from node.runtime.clock import LatchedEvent
from node.runtime.housekeeping import CLOCK_S, HOUR_S, MARK_S, PeriodicJob
from node.runtime.settings import Settings
from node.service import NodeDependencies
from node.store import nodes
from node.store.core import Core
from node.store.queries import Queries
from node.store.runs import DueRun
from node.timetable.local_participant import LocalParticipant
from node.trust.keys import NodeKey


class SimulatedLauncher(Launcher):
    """A launcher that waits for the end of each run where the real one starts a program."""

    def __init__(self, *args: Any, node: str, history: History, **options: Any) -> None:
        """Create the launcher of the node named ``node``."""
        super().__init__(*args, **options)
        self._node = node
        self._history = history

    def _end_recorded(self, pid: int, ticks: int) -> None:
        """End nothing: this host has no programs of a simulated one."""

    def _end_orphans(self) -> None:
        """End nothing."""

    async def _measure(self, run: DueRun, cancelled: LatchedEvent) -> LaunchOutcome:
        if not await self._wait_until(run.starts_at, cancelled):
            return self._stopped_outcome(None)
        scheduling_class = SchedulingClass(run.spec["class"])
        started_at = self._clock.now()
        self._history.begins(self._node, run, scheduling_class)
        to_the_end = await self._wait_until(run.ends_at - TERM_BEFORE_END, cancelled)
        slept = max(0, self._clock.now() - started_at)
        self._history.ends(self._node, run, slept)
        if not to_the_end:
            return self._stopped_outcome(started_at)
        return LaunchOutcome({"slept_ms": slept / MILLISECOND}, None, started_at)


SQL = Queries("lead.simulation", "world")
_HOLD_RETRY = times.SECOND
"""Pause before a hold whose lead gave no decision is checked again."""
_RESTART = 2 * times.SECOND
"""Pause after which a process is started again that could not start, as by systemd."""
_LOOK_S = 0.2


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
        self, host: Host, dependencies: NodeDependencies, database: SimulatedDatabase
    ) -> None:
        """Create a node; nothing runs before :meth:`start`."""
        super().__init__(Core(database, host.clock, host.identity, host.settings), dependencies)
        self.capabilities.assume_all()
        self._host = host
        self._world = host.world
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

    async def begin_clock(self) -> None:
        """Doubt the clock, and watch it from now on."""
        await super().begin_clock()
        self._watching = asyncio.create_task(self._watch_steps(), name="watch clock")

    async def _watch_steps(self) -> None:
        """Look at the clock a second after it was set, and each second while it is in doubt."""
        while True:
            steps = self._host.clock.steps
            await self.clock.sleep(CLOCK_S)
            with contextlib.suppress(ParleyError):  # tried again when it is set again
                await self.watch_clock()
            if not self.core.steps.doubtful:
                await self._host.clock.set_after(steps)

    def run_loop(self, work: Coroutine[Any, Any, None], name: str) -> None:
        """Run a loop that ends with the node."""
        self._loops.append(asyncio.create_task(work, name=name))

    async def ask_others(self) -> None:
        """Ask nobody: no simulated database goes back."""

    async def start(self) -> None:
        """Start the node's services, and settle holds when they are due instead of each second."""
        await super().start()
        settling = self._run_once_believed(self._keep_holds)
        self._loops.append(asyncio.create_task(settling, name="settle holds"))

    def _periodic_jobs(self) -> tuple[PeriodicJob, ...]:
        world = self._world.nodes
        keep = max(times.HOUR, world.keep)
        return (
            PeriodicJob("end what is over", world.tend / times.SECOND, self._end_overdue),
            PeriodicJob("purge", keep / times.SECOND, self._harvest_and_purge),
            PeriodicJob("note clock", self._marks_s(), self.clock_steps.note),
        )

    def _marks_s(self) -> float:
        """Return how often it is noted what the clock says: rarely where no clock is wrong."""
        faults = self._world.faults
        return MARK_S if faults.wrong_boots or faults.clock_jumps else HOUR_S

    async def _keep_holds(self) -> None:
        """Settle each hold when it expires; sleep while there are none."""
        while True:
            self._hold_made.clear()
            with contextlib.suppress(ParleyError):  # the failed ones are retried below
                await self.holds.run_once()
            [row] = self._host.store.read(SQL["next_expiry"])
            if row[0] is None:
                await self._hold_made.wait()
                continue
            pause = max(_HOLD_RETRY, row[0] - self.clock.now())
            await self.clock.sleep(pause / times.SECOND)

    async def _harvest_and_purge(self) -> None:
        self._host.harvest(self.clock.now() - self._world.nodes.keep)
        await self.purger.purge(self.clock.now())


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
    """A simulated host: database, clock, settings, and the services that run on it."""

    node_type: type[SimulatedNode] = SimulatedNode
    launcher_type: Callable[..., Launcher] = SimulatedLauncher

    def __init__(
        self,
        name: str,
        scenario: Scenario,
        loop: VirtualLoop,
        network: Network,
        history: History,
        database: SimulatedDatabase,
    ) -> None:
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
        self.store = database.store
        self.database = database
        self.starts = 0
        self.up_since = 0
        self._down_since: int | None = None
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
        self.harvest: Callable[[int], None] = _harvest_nothing
        """Called with an instant before the runs that ended before it are deleted."""
        self._loop = loop
        self._network = network
        self._history = history
        self._asking = random.Random(f"{scenario.seed} users of {name}")
        self.apis = [ApiProcess(self, f"api {n}") for n in range(scenario.nodes.apis)]
        leads = [LeadProcess(self, f"lead {n}") for n in range(1, scenario.nodes.leads)]
        self.beside: list[BesideProcess] = [*leads, *self.apis]
        network.place(self)

    async def know(self, others: dict[str, Host]) -> None:
        """Write the directory of all hosts into the database; ``others`` by identity."""
        self._peers = SimulatedPeers(self._network, self, {**others})
        now = self.clock.now()
        async with self.database.transaction() as connection:
            await connection.execute(SQL["first_generation"], self.database.generation, now)
            await nodes.keep_self(connection, self.card, now)
            for other in others.values():
                if other is not self:
                    await nodes.keep(connection, other.card, now)

    def boot(self) -> asyncio.Task[None]:
        """Start the services, as after a crash; the task ends when other nodes can reach them."""
        self.starts += 1
        self.process = Process(self.name)
        started = self.process.start(self._start(), f"start {self.name}")
        for each in self.beside:
            if not each.process.alive:
                each.boot()
        return started

    def boot_later(self, process: Host | BesideProcess) -> None:
        """Start one of the processes here again in a while, as it could not."""
        dead = process.process
        if process is self:
            self.crash_service()
        else:
            process.crash()
        self._loop.call_in(
            _RESTART, lambda: process.boot() if process.process is dead and not dead.alive else None
        )

    async def _start(self) -> None:
        try:
            await self._begin()
        except DatabaseUnavailable:
            self.boot_later(self)

    async def _begin(self) -> None:
        node = self.build_node(self.database)
        lead = self.build_lead(node)
        if self.broken is not None:
            self.broken(node, lead)
        node.add_notification_listener(lead.on_notice)
        await node.start()
        await node.clock_steps.wait_until_believed()  # nobody is answered before
        self._serve(node)
        await lead.start()

    def _serve(self, node: SimulatedNode) -> None:
        """Let others reach the node."""
        self.service = node
        self.up_since = self._loop.now
        if self._down_since is not None:
            span = START + self._down_since, START + self._loop.now
            self._history.troubles.append((self.name, self.name, *span))
            self._down_since = None

    def build_node(self, database: SimulatedDatabase) -> SimulatedNode:
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
        """Stop all processes as by ``kill -9``: the database stays, everything else is lost."""
        self.crash_service()
        for each in self.beside:
            each.crash()

    def crash_service(self) -> None:
        """Stop the process of the service alone."""
        self.service = None
        if self._down_since is None:
            self._down_since = self._loop.now
        self.database = self.database.survivor()
        self.process.kill()
        self._history.forget_crashed_runs(self.name)

    def hold_served(self) -> None:
        """Note that another process has placed a hold here."""
        if self.service is not None:
            self.service.hold_served()

    async def try_as_user(
        self, action: Callable[[SimulatedService], Awaitable[Any]]
    ) -> ParleyError | None:
        """Run an action of a user of this host; return its error, or None if it succeeded."""
        asked: list[Host | BesideProcess] = [self, *self.apis]
        place = self._asking.choice(asked)
        service = place.service
        if service is None:
            return ParleyError("the node is down")
        try:
            await place.process.start(_result_of(action(service)))
        except ParleyError as error:
            return error
        except asyncio.CancelledError:
            return ParleyError("the node went down")
        return None


def _limits(world: Scenario) -> str:
    """Return the limits of every host: everything for all, in the shares of the scenario."""
    kept = [
        f'[[resource]]\nname = "{name}"\nnumber = {number}'
        for name, number in world.resources.items()
    ]
    shares = [f'"{key_of(name).identity}" = {share}' for name, share in world.lead_shares.items()]
    if shares:
        shares = ["[shares]", *shares, "others = 0"]
    return "\n".join([EVERYTHING, *kept, *shares, ""])


class BesideProcess(ABC):
    """A process of a host beside its node's service: a lead, or one more API; down at first.

    It has a database connection, a directory, and caches of its own, hears of the others by
    notifications alone, and can die without them.
    """

    def __init__(self, host: Host, name: str) -> None:
        self.host = host
        self.name = host.name
        self.database: SimulatedDatabase = host.database.sibling()
        self.process = Process(f"{host.name} {name}")
        self.process.alive = False
        self.service: SimulatedNode | None = None
        """Its part of the node, once it has started."""

    def boot(self) -> None:
        """Start, as after a crash."""
        self.host.starts += 1
        self.database = self.host.database.sibling()
        self.process = Process(self.process.name)
        self.process.start(self._start(), self.process.name)

    def crash(self) -> None:
        """End as by ``kill -9``."""
        self.service = None
        self.database.survivor()
        self.process.kill()

    async def _start(self) -> None:
        """Run until it is killed; start again if the database is away meanwhile."""
        node = self.host.build_node(self.database)
        node.hold_served = self.host.hold_served  # type: ignore[method-assign] # the node's loop
        try:
            await self._begin(node)
        except DatabaseUnavailable:
            self.host.boot_later(self)
            return
        self.service = node

    async def _node_known(self, node: SimulatedNode) -> None:
        """Wait for the node's card, as all start together."""
        while self.host.identity not in {known.identity for known in node.directory.all}:
            await node.directory.refresh()
            await self.host.clock.sleep(_LOOK_S)

    @abstractmethod
    async def _begin(self, node: SimulatedNode) -> None:
        """Start what this process does."""


class LeadProcess(BesideProcess):
    """A lead of the node, as ``parley-lead`` is one."""

    lead: Lead

    async def _begin(self, node: SimulatedNode) -> None:
        lead = self.host.build_lead(node)
        if self.host.broken is not None:
            self.host.broken(node, lead)
        await self._node_known(node)
        await node.begin_clock()
        await node.campaigns.refresh()
        self.lead = lead
        node.add_notification_listener(lead.on_notice)
        node.run_loop(node.listen(lead.on_notice), "listen")
        await node.clock_steps.wait_until_believed()
        await lead.start()


class ApiProcess(BesideProcess):
    """One more process of the node's API, as ``parley-api`` is one."""

    async def _begin(self, node: SimulatedNode) -> None:
        await self._node_known(node)
        await node.start_beside()


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


async def _result_of(action: Awaitable[Any]) -> Any:
    return await action


def _harvest_nothing(_instant: int) -> None:
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
    terms = _settings_of_all(scenario.nodes, scenario.network.time_limit)
    own = {"name": name, "address": name, "attributes": attributes}
    return terms.model_copy(update=own)


@lru_cache(maxsize=1)
def _settings_of_all(terms: ScenarioNodes, time_limit: int) -> SimulatedSettings:
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
