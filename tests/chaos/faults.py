"""What breaks: every two seconds something is killed, stopped, cut or slowed down."""

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


class Monkey:
    """Breaks things until told to stop; then everything is well again."""

    def __init__(self, sites: Sites, plan: Plan, rng: random.Random) -> None:
        """Nothing breaks before :meth:`run`."""
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
        """One fault every so often until cancelled; each may last while others come."""
        while True:
            await _CLOCK.sleep(self._plan.fault_every_s * self._rng.uniform(0.5, 1.5))
            fault = self._rng.choices(list(self._faults), list(self._faults.values()))[0]
            lasting = asyncio.create_task(_run(fault), name=fault.__name__)
            self._lasting.add(lasting)
            lasting.add_done_callback(self._lasting.discard)

    async def heal(self) -> None:
        """End what lasts: wires are well, nobody is stopped, every database runs."""
        for lasting in list(self._lasting):
            if lasting.get_name() != self.restart_database.__name__:
                lasting.cancel()
        await asyncio.gather(*self._lasting, return_exceptions=True)
        for wire in self._sites.wires:
            wire.turn(Mood.WELL)
        for site in self._sites.all:
            await site.cluster.start()

    async def kill_node(self) -> None:
        """Kill -9 of a node's process."""
        self._site().node.send(signal.SIGKILL)
        self.counts["node killed"] += 1

    async def kill_lead(self) -> None:
        """Kill -9 of a lead's process."""
        self._site().lead.send(signal.SIGKILL)
        self.counts["lead killed"] += 1

    async def kill_backend(self) -> None:
        """Kill -9 of one server process of a database: Postgres ends all others and recovers."""
        site = self._site()
        backends = [] if site.down else backends_of(site.cluster, site.name)
        if backends:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._rng.choice(backends), signal.SIGKILL)
                self.counts["database backend killed"] += 1

    async def restart_database(self) -> None:
        """Immediate shutdown of a whole Postgres, and a start after a moment."""
        site = self._site()
        if not site.down:
            self.counts["database shut down at once"] += 1
            await site.restart_database(self._rng.uniform(0.0, 3.0))

    async def cut_wire(self) -> None:
        """One or both ways between two nodes do not work for a while."""
        one, other = self._rng.sample(self._sites.all, 2)
        wires = [self._sites.between(one, other)]
        if self._rng.random() < 0.5:
            wires.append(self._sites.between(other, one))
        mood = self._rng.choice(_BROKEN)
        self.counts[f"wire {mood}, {'one way' if len(wires) == 1 else 'both ways'}"] += 1
        await self._break(wires, mood)

    async def isolate(self) -> None:
        """One node reaches nobody and is reached by nobody for a while."""
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
        """A process stands still, often for longer than its lease, and then goes on."""
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
    """The server processes that serve somebody in this database."""
    server = cluster._server
    if server is None or server.ended:
        return []
    found = []
    for child in descendants(server.pid):
        with contextlib.suppress(OSError):
            title = Path(f"/proc/{child}/cmdline").read_bytes().replace(b"\0", b" ").split()
            if title[:3] == [b"postgres:", b"parley", database.encode()]:
                found.append(child)
    return sorted(found)
