"""The launcher of a simulated node: the real one, except that runs only take virtual time."""

from __future__ import annotations

from typing import Any

from lead.simulation.history import History
from node.execution.launcher import TERM_BEFORE_END, Launcher, LaunchOutcome
from node.model.classes import SchedulingClass
from node.model.times import MILLISECOND
from node.runtime.clock import LatchedEvent
from node.store.runs import DueRun


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
