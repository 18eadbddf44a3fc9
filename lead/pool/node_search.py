"""Finds nodes for seats: asks those that the search for seats names, all of a step at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from lead.exchange.collection import ask
from lead.model.participants import IntroducingSource, ProposalSource
from lead.planning.pool_view import SeatCase
from lead.planning.proposal_cache import ProposalCache
from lead.policy.placement_requests import Ask
from lead.pool.seat_search import SeatSearch, SeatSearchResult
from node.model.wire.participants import Introduction
from node.runtime.clock import Clock


class NodeSearch:
    """Finds nodes for seats, during one episode."""

    def __init__(
        self,
        clock: Clock,
        clock_limit: int,
        participant_of: Callable[[str], ProposalSource],
        cache: ProposalCache,
        search: SeatSearch,
    ) -> None:
        """``participant_of(name)`` is the client of a node."""
        self._clock = clock
        self._clock_limit = clock_limit
        self._participant_of = participant_of
        self._cache = cache
        self._search = search

    async def find(
        self,
        request: Ask,
        case: SeatCase,
        fixed: Sequence[str],
        introduction_to: Callable[[str], Introduction | None],
    ) -> SeatSearchResult:
        """Find nodes for the empty seats of a case; ``fixed`` are nodes that take part anyway.

        ``introduction_to(name)`` is what a node would be told of its seat: the limits of its host
        are those that will bind the ordinary task.
        """
        for step in self._search.steps(request, case, fixed):
            if isinstance(step, SeatSearchResult):
                return step
            participants = [
                IntroducingSource(self._participant_of(name), introduction_to(name))
                for name in step.names
            ]
            widened = self._cache.widened_question(step.slots.request)
            asked = await ask(participants, widened, self._clock, self._clock_limit)
            self._search.record(step, asked)
        raise AssertionError("a search ends with its result")

    def keep(self) -> None:
        """Keep the time that was found last: it is used."""
        self._search.keep()
