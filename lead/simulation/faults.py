"""The faults of a simulated world: drawn from the seed before the start, then injected.

A crash is a countdown: the process dies before one of its next steps, that is at one of its next
awaits, which may lie inside a transaction, between a request and its answer, or after a commit that
the lead has not yet learned of.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations
from uuid import UUID

from lead.simulation.clock import START
from lead.simulation.node import BesideProcess, Host, SimulatedWorld
from lead.simulation.scenario import Scenario
from node.model import times
from node.model.errors import DatabaseUnavailable
from node.store.database import Record
from node.store.queries import Queries

SQL = Queries("lead.simulation", "world")
_FUSE_MAX = 120
"""Maximum number of steps of the process before a crash takes effect."""
_ALONE = 0.5
"""Share of crashes of a service that leave the leads and APIs beside it alive."""
_WHILE_DOWN = 0.5
"""Share of wrong clocks that were set while no process ran."""
_SLOW_MAX = 20 * times.SECOND


@dataclass(frozen=True)
class InjectedFault:
    """A fault: its instant (microseconds from the start), kind, duration, and place."""

    at: int
    kind: str
    lasts: int
    luck: int
    """The seed that chooses the host, or the run, among those that exist at that instant."""


def draw_faults(scenario: Scenario, rng: random.Random) -> list[InjectedFault]:
    """Return all faults of a world in order of time."""
    terms = scenario.faults
    kinds = {
        "crash": (terms.crashes, terms.down),
        "cut": (terms.cuts, terms.cut),
        "slow": (terms.slow, terms.cut),
        "clock step": (terms.clock_steps, terms.cut),
        "wrong boot": (terms.wrong_boots, terms.cut),
        "clock jump": (terms.clock_jumps, terms.cut),
        "outage": (terms.outages, terms.outage),
        "cancelled run": (terms.cancelled_runs, (0, 0)),
        "cancelled task": (terms.cancelled_tasks, (0, 0)),
        "withdrawal": (terms.withdrawals, (0, 0)),
        "forgotten run": (terms.forgotten_runs, (0, 0)),
    }
    faults = []
    for kind, (rate, (shortest, longest)) in kinds.items():
        for at in instants(rate, scenario.duration, rng):
            lasts = rng.randint(shortest, longest)
            faults.append(InjectedFault(at, kind, lasts, rng.getrandbits(32)))
    return sorted(faults, key=lambda fault: (fault.at, fault.kind, fault.luck))


def instants(per_hour: float, duration: int, rng: random.Random) -> list[int]:
    """Return the instants of a Poisson process, in microseconds from the start."""
    events: list[int] = []
    if per_hour <= 0:
        return events
    at = 0
    while (at := at + round(rng.expovariate(per_hour) * times.HOUR)) < duration:
        events.append(at)
    return events


class FaultInjector:
    """The executor of the faults that were drawn."""

    def __init__(self, world: SimulatedWorld) -> None:
        """Create an injector for ``world`` that has injected nothing yet."""
        self._world = world
        self._undo: dict[int, Callable[[], None]] = {}
        self._number = 0
        self._healed = False

    def drift_apart(self, rng: random.Random) -> None:
        """Give every clock a drift of its own."""
        most = self._world.scenario.faults.clock_drift_ppm
        for host in self._world.hosts:
            if most:
                host.clock.drift(rng.randint(-most, most))

    async def inject(self, fault: InjectedFault) -> None:
        """Let a fault take effect now."""
        rng = random.Random(fault.luck)
        host = rng.choice(self._world.hosts)
        sudden = {
            "crash": self._crash,
            "cut": self._cut,
            "slow": self._slow,
            "clock step": self._step,
            "wrong boot": self._boot_wrong,
            "clock jump": self._jump,
            "outage": self._outage,
        }
        if fault.kind in sudden:
            sudden[fault.kind](host, fault, rng)
        elif fault.kind == "forgotten run":
            await self._forget(host, fault, rng)
        else:
            await self._act_as_user(host, fault, rng)

    def heal(self) -> None:
        """End all faults and inject no more."""
        self._healed = True
        for undo in list(self._undo.values()):
            undo()
        self._undo.clear()
        for host in self._world.hosts:
            for each in _processes(host):
                each.process.cancel_crash()
            host.store.fuse = None
            host.clock.correct()

    def _now(self) -> int:
        return START + self._world.loop.now

    def _count(self, fault: InjectedFault) -> None:
        self._world.history.faults[fault.kind] += 1

    def _until(self, lasts: int, undo: Callable[[], None]) -> None:
        """Call ``undo`` after ``lasts`` microseconds, or earlier if :meth:`heal` is called."""
        self._number += 1
        number = self._number
        self._undo[number] = undo

        def expire() -> None:
            if self._undo.pop(number, None) is not None:
                undo()

        self._world.loop.call_in(lasts, expire)

    def _crash(self, host: Host, fault: InjectedFault, rng: random.Random) -> None:
        if host.service is None:
            return
        victim = rng.choice(_processes(host))

        def die() -> None:
            if self._healed or not victim.process.alive:
                return
            self._count(fault)
            if isinstance(victim, BesideProcess):
                victim.crash()
                self._until(fault.lasts, victim.boot)
            else:
                die_alone = rng.random() < _ALONE and bool(host.beside)
                host.crash_service() if die_alone else host.crash()
                self._until(fault.lasts, lambda: self._world.boot(host))

        victim.process.crash_after_steps(rng.randrange(_FUSE_MAX), die)

    def _cut(self, host: Host, fault: InjectedFault, rng: random.Random) -> None:
        """Cut one link, all links of one host, or the links between two halves of the world."""
        names = [h.name for h in self._world.hosts]
        others = [name for name in names if name != host.name]
        if not others:
            return
        half = set(rng.sample(names, len(names) // 2))
        pairs = rng.choice(
            [
                [(host.name, rng.choice(others))],
                [(host.name, other) for other in others],
                [(a, b) for a, b in combinations(names, 2) if (a in half) is not (b in half)],
            ]
        )
        cut = [frozenset(pair) for pair in pairs]
        self._count(fault)
        self._world.network.cut.update(cut)
        began = self._now()

        def mend() -> None:
            self._world.network.cut.subtract(cut)
            self._world.history.troubles += [(*pair, began, self._now()) for pair in pairs]

        self._until(fault.lasts, mend)

    def _slow(self, host: Host, fault: InjectedFault, rng: random.Random) -> None:
        slow = self._world.network.slow
        by = rng.randint(times.SECOND, _SLOW_MAX)
        self._count(fault)
        slow[host.name] = slow.get(host.name, 0) + by
        began = self._now()

        def hurry() -> None:
            slow[host.name] -= by
            self._world.history.troubles.append((host.name, host.name, began, self._now()))

        self._until(fault.lasts, hurry)

    def _step(self, host: Host, fault: InjectedFault, rng: random.Random) -> None:
        most = self._world.scenario.faults.clock_step_max
        by = rng.randint(-most, most)
        self._count(fault)
        host.clock.step(by)
        self._until(fault.lasts, lambda: host.clock.step(-by))

    def _boot_wrong(self, host: Host, fault: InjectedFault, rng: random.Random) -> None:
        """Kill a process, and start the next one by a clock that is ahead until it is set right."""
        by = rng.randint(times.HOUR, self._world.scenario.faults.clock_boot_max)

        def die() -> None:
            if not self._healed:
                self._count(fault)
                host.crash()
                self._set_wrong(host, by, fault.lasts)
                self._world.boot(host)

        if host.service is not None:
            host.process.crash_after_steps(rng.randrange(_FUSE_MAX), die)

    def _jump(self, host: Host, fault: InjectedFault, rng: random.Random) -> None:
        """Set a clock an hour or a day wrong, while the processes run or are down."""
        by = rng.choice([-times.DAY, -times.HOUR, times.HOUR, times.DAY])
        if host.service is None:
            return
        self._count(fault)
        if rng.random() < _WHILE_DOWN:
            host.crash()
            self._set_wrong(host, by, fault.lasts)
            self._until(rng.randrange(1, fault.lasts), lambda: self._world.boot(host))
        else:
            self._set_wrong(host, by, fault.lasts)

    def _outage(self, host: Host, fault: InjectedFault, rng: random.Random) -> None:
        """Break all connections to a database, and keep it away for a while."""
        store = host.store

        def lost() -> None:
            self._count(fault)
            began = self._now()

            def come_back() -> None:
                store.come_back()
                self._world.history.troubles.append((host.name, host.name, began, self._now()))

            self._until(fault.lasts, come_back)

        if not store.away and store.fuse is None:
            store.on_lost = lost
            store.fuse = rng.randrange(_FUSE_MAX)

    def _set_wrong(self, host: Host, by: int, lasts: int) -> None:
        """Let a clock be far wrong for a while."""
        host.clock.step(by)
        began = host.clock.now()

        def correct() -> None:
            ended = host.clock.now()
            host.clock.step(-by)
            self._world.history.stepped.append((host.name, began, ended, self._now()))

        self._until(lasts, correct)

    async def _forget(self, host: Host, fault: InjectedFault, rng: random.Random) -> None:
        """Delete a booked run from a participant's tables, as after restoring an old backup."""
        run = self._some_run(host, rng, led_here=False)
        if run is not None:
            self._count(fault)
            with contextlib.suppress(DatabaseUnavailable):
                async with host.database.connection() as connection:
                    await connection.execute(SQL["forget_run"], run["id"])
            self._world.history.restored.append((host.name, self._now(), self._now()))

    async def _act_as_user(self, host: Host, fault: InjectedFault, rng: random.Random) -> None:
        run = self._some_run(host, rng, led_here=fault.kind != "withdrawal")
        if run is None:
            return
        target: UUID = run["id" if fault.kind == "cancelled run" else "task_id"]
        of_run = fault.kind == "cancelled run"
        error = await host.try_as_user(
            lambda service: (
                service.termination.cancel_run(target)
                if of_run
                else service.termination.cancel_task(target)
            )
        )
        if error is None:
            self._count(fault)

    def _some_run(self, host: Host, rng: random.Random, *, led_here: bool) -> Record | None:
        """Return a random run booked here that has not started; None if there is none."""
        candidates = host.store.read(SQL["booked_runs"], host.clock.now(), led_here)
        return rng.choice(candidates) if candidates else None


def _processes(host: Host) -> list[Host | BesideProcess]:
    """Return what can die on a host, one without the other."""
    return [host, *host.beside]
