"""The faults: every two seconds a process is killed or stopped, or a wire is cut or slowed."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from node.clock import SystemClock
from node.postgres import PrivateCluster
from tests.chaos.links import Mood, Wire
from tests.chaos.plan import Plan
from tests.chaos.sites import Service, Site, Sites
from tests.integration.host_leftovers import descendants

_CLOCK = SystemClock()
_OUTAGE_S_MIN = 0.3
_DELAY_S = (0.02, 3.0)
_BROKEN = (Mood.CUT, Mood.CUT, Mood.SILENT, Mood.DEAF, Mood.DEAF, Mood.SLOW)


class FaultInjector:
    """An injector of random faults; :meth:`heal` ends them all."""

    def __init__(self, sites: Sites, plan: Plan, rng: random.Random) -> None:
        """Create an injector; nothing happens before :meth:`run`."""
        self.counts: Counter[str] = Counter()
        self._sites = sites
        self._plan = plan
        self._rng = rng
        self._lasting: set[asyncio.Task[None]] = set()
        self._faults: dict[Callable[[], Awaitable[None]], int] = {
            self.kill_node: 22,
            self.kill_lead: 22,
            self.kill_backend: 16,
            self.restart_database: 5,
            self.cut_wire: 20,
            self.isolate: 5,
            self.stop_service: 10,
        }

    async def run(self) -> None:
        """Inject faults until cancelled; each may last while others follow."""
        while True:
            await _CLOCK.sleep(self._plan.fault_every_s * self._rng.uniform(0.5, 1.5))
            fault = self._rng.choices(list(self._faults), list(self._faults.values()))[0]
            task = asyncio.create_task(_run(fault), name=fault.__name__)
            self._lasting.add(task)
            task.add_done_callback(self._lasting.discard)

    async def heal(self) -> None:
        """End all faults: wires work, no process is stopped, every database runs."""
        for task in list(self._lasting):
            if task.get_name() != self.restart_database.__name__:
                task.cancel()
        await asyncio.gather(*self._lasting, return_exceptions=True)
        for wire in self._sites.wires:
            wire.turn(Mood.WELL)
        for site in self._sites.all:
            await site.cluster.start()

    async def kill_node(self) -> None:
        """Kill a node's process with SIGKILL."""
        self._site().node.send(signal.SIGKILL)
        self.counts["node killed"] += 1

    async def kill_lead(self) -> None:
        """Kill a lead's process with SIGKILL."""
        self._site().lead.send(signal.SIGKILL)
        self.counts["lead killed"] += 1

    async def kill_backend(self) -> None:
        """Kill one server process of a database: Postgres ends all others and recovers."""
        site = self._site()
        backends = [] if site.down else backends_of(site.cluster, site.name)
        if backends:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._rng.choice(backends), signal.SIGKILL)
                self.counts["database backend killed"] += 1

    async def restart_database(self) -> None:
        """Shut down a whole Postgres immediately, and start it after a moment."""
        site = self._site()
        if not site.down:
            self.counts["database shut down at once"] += 1
            await site.restart_database(self._rng.uniform(0.0, 3.0))

    async def cut_wire(self) -> None:
        """Break one or both directions between two nodes for a while."""
        one, other = self._rng.sample(self._sites.all, 2)
        wires = [self._sites.between(one, other)]
        if self._rng.random() < 0.5:
            wires.append(self._sites.between(other, one))
        mood = self._rng.choice(_BROKEN)
        self.counts[f"wire {mood}, {'one way' if len(wires) == 1 else 'both ways'}"] += 1
        await self._break(wires, mood)

    async def isolate(self) -> None:
        """Cut one node off from all others for a while."""
        site = self._site()
        wires = [w for w in self._sites.wires if site.name in {w.source, w.target}]
        self.counts["node isolated"] += 1
        await self._break(wires, self._rng.choice((Mood.CUT, Mood.SILENT)))

    async def _break(self, wires: Sequence[Wire], mood: Mood) -> None:
        for wire in wires:
            wire.turn(mood, self._rng.uniform(*_DELAY_S))
        try:
            await _CLOCK.sleep(self._rng.uniform(_OUTAGE_S_MIN, self._plan.outage_s_max))
        finally:
            for wire in wires:
                wire.turn(Mood.WELL)

    async def stop_service(self) -> None:
        """Stop a process, often for longer than its lease, and continue it."""
        site = self._site()
        service: Service = self._rng.choice((site.node, site.lead))
        self.counts[f"{'node' if service is site.node else 'lead'} stopped and continued"] += 1
        service.send(signal.SIGSTOP)
        try:
            await _CLOCK.sleep(self._plan.lease_s * self._rng.uniform(0.2, 1.6))
        finally:
            service.send(signal.SIGCONT)

    def _site(self) -> Site:
        return self._rng.choice(self._sites.all)


async def _run(fault: Callable[[], Awaitable[None]]) -> None:
    await fault()


def backends_of(cluster: PrivateCluster, database: str) -> list[int]:
    """Return the server processes with a session in this database."""
    server = cluster._server
    if server is None or server.ended:
        return []
    pids = []
    for child in descendants(server.pid):
        with contextlib.suppress(OSError):
            title = Path(f"/proc/{child}/cmdline").read_bytes().replace(b"\0", b" ").split()
            if title[:3] == [b"postgres:", b"parley", database.encode()]:
                pids.append(child)
    return sorted(pids)
