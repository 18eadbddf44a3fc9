"""Observation of the circumstances under which each part is measured on this host."""

from __future__ import annotations

from dataclasses import dataclass, field
from uuid import UUID

import structlog

from node.execution.host_sampling import HostObserver, HostSamplePair
from node.execution.tool_runner import ToolRunner
from node.execution.versions import Versions
from node.model import times
from node.model.classes import SchedulingClass
from node.model.wire.circumstances import NEIGHBOURS_MAX, Circumstances, Neighbour, Traffic
from node.plugins.contracts import PartContext, Result, Test, Tool, TrafficReporting
from node.runtime.clock import Clock

_ORDER = {each: rank for rank, each in enumerate(SchedulingClass)}


@dataclass(eq=False)
class ConcurrentRun:
    """A run that is measured here, and the runs that overlap it."""

    run: UUID
    task: UUID
    test: str
    scheduling_class: SchedulingClass
    began: int
    ended: int | None = None
    met: list[ConcurrentRun] = field(default_factory=list)
    met_count: int = 0

    def meet(self, other: ConcurrentRun) -> None:
        """Note an overlapping run; of many, keep the first of the classes that disturb most."""
        self.met_count += 1
        self.met.append(other)
        if len(self.met) > NEIGHBOURS_MAX:
            self.met.sort(key=lambda run: _ORDER[run.scheduling_class])
            self.met.pop()


class NeighbourTracker:
    """The runs that are being measured now."""

    def __init__(self) -> None:
        self._current: dict[UUID, ConcurrentRun] = {}

    def enter(self, run: ConcurrentRun) -> None:
        """Add a run that begins; it overlaps all current ones."""
        for other in self._current.values():
            other.meet(run)
            run.meet(other)
        self._current[run.run] = run

    def leave(self, run: ConcurrentRun, now: int) -> tuple[Neighbour, ...]:
        """Remove a run and return those it overlapped, with durations; none on a second call."""
        self._current.pop(run.run, None)
        run.ended = now
        # Drop the references: in a chain of overlapping runs each would keep all before it alive.
        met, run.met = run.met, []
        return tuple(_neighbour(run, other, now) for other in met)


def _neighbour(run: ConcurrentRun, other: ConcurrentRun, now: int) -> Neighbour:
    together = (now if other.ended is None else other.ended) - max(run.began, other.began)
    return Neighbour(
        run=other.run,
        task=other.task,
        test=other.test,
        scheduling_class=other.scheduling_class,
        overlap_ms=max(0, together) / times.MILLISECOND,
    )


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
