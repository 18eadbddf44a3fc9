"""The faults: every two seconds a process is killed or hangs, or a wire is cut or slowed.

Faults of the host are rarer: a full disk, a clock that is set, a database that is restored from a
backup, damaged, worn out, or failed over to a standby, a copy or a clone of the machine that is
started beside it, or takes the node over, a second lead beside the first, and the end of the
Postgres that ``parley up`` runs.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
from collections import Counter, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta

from node.model.errors import DatabaseUnavailable
from node.runtime.clock import SystemClock
from tests.chaos.checks import Violation
from tests.chaos.copies import move, try_copy
from tests.chaos.hosts import CACHED_S
from tests.chaos.links import Wire, WireState
from tests.chaos.plan import Plan
from tests.chaos.sites import Restored, Site, Sites, Stepped, Trouble

_CLOCK = SystemClock()
_OUTAGE_S_MIN = 0.3
_DELAY_S = (0.02, 3.0)
_BROKEN = (
    WireState.CUT,
    WireState.CUT,
    WireState.BLACK_HOLE,
    WireState.LOSES_ANSWERS,
    WireState.LOSES_ANSWERS,
    WireState.SLOW,
)
_FULL_S = (4.0, 20.0)
_STEPS_S = (-86_400, -3600, -90, -5, 5, 90, 3600, 86_400)
_STEPPED_S = (2.0, 40.0)
_BORN = 0.6
"""Part of the wrong clocks under which the processes of a node are born."""
_BACKUP_AGE_MIN = timedelta(seconds=10)
_DAMAGED_S = (2.0, 15.0)
_BESIDE_S = (1.0, 10.0)
_RECOVERY = timedelta(seconds=5)
"""Time after a fault in which a node finds its database and the others again."""
_REPEATED_S = 3
"""Every so many faults of a round's beginning, one is a rare one, until each has been."""

Fault = Callable[[], Awaitable[None]]


class FaultInjector:
    """An injector of random faults; :meth:`heal` ends them all."""

    def __init__(self, sites: Sites, plan: Plan, rng: random.Random) -> None:
        """Create an injector; nothing happens before :meth:`run`."""
        self.counts: Counter[str] = Counter()
        self.left_out: Counter[str] = Counter()
        self._sites = sites
        self._plan = plan
        self._rng = rng
        self._lasting: set[asyncio.Task[None]] = set()
        self.failed: list[str] = []
        """The faults that could not be injected as intended, and why."""
        self._found: list[Violation] = []
        self._faults: dict[Fault, int] = {
            self.kill_node: 20,
            self.kill_lead: 20,
            self.kill_backend: 16,
            self.end_database: 5,
            self.cut_wire: 20,
            self.isolate: 5,
            self.hang: 8,
            self.hang_database: 3,
            self.add_lead: 5,
        }
        self._rare: deque[Fault] = deque()
        if plan.host_faults:
            rare: dict[Fault, int] = {
                self.back_up: 3,
                self.set_clock: 3,
                self.fill_disk: 2,
                self.end_own_database: 3,
                self.restore: 3,
            }
            self._faults |= rare
            self._rare.extend([*rare, self.restore])
        unlike: dict[Fault, int] = {
            self.copy_machine: 2,
            self.clone_machine: 2,
            self.move_node: 2,
            self.damage_index: 3,
            self.use_up_ids: 2,
            self.fail_over: 3,
        }
        if plan.host_faults or plan.only:
            self._faults |= unlike
            self._rare.extend(unlike)
        if plan.only:
            self._rare = deque(each for each in self._faults if each.__name__ in plan.only)
            self._faults = dict.fromkeys(self._rare, 1)
        mending = (self.end_database, self.restore, *unlike)
        self._whole = {each.__name__ for each in mending}
        """The faults that are not cut off by :meth:`heal`, because they mend what they broke."""

    async def run(self) -> None:
        """Inject faults until cancelled; each may last while others follow."""
        number = 0
        while True:
            await _CLOCK.sleep(self._plan.fault_every_s * self._rng.uniform(0.5, 1.5))
            number += 1
            if self._rare and (self._plan.only or number % _REPEATED_S == 0):
                fault = self._rare.popleft()
            else:
                fault = self._rng.choices(list(self._faults), list(self._faults.values()))[0]
            self._inject(fault)

    def _inject(self, fault: Fault) -> asyncio.Task[None]:
        task = asyncio.create_task(_run(fault), name=fault.__name__)
        self._lasting.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._lasting.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.failed.append(f"{task.get_name()}: {error!r}")

    @property
    def violations(self) -> list[Violation]:
        """The faults that failed: a round without them would show less than it says.

        And what only a fault could see, while it lasted.
        """
        return [*(Violation("faults", "", "", why) for why in self.failed), *self._found]

    async def heal(self) -> None:
        """End all faults: wires work, nothing hangs, every database runs, every clock is right."""
        lasting = list(self._lasting)
        for task in lasting:
            if task.get_name() not in self._whole:
                task.cancel()
        await asyncio.gather(*lasting, return_exceptions=True)
        while self._plan.only and self._rare:  # no node was free for it before
            await asyncio.wait({self._inject(self._rare.popleft())})
        for wire in self._sites.wires:
            wire.set_state(WireState.UP)
        for site in self._sites.all:
            try:
                await site.server.start()
            except DatabaseUnavailable as error:
                self.failed.append(f"{site.name} is not healed: {error.detail}")

    async def kill_node(self) -> None:
        """Kill a node's process with SIGKILL."""
        site = self._site()
        site.node.send(signal.SIGKILL)
        self.counts["parley up killed" if site.is_up else "node killed"] += 1

    async def kill_lead(self) -> None:
        """Kill a lead's process with SIGKILL."""
        site = self._rng.choice(self._alone(self._separate))
        lead = self._rng.choice([each for each in site.services[1:] if each.started] or [site.lead])
        lead.send(signal.SIGKILL)
        self.counts["lead killed"] += 1

    async def kill_backend(self) -> None:
        """Kill one server process of a database: Postgres ends all others and recovers."""
        site = self._site()
        backends = [] if site.server.busy else site.server.backends
        if backends:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._rng.choice(backends), signal.SIGKILL)
                self.counts["database backend killed"] += 1

    async def end_database(self) -> None:
        """End a whole Postgres immediately, and start it after a moment.

        On a full disk it could not be started.
        """
        site = self._rng.choice(self._alone(self._separate))
        if not site.server.busy and not (site.disk and site.disk.full):
            self.counts["database ended at once"] += 1
            with self._troubled((site.name, site.name)):
                await site.server.crash(self._rng.uniform(0.0, 3.0))

    async def end_own_database(self) -> None:
        """Kill the Postgres of ``parley up``, which has to bring it back."""
        for site in self._sites.all:
            if site.is_up:
                self.counts["Postgres of parley up killed"] += 1
                with self._troubled((site.name, site.name)):
                    await site.server.crash(0)

    async def cut_wire(self) -> None:
        """Break one or both directions between two nodes for a while."""
        one, other = self._rng.sample(self._sites.all, 2)
        wires = [self._sites.between(one, other)]
        if self._rng.random() < 0.5:
            wires.append(self._sites.between(other, one))
        state = self._rng.choice(_BROKEN)
        self.counts[f"wire {state}, {'one way' if len(wires) == 1 else 'both ways'}"] += 1
        await self._break(wires, state)

    async def isolate(self) -> None:
        """Cut one node off from all others for a while."""
        site = self._site()
        wires = [w for w in self._sites.wires if site.name in {w.source, w.target}]
        self.counts["node isolated"] += 1
        await self._break(wires, self._rng.choice((WireState.CUT, WireState.BLACK_HOLE)))

    async def _break(self, wires: Sequence[Wire], state: WireState) -> None:
        await asyncio.gather(*map(self._sites.lay, wires))
        for wire in wires:
            wire.set_state(state, self._rng.uniform(*_DELAY_S))
        with self._troubled(*((wire.source, wire.target) for wire in wires)):
            try:
                await _CLOCK.sleep(self._rng.uniform(_OUTAGE_S_MIN, self._plan.outage_s_max))
            finally:
                for wire in wires:
                    wire.set_state(WireState.UP)

    @contextlib.contextmanager
    def _troubled(self, *between: tuple[str, str]) -> Iterator[None]:
        """Note for how long nodes cannot be sure to hear each other."""
        began = datetime.now(UTC)
        try:
            yield
        finally:
            ended = datetime.now(UTC) + _RECOVERY
            self._sites.troubles += [Trouble(one, other, began, ended) for one, other in between]

    async def hang(self) -> None:
        """Let a process stand still, often for longer than its lease."""
        site = self._site()
        started = [each for each in site.services if each.started]
        if not started:  # its database is being restored
            return
        service = self._rng.choice(started)
        kind = "parley up" if site.is_up else "node" if service is site.node else "lead"
        self.counts[f"{kind} hung"] += 1
        service.send(signal.SIGSTOP)
        with self._troubled((site.name, site.name)):
            try:
                await _CLOCK.sleep(self._hanging_s())
            finally:
                service.send(signal.SIGCONT)

    async def hang_database(self) -> None:
        """Let a Postgres stand still with all its processes."""
        site = self._site()
        server = site.server
        if server.busy:
            return
        self.counts["database hung"] += 1
        server.send(signal.SIGSTOP)
        with self._troubled((site.name, site.name)):
            try:
                await _CLOCK.sleep(self._hanging_s())
            finally:
                server.send(signal.SIGCONT)

    def _hanging_s(self) -> float:
        """Return a duration, more often a short one."""
        shortest, longest = self._plan.hang_s
        return float(shortest + (longest - shortest) * self._rng.random() ** 3)

    async def add_lead(self) -> None:
        """Run a second lead beside the first for a while, and kill it."""
        site = self._rng.choice(self._alone(self._separate))
        lead = site.second_lead
        if lead is not None and not lead.started and not site.server.busy:
            self.counts["second lead beside the first"] += 1
            lead.start()
            try:
                await _CLOCK.sleep(self._rng.uniform(1.0, 3.0) * self._plan.outage_s_max)
            finally:
                lead.send(signal.SIGKILL)
                await lead.stop()

    async def set_clock(self) -> None:
        """Set the clock of a node's host forward or back, and correct it after a while.

        Often while its processes are down, so that they are born under it.
        """
        sites = self._alone(self._sites.all)
        clocks = [(site, site.clock) for site in sites if site.clock is not None]
        if not clocks:
            self.left_out["clock set"] += all(site.clock is None for site in self._sites.all)
            return
        site, clock = self._rng.choice(clocks)
        if clock.ahead_s:
            return
        seconds = self._rng.choice(_STEPS_S)
        born = self._rng.random() < _BORN
        kind = f"clock set {'forward' if seconds > 0 else 'back'}"
        self.counts[f"{kind}, and booted" if born else kind] += 1
        step, began = timedelta(seconds=seconds), datetime.now(UTC)
        clock.set(seconds)
        if born:
            for service in site.services:
                service.send(signal.SIGKILL)
        try:
            await _CLOCK.sleep(self._rng.uniform(*_STEPPED_S))
        finally:
            clock.set(0)
            ended = datetime.now(UTC) + timedelta(seconds=2 * CACHED_S)
            self._sites.stepped.append(Stepped(site.name, began + step, ended + step, ended))

    async def fill_disk(self) -> None:
        """Leave a node no room to write, for a while."""
        if all(site.disk is None for site in self._sites.all):
            self.left_out["disk full"] += 1
            return
        sites = [site for site in self._alone(self._sites.all) if site.disk is not None]
        if not sites:
            return
        site = self._rng.choice(sites)
        assert site.disk is not None
        if site.server.busy or site.disk.full:
            return
        self.counts["disk full"] += 1
        with self._troubled((site.name, site.name)):
            await site.disk.fill()
            try:
                await _CLOCK.sleep(self._rng.uniform(*_FULL_S))
            finally:
                await site.disk.free()
                await site.server.start()  # it may have ended, as its operator would notice

    async def back_up(self) -> None:
        """Dump a node's database."""
        sites = [site for site in self._separate if site.server.can_be_restored]
        if not sites:
            self.left_out["database restored"] += 1
            return
        site = self._rng.choice(sites)
        if not site.server.busy and (began := await site.server.back_up(site.dump)):
            site.dumped_at = began
            self.counts["database dumped"] += 1

    async def restore(self) -> None:
        """Give a node the database back that it had some time ago."""
        before = datetime.now(UTC) - _BACKUP_AGE_MIN
        sites = [
            site
            for site in self._alone(self._separate)
            if site.dumped_at is not None and site.dumped_at < before and not site.server.busy
        ]
        if not sites:
            await self.back_up()
            return
        site = self._rng.choice(sites)
        assert site.dumped_at is not None
        self.counts["database restored from a dump"] += 1
        dumped_at, site.dumped_at = site.dumped_at, None
        site.server.busy = True
        started = [service for service in site.services if service.started]
        with self._troubled((site.name, site.name)):
            try:
                await asyncio.gather(*(service.stop() for service in started))
                await site.server.restore(site.dump)
                self._sites.restored.append(Restored(site.name, dumped_at, datetime.now(UTC)))
            finally:
                site.server.busy = False
                for service in started:
                    service.start()

    async def copy_machine(self) -> None:
        """Start a copy of a node beside it, which has to wait for its owner's word."""
        await self._copy(self.copy_machine, "machine copied")

    async def clone_machine(self) -> None:
        """Start a copy that nothing tells apart, which has to end once others heard both."""
        await self._copy(self.clone_machine, "machine cloned", alike=True)

    async def _copy(self, fault: Fault, kind: str, *, alike: bool = False) -> None:
        if (site := self._to_copy(fault, works=alike)) is not None:
            self.counts[kind] += 1
            with self._troubled((site.name, site.name)):
                self._found += await try_copy(self._sites, site, alike=alike)

    async def move_node(self) -> None:
        """Copy a node and stop it, and have the copy take it over."""
        if (site := self._to_copy(self.move_node, works=True)) is not None:
            self.counts["node taken over by a copy"] += 1
            site.server.busy = True
            try:
                with self._troubled((site.name, site.name)):
                    await move(self._sites, site)
            finally:
                site.server.busy = False

    def _to_copy(self, fault: Fault, *, works: bool = False) -> Site | None:
        """Choose a site of which a copy can be tried now; None, and try ``fault`` again later.

        ``works``: the copy changes its data, which a worn database lets nobody do, and may stay
        where it is, for which a disk of its own is too small.
        """
        fit = [
            site
            for site in self._separate
            if not (works and (site.disk is not None or site.server.is_worn))
        ]
        if not fit:  # nor will there be one later
            return None
        sites = [
            site
            for site in self._idle
            if site in fit and (site.clock is None or not site.clock.ahead_s)
        ]
        if not sites or any(site.is_copied for site in self._sites.all):
            self._rare.append(fault)
            return None
        return self._rng.choice(sites)

    async def damage_index(self) -> None:
        """Overwrite an index; after a while its owner repairs the database."""
        if not (sites := self._idle):
            self._rare.append(self.damage_index)
            return
        site = self._rng.choice(sites)
        self.counts["index damaged"] += 1
        async with self._repaired(site):
            indexes = await site.server.indexes()
            await site.server.overwrite(self._rng.choice(indexes))

    async def use_up_ids(self) -> None:
        """Leave a database no transaction ids; after a while its owner repairs it."""
        if all(site.server.is_worn for site in self._separate):
            return
        sites = [site for site in self._idle if not site.server.is_worn]
        if not sites:
            self._rare.append(self.use_up_ids)
            return
        site = self._rng.choice(sites)
        self.counts["transaction ids used up"] += 1
        async with self._repaired(site):
            await site.server.wear_out()

    @contextlib.asynccontextmanager
    async def _repaired(self, site: Site) -> AsyncIterator[None]:
        """Damage a database, let its services meet that a while, and repair it as documented."""
        site.server.busy = True
        try:
            with self._troubled((site.name, site.name)):
                yield
                await _CLOCK.sleep(self._rng.uniform(*_DAMAGED_S))
                started = [service for service in site.services if service.started]
                try:
                    await asyncio.gather(*(service.stop() for service in started))
                    site.server.let_vacuum()
                    await site.type("admin", "repair")
                finally:
                    for service in started:
                        service.start()
        finally:
            site.server.busy = False

    async def fail_over(self) -> None:
        """Kill a Postgres, and promote the standby without which it acknowledged nothing."""
        if not any(site.server.can_fail_over for site in self._separate):
            self.left_out["failed over to a standby"] += 1
            return
        sites = [site for site in self._idle if site.server.can_fail_over]
        if not sites:
            self._rare.append(self.fail_over)
            return
        site = self._rng.choice(sites)
        self.counts["failed over to a standby"] += 1
        site.server.busy = True
        try:
            with self._troubled((site.name, site.name)):
                await site.server.fail_over(self._rng.uniform(*_BESIDE_S))
        finally:
            site.server.busy = False

    @property
    def _idle(self) -> list[Site]:
        """The separate sites of which no fault has the database or the disk just now."""
        return [
            site
            for site in self._alone(self._separate)
            if not site.server.busy and not (site.disk and site.disk.full)
        ]

    @staticmethod
    def _alone(sites: Sequence[Site]) -> list[Site]:
        """Leave out the site of which a copy is tried: the copy goes on where it is not heard."""
        return [site for site in sites if not site.is_copied]

    @property
    def _separate(self) -> list[Site]:
        """The sites whose node, lead and Postgres are processes of their own."""
        return [site for site in self._sites.all if not site.is_up]

    def _site(self) -> Site:
        return self._rng.choice(self._alone(self._sites.all))


async def _run(fault: Fault) -> None:
    await fault()
