"""Bears witness to the circumstances of each part that is measured on this host."""

from __future__ import annotations

from uuid import UUID

import structlog

from node.clock import Clock
from node.execution.concurrent_runs import ConcurrentRun, NeighbourTracker
from node.execution.host_sampling import HostObserver, HostSamplePair
from node.execution.versions import Versions
from node.model import times
from node.model.wire.circumstances import Circumstances, Neighbour, Traffic
from node.plugins.contracts import PartContext, Result, Test, Tool, TrafficReporting

_BITS_PER_MEGABIT = 1_000_000

log = structlog.get_logger()


class PartObservation:
    """One part, from right before its program starts until right after it has ended."""

    def __init__(
        self, context: PartContext, stay: ConcurrentRun, house: NeighbourTracker, clock: Clock
    ) -> None:
        """Found out in the preparation: by which interface the others are reached.

        :raises node.model.errors.HostError: the namespace of the context cannot be entered.
        """
        where = context.context
        self._context = context
        self._stay = stay
        self._house = house
        self._clock = clock
        self._observation = HostObserver(
            _other_end(context),
            None if where is None else where.namespace,
            None if where is None else where.device,
        )
        self._observed: HostSamplePair | None = None
        self._neighbours: tuple[Neighbour, ...] = ()
        self._over = False

    def look(self) -> None:
        """Right before the program starts."""
        self._stay.began = self._clock.now()
        self._house.enter(self._stay)
        self._observation.begin()

    def leave(self) -> None:
        """Right after it has ended; safe to call again."""
        if not self._over:
            self._over = True
            self._observed = self._observation.end()
            self._neighbours = self._house.leave(self._stay, self._clock.now())

    async def told(
        self, test: Test, tool: Tool, result: Result | None, versions: Versions, ticks: int | None
    ) -> Circumstances | None:
        """All that was seen; None if nobody looked, or looking failed: no result is lost by it."""
        try:
            version = await versions.of(tool)
            return (
                None
                if self._observed is None
                else self._told(self._observed, tool.name, version, self._own(test, result), ticks)
            )
        except Exception:
            log.exception("the circumstances of a part cannot be told", run=str(self._stay.run))
            return None

    def _told(
        self,
        observed: HostSamplePair,
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
            observed_ms=observed.lasted_ms,
            clock=observed.clock(),
            processors=observed.processors(ticks),
            interface=observed.interface(),
            own_traffic=own,
            neighbours=self._neighbours,
            neighbours_count=self._stay.met_count,
        )

    def _own(self, test: Test, result: Result | None) -> Traffic | None:
        """What the run moved: by its result, else what it needs at the most."""
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
    """Knows all parts that are measured here."""

    def __init__(self, clock: Clock) -> None:
        """Nothing is measured yet."""
        self._clock = clock
        self._house = NeighbourTracker()
        self.versions = Versions()

    def scene(self, run: UUID, task: UUID, test: Test, context: PartContext) -> PartObservation:
        """A part that is about to be measured.

        :raises node.model.errors.HostError: the namespace of its context cannot be entered.
        """
        scheduling_class = test.scheduling_class(context.spec)
        stay = ConcurrentRun(run, task, test.name, scheduling_class, self._clock.now())
        return PartObservation(context, stay, self._house, self._clock)


def _other_end(context: PartContext) -> str:
    """Where the packets of this part go: another participant, else a target."""
    own = context.parties[context.participant]
    others = [party.address for party in context.parties if party is not own]
    targets = [address for address in context.addresses.values() if address != own.address]
    return next(iter(others + targets), "")
