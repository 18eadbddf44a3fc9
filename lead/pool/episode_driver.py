"""Drives one episode of a pool: asks the nodes that the policies name, and reports the outcome."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from uuid import UUID

from lead.model.participants import ProposalSource
from lead.model.records import PolicyMemory, PoolTask
from lead.planning.policy_state import encode_state
from lead.planning.pool_view import SeatCase, candidate_of, state_to_keep
from lead.planning.proposal_cache import ProposalCache
from lead.policy.episode import Episode, spread_refusal
from lead.policy.placement_requests import Ask, EpisodeOutcome
from lead.policy.verdict import Axis, PolicyRefusal
from lead.policy.view import PostedRun
from lead.pool.assignment import (
    PAUSE_MAX,
    PAUSE_OF_HOLDERS,
    CaseResult,
    EpisodeRuling,
    SeatTaskPlan,
)
from lead.pool.membership import Membership
from lead.pool.node_search import NodeSearch
from lead.pool.seat_search import SeatSearch, SeatSearchResult
from lead.pool.snapshot import EpisodeInput, policies_of
from lead.store.failures import describe_failure
from node.model.errors import InvalidDocument
from node.model.spans import Span
from node.model.taskstate import TaskState
from node.model.terms import schedule_for
from node.model.wire.participants import Introduction
from node.model.wire.seats import SeatRequest
from node.model.wire.tasks import Schedule
from node.runtime.clock import Clock
from node.store.tasks import StoredTask

SeatTask = Callable[[StoredTask, SeatRequest, Sequence[str], Schedule], StoredTask]
"""``seat_task(pool_task, request, names, schedule)`` makes the ordinary task of these seats."""


class EpisodeDriver:
    """Drives episodes, one at a time."""

    def __init__(
        self,
        clock: Clock,
        clock_limit: int,
        participant_of: Callable[[str], ProposalSource],
        seat_task: SeatTask,
        rng: random.Random,
    ) -> None:
        """``participant_of(identity)`` is the client of a node; ``rng`` draws backoffs."""
        self._clock = clock
        self._clock_limit = clock_limit
        self._participant_of = participant_of
        self._seat_task = seat_task
        self._rng = rng

    async def run(
        self, episode_input: EpisodeInput, membership: Membership
    ) -> tuple[EpisodeRuling, bool]:
        """Drive one episode.

        Returns the ruling, and whether there were more cases than the episode could try.
        """
        now, cases = self._clock.now(), episode_input.cases
        near = now, now + episode_input.view.horizon
        cache = ProposalCache(episode_input.booked, cases.values(), near)
        search = self._node_search(episode_input, membership, cache)
        pool = episode_input.pool
        policy = policies_of(pool)
        episode = Episode(episode_input.view, policy, self._rng)
        results: dict[str, CaseResult] = {}
        given = _GivenSeats()
        without_time: dict[str, list[str]] = {}
        while (request := episode.next_ask()) is not None:
            case = given.with_given_seats(cases[request.candidate.task])
            result, run, found = await self._serve(search, request, case, membership)
            results[case.name] = result
            given.add(result)
            without_time[case.name] = [*found.refused, *found.without_time]
            if run is None:
                decisive = next(iter(result.verdicts), None)
                episode.record_refusal(request, found.refused, decisive)
            else:
                episode.record_placement(request, run, found.refused, _spans_of(run, found))
        for case in episode_input.closed:
            if case.open.blocked:
                continue
            why = case.closed.why(case.windows, case.pool_task.terms.duration)
            misses = episode.misses_without_nodes(candidate_of(case, episode_input.view.horizon))
            results[case.name] = CaseResult(case, reasons={case.closed.name: why}, misses=misses)
        outcome = episode.outcome()
        _add_refusals(results, cases, outcome, membership)
        for name, misses in episode.expected_misses(without_time, cache.busy()).items():
            if name in results:
                results[name] = replace(results[name], misses=misses)
        state = state_to_keep(outcome.state, self._clock.now())
        # What the view lacks is reported with the pool (query ``pools``), not in each reason.
        note = episode_input.note
        document = encode_state(state) | ({} if note is None else {"unseen": note})
        remembered = PolicyMemory(document, episode_input.remembered.revision)
        returned = {UUID(task): refusal.reason for task, refusal in outcome.returned.items()}
        ruling = EpisodeRuling(
            pool.name,
            pool.policy_set,
            remembered,
            list(results.values()),
            returned,
            PAUSE_OF_HOLDERS if policy.holds_others else PAUSE_MAX,
        )
        return ruling, outcome.unreached > 0

    def _node_search(
        self, episode_input: EpisodeInput, membership: Membership, cache: ProposalCache
    ) -> NodeSearch:
        nodes = membership.by_name

        def participant(name: str) -> ProposalSource:
            return self._participant_of(nodes[name].identity)

        facts = {name: node.facts for name, node in nodes.items()}
        search = SeatSearch(facts, cache, episode_input.coming, self._clock.now())
        return NodeSearch(self._clock, self._clock_limit, participant, cache, search)

    async def _serve(
        self, search: NodeSearch, request: Ask, case: SeatCase, membership: Membership
    ) -> tuple[CaseResult, PostedRun | None, SeatSearchResult]:
        """Find nodes for one case.

        Returns the result, the run as it counts for the policies, and what was found.
        """
        try:
            fixed = self.fixed_nodes(case, membership)
            found = await search.find(request, case, fixed, partial(self.introduction, case))
            parts = self._seat_task_plans(case, found, membership)
        except Exception as error:  # noqa: BLE001 - it must stop this case only
            why = describe_failure(error, "giving seats failed")
            return CaseResult(case, reasons={case.pool_task.terms.test: why}), None, _NOTHING
        crowded = _spread_refusals(case, found)
        if len(found.seats) < len(case.empty):
            left_out = {name: it.reason for name, it in request.left_out.items()}
            found = replace(found, reasons={**found.reasons, **left_out})
        if len(found.seats) < request.least:
            return CaseResult(case, reasons=found.reasons, verdicts=crowded), None, found
        search.keep()
        run = PostedRun(
            run=case.name,
            task=case.name,
            campaign=case.pool_task.campaign,
            nodes=tuple(found.seats.values()),
            start=found.starts_at,
            end=found.starts_at + case.pool_task.terms.duration,
            scheduling_class=request.candidate.scheduling_class,
            priority=case.pool_task.terms.priority,
            needs=request.candidate.needs,
        )
        result = CaseResult(case, found.seats, parts, found.reasons, crowded)
        return result, run, found

    def fixed_nodes(self, case: SeatCase, membership: Membership) -> list[str]:
        """Return the nodes that take part in every run, whatever nodes have the seats."""
        chosen = case.able[: len(case.empty) if case.request.together else 1]
        task = self._seat_task_for(case, chosen, case.slots)
        names = [participant.name for participant in task.terms.participants]
        return [name for name in names if name not in chosen and name in membership.by_name]

    def introduction(self, case: SeatCase, name: str) -> Introduction | None:
        """Return what a node would be told of a seat, or of its part in all; None if of none."""
        others = [each for each in case.able if each != name]
        count = len(case.empty) if case.request.together else 1
        chosen = [name, *others][:count] if name in case.able else others[:count]
        try:
            task = self._seat_task_for(case, chosen, case.slots)
        except InvalidDocument:  # it fits no more: the node is not known any more, for example
            return None
        names = [participant.name for participant in task.terms.participants]
        return task.introduction(names.index(name)) if name in names else None

    def _seat_task_plans(
        self, case: SeatCase, found: SeatSearchResult, membership: Membership
    ) -> list[SeatTaskPlan]:
        seats = found.seats
        groups = [seats] if case.request.together else [{n: seats[n]} for n in seats]
        return [self._seat_task_plan(case, group, found, membership) for group in groups if group]

    def _seat_task_plan(
        self,
        case: SeatCase,
        group: Mapping[int, str],
        found: SeatSearchResult,
        membership: Membership,
    ) -> SeatTaskPlan:
        """Return one ordinary task, with the lowest priority that displaces what yields to it."""
        yielding = found.yielding
        measured_to = max(case.measured_to.get(number, 0) for number in group)
        slots = [slot for slot in case.slots if slot > measured_to]
        slip = min(found.slips[name] for name in group.values())
        task = self._seat_task_for(case, list(group.values()), slots, slip)
        seats = {number: membership.by_name[name].identity for number, name in group.items()}
        starts = found.starts[next(iter(group.values()))]
        if yielding is None:
            return SeatTaskPlan(task, seats, None, starts)
        displaced = {run.run: run for name in group.values() for run in yielding.get(name, ())}
        priority = max([task.terms.priority, *(run.priority + 1 for run in displaced.values())])
        named = sorted(UUID(run) for run in displaced)
        task = replace(task, terms=replace(task.terms, priority=priority))
        return SeatTaskPlan(task, seats, named, starts)

    def _seat_task_for(
        self, case: SeatCase, names: Sequence[str], slots: Sequence[int], slip: int | None = None
    ) -> StoredTask:
        pool_task = case.pool_task
        own = schedule_for(
            pool_task.terms.schedule, case.recurrence, pool_task.terms.duration, slots
        )
        if slip is not None and slip < case.recurrence.slip:
            own = own.model_copy(update={"slip": min(slip, own.slip or 0)})
        return self._seat_task(_stored_task(pool_task), case.request, names, own)


def _add_refusals(
    results: dict[str, CaseResult],
    cases: Mapping[str, SeatCase],
    outcome: EpisodeOutcome,
    membership: Membership,
) -> None:
    """Add the refusals to the results; blocked cases that were not tried have none.

    Those that wait for other tasks get a new reason once these are others than before.
    """
    for name, refusals in outcome.refused.items():
        open_term = cases[name].open
        if open_term.blocked and name not in results:
            first = refusals[0]
            if first.axis is not Axis.ORDER or first.reason in (open_term.reason or ""):
                continue
        before = results.get(name, CaseResult(cases[name]))
        # Nodes that are down were not asked, and may be all that is missing.
        reasons = {**membership.silent_nodes(before.case.able), **before.reasons}
        results[name] = replace(before, verdicts=refusals, reasons=reasons)


_NOTHING = SeatSearchResult({}, 0)


def _spans_of(run: PostedRun, found: SeatSearchResult) -> list[Span]:
    """Return the spans of the runs of a term, on the node that begins first."""
    length = run.end - run.start
    found_by_node = (found.starts.get(name, ()) for name in run.nodes)
    starts = min((list(it) for it in found_by_node if it), default=[])
    return [(start, start + length) for start in starts]


class _GivenSeats:
    """The seats given so far in this episode, by task, for the sake of later terms."""

    def __init__(self) -> None:
        self._before: dict[UUID, dict[int, str]] = {}
        self._used_at: dict[UUID, dict[str, int]] = {}

    def with_given_seats(self, case: SeatCase) -> SeatCase:
        """Return a case with the nodes that got seats of its task in this episode."""
        task = case.pool_task.id
        before = {**case.before, **self._before.get(task, {})}
        used_at = {**case.used_at, **self._used_at.get(task, {})}
        return replace(case, before=before, used_at=used_at)

    def add(self, result: CaseResult) -> None:
        """Add the seats of a result."""
        task, at = result.case.pool_task.id, result.case.open.term.starts_at
        self._before.setdefault(task, {}).update(result.taken)
        self._used_at.setdefault(task, {}).update(dict.fromkeys(result.taken.values(), at))


def _spread_refusals(case: SeatCase, found: SeatSearchResult) -> tuple[PolicyRefusal, ...]:
    """Return the refusals by the spread, if it alone leaves seats empty."""
    if len(found.seats) == len(case.empty) or found.reasons.keys() - found.crowded.keys():
        return ()
    possible = len(case.sitting) + len(found.seats)
    limits = {each: case.request.spread[each] for each in dict.fromkeys(found.crowded.values())}
    if not limits:
        return ()
    usable = possible + len(found.crowded)
    return (spread_refusal(limits, possible, usable, case.open.seats),)


def _stored_task(pool_task: PoolTask) -> StoredTask:
    return StoredTask(id=pool_task.id, lead="", state=TaskState.ACTIVE, terms=pool_task.terms)
