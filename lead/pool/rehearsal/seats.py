"""The search for seats of a lead, over nodes whose free time is known.

Fleets, the worked cases, and the benchmark place runs by it: as a lead does, but for the questions
that a lead sends to nodes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from uuid import UUID

from lead.model.records import OpenTerm, PoolTask
from lead.planning.pool_view import SeatCase
from lead.planning.proposal_cache import ProposalCache
from lead.planning.reserved import ReservedTime
from lead.policy.placement_requests import Ask
from lead.policy.view import PostedRun
from lead.pool.seat_search import SeatSearch, SeatSearchResult
from node.model import times
from node.model.predicates import Attributes
from node.model.recurrence import Recurrence
from node.model.spans import Span, at_least, clip
from node.model.task_terms import TaskTerms
from node.model.terms import Term
from node.model.wire.participants import Proposal, ProposalRequest
from node.model.wire.seats import SeatRequest
from node.model.wire.tasks import Schedule

Free = Mapping[str, Sequence[Span]]
"""By node its free ranges: sorted, disjoint, and without time that is reserved for others."""

_POOL = "fleet"
_TASK = UUID(int=0)


@dataclass(frozen=True, slots=True)
class Seeking:
    """The empty seats of a term, the nodes that take part anyway, and the attributes of nodes."""

    case: SeatCase
    fixed: Sequence[str] = ()
    facts: Mapping[str, Attributes] = field(default_factory=dict)


class KnownTime(ProposalCache):
    """The answers of nodes, from their free time: without and with displacement."""

    def __init__(self, free: Free, displacing: Free, may_yield: Sequence[PostedRun]) -> None:
        """``displacing`` is free where the runs that ``may_yield`` give way."""
        super().__init__({run.run: run for run in may_yield}, (), (0, times.LATEST))
        self._free = free
        self._displacing = displacing

    def answer(self, name: str, request: ProposalRequest) -> Proposal:
        """Return the answer of a node: the free ranges that are long enough, window by window."""
        return Proposal.model_construct(
            now=0,
            horizon=times.LATEST,
            free=_offered_spans(self._free[name], request),
            free_displacing=_offered_spans(self._displacing[name], request),
        )


def _offered_spans(free: Sequence[Span], request: ProposalRequest) -> tuple[Span, ...]:
    return tuple(
        span
        for start, end in request.windows
        for span in at_least(clip(free, start, end), request.duration)
    )


def find_seats(
    ask: Ask,
    free: Free,
    displacing: Free | None = None,
    may_yield: Sequence[PostedRun] = (),
    seeking: Seeking | None = None,
) -> SeatSearchResult | None:
    """Return the nodes and starts of a run as a lead finds them; None if too few have time.

    Without what is ``seeking``, the first run of a term counts. ``displacing`` is free where the
    runs that ``may_yield`` give way, whose ids are UUIDs.
    """
    asked = replace(ask, nodes=tuple(name for name in ask.nodes if name in free))
    given = seeking or Seeking(case_of(asked))
    known = KnownTime(free, free if displacing is None else displacing, may_yield)
    steps = SeatSearch(given.facts, known, (), 0).steps(asked, given.case, given.fixed)
    found = next(step for step in steps if isinstance(step, SeatSearchResult))
    return found if len(found.seats) >= ask.least else None


def starts_by_node(ask: Ask, free: Free) -> dict[str, int]:
    """Return the start on each node that takes part, without displacement; none if too few do."""
    found = find_seats(replace(ask, displacing=None), free)
    return {} if found is None else {name: found.starts[name][0] for name in found.seats.values()}


def case_of(ask: Ask) -> SeatCase:
    """Return the first run of a candidate as the lead has it: a term of one slot."""
    candidate = ask.candidate
    at, together = candidate.next_run_at, candidate.together or candidate.named
    terms = TaskTerms(
        test="idle",
        spec={},
        tools=(),
        scheduling_class=candidate.scheduling_class,
        duration=candidate.duration,
        priority=candidate.priority,
        schedule=Schedule(),
        campaign=candidate.campaign,
        reference=None,
        created_at=candidate.added_at,
    )
    return SeatCase(
        PoolTask(_TASK, terms, _POOL, {}, None, None, None),
        SeatRequest.model_construct(pool=_POOL, k=ask.wanted, spread={}, together=together),
        OpenTerm(_TASK, Term(at, candidate.over_at), candidate.over_at, ask.wanted),
        Recurrence(at, slip=candidate.slip),
        slots=(at,),
        empty=range(1, ask.wanted + 1),
        able=ask.nodes,
        closed=ReservedTime(_POOL),
        begins=at,
        before=dict(enumerate(sorted(ask.usual), 1)),
    )
