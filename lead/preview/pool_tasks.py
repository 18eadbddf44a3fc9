"""What would happen if a pool task were posted: which nodes would have its seats, and its runs.

It is decided by an episode like a real one, among the tasks of the pool that wait now, with terms
that are only imagined; what comes of it is not written. Then the ordinary task of each seat of the
first term is asked about like any other (``plans.py``), one after the other: each leaves less of
the nodes that all of them have.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from lead.model import Key, OpenTerm, PoolTask
from lead.planning import forecast
from lead.planning.seat_selection import SeatSearchAccount
from lead.pool.assignment import CaseResult, SeatTaskPlan, search_account_of
from lead.pool.episode_driver import EpisodeDriver
from lead.pool.episodes import CASES_MAX, EpisodeLimits, SeatDependencies, due_terms
from lead.pool.membership import Membership
from lead.pool.snapshot import EpisodeInputReader
from lead.pool.tentative_bookings import TentativeBookings
from lead.preview.tasks import (
    ConcurrentPlanning,
    ConsideredTask,
    TaskPreviewer,
    chosen_on_node,
    participant_answer,
)
from lead.store import episodes
from node.clock import Clock
from node.model.outcomes import PlanningOutcome
from node.model.terms import term_length
from node.model.times import to_the_second
from node.model.wire.impacts import Impact
from node.model.wire.plans import (
    Displaced,
    NoAlternative,
    Outcome,
    ParticipantAnswer,
    Plan,
    PlannedSeat,
    PlannedStart,
    PlanRequest,
    UnplacedStart,
)
from node.model.wire.seats import SeatRequest
from node.model.wire.tasks import TaskDocument
from node.store import pools
from node.store.database import Database
from node.store.tasks import StoredTask

DraftWhole = Callable[[TaskDocument, SeatRequest], Awaitable[tuple[StoredTask, int]]]
"""``draft(document, request)``: a checked pool task, and its first slot; nothing is kept."""

_NOT_REACHED = "as many tasks of its pool come before it as are looked at in one go; ask again"
_OVER = "its time is over before nodes could be chosen; give a later start, or more slip"


@dataclass(frozen=True)
class SeatPreviewDependencies:
    """What it has its node do, beside what giving seats takes."""

    draft_pool_task: DraftWhole


@dataclass(frozen=True)
class SeatGroup:
    """Who would have the seats of one ordinary task, and what came of asking about it."""

    seats: Mapping[int, str]
    considered: ConsideredTask
    yielding: Sequence[UUID] | None


@dataclass(frozen=True)
class PoolTaskPreview:
    """What came of it: term by term, and of the ordinary tasks of the first one.

    ``terms`` are those for which nodes would be chosen now, each with what came of it, or why it
    was not looked at. ``nodes`` are the keys of known nodes by their names.
    """

    task: StoredTask
    terms: Sequence[tuple[OpenTerm, SeatSearchAccount | str]]
    groups: Sequence[SeatGroup]
    nodes: Mapping[str, str]
    begins: str
    """When nodes are chosen for the first term, where that is not now."""


class PoolTaskPreviewer:
    """Answers what would happen, of tasks with named nodes and of such with nodes of a pool."""

    def __init__(
        self,
        database: Database,
        clock: Clock,
        bounds: EpisodeLimits,
        powers: SeatDependencies,
        counsel: SeatPreviewDependencies,
        foresight: TaskPreviewer,
    ) -> None:
        """``bounds`` are those of giving seats; ``foresight`` answers for tasks without a pool."""
        self._database = database
        self._clock = clock
        self._bounds = bounds
        self._powers = powers
        self._counsel = counsel
        self._foresight = foresight

    async def plan(self, request: PlanRequest) -> Plan:
        """What would happen to this task.

        :raises InvalidDocument: a field is wrong; what is refused by others is an answer.
        """
        document = request.model_dump(mode="json", exclude_unset=True, exclude={"runs"})
        asked = TaskDocument.model_validate(document)
        if asked.seats is None:
            return await self._foresight.plan(request)
        foreseen = await self._foreseen(asked, asked.seats)
        outlooks = await self._foresight.outlooks([it.considered for it in foreseen.groups])
        return plan_of(foreseen, outlooks, request.runs, self._clock.now())

    async def _foreseen(self, document: TaskDocument, request: SeatRequest) -> PoolTaskPreview:
        task, slot = await self._counsel.draft_pool_task(document, request)
        async with self._database.connection() as connection:
            listed = {pool.name: pool for pool in await pools.listed(connection)}
        membership = Membership(listed, await self._powers.known(), self._powers.wanted_of)
        whole = _whole(task, request, slot, self._clock.now())
        pool = listed[request.pool]
        length = term_length(request.choice or pool.choice, pool.term)
        horizon = self._bounds.limits.horizon
        terms, later = due_terms(whole, request, length, horizon, self._clock.now())
        results, over = await self._results(membership, whole, terms) if terms else ({}, set())
        first = results.get(terms[0].key) if terms else None

        def account(term: OpenTerm) -> SeatSearchAccount | str:
            if term.key in results:
                return results[term.key][1]
            return _OVER if term.key in over else _NOT_REACHED

        due = later.due_at if later.due_at is not None else slot
        return PoolTaskPreview(
            task,
            [(term, account(term)) for term in terms],
            [] if first is None else await self._groups(first[0]),
            {name: node.identity for name, node in membership.by_name.items()},
            to_the_second(due),
        )

    async def _results(
        self, membership: Membership, whole: PoolTask, terms: Sequence[OpenTerm]
    ) -> tuple[dict[Key, tuple[CaseResult, SeatSearchAccount]], set[Key]]:
        """What would come of these terms if an episode were held now, and which are over."""
        bounds, powers = self._bounds, self._powers
        async with self._database.connection() as connection:
            due = await episodes.due(connection, self._clock.now(), CASES_MAX)
        pool = membership.pools[whole.pool]
        tasks = [*(task for task in due if task.pool == whole.pool), whole]
        caseload = EpisodeInputReader(
            self._database, self._clock, bounds.limits, powers.needs_of, powers.resources
        )
        found = await caseload.of(membership, pool, tasks, terms)
        if whole.id in found.broken:
            raise found.broken[whole.id]
        rng = random.Random(whole.id.int)
        episode = EpisodeDriver(
            self._clock, bounds.clock_limit, powers.participant_of, powers.seat_task, rng
        )
        ruling, _ = await episode.hold(found, membership)
        results = {
            result.case.open.key: (result, search_account_of(ruling, result))
            for result in ruling.results
            if result.case.whole.id == whole.id
        }
        return results, {over.open.key for over in found.over}

    async def _groups(self, result: CaseResult) -> list[SeatGroup]:
        """The ordinary tasks of the seats of a term, each asked about beside those before it."""
        promises = TentativeBookings((), self._clock.now())
        groups: list[SeatGroup] = []
        for part in result.parts:
            group = await self._group(result, part, promises)
            task, placed = group.considered.task, group.considered.placed
            names = [participant.name for participant in task.terms.participants]
            kind, duration = task.terms.scheduling_class, task.terms.duration
            promises.give(names, kind, placed.choices, duration)
            promises.keep()
            groups.append(group)
        return groups

    async def _group(
        self, result: CaseResult, part: SeatTaskPlan, promises: TentativeBookings
    ) -> SeatGroup:
        beside = ConcurrentPlanning(promises, part.yielding, result.case.closed)
        considered = await self._foresight.consider(part.task, beside)
        return SeatGroup({n: result.taken[n] for n in part.seats}, considered, part.yielding)


def _whole(task: StoredTask, request: SeatRequest, slot: int, now: int) -> PoolTask:
    """A drafted pool task as it would be stored."""
    return PoolTask(
        id=task.id,
        terms=task.terms,
        pool=request.pool,
        request=request.model_dump(mode="json"),
        next_slot=slot,
        due_at=now,
        rounds_left=task.terms.schedule.max_runs,
    )


# -- the answer ------------------------------------------------------------------------------------


def plan_of(
    foreseen: PoolTaskPreview, outlooks: Mapping[str, Impact], shown: int, now: int
) -> Plan:
    """What came of it, as it is answered; of starts as many as are to be ``shown``. Pure."""
    task, groups = foreseen.task, foreseen.groups
    asked = sum(len(group.considered.placed.windows) for group in groups)
    starts = sorted(
        (start for group in groups for start in _starts(group)),
        key=lambda start: (start.starts_at, start.nodes),
    )
    unplaced = sorted(
        (at, why) for group in groups for at, why in group.considered.placed.reasons.items()
    )
    gone = [lost for name in outlooks for lost in _displaced(foreseen, name, outlooks[name])]
    outcome = _outcome(foreseen, asked, len(starts))
    return Plan(
        outcome=outcome,
        sentence=_sentence(foreseen, asked, starts),
        now=now,
        test=task.terms.test,
        tool=groups[0].considered.task.terms.tool if groups else task.terms.tool,
        scheduling_class=task.terms.scheduling_class,
        duration=task.terms.duration,
        priority=task.terms.priority,
        asked=asked,
        placed=len(starts),
        starts=tuple(starts[:shown]),
        drawn=task.terms.schedule.slip_random,
        unplaced=tuple(UnplacedStart(slot=at, reason=why) for at, why in unplaced[:shown]),
        seats=tuple(it for number in range(len(foreseen.terms)) for it in _seats(foreseen, number)),
        displaced=tuple(gone),
        displaced_count=len(gone),
        participants=tuple(_answers(foreseen)),
        occupancy=tuple(
            forecast.occupancy(name, now, outlook.hours) for name, outlook in outlooks.items()
        ),
        alternatives=(),
        no_alternatives=() if outcome in (Outcome.FOUND, Outcome.LATER) else _NONE,
    )


_NONE = (
    NoAlternative(
        kind="later",
        reason="of a pool task none are searched: try fewer nodes, a later start, or more slip",
    ),
)


def _outcome(foreseen: PoolTaskPreview, asked: int, placed: int) -> Outcome:
    if not foreseen.terms:
        return Outcome.LATER
    failures = [group.considered.placed.failure for group in foreseen.groups]
    if failures and failures[0] is not None and all(failures):
        return failures[0][0]
    if not placed:
        return Outcome.NO_TIME
    accounts = [account for _, account in foreseen.terms]
    all_seated = all(
        isinstance(it, SeatSearchAccount) and it.outcome is PlanningOutcome.SEATED
        for it in accounts
    )
    return Outcome.FOUND if all_seated and placed == asked else Outcome.PARTLY


def _sentence(foreseen: PoolTaskPreview, asked: int, starts: Sequence[PlannedStart]) -> str:
    if not foreseen.terms:
        return f"nobody can say yet: its nodes are chosen from {foreseen.begins} on"
    (_, first), *later = foreseen.terms
    if isinstance(first, str):
        return first
    said = [first.sentence()]
    if starts:
        at = to_the_second(starts[0].starts_at)
        said.append(f"{len(starts)} of {asked} runs would be booked, the first at {at}")
    failures = [group.considered.placed.failure for group in foreseen.groups]
    reasons = [why for group in foreseen.groups for why in group.considered.placed.reasons.values()]
    said += dict.fromkeys([it[1] for it in failures if it is not None] + reasons[:1])
    if later:
        taken = sum(
            len(account.taken) for _, account in later if isinstance(account, SeatSearchAccount)
        )
        wanted = sum(term.seats for term, _ in later)
        many = "term" if len(later) == 1 else "terms"
        said.append(f"of {len(later)} {many} more {taken} of {wanted} seats")
    return "; ".join(said)


def _starts(group: SeatGroup) -> list[PlannedStart]:
    duration = group.considered.task.terms.duration
    return [
        PlannedStart(
            slot=choice.slot.nominal,
            starts_at=choice.starts_at,
            ends_at=choice.starts_at + duration,
            displacing=choice.displacing,
            nodes=tuple(group.seats.values()),
        )
        for choice in group.considered.placed.choices
    ]


def _displaced(foreseen: PoolTaskPreview, name: str, outlook: Impact) -> list[Displaced]:
    """The runs that would give way on a node: only those that may, where these are named."""
    together = [group.considered for group in foreseen.groups]
    found = forecast.displaced_runs(name, chosen_on_node(name, together), outlook)
    named = [group.yielding for group in foreseen.groups]
    may = {run for runs in named for run in runs or ()}
    return [lost for lost in found if None in named or lost.run in may]


def _seats(foreseen: PoolTaskPreview, number: int) -> list[PlannedSeat]:
    """The seats of one of the terms."""
    term, account = foreseen.terms[number]
    groups = {n: group for group in foreseen.groups for n in group.seats} if number == 0 else {}
    empty = PlannedSeat(term=term.term.starts_at, until=term.term.ends_at, number=1, node=None)
    found = []
    for seat in range(1, term.seats + 1):
        if isinstance(account, str):
            told = {"number": seat, "reason": account}
        else:
            node = account.taken.get(seat)
            why = account.why_not() if node is None else None
            told = {"number": seat, "node": node, "reason": why}
        if (group := groups.get(seat)) is not None:
            placed = group.considered.placed
            told |= {"asked": len(placed.windows), "placed": len(placed.choices)}
            lacks = placed.failure is not None or len(placed.choices) < len(placed.windows)
            told["reason"] = placed.sentence() if lacks else None
        found.append(empty.model_copy(update=told))
    return found


def _answers(foreseen: PoolTaskPreview) -> list[ParticipantAnswer]:
    """What the nodes said that would take part, and why the others of the pool would not."""
    said: dict[str, ParticipantAnswer] = {}
    for group in foreseen.groups:
        for participant in group.considered.task.terms.participants:
            answered = participant_answer(group.considered, participant)
            told = {"windows_free": None, "reason": answered.reason}
            said.setdefault(participant.name, answered.model_copy(update=told))
    account = foreseen.terms[0][1] if foreseen.terms else ""
    for name, why in () if isinstance(account, str) else account.refused.items():
        if name in foreseen.nodes and name not in said:
            node = foreseen.nodes[name]
            said[name] = ParticipantAnswer(name=name, node=node, answer="not-chosen", reason=why)
    return list(said.values())
