"""The states of other hosts, as their nodes tell them, and the last checks of them, in memory.

The state is asked for every few minutes, with the looks at the nodes (``monitor.py``). It is shown
to people, and decides nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Protocol

from node.model import times
from node.model.diagnosis import clock_reading
from node.model.errors import ParleyError
from node.model.features import Feature, has_feature
from node.model.wire.checks import CheckState, Diagnosis, PeerFacts
from node.model.wire.nodes import HostState, LastCheck
from node.runtime.clock import Clock
from node.store.nodes import KnownNode

ASKED_EVERY = 5 * times.MINUTE
"""Least time between two questions to one node."""


class FactsSource(Protocol):
    """A node that tells the state of its host."""

    async def facts(self) -> PeerFacts:
        """Ask for the state of its host, and for its clock."""
        ...


class HostStates:
    """The last known states of other hosts, and the last checks."""

    def __init__(self, clock: Clock, source_of: Callable[[str], FactsSource]) -> None:
        """Begin without any state; ``source_of(identity)`` is the client of a node."""
        self._clock = clock
        self._source_of = source_of
        self._asked: dict[str, int] = {}
        self._states: dict[str, HostState] = {}
        self._checks: dict[str, LastCheck] = {}

    def of(self, identity: str) -> HostState | None:
        """Return what a node told last of its host; None if it has told nothing."""
        return self._states.get(identity)

    def last_check(self, identity: str) -> LastCheck | None:
        """Return what the last check of a node found; None since the start of this program."""
        return self._checks.get(identity)

    async def refresh(self, known: KnownNode) -> None:
        """Ask a node for the state of its host, unless that was done a moment ago."""
        now = self._clock.monotonic()
        asked = self._asked.get(known.identity)
        if not has_feature(known.attributes, Feature.CHECKS) or (
            asked is not None and now < asked + ASKED_EVERY
        ):
            return
        self._asked[known.identity] = now
        sent_at = self._clock.now()
        try:
            facts = await self._source_of(known.identity).facts()
        except ParleyError:
            return
        came_at = self._clock.now()
        reading = clock_reading(sent_at, facts, came_at)
        self._states[known.identity] = HostState(
            at=came_at,
            synchronised=facts.clock.synchronised,
            error_bound_ms=facts.clock.error_bound_ms,
            ahead_ms=reading.ahead / times.MILLISECOND,
            uncertain_ms=reading.uncertain / times.MILLISECOND,
            load=facts.load,
            processors=facts.processors,
            needs_attention=facts.needs_attention,
        )

    def keep_check(self, identities: Iterable[str], views: Iterable[Diagnosis]) -> None:
        """Keep what a check of these nodes found."""
        states = Counter(check.state for view in views for check in view.checks)
        found = LastCheck(
            at=self._clock.now(),
            faults=states[CheckState.FAULT],
            warnings=states[CheckState.WARNING],
            passed=states[CheckState.OK],
            skipped=states[CheckState.SKIPPED],
        )
        self._checks |= dict.fromkeys(identities, found)
