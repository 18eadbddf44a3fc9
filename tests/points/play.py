"""Plays a story, and kills a process at an await point."""

from __future__ import annotations

import gc
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import cast

from lead.simulation import invariants
from lead.simulation.clock import START, pause
from lead.simulation.findings import findings
from lead.simulation.loop import VirtualLoop, run
from lead.simulation.server import NodeStore, lent
from lead.simulation.world import Broken, World
from node.model import times
from node.model.wire.pools import PoolDocument
from tests.points.crossing import Phase, numbered, watched
from tests.points.scope import Point
from tests.points.stories import PLANTED, Scene, Story
from tests.points.virtual import TwoProcessHost, dying_here, virtual_programs

_WATCH = 5 * times.SECOND


@dataclass(frozen=True)
class Crossing:
    """A crossing of an await point in a story: by which process, and for which time."""

    point: Point
    phase: Phase
    process: str
    visit: int = 1


@dataclass(frozen=True)
class Played:
    """The outcome of a story."""

    crossed: Mapping[Crossing, int]
    """The number of crossings of each point, by process and side; all keys have ``visit`` 1."""
    killed_at: float | None
    """The virtual second at which the process was killed; None if it was not."""
    violations: tuple[str, ...]


class _StoryWorld(World):
    """A world whose users and faults do what a story says."""

    host_type = TwoProcessHost

    def __init__(
        self,
        story: Story,
        loop: VirtualLoop,
        stores: Sequence[NodeStore],
        kill: Crossing | None,
        down: int,
        broken: Broken | None,
    ) -> None:
        super().__init__(story.scenario(), loop, stores, broken=broken or story.broken)
        self._story = story
        self._kill = None if kill is None else _numbered(kill)
        self._down = down
        self._armed = True
        self._cut_since: dict[frozenset[str], int] = {}
        self.scene = Scene(cast("list[TwoProcessHost]", self.hosts), self._cut)
        self.crossed = Counter[tuple[int, Phase, str]]()
        self.killed_at: float | None = None

    async def _until(self, instant: int) -> None:
        """Let time pass, and check what must hold at every instant."""
        while (remaining := instant - self.loop.now) > 0:
            await pause(min(remaining, _WATCH))
            invariants.watch(self)
            # In a dying process what was gathered and never awaited is of no account.
            self.loop.faults[:] = [it for it in self.loop.faults if "CancelledError" not in it]

    def _fill_the_calendar(self) -> None:
        for deed in self._story.deeds:
            self._schedule(deed.at, partial(deed.act, self.scene))

    async def _create_pool(self, pool: PoolDocument) -> None:
        """Create a pool, undisturbed: it is the setting of the story and no part of it."""
        self._armed = False
        while any(host.service is None for host in self.scene.hosts):  # killed while it started
            await pause(_WATCH)
        await super()._create_pool(pool)
        self._armed = True

    def _cut(self, one: str, other: str, by: int) -> None:
        cut = frozenset((one, other))
        self.network.cut[cut] += by
        now = START + self.loop.now
        if by > 0:
            self._cut_since[cut] = now
        else:
            self.history.troubles.append((one, other, self._cut_since[cut], now))

    def arrived(self, number: int, phase: Phase) -> bool:
        """Count a crossing; kill the process if it is the one."""
        process = dying_here()
        if process is None or self.killed_at is not None or not self._armed:
            return False
        crossed = (number, phase, process.name)
        self.crossed[crossed] += 1
        if (*crossed, self.crossed[crossed]) != self._kill:
            return False
        self.killed_at = self.loop.time()
        [host] = [it for it in self.scene.hosts if it.name == process.name.split()[0]]
        self.loop.call_in(self._down, host.crash_process(process))
        return True


def play(
    story: Story,
    kill: Crossing | None = None,
    *,
    down: int = 3 * times.SECOND,
    broken: Broken | None = None,
) -> Played:
    """Play a story; ``kill`` says where a process dies, ``down`` for how many microseconds."""

    async def work(loop: VirtualLoop) -> Played:
        world = _StoryWorld(story, loop, stores, kill, down, broken)
        with watched(world.arrived), findings(world.history):
            try:
                await world.run()
            finally:
                for host in world.hosts:
                    host.crash()
                await pause(times.MINUTE)  # until all cancelled tasks have ended
        violations = tuple(it for it in world.history.violations if PLANTED not in it)
        points = numbered()
        crossed = {
            Crossing(points[number], phase, process): count
            for (number, phase, process), count in world.crossed.items()
        }
        return Played(crossed, world.killed_at, violations)

    with lent(story.nodes) as stores, virtual_programs(), warnings.catch_warnings():
        # A killed process leaves coroutines that were created but never awaited.
        warnings.filterwarnings("ignore", "coroutine .* was never awaited", RuntimeWarning)
        try:
            return run(work)
        finally:
            gc.collect()  # otherwise they are found later, where nobody expects any


def _numbered(kill: Crossing) -> tuple[int, Phase, str, int]:
    [number] = [number for number, point in numbered().items() if point == kill.point]
    return number, kill.phase, kill.process, kill.visit
