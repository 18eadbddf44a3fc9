"""A simulated world: hosts, users, faults, and what came of it after the dust has settled."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import random
import warnings
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from typing import Any

from lead.service import Lead
from lead.simulation import invariants
from lead.simulation.clock import START, pause
from lead.simulation.faults import FaultInjector, draw_faults, instants
from lead.simulation.findings import findings
from lead.simulation.history import History
from lead.simulation.loop import PROCESS, VirtualLoop, run
from lead.simulation.memory.database import Point
from lead.simulation.network import Network, NetworkConditions, SimulatedService
from lead.simulation.node import Host, SimulatedNode
from lead.simulation.report import Report, report_of
from lead.simulation.scenario import Arrivals, PairingRule, Scenario, ScenarioTasks
from lead.simulation.series import step_for
from node.model import times
from node.model.classes import SchedulingClass
from node.model.errors import PeerError, RequestError
from node.model.wire.pools import PoolDocument
from node.model.wire.tasks import Schedule, ScheduleDocument, TaskDocument, TestChoice

_AGAIN = times.MINUTE
"""A user whose node is down tries again so much later."""
_WATCH = times.MINUTE
_OTHERS_COME = 0.05
"""How often something else comes in between two statements."""
_STARTED = times.MINUTE
"""How long everybody has to start before anything happens."""
_COLLECTED = (50_000, 10_000, 10_000)
"""Objects more since the youngest were looked through; and how often that before older ones are."""

_RUNS_PER_TASK = 4
"""To take in and plan a task is as much work as so many runs."""

Broken = Callable[[SimulatedNode, Lead], None]
Progress = Callable[[float, "World"], None]
"""Told now and then which share of the work is done."""


@dataclass(frozen=True)
class TaskArrival:
    """A task that a user will ask for: when (from the beginning), where, and what."""

    at: int
    lead: int
    key: str
    document: TaskDocument


class World:
    """Everything that is simulated."""

    def __init__(
        self,
        scenario: Scenario,
        loop: VirtualLoop,
        *,
        broken: Broken | None = None,
        progress: Progress | None = None,
    ) -> None:
        """``broken`` changes the program of every node, for tests of the checks."""
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
        terms = scenario.network
        self.network = Network(
            loop,
            NetworkConditions(*terms.delay, terms.loss, terms.duplicates, terms.time_limit),
            rng,
        )
        luck = random.Random(f"{scenario.seed} pauses")
        point = _pauses(luck) if scenario.faults.crashes else None
        self.hosts = [
            Host(f"n{number}", scenario, loop, self.network, self.history, point)
            for number in range(1, scenario.nodes.count + 1)
        ]
        for host in self.hosts:
            host.broken = broken
            host.harvest = partial(invariants.harvest, self, host)
        self.fate = FaultInjector(self)
        self._progress = progress
        self._doing: dict[asyncio.Task[None], None] = {}

    @property
    def end(self) -> int:
        """When the simulated days are over, by true time."""
        return START + _STARTED + self.scenario.duration

    async def run(self) -> Report:
        """From the first start to the last check."""
        await self._start()
        self._fill_the_calendar()
        await self._until(_STARTED + self.scenario.duration)
        self.fate.heal()
        await self._until(_STARTED + self.scenario.duration + self.scenario.settle)
        await invariants.check(self)
        return report_of(self)

    async def _start(self) -> None:
        everybody = {host.identity: host for host in self.hosts}
        for host in self.hosts:
            await host.know(everybody)
        self.fate.drift_apart(random.Random(f"{self.scenario.seed} drift"))
        await asyncio.gather(*(host.boot() for host in self.hosts))
        for pool in self.scenario.pools:
            await self._make(pool)
        await self._until(_STARTED)

    async def _make(self, pool: PoolDocument) -> None:
        """A pool, at its lead, with all campaigns."""

        async def make(service: SimulatedService) -> None:
            for campaign in self.scenario.campaigns:
                await service.campaigns.create(campaign)
            await service.pools.create(pool)

        error = await self.hosts[_lead_of(pool)].try_as_user(make)
        if error is not None:
            self.history.violated(f"pool {pool.name} could not be made: {error.detail}")

    def boot(self, host: Host) -> None:
        """Start a host's services again."""
        self._do(host.boot)

    async def _until(self, instant: int) -> None:
        """Let time pass to an instant from the beginning; look at everything now and then."""
        while (left := instant - self.loop.now) > 0:
            await pause(min(left, _WATCH))
            if self.scenario.faults.crashes:
                invariants.watch(self)
            if self._progress is not None:
                self._progress(self._share_done(), self)

    def _share_done(self) -> float:
        """Of the work, not of the time: while tasks are created a day takes longest."""
        passed = self.loop.now / (_STARTED + self.scenario.duration + self.scenario.settle)
        whole = _RUNS_PER_TASK * self.wished + self._runs_wished
        done = _RUNS_PER_TASK * (self.created + self.refused) + self._runs_wished * passed
        return done / whole if whole else passed

    def _fill_the_calendar(self) -> None:
        """Write down what users will want and what will go wrong."""
        scenario = self.scenario
        for wish in task_arrivals(scenario):
            self.wished += 1
            self._runs_wished += _runs_of(wish.document.schedule, scenario.duration)
            self._at(wish.at, partial(self._grant, wish))
        rng = random.Random(f"{scenario.seed} faults")
        for fault in draw_faults(scenario, rng):
            self._at(fault.at, partial(self.fate.inject, fault))

    def _at(self, instant: int, action: Callable[[], Awaitable[None]]) -> None:
        self.loop.call_in(instant, self._do, action)

    def _do(self, action: Callable[[], Awaitable[Any]]) -> None:
        task = asyncio.ensure_future(_awaited(action))
        self._doing[task] = None
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        del self._doing[task]
        if not task.cancelled() and (error := task.exception()) is not None:
            self.history.violated(f"the simulation itself failed: {error!r}")

    async def _grant(self, wish: TaskArrival) -> None:
        """A user creates a task, again and again with the same key until there is an answer."""
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
            await pause(_AGAIN)


async def _awaited(action: Callable[[], Awaitable[Any]]) -> None:
    await action()


def _pauses(luck: random.Random) -> Point:
    """Somewhere in a transaction others may come in between, or the process may end.

    Always in a process that is about to die, so that it can die anywhere; else now and then.
    """

    def point(_moment: str) -> Awaitable[None] | None:
        process = PROCESS.get()
        if (process is not None and process.will_crash) or luck.random() < _OTHERS_COME:
            return pause()
        return None

    return point


def task_arrivals(scenario: Scenario) -> list[TaskArrival]:
    """All tasks that will be asked for, drawn from the seed."""
    rng = random.Random(f"{scenario.seed} users")
    found: list[TaskArrival] = []
    for place, group in enumerate(scenario.tasks):
        if group.participants is None:
            teams = _teams(group, scenario.nodes.count, rng)
        else:
            [pool] = [it for it in scenario.pools if it.name == group.participants.pool]
            teams = [(_lead_of(pool), [])] * group.count
        for number, (lead, members) in enumerate(teams):
            at = group.created_over * number // len(teams)
            document = _document(group, members, scenario, rng)
            found.append(TaskArrival(at, lead, f"{group.name} {place} {number}", document))
    for number, arrivals in enumerate(scenario.arrivals):
        for index, at in enumerate(instants(arrivals.per_hour, scenario.duration, rng)):
            members = rng.sample(range(scenario.nodes.count), arrivals.size)
            key = f"arrival {number} {index}"
            found.append(TaskArrival(at, members[0], key, _once(arrivals, members)))
    return found


def _runs_of(schedule: ScheduleDocument, duration: int) -> int:
    """About how many runs will come of it."""
    return 1 if schedule.repeat is None else max(1, duration // schedule.repeat)


def _lead_of(pool: PoolDocument) -> int:
    """The place of the host that plans a pool."""
    return 0 if pool.lead is None else int(pool.lead.removeprefix("n")) - 1


def _teams(group: ScenarioTasks, count: int, rng: random.Random) -> list[tuple[int, list[int]]]:
    """Lead and participants of each task of a group, as places among the hosts."""
    everybody = range(count)
    match group.between:
        case PairingRule.MESH:
            pairs = [list(pair) for pair in combinations(everybody, 2)]
            rng.shuffle(pairs)
            return [(pair[sum(pair) % 2], pair) for pair in pairs]
        case PairingRule.STAR:
            return [(other, [other, 0]) for other in everybody[1:]]
        case PairingRule.PAIRS:
            return [(first, [first, first + 1]) for first in everybody[:-1:2]]
        case PairingRule.RANDOM:
            drawn = [rng.sample(everybody, group.size) for _ in range(group.count)]
            return [(members[0], members) for members in drawn]
        case PairingRule.ELSEWHERE:
            drawn = [rng.sample(everybody, min(3, count)) for _ in range(group.count)]
            return [(members[0], members[1:]) for members in drawn]
        case PairingRule.ALONE:
            return [(one, [one]) for one in (rng.choice(everybody) for _ in range(group.count))]


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
    made = _task(members, group.scheduling_class, group.length, schedule, group.priority)
    asked = () if group.participants is None else group.participants
    return made.model_copy(update={"participants": asked, "campaign": group.campaign})


def _once(arrivals: Arrivals, members: list[int]) -> TaskDocument:
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
    return TaskDocument(test=test, schedule=schedule, priority=priority)


def simulate(
    scenario: Scenario, *, broken: Broken | None = None, progress: Progress | None = None
) -> Report:
    """Simulate a world from its beginning to its last check."""

    async def work(loop: VirtualLoop) -> Report:
        world = World(scenario, loop, broken=broken, progress=progress)
        with findings(world.history):
            try:
                report = await world.run()
            finally:
                for host in world.hosts:
                    host.crash()
                await pause(_STARTED)  # until all that runs has ended
        return report

    with warnings.catch_warnings(), _only_the_young_collected():
        # What a killed process had just begun is never awaited.
        warnings.filterwarnings("ignore", "coroutine .* was never awaited", RuntimeWarning)
        return run(work)


@contextlib.contextmanager
def _only_the_young_collected() -> Iterator[None]:
    """A world has millions of objects that live for days and are in no cycle: they are left alone.

    Looking through all of them again and again takes longer than everything else. Who has the
    collector off sees to it by himself.
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
