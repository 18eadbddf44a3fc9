"""Observation of the circumstances under which each part is measured on this host."""

from __future__ import annotations

from uuid import UUID

import structlog

from node.execution.concurrent_runs import ConcurrentRun, NeighbourTracker
from node.execution.host_sampling import HostObserver, HostSamplePair
from node.execution.tool_runner import ToolRunner
from node.execution.versions import Versions
from node.model import times
from node.model.wire.circumstances import Circumstances, Neighbour, Traffic
from node.plugins.contracts import PartContext, Result, Test, Tool, TrafficReporting
from node.runtime.clock import Clock

_BITS_PER_MEGABIT = 1_000_000

log = structlog.get_logger()


class PartObservation:
    """The observation of one part, from right before its program starts to right after its end."""

    def __init__(
        self, context: PartContext, run: ConcurrentRun, tracker: NeighbourTracker, clock: Clock
    ) -> None:
        """Determine the interface by which the others are reached, while there is still time.

        :raises node.model.errors.HostError: the namespace of the context cannot be entered.
        """
        where = context.context
        self._context = context
        self._run = run
        self._tracker = tracker
        self._clock = clock
        self._host = HostObserver(
            _other_end(context),
            None if where is None else where.namespace,
            None if where is None else where.device,
        )
        self._samples: HostSamplePair | None = None
        self._neighbours: tuple[Neighbour, ...] = ()
        self._over = False

    def begin(self) -> None:
        """Begin the observation right before the program starts."""
        self._run.began = self._clock.now()
        self._tracker.enter(self._run)
        self._host.begin()

    def end(self) -> None:
        """End the observation right after the program's end; safe to call again."""
        if not self._over:
            self._over = True
            self._samples = self._host.end()
            self._neighbours = self._tracker.leave(self._run, self._clock.now())

    async def circumstances(
        self, test: Test, tool: Tool, result: Result | None, versions: Versions, ticks: int | None
    ) -> Circumstances | None:
        """Return the circumstances of the part; None if they are unknown.

        ``ticks`` is the processor time of its program. A failure here must not lose a result.
        """
        try:
            version = await versions.of(tool)
            if self._samples is None:
                return None
            own = self._own_traffic(test, result)
            return self._circumstances(self._samples, tool.name, version, own, ticks)
        except Exception:
            log.exception("the circumstances of a part are unknown", run=str(self._run.run))
            return None

    def _circumstances(
        self,
        samples: HostSamplePair,
        tool: str,
        version: str | None,
        own: Traffic | None,
        ticks: int | None,
    ) -> Circumstances:
        where = self._context.context
        return Circumstances(
            tool=tool,
            tool_version=version,
            context=None if where is None else str(where),
            observed_ms=samples.lasted_ms,
            clock=samples.clock(),
            processors=samples.processors(ticks),
            interface=samples.interface(),
            own_traffic=own,
            neighbours=self._neighbours,
            neighbours_count=self._run.met_count,
        )

    def _own_traffic(self, test: Test, result: Result | None) -> Traffic | None:
        """Return the traffic that the run moved: by its result, or at most by its needs."""
        context = self._context
        if isinstance(test, TrafficReporting):
            if result is None:
                return None
            return test.moved(context.spec, context.participant, result)
        mbps = test.needs(context.spec).get("mbps", 0)
        if mbps is None:
            return None
        lasts = context.ends - context.starts
        octets = mbps * _BITS_PER_MEGABIT // 8 * lasts // times.SECOND
        return Traffic(sent_bytes=octets, received_bytes=octets)


class PartObserver:
    """Observes all parts that are measured on this host."""

    def __init__(self, clock: Clock, tool_runner: ToolRunner) -> None:
        """Start with no parts."""
        self._clock = clock
        self._tracker = NeighbourTracker()
        self.versions = Versions(tool_runner)

    def observe(self, run: UUID, task: UUID, test: Test, context: PartContext) -> PartObservation:
        """Prepare the observation of a part that is about to be measured.

        :raises node.model.errors.HostError: the namespace of its context cannot be entered.
        """
        scheduling_class = test.scheduling_class(context.spec)
        concurrent = ConcurrentRun(run, task, test.name, scheduling_class, self._clock.now())
        return PartObservation(context, concurrent, self._tracker, self._clock)


def _other_end(context: PartContext) -> str:
    """Return the address that this part's packets go to: another participant, or a target."""
    own = context.parties[context.participant]
    others = [party.address for party in context.parties if party is not own]
    targets = [address for address in context.addresses.values() if address != own.address]
    return next(iter(others + targets), "")
