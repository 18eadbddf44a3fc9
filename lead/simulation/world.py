"""A simulated world: hosts, users, faults, and the report once everything has settled."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import random
import warnings
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from typing import Any

from lead.assembly.lead import Lead
from lead.simulation import invariants
from lead.simulation.clock import START, pause
from lead.simulation.database import Point, SimulatedDatabase
from lead.simulation.faults import FaultInjector, draw_faults, instants
from lead.simulation.findings import findings
from lead.simulation.history import History
from lead.simulation.loop import PROCESS, VirtualLoop, run
from lead.simulation.network import Network, NetworkConditions, SimulatedService
from lead.simulation.node import Host, SimulatedNode
from lead.simulation.report import Report, report_of
from lead.simulation.scenario import Arrivals, Faults, PairingRule, Scenario, ScenarioTasks
from lead.simulation.series import step_for
from lead.simulation.server import NodeStore, lent, tell_nobody
from node.model import times
from node.model.classes import SchedulingClass
from node.model.errors import PeerError, RequestError
from node.model.wire.pools import PoolDocument
from node.model.wire.tasks import (
    Schedule,
    ScheduleDocument,
    ScheduleTerms,
    TaskDocument,
    TestChoice,
)

_RETRY = times.MINUTE
"""Pause before a user whose node is down tries again."""
_WATCH = times.MINUTE
_INTERLEAVING = 0.05
"""Probability that other tasks run between two statements of a transaction."""
_STARTED = times.MINUTE
"""Time for all nodes to start before anything else happens."""
_LATE_MAX = 5 * times.SECOND
_COLLECTED = (50_000, 10_000, 10_000)
"""Thresholds of the garbage collector: rare collections, very rare ones of old objects."""

_RUNS_PER_TASK = 4
"""Work of admitting and planning a task, measured in runs."""

Broken = Callable[[SimulatedNode, Lead], None]
Progress = Callable[[float, "World"], None]
"""Called from time to time with the share of the work that is complete."""


@dataclass(frozen=True)
class TaskArrival:
    """The creation of a task by a user: when (from the beginning), at which lead, and what."""

    at: int
    lead: int
    key: str
    document: TaskDocument


class World:
    """All hosts, the network between them, their users, and the faults."""

    host_type: type[Host] = Host

    def __init__(
        self,
        scenario: Scenario,
        loop: VirtualLoop,
        stores: Sequence[NodeStore],
        *,
        broken: Broken | None = None,
        progress: Progress | None = None,
    ) -> None:
        """Create a world over empty databases.

        ``broken`` changes the program of every node, to test the checks.
        """
        self.scenario = scenario
        self.loop = loop
        self.history = History(START + _STARTED, step_for(scenario.duration))
        if scenario.shares is not None:
            self.history.counts_from = self.history.begins_at + scenario.shares.after
        self.refused = 0
        self.created = 0
        self.wished = 0
        self._runs_wished = 0
        rng = random.Random(f"{scenario.seed} network")
        conditions = scenario.network
        self.network = Network(
            loop,
            NetworkConditions(
                *conditions.delay, conditions.loss, conditions.duplicates, conditions.time_limit
            ),
            rng,
        )
        chance = random.Random(f"{scenario.seed} pauses")
        point = _pause_hook(chance) if scenario.faults.crashes else None
        databases = [SimulatedDatabase(store, point) for store in stores]
        luck = random.Random(f"{scenario.seed} databases")
        for database in databases:
            database.delivery = partial(_delay_of_notification, scenario.faults, luck)
            database.conflict = partial(_conflict, scenario.faults, luck)
        self.hosts = [
            self.host_type(f"n{number}", scenario, loop, self.network, self.history, database)
            for number, database in enumerate(databases, 1)
        ]
        for host in self.hosts:
            host.broken = broken
            host.harvest = partial(invariants.harvest, self, host)
        self.injector = FaultInjector(self)
        self._progress = progress
        self._doing: dict[asyncio.Task[None], None] = {}

    @property
    def end(self) -> int:
        """Return the end of the simulated days in true time."""
        return START + _STARTED + self.scenario.duration

    async def run(self) -> Report:
        """Simulate from the first start to the last check and return the report."""
        await self._start()
        self._fill_the_calendar()
        await self._until(_STARTED + self.scenario.duration)
        self.injector.heal()
        await self._until(_STARTED + self.scenario.duration + self.scenario.settle)
        await invariants.check(self)
        return report_of(self)

    async def _start(self) -> None:
        hosts_by_identity = {host.identity: host for host in self.hosts}
        for host in self.hosts:
            await host.know(hosts_by_identity)
        self.injector.drift_apart(random.Random(f"{self.scenario.seed} drift"))
        await asyncio.gather(*(host.boot() for host in self.hosts))
        for pool in self.scenario.pools:
            await self._create_pool(pool)
        await self._until(_STARTED)

    async def _create_pool(self, pool: PoolDocument) -> None:
        async def make(service: SimulatedService) -> None:
            for campaign in self.scenario.campaigns:
                await service.campaigns.create(campaign)
            await service.pools.create(pool)

        error = await self.hosts[_lead_of(pool)].try_as_user(make)
        if error is not None:
            self.history.record_violation(f"pool {pool.name} could not be created: {error.detail}")

    def boot(self, host: Host) -> None:
        """Start the services of a host again."""
        self._do(host.boot)

    async def _until(self, instant: int) -> None:
        """Let time pass to an instant from the beginning; check invariants on the way."""
        while (remaining := instant - self.loop.now) > 0:
            await pause(min(remaining, _WATCH))
            if self.scenario.faults.crashes:
                invariants.watch(self)
            if self._progress is not None:
                self._progress(self._share_done(), self)

    def _share_done(self) -> float:
        """Return the completed share of the work, not of the time: creating tasks takes longest."""
        passed = self.loop.now / (_STARTED + self.scenario.duration + self.scenario.settle)
        whole = _RUNS_PER_TASK * self.wished + self._runs_wished
        completed = _RUNS_PER_TASK * (self.created + self.refused) + self._runs_wished * passed
        return completed / whole if whole else passed

    def _fill_the_calendar(self) -> None:
        """Schedule all task creations and faults."""
        scenario = self.scenario
        for wish in task_arrivals(scenario):
            self.wished += 1
            self._runs_wished += _runs_of(wish.document.schedule, scenario.duration)
            self._schedule(wish.at, partial(self._create_task, wish))
        rng = random.Random(f"{scenario.seed} faults")
        for fault in draw_faults(scenario, rng):
            self._schedule(fault.at, partial(self.injector.inject, fault))

    def _schedule(self, instant: int, action: Callable[[], Awaitable[None]]) -> None:
        self.loop.call_in(instant, self._do, action)

    def _do(self, action: Callable[[], Awaitable[Any]]) -> None:
        task = asyncio.ensure_future(_run_action(action))
        self._doing[task] = None
        task.add_done_callback(self._note_done)

    def _note_done(self, task: asyncio.Task[None]) -> None:
        del self._doing[task]
        if not task.cancelled() and (error := task.exception()) is not None:
            self.history.record_violation(f"the simulation itself failed: {error!r}")

    async def _create_task(self, wish: TaskArrival) -> None:
        """Create a task as a user would: retry with the same key until the node answers."""
        host = self.hosts[wish.lead]

        async def create(service: SimulatedService) -> None:
            await service.admission.create(wish.document, wish.key)

        while self.loop.now < _STARTED + self.scenario.duration:
            error = await host.try_as_user(create)
            if error is None:
                self.created += 1
                return
            if isinstance(error, RequestError) and not isinstance(error, PeerError):
                self.refused += 1
                return
            await pause(_RETRY)


def _delay_of_notification(faults: Faults, luck: random.Random) -> int | None:
    """Return when a process hears of a commit; None: never."""
    if faults.lost_notices and luck.random() < faults.lost_notices:
        return None
    if faults.late_notices and luck.random() < faults.late_notices:
        return luck.randrange(_LATE_MAX)
    return 0


def _conflict(faults: Faults, luck: random.Random) -> bool:
    """Return whether a transaction fails at its end."""
    return bool(faults.conflicts) and luck.random() < faults.conflicts


async def _run_action(action: Callable[[], Awaitable[Any]]) -> None:
    await action()


def _pause_hook(chance: random.Random) -> Point:
    """Return a hook that suspends transactions, so that others interleave or the process dies.

    It always suspends in a process that will crash, so that the crash can hit any statement, and
    at random elsewhere.
    """

    def point() -> Awaitable[None] | None:
        process = PROCESS.get()
        if (process is not None and process.will_crash) or chance.random() < _INTERLEAVING:
            return pause()
        return None

    return point


def task_arrivals(scenario: Scenario) -> list[TaskArrival]:
    """Return all tasks that users will create, drawn from the seed."""
    rng = random.Random(f"{scenario.seed} users")
    creations: list[TaskArrival] = []
    for place, group in enumerate(scenario.tasks):
        if group.participants is None:
            teams = _teams(group, scenario.nodes.count, rng)
            if group.lead is not None:
                teams = [(_index(group.lead), members) for _, members in teams]
        else:
            [pool] = [it for it in scenario.pools if it.name == group.participants.pool]
            teams = [(_lead_of(pool), [])] * group.count
        for number, (lead, members) in enumerate(teams):
            at = group.created_over * number // len(teams)
            document = _document(group, members, scenario, rng)
            creations.append(TaskArrival(at, lead, f"{group.name} {place} {number}", document))
    for number, arrivals in enumerate(scenario.arrivals):
        for index, at in enumerate(instants(arrivals.per_hour, scenario.duration, rng)):
            members = rng.sample(range(scenario.nodes.count), arrivals.size)
            key = f"arrival {number} {index}"
            creations.append(
                TaskArrival(at, members[0], key, _single_run_document(arrivals, members))
            )
    return creations


def _runs_of(schedule: ScheduleTerms, duration: int) -> int:
    """Estimate how many runs a schedule will have."""
    return 1 if schedule.repeat is None else max(1, duration // schedule.repeat)


def _lead_of(pool: PoolDocument) -> int:
    """Return the index of the host that plans a pool."""
    return 0 if pool.lead is None else _index(pool.lead)


def _index(name: str) -> int:
    return int(name.removeprefix("n")) - 1


def _teams(group: ScenarioTasks, count: int, rng: random.Random) -> list[tuple[int, list[int]]]:
    """Return lead and participants of each task of a group, as indexes of hosts."""
    indexes = range(count)
    match group.between:
        case PairingRule.MESH:
            pairs = [list(pair) for pair in combinations(indexes, 2)]
            rng.shuffle(pairs)
            return [(pair[sum(pair) % 2], pair) for pair in pairs]
        case PairingRule.STAR:
            return [(other, [other, 0]) for other in indexes[1:]]
        case PairingRule.PAIRS:
            return [(first, [first, first + 1]) for first in indexes[:-1:2]]
        case PairingRule.RANDOM:
            drawn = [rng.sample(indexes, group.size) for _ in range(group.count)]
            return [(members[0], members) for members in drawn]
        case PairingRule.ELSEWHERE:
            drawn = [rng.sample(indexes, min(3, count)) for _ in range(group.count)]
            return [(members[0], members[1:]) for members in drawn]
        case PairingRule.ALONE | PairingRule.IN_TURN:
            by_chance = group.between is PairingRule.ALONE
            alone = (rng.choice(indexes) if by_chance else it % count for it in range(group.count))
            return [(index, [index]) for index in alone]


def _document(
    group: ScenarioTasks, members: list[int], scenario: Scenario, rng: random.Random
) -> TaskDocument:
    start = START + _STARTED + group.start
    if group.spread:
        start += rng.randrange(group.every or scenario.duration)
    schedule = Schedule(
        start=start,
        repeat=group.every,
        slip=group.slip,
        slip_random=group.slip_random,
        max_runs=group.max_runs,
        until=None
        if group.every is None or group.endless
        else START + _STARTED + scenario.duration,
    )
    document = _task(members, group.scheduling_class, group.length, schedule, group.priority)
    participants = () if group.participants is None else group.participants
    update = {"participants": participants, "campaign": group.campaign, "takes": group.takes}
    return document.model_copy(update=update)


def _single_run_document(arrivals: Arrivals, members: list[int]) -> TaskDocument:
    schedule = Schedule(slip=arrivals.slip)
    return _task(members, arrivals.scheduling_class, arrivals.length, schedule, arrivals.priority)


def _task(
    members: list[int],
    scheduling_class: SchedulingClass,
    length: int,
    schedule: Schedule,
    priority: int,
) -> TaskDocument:
    spec: dict[str, Any] = {
        "duration": times.format_duration(length),
        "class": str(scheduling_class),
    }
    if members:
        spec["participants"] = [f"n{member + 1}" for member in members]
    test = TestChoice(type="idle", spec=spec)
    return TaskDocument(test=test, schedule=ScheduleDocument.of(schedule), priority=priority)


def simulate(
    scenario: Scenario,
    *,
    broken: Broken | None = None,
    progress: Progress | None = None,
    preparing: Callable[[int], None] = tell_nobody,
) -> Report:
    """Simulate a world from its beginning to its last check and return the report.

    ``preparing`` is called with the number of databases that are ready, before it begins.
    """

    async def work(loop: VirtualLoop) -> Report:
        world = World(scenario, loop, stores, broken=broken, progress=progress)
        with findings(world.history):
            try:
                report = await world.run()
            finally:
                for host in world.hosts:
                    host.crash()
                await pause(_STARTED)  # until all cancelled tasks have ended
        return report

    with warnings.catch_warnings(), _collecting_young_objects_only():
        # A killed process leaves coroutines that were created but never awaited.
        warnings.filterwarnings("ignore", "coroutine .* was never awaited", RuntimeWarning)
        with lent(scenario.nodes.count, preparing) as stores:
            return run(work)


@contextlib.contextmanager
def _collecting_young_objects_only() -> Iterator[None]:
    """Exempt the objects of a world from garbage collection.

    A world has millions of objects that live for simulated days and form no cycles; traversing
    them again and again would take longer than everything else. If the caller has disabled the
    collector, its settings stay as they are.
    """
    if not gc.isenabled():
        yield
        return
    thresholds = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(*_COLLECTED)
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)
        gc.unfreeze()
