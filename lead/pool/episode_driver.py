"""Drives one episode of a pool: the policies say whom to ask, and are told what came of it."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from uuid import UUID

from lead.failures import describe_failure
from lead.model import PolicyMemory, PoolTask
from lead.participants import ProposalSource
from lead.planning.policy_state import encode_state
from lead.planning.pool_view import SeatCase, state_to_keep
from lead.planning.proposal_cache import ProposalCache
from lead.policy.episode import SPREAD, Episode
from lead.policy.placement_requests import Ask
from lead.policy.settings import configured
from lead.policy.verdict import PolicyRefusal
from lead.policy.view import PostedRun
from lead.pool.assignment import CaseResult, EpisodeRuling, SeatTaskPlan
from lead.pool.membership import Membership
from lead.pool.node_search import NodeSearch, SeatSearchResult
from lead.pool.snapshot import EpisodeInput
from node.clock import Clock
from node.model.taskstate import TaskState
from node.model.terms import schedule_for
from node.model.wire.seats import SeatRequest
from node.model.wire.tasks import Schedule
from node.store.tasks import StoredTask

SeatTask = Callable[[StoredTask, SeatRequest, Sequence[str], Schedule], StoredTask]
"""``made(pool_task, request, names, schedule)``: the ordinary task in which these have seats."""


class EpisodeDriver:
    """Holds episodes."""

    def __init__(
        self,
        clock: Clock,
        clock_limit: int,
        participant_of: Callable[[str], ProposalSource],
        seat_task: SeatTask,
        rng: random.Random,
    ) -> None:
        """``participant_of(identity)``; ``rng`` draws the pauses of those who refuse."""
        self._clock = clock
        self._clock_limit = clock_limit
        self._participant_of = participant_of
        self._seat_task = seat_task
        self._rng = rng

    async def hold(self, found: EpisodeInput, membership: Membership) -> tuple[EpisodeRuling, bool]:
        """One episode: what came of it, and whether there were more cases than it could try."""
        nodes = membership.by_name

        def participant(name: str) -> ProposalSource:
            return self._participant_of(nodes[name].identity)

        facts = {name: node.facts for name, node in nodes.items()}
        now = self._clock.now()
        near = now, now + found.view.horizon
        foreknown = ProposalCache(found.booked, found.cases.values(), near)
        scout = NodeSearch(
            self._clock, self._clock_limit, participant, facts, foreknown, found.coming
        )
        pool = found.pool
        policy = configured(pool.policy_set, pool.overrides)
        episode = Episode(found.view, policy, self._rng)
        results: dict[str, CaseResult] = {}
        given = _Given()
        while (asked := episode.next()) is not None:
            case = given.known_to(found.cases[asked.candidate.task])
            result, run, refused = await self._serve(scout, asked, case, membership)
            results[case.name] = result
            given.add(result)
            if run is None:
                episode.refused(asked, refused, next(iter(result.verdicts), None))
            else:
                episode.placed(asked, run, refused)
        for case in found.closed:
            why = case.closed.why(case.windows, case.whole.terms.duration)
            results[case.name] = CaseResult(case, heard={case.closed.name: why})
        outcome = episode.outcome()
        for name, noes in outcome.refused.items():
            before = results.get(name, CaseResult(found.cases[name]))
            # Who is down was not asked, and may be all that is missing.
            heard = {**membership.silent(before.case.able), **before.heard}
            results[name] = replace(before, verdicts=noes, heard=heard)
        state = state_to_keep(outcome.state, self._clock.now())
        # What they did not see is said at the pool (query ``pools``), not in each reason.
        document = encode_state(state) | ({} if found.note is None else {"unseen": found.note})
        remembered = PolicyMemory(document, found.remembered.revision)
        returned = {UUID(task): no.sentence for task, no in outcome.returned.items()}
        ruling = EpisodeRuling(
            pool.name, pool.policy_set, remembered, list(results.values()), returned
        )
        return ruling, outcome.unreached > 0

    async def _serve(
        self, scout: NodeSearch, asked: Ask, case: SeatCase, membership: Membership
    ) -> tuple[CaseResult, PostedRun | None, Sequence[str]]:
        """Look for nodes for one case; what came of it, and which nodes had no time."""
        try:
            fixed = self._fixed(case, membership)
            scouted = await scout.find(asked, case, fixed)
            parts = self._parts(case, scouted, membership)
        except Exception as error:  # noqa: BLE001 - it stops this case and no other one
            why = describe_failure(error, "giving seats failed")
            return CaseResult(case, heard={case.whole.terms.test: why}), None, ()
        crowded = _crowded_out(case, scouted)
        if len(scouted.seats) < asked.least:
            return CaseResult(case, heard=scouted.heard, verdicts=crowded), None, scouted.refused
        scout.keep()
        run = PostedRun(
            run=case.name,
            task=case.name,
            campaign=case.whole.campaign,
            nodes=tuple(scouted.seats.values()),
            start=scouted.starts_at,
            end=scouted.starts_at + case.whole.terms.duration,
            scheduling_class=asked.candidate.scheduling_class,
            priority=case.whole.terms.priority,
            needs=asked.candidate.needs,
        )
        result = CaseResult(case, scouted.seats, parts, scouted.heard, crowded)
        return result, run, scouted.refused

    def _fixed(self, case: SeatCase, membership: Membership) -> list[str]:
        """The nodes that take part in every run, whoever has the seats."""
        chosen = case.able[: len(case.empty) if case.request.together else 1]
        made = self._made(case, chosen, case.slots)
        names = [participant.name for participant in made.terms.participants]
        return [name for name in names if name not in chosen and name in membership.by_name]

    def _parts(
        self, case: SeatCase, scouted: SeatSearchResult, membership: Membership
    ) -> list[SeatTaskPlan]:
        """The ordinary tasks of the seats that were found."""
        seats = scouted.seats
        groups = [seats] if case.request.together else [{n: seats[n]} for n in seats]
        return [self._part(case, group, scouted, membership) for group in groups if group]

    def _part(
        self,
        case: SeatCase,
        group: Mapping[int, str],
        scouted: SeatSearchResult,
        membership: Membership,
    ) -> SeatTaskPlan:
        """One of them; it has no more than the priority that what gives way to it asks for."""
        yielding = scouted.yielding
        measured_to = max(case.measured_to.get(number, 0) for number in group)
        slots = [slot for slot in case.slots if slot > measured_to]
        slip = min(scouted.slips[name] for name in group.values())
        made = self._made(case, list(group.values()), slots, slip)
        seats = {number: membership.by_name[name].identity for number, name in group.items()}
        starts = scouted.starts[next(iter(group.values()))]
        if yielding is None:
            return SeatTaskPlan(made, seats, None, starts)
        going = {run.run: run for name in group.values() for run in yielding.get(name, ())}
        priority = max([made.terms.priority, *(run.priority + 1 for run in going.values())])
        named = sorted(UUID(run) for run in going)
        made = replace(made, terms=replace(made.terms, priority=priority))
        return SeatTaskPlan(made, seats, named, starts)

    def _made(
        self, case: SeatCase, names: Sequence[str], slots: Sequence[int], slip: int | None = None
    ) -> StoredTask:
        whole = case.whole
        own = schedule_for(whole.terms.schedule, case.recurrence, whole.terms.duration, slots)
        if slip is not None and slip < case.recurrence.slip:
            own = own.model_copy(update={"slip": min(slip, own.slip or 0)})
        return self._seat_task(_stored(whole), case.request, names, own)


class _Given:
    """Who was given seats of which task in this episode: later terms are to know."""

    def __init__(self) -> None:
        self._before: dict[UUID, dict[int, str]] = {}
        self._used_at: dict[UUID, dict[str, int]] = {}

    def known_to(self, case: SeatCase) -> SeatCase:
        task = case.whole.id
        before = {**case.before, **self._before.get(task, {})}
        used_at = {**case.used_at, **self._used_at.get(task, {})}
        return replace(case, before=before, used_at=used_at)

    def add(self, result: CaseResult) -> None:
        task, at = result.case.whole.id, result.case.open.term.starts_at
        self._before.setdefault(task, {}).update(result.taken)
        self._used_at.setdefault(task, {}).update(dict.fromkeys(result.taken.values(), at))


def _crowded_out(case: SeatCase, scouted: SeatSearchResult) -> tuple[PolicyRefusal, ...]:
    """What of its spread alone leaves seats empty, where all who are left would have time."""
    if len(scouted.seats) == len(case.empty) or scouted.heard.keys() - scouted.crowded.keys():
        return ()
    possible = len(case.sitting) + len(scouted.seats)
    return tuple(
        SPREAD.refuse(
            possible=possible,
            most=case.request.spread[attribute],
            attribute=attribute,
            wanted=case.open.seats,
        )
        for attribute in dict.fromkeys(scouted.crowded.values())
    )


def _stored(whole: PoolTask) -> StoredTask:
    return StoredTask(id=whole.id, lead="", state=TaskState.ACTIVE, terms=whole.terms)
