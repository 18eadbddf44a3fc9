"""Previews of pool tasks: which nodes would have the seats, and when the runs would start.

An episode like a real one decides among the tasks of the pool that wait now, with imagined terms
for the new task; its ruling is not stored. Then the ordinary task of each seat of the first term
is previewed like any other task (``tasks.py``). They are previewed one after the other, because
each takes time from nodes that they share.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

from lead.exchange.preview import (
    OF_REQUEST,
    ConcurrentPlanning,
    ConsideredTask,
    TaskPreviewer,
    chosen_on_node,
    participant_answer,
)
from lead.exchange.task_lists import plan_together
from lead.model.reasons import (
    chosen_later,
    gives_way_later,
    latest_starts_missed,
    no_search_for_seats,
    not_reached_in_episode,
    over_before_choice,
    runs_found,
    seats_of_later_terms,
)
from lead.model.records import Key, OpenTerm, PoolTask
from lead.planning import forecast
from lead.planning.seat_selection import SeatSearchAccount
from lead.planning.tentative_bookings import TentativeBookings, TentativeTask
from lead.pool.assignment import CaseResult, SeatTaskPlan, search_account_of
from lead.pool.episode_driver import EpisodeDriver
from lead.pool.episodes import CASES_MAX, EpisodeLimits, SeatDependencies, due_terms, input_reader
from lead.pool.membership import Membership
from lead.pool.snapshot import with_blocked_tasks
from lead.store import episodes
from node.model.host_limits.rules import User
from node.model.host_limits.standing import LimitStanding
from node.model.outcomes import PlanningOutcome
from node.model.reason import Reason
from node.model.terms import term_length
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
from node.runtime.clock import Clock
from node.store import pools
from node.store.database import Database
from node.store.tasks import StoredTask

DraftWhole = Callable[[TaskDocument, SeatRequest], Awaitable[tuple[StoredTask, int]]]
"""``draft(document, request)`` returns a checked pool task and its first slot, unstored."""


@dataclass(frozen=True)
class SeatPreviewDependencies:
    """The functions of the node that previews use beside those for giving seats."""

    draft_pool_task: DraftWhole


@dataclass(frozen=True)
class SeatGroup:
    """The nodes of one ordinary task by seat, and its preview."""

    seats: Mapping[int, str]
    considered: ConsideredTask


@dataclass(frozen=True)
class PoolTaskPreview:
    """The preview of a pool task, and of the ordinary tasks of its first term.

    ``terms`` are those for which nodes would be chosen now, each with the account of the search, or
    the reason why it was not searched. ``nodes`` are the identities of known nodes by name.
    """

    task: StoredTask
    terms: Sequence[tuple[OpenTerm, SeatSearchAccount | Reason]]
    groups: Sequence[SeatGroup]
    nodes: Mapping[str, str]
    misses: Sequence[int]
    """The latest starts that its runs would miss as things are, in order."""
    begins: int
    """The instant at which nodes are chosen for the first term, if that is not now."""
    refused: tuple[Outcome, Reason] | None = None
    """The reason why its user may not have it; nothing was asked then."""


class PoolTaskPreviewer:
    """Previews all tasks: those with named nodes, and those with nodes of a pool."""

    def __init__(
        self,
        database: Database,
        clock: Clock,
        bounds: EpisodeLimits,
        seat_dependencies: SeatDependencies,
        dependencies: SeatPreviewDependencies,
        task_previewer: TaskPreviewer,
    ) -> None:
        """``bounds`` are those of the episode loop; ``task_previewer`` previews named nodes."""
        self._database = database
        self._clock = clock
        self._bounds = bounds
        self._seat_dependencies = seat_dependencies
        self._dependencies = dependencies
        self._task_previewer = task_previewer

    async def plan(self, request: PlanRequest, user: User | None = None) -> Plan:
        """Return what would happen to this task, if this user created it.

        :raises InvalidDocument: a field is wrong. A refusal by a participant is not an error.
        """
        document = request.model_dump(mode="json", exclude_unset=True, exclude=OF_REQUEST)
        task_document = TaskDocument.model_validate(document)
        if task_document.seats is None:
            return await self._task_previewer.plan(request, user)
        preview = await self._preview(task_document, task_document.seats, user)
        impacts = await self._task_previewer.impacts([it.considered for it in preview.groups])
        terms = preview.task.terms
        moved = self._seat_dependencies.needs.expected_bytes(terms.test, terms.spec, lambda: None)
        plan = plan_of(preview, impacts, request.runs, self._clock.now())
        return plan.model_copy(update={"expected_bytes": moved})

    async def plan_together(
        self, requests: Sequence[tuple[PlanRequest, User | None]]
    ) -> list[Plan | BaseException]:
        """Return the plans of tasks with named nodes that are created together.

        Instead of a plan it is why there is none.
        """
        return await plan_together(self._task_previewer, requests)

    async def _preview(
        self, document: TaskDocument, request: SeatRequest, user: User | None
    ) -> PoolTaskPreview:
        task, slot = await self._dependencies.draft_pool_task(document, request)
        if (refused := await self._task_previewer.refusal_of_user(task, user)) is not None:
            return PoolTaskPreview(task, (), (), {}, (), slot, refused)
        async with self._database.connection() as connection:
            listed = {pool.name: pool for pool in await pools.find_all(connection)}
        membership = Membership(
            listed, await self._seat_dependencies.known(), self._seat_dependencies.wanted_of
        )
        standing = self._task_previewer.standing_of(task, user)
        pool_task = _drafted_pool_task(task, request, slot, standing, self._clock.now())
        pool = listed[request.pool]
        length = term_length(request.choice or pool.choice, pool.term)
        horizon = self._bounds.limits.horizon
        terms, later = due_terms(pool_task, request, length, horizon, self._clock.now())
        results, over = (
            await self._episode_results(membership, pool_task, terms) if terms else ({}, set())
        )
        first = results.get(terms[0].key) if terms else None

        def account(term: OpenTerm) -> SeatSearchAccount | Reason:
            if term.key in results:
                return results[term.key][1]
            return over_before_choice() if term.key in over else not_reached_in_episode()

        due = later.due_at if later.due_at is not None else slot
        return PoolTaskPreview(
            task,
            [(term, account(term)) for term in terms],
            [] if first is None else await self._seat_groups(first[0], user),
            {name: node.identity for name, node in membership.by_name.items()},
            sorted(at for result, _ in results.values() for at in result.misses),
            due,
        )

    async def _episode_results(
        self, membership: Membership, pool_task: PoolTask, terms: Sequence[OpenTerm]
    ) -> tuple[dict[Key, tuple[CaseResult, SeatSearchAccount]], set[Key]]:
        """Return the results of an episode with these terms now, and the terms that are over."""
        bounds, seat_dependencies = self._bounds, self._seat_dependencies
        pool, now = membership.pools[pool_task.pool], self._clock.now()
        async with self._database.connection() as connection:
            due = await episodes.tasks_with_empty_seats(connection, now, CASES_MAX)
            tasks = [*(task for task in due if task.pool == pool_task.pool), pool_task]
            tasks = await with_blocked_tasks(connection, pool, tasks, now, CASES_MAX)
        reader = input_reader(self._database, self._clock, bounds.limits, seat_dependencies)
        await seat_dependencies.learn_uses()
        found = await reader.read(membership, pool, tasks, terms)
        if pool_task.id in found.broken:
            raise found.broken[pool_task.id]
        rng = random.Random(pool_task.id.int)
        episode = EpisodeDriver(
            self._clock,
            bounds.clock_limit,
            seat_dependencies.participant_of,
            seat_dependencies.seat_task,
            rng,
        )
        ruling, _ = await episode.run(found, membership)
        results = {
            result.case.open.key: (result, search_account_of(ruling, result))
            for result in ruling.results
            if result.case.pool_task.id == pool_task.id
        }
        return results, {over.open.key for over in found.over}

    async def _seat_groups(self, result: CaseResult, user: User | None) -> list[SeatGroup]:
        """Preview the ordinary tasks of a term, each with the time of the earlier ones taken."""
        tentative = TentativeBookings()
        groups: list[SeatGroup] = []
        for number, part in enumerate(result.parts):
            group = await self._seat_group(result, part, tentative, user)
            terms, plan = group.considered.task.terms, group.considered.plan
            task = TentativeTask.of(number, terms, terms.priority)
            tentative.take(task, plan.proposals, plan.choices)
            groups.append(group)
        return groups

    async def _seat_group(
        self,
        result: CaseResult,
        part: SeatTaskPlan,
        tentative: TentativeBookings,
        user: User | None,
    ) -> SeatGroup:
        beside = ConcurrentPlanning(
            tentative,
            yielding=part.yielding,
            closed=result.case.closed,
            user=user,
            pool_task=result.case.pool_task.id,
            found=part.starts,
        )
        considered = await self._task_previewer.consider(part.task, beside)
        return SeatGroup({n: result.taken[n] for n in part.seats}, considered)


def _drafted_pool_task(
    task: StoredTask, request: SeatRequest, slot: int, standing: LimitStanding, now: int
) -> PoolTask:
    """Return a drafted pool task as the lead would read it from the database."""
    return PoolTask(
        id=task.id,
        terms=task.terms,
        pool=request.pool,
        request=request.model_dump(mode="json"),
        next_slot=slot,
        due_at=now,
        rounds_left=task.terms.schedule.max_runs,
        limit=standing,
    )


# -- the answer ------------------------------------------------------------------------------------


def plan_of(preview: PoolTaskPreview, impacts: Mapping[str, Impact], shown: int, now: int) -> Plan:
    """Return the plan to answer with, at most ``shown`` of its starts. Pure."""
    task, groups = preview.task, preview.groups
    asked = sum(len(group.considered.placed.windows) for group in groups)
    starts = sorted(
        (start for group in groups for start in _starts(group)),
        key=lambda start: (start.starts_at, start.nodes),
    )
    unplaced = sorted(
        (at, why) for group in groups for at, why in group.considered.placed.reasons.items()
    )
    gone = [lost for name in impacts for lost in _displaced(preview, name, impacts[name])]
    outcome = _outcome(preview, asked, len(starts))
    return Plan(
        outcome=outcome,
        sentence=_summary(preview, asked, starts),
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
        seats=tuple(it for number in range(len(preview.terms)) for it in _seats(preview, number)),
        displaced=tuple(gone),
        displaced_count=len(gone),
        participants=tuple(_answers(preview)),
        occupancy=tuple(
            forecast.occupancy(name, now, impact.hours) for name, impact in impacts.items()
        ),
        alternatives=(),
        no_alternatives=() if outcome in (Outcome.FOUND, Outcome.LATER) else _NONE,
    )


_NONE = (
    NoAlternative(
        kind="later",
        reason=no_search_for_seats(),
    ),
)


def _outcome(preview: PoolTaskPreview, asked: int, placed: int) -> Outcome:
    if preview.refused is not None:
        return preview.refused[0]
    if not preview.terms:
        return Outcome.LATER
    failures = [group.considered.placed.failure for group in preview.groups]
    if failures and failures[0] is not None and all(failures):
        return failures[0][0]
    if not placed:
        return Outcome.NO_TIME
    accounts = [account for _, account in preview.terms]
    all_seated = all(
        isinstance(it, SeatSearchAccount) and it.outcome is PlanningOutcome.SEATED
        for it in accounts
    )
    return Outcome.FOUND if all_seated and placed == asked else Outcome.PARTLY


def _summary(preview: PoolTaskPreview, asked: int, starts: Sequence[PlannedStart]) -> Reason:
    if preview.refused is not None:
        return preview.refused[1]
    if not preview.terms:
        return chosen_later(preview.begins)
    (_, first), *later = preview.terms
    if isinstance(first, Reason):
        return first
    beside = [runs_found(len(starts), asked, starts[0].starts_at)] if starts else []
    failures = [group.considered.placed.failure for group in preview.groups]
    reasons = [why for group in preview.groups for why in group.considered.placed.reasons.values()]
    beside += dict.fromkeys([it[1] for it in failures if it is not None] + reasons[:1])
    afterwards = [group.considered.plan.afterwards for group in preview.groups]
    beside += dict.fromkeys(each.reason for each in afterwards if each is not None)
    from_later = [it for group in preview.groups if (it := group.considered.gives_way_at)]
    beside += [gives_way_later(min(from_later))] if from_later else []
    if later:
        taken = sum(
            len(account.taken) for _, account in later if isinstance(account, SeatSearchAccount)
        )
        wanted = sum(term.seats for term, _ in later)
        beside.append(seats_of_later_terms(len(later), taken, wanted))
    if misses := preview.misses:
        beside.append(latest_starts_missed(len(misses), misses[0]))
    return first.summary().beside(*beside)


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


def _displaced(preview: PoolTaskPreview, name: str, impact: Impact) -> list[Displaced]:
    """Return the runs that would be displaced on a node; if runs are named, only those."""
    together = [group.considered for group in preview.groups]
    found = forecast.displaced_runs(name, chosen_on_node(name, together), impact)
    named = [each.plan.displacing.yielding for each in together if each.plan.choices]
    may = {run for runs in named for run in runs or ()}
    return [lost for lost in found if None in named or lost.run in may]


def _seats(preview: PoolTaskPreview, number: int) -> list[PlannedSeat]:
    term, account = preview.terms[number]
    groups = {n: group for group in preview.groups for n in group.seats} if number == 0 else {}
    empty = PlannedSeat(term=term.term.starts_at, until=term.term.ends_at, number=1, node=None)
    planned = []
    for seat in range(1, term.seats + 1):
        if isinstance(account, Reason):
            fields = {"number": seat, "reason": account}
        else:
            node = account.taken.get(seat)
            why = account.why_not() if node is None else None
            fields = {"number": seat, "node": node, "reason": why}
        if (group := groups.get(seat)) is not None:
            placed = group.considered.placed
            fields |= {"asked": len(placed.windows), "placed": len(placed.choices)}
            lacks = placed.failure is not None or len(placed.choices) < len(placed.windows)
            fields["reason"] = placed.summary() if lacks else None
        planned.append(empty.model_copy(update=fields))
    return planned


def _answers(preview: PoolTaskPreview) -> list[ParticipantAnswer]:
    """Return the answers of the chosen nodes, and why other nodes of the pool are not chosen."""
    answers: dict[str, ParticipantAnswer] = {}
    for group in preview.groups:
        for participant in group.considered.task.terms.participants:
            answered = participant_answer(group.considered, participant)
            changed = {"windows_free": None, "reason": answered.reason}
            answers.setdefault(participant.name, answered.model_copy(update=changed))
    account = preview.terms[0][1] if preview.terms else None
    refused = account.refused if isinstance(account, SeatSearchAccount) else {}
    for name, why in refused.items():
        if name in preview.nodes and name not in answers:
            node = preview.nodes[name]
            answers[name] = ParticipantAnswer(name=name, node=node, answer="not-chosen", reason=why)
    return list(answers.values())
