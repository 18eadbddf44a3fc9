"""Plans one claimed task: introduces it, negotiates its slots, decides, and schedules the next."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any
from uuid import UUID

import structlog

from lead.exchange.decision import AttemptRecorder, PlanningAttempt
from lead.exchange.delivery import DecidedExchange, DecisionDelivery, OutboxMessage
from lead.exchange.negotiation import Exchange, Negotiator
from lead.exchange.reachability import ReachabilityGuard, ReachabilityTracker
from lead.model.participants import ParticipantClient, TakingParticipant
from lead.model.reasons import campaign_suspended, planning_broke_off, time_gone
from lead.model.records import AgendaUpdate, Claim, PlanningDecision, WaitingSlot
from lead.planning.agenda import (
    PAUSE_FIRST,
    PAUSE_MAX,
    Limits,
    PlanningProgress,
    agenda,
)
from lead.planning.choosing import Plan, exceeded_horizon
from lead.planning.unreachable import jittered_pause
from lead.store import episodes, planning
from node.model import times
from node.model.attempts import retry_terms
from node.model.errors import NotFound, ParleyError, ToolUnavailable, reason_at
from node.model.gaps import closed_slots
from node.model.headline import headline
from node.model.ids import TaskId, run_id
from node.model.outcomes import UNANSWERED, PlanningOutcome
from node.model.reason import Reason
from node.model.reasons import told
from node.model.recurrence import nominal_starts
from node.model.task_terms import Relocate, TaskTerms, introduction_with
from node.model.taskstate import TaskState
from node.model.wire.participants import Introduction, IntroductionAnswer
from node.runtime import tracing
from node.runtime.batching import Batcher
from node.runtime.clock import Clock
from node.runtime.instruments import Instruments
from node.store.database import Connection, Database
from node.store.gaps import reported_slots

WAITING_MAX = 10_000
"""Maximum number of waiting slots of a task that are considered in one planning attempt."""

BINDING_RUNS_MAX = 50
"""Maximum number of runs in an exchange with a participant whose bookings bind one by one."""

SEAT_MOVES_MAX = 3
"""Maximum number of moves of a seat to another node in one term because of missing time."""

ChooseTool = Callable[[TaskTerms], TaskTerms]
"""Returns the terms of a task with the tool that its participants offer, and the duration (µs)."""

log = structlog.get_logger()


@dataclass(frozen=True)
class PlannerDependencies:
    """The services with which a planner carries out its decisions.

    ``refuse_task(task, reason)`` ends a task that a participant refuses.
    ``take_back(task, reason)`` ends the ordinary task of a seat, which then gets another node.
    """

    negotiator: Negotiator
    reach: ReachabilityTracker
    delivery: DecisionDelivery
    recorder: AttemptRecorder
    participant_of: Callable[[str], ParticipantClient]
    relocate: Relocate
    choose_tool: ChooseTool
    refuse_task: Callable[[UUID, str], Awaitable[None]]
    take_back: Callable[[UUID, str], Awaitable[bool]]
    instruments: Instruments


class Planner:
    """Plans claimed tasks: introduces them, negotiates the slots that are due, and decides."""

    def __init__(
        self,
        database: Database,
        clock: Clock,
        limits: Limits,
        dependencies: PlannerDependencies,
        rng: random.Random,
    ) -> None:
        """``rng`` draws the pauses before a failed task is planned again."""
        self._database = database
        self._clock = clock
        self._limits = limits
        self._negotiator = dependencies.negotiator
        self._reachability = dependencies.reach
        self._delivery = dependencies.delivery
        self._recorder = dependencies.recorder
        self._participant_of = dependencies.participant_of
        self._relocate = dependencies.relocate
        self._choose_tool = dependencies.choose_tool
        self._refuse_task = dependencies.refuse_task
        self._take_back = dependencies.take_back
        self._instruments = dependencies.instruments
        self._rng = rng
        self._standings = Batcher(self._standings_of, apart=lambda claimed: (claimed.task,))

    async def plan(self, claimed: Claim) -> None:
        """Plan a task up to the horizon; every slot is booked or gets a stored reason."""
        if claimed.taken_from is not None:
            await self._release_of_predecessor(claimed)
        if claimed.state is not TaskState.ACTIVE:
            await self._record_nothing_more(claimed)
            return
        try:
            with (
                self._reachability.admit(claimed.others) as guard,
                tracing.span("plan", trace=tracing.new_trace(), task=str(claimed.task)),
            ):
                if guard.full is None:
                    await self._plan(claimed, guard)
                else:
                    await self._turn_away(claimed, guard.full)
        finally:
            await self.apply_reachability_changes()

    async def _plan(self, claimed: Claim, guard: ReachabilityGuard) -> None:
        began = self._clock.monotonic()
        participants, missing = self._participants(claimed)
        if guard.unreachable is not None:
            missing = guard.unreachable.why()
        others = claimed.others
        watched = [guard.recorded(p) if p.identity in others else p for p in participants]
        if missing is None:
            introduced, missing = await self._introduce(claimed, watched)
            if introduced is None:
                return
            claimed = introduced
        attempt = await self._attempt(claimed, watched, missing)
        unreachable = self._reachability.unreachable_among(others)
        outcome = attempt.exchange.outcome
        if unreachable is not None and outcome in UNANSWERED:
            attempt.exchange.fail(unreachable[1].why(), outcome)
        await self._recorder.record(replace(attempt, unreachable=unreachable), participants)
        outcome = attempt.exchange.outcome
        took, now = self._clock.monotonic() - began, self._clock.now()
        self._instruments.note_planning(outcome, took, now)
        _log_refusal(attempt)
        if unreachable is not None:
            self._reachability.note_waiting_task(unreachable[0])
        elif (why := out_of_time(attempt)) is not None:
            await self._move_seat(claimed, why)

    async def _move_seat(self, claimed: Claim, why: str) -> None:
        """Give the seat back for another node; after too many moves it stays, and its runs wait."""
        async with self._database.connection() as connection:
            lost = await episodes.count_losses(connection, claimed.task)
        if lost < SEAT_MOVES_MAX:
            await self._take_back(claimed.task, why)

    async def _attempt(
        self, claimed: Claim, participants: Sequence[ParticipantClient], missing: Reason | None
    ) -> PlanningAttempt:
        """Negotiate the due slots; again for fewer if a participant's horizon turns out shorter."""
        waiting, standing = await self._standings.ask(claimed)
        recurrence = claimed.terms.recurrence

        async def ask(*, within_all: bool) -> PlanningAttempt:
            ahead = self._reachability.horizon(claimed.others, self._limits.horizon)
            limits, now = replace(self._limits, horizon=ahead), self._clock.now()
            if any(participant.binding for participant in participants):
                limits = replace(limits, batch=min(limits.batch, BINDING_RUNS_MAX))
            due = agenda(recurrence, claimed.terms.duration, standing, limits, now)
            exchange = Exchange(Plan(due.slots))
            if missing is not None:
                exchange.fail(missing, PlanningOutcome.UNREACHABLE)
            elif claimed.suspended is not None:
                exchange.fail(campaign_suspended(claimed.suspended), PlanningOutcome.SUSPENDED)
            elif due.slots:
                began = self._clock.monotonic()
                exchange = await self._negotiator.exchange(
                    claimed, participants, due.slots, now + ahead if within_all else None
                )
                self._instruments.note_exchange(exchange.outcome, self._clock.monotonic() - began)
            return PlanningAttempt(claimed, recurrence, limits, waiting, due, exchange)

        attempt = await ask(within_all=True)
        return await ask(within_all=False) if attempt.exchange.plan.beyond else attempt

    async def _turn_away(self, claimed: Claim, full: str) -> None:
        async with self._database.connection() as connection:
            await planning.wait_for_room(connection, claimed, full, self._clock.now())
        self._reachability.note_turned_away(full)

    async def apply_reachability_changes(self) -> None:
        """Wake tasks whose participants answer again, and put off those whose do not."""
        answered, put_off = self._reachability.take_changes()
        now = self._clock.now()
        changes: list[Callable[[Connection], Awaitable[None]]] = [
            *(partial(_put_off, node, ask_at) for node, ask_at in put_off.items()),
            *(partial(_wake, node, now) for node in answered),
        ]
        for change in changes:
            await self._database.settle(change)

    async def handle_unexpected_failure(self, claimed: Claim, why: Reason) -> None:
        """Release what was held after an unexpected error, and plan the task again later."""
        now = self._clock.now()
        pause = jittered_pause(PAUSE_FIRST, PAUSE_MAX, claimed.failures, self._rng)
        decision = PlanningDecision.broken_off(planning_broke_off(why))

        async def break_off(connection: Connection) -> list[OutboxMessage]:
            # A decision locks negotiations before the agenda, too.
            messages = await self._abort(connection, claimed, claimed.lease_epoch)
            if await planning.break_off(connection, claimed.task, claimed.lease_epoch, now + pause):
                await planning.keep_decisions(connection, [(claimed.task, decision)], now)
                await planning.notify_planned(connection, {claimed.task: False})
            return messages

        await self._delivery.send(await self._database.settle(break_off))

    async def _release_of_predecessor(self, claimed: Claim) -> None:
        """Release what a worker held that lost its lease, because its process was killed or hangs.

        The claim has raised the epoch, so nobody can commit these holds any more. Otherwise they
        would be in the way of this worker until they expire.
        """
        async with self._database.transaction() as connection:
            messages = await self._abort(connection, claimed, claimed.lease_epoch - 1)
        await self._delivery.send(messages)

    async def _abort(
        self, connection: Connection, claimed: Claim, last_epoch: int
    ) -> list[OutboxMessage]:
        """Abort the open exchanges of a task up to an epoch; return the releases, to be sent."""
        now = self._clock.now()
        participants, _ = self._participants(claimed)
        aborted = await planning.abort_broken_off(connection, claimed.task, last_epoch, now)
        decided = [
            DecidedExchange(exchange, claimed.task, epoch, None, participants)
            for exchange, epoch in aborted
        ]
        return await self._delivery.write(connection, decided, now)

    def _participants(self, claimed: Claim) -> tuple[list[ParticipantClient], Reason | None]:
        """Return the parties in order, or why one of them cannot be asked."""
        clients: list[ParticipantClient] = []
        for place, listed in enumerate(claimed.terms.parties):
            try:
                client = self._participant_of(listed.node)
            except NotFound as error:
                return [], reason_at(listed.name, error)
            if takes := claimed.terms.taken_at(listed.node):
                alone = place >= len(claimed.terms.participants)
                client = TakingParticipant(client, takes, keeps_only=alone)
            clients.append(client)
        return clients, None

    async def _standings_of(
        self, claims: Sequence[Claim]
    ) -> list[tuple[list[WaitingSlot], PlanningProgress]]:
        """Return the waiting slots and the progress of each of these tasks."""
        limited = [claimed.task for claimed in claims if claimed.terms.schedule.max_runs]
        async with self._database.connection() as connection:
            waiting = await planning.waiting_slots(
                connection, [c.task for c in claims], WAITING_MAX
            )
            counted = await planning.run_counts(connection, limited) if limited else {}
            changed = {c.task: _planned_to(c) for c in claims if c.terms.revision > 1}
            touched = await planning.slots_with_runs(connection, changed) if changed else {}
            now = self._clock.now()
            soonest = now + self._limits.margin
            behind = {c.task: _planned_to(c) for c in claims if _is_behind(c, soonest, now)}
            told = await reported_slots(connection, behind) if behind else {}
        return [
            _progress_of(
                claimed,
                waiting[claimed.task],
                counted.get(claimed.task, 0),
                touched.get(claimed.task, {}),
                told.get(claimed.task, ()),
            )
            for claimed in claims
        ]

    async def _introduce(
        self, claimed: Claim, participants: Sequence[ParticipantClient]
    ) -> tuple[Claim | None, Reason | None]:
        """Introduce the task to the participants that have not answered yet.

        Returns the task as it is then, and why it cannot be planned, if so. The task is None if it
        was refused, or if another worker has it.
        """
        if refusals := _refusals(claimed.terms):
            # The answer was stored, but this process or another one ended before the task did.
            await self._refuse(claimed, refusals)
            return None, None
        open_places = [place for place, p in enumerate(claimed.terms.parties) if p.accepted is None]
        if not open_places:
            return claimed, None
        # A participant may have moved since the task was written.
        claimed = replace(claimed, terms=claimed.terms.located(self._relocate))
        answers = await asyncio.gather(
            *(self._introduce_one(claimed, participants[place], place) for place in open_places)
        )
        terms = claimed.terms
        listed = list(terms.parties)
        for place, answered in zip(open_places, answers, strict=True):
            listed[place] = listed[place].model_copy(update=answered)
        claimed = replace(claimed, terms=terms.with_parties(listed))
        refusals = _refusals(claimed.terms)
        try:
            claimed = replace(claimed, terms=self._choose_tool(claimed.terms))
        except ToolUnavailable as error:
            refusals = "; ".join(filter(None, (refusals, error.detail)))
        async with self._database.transaction() as connection:
            if not await planning.set_participants(connection, claimed):
                return None, None
        if refusals:
            await self._refuse(claimed, refusals)
            return None, None
        unanswered = [told(str(p.reason)) for p in listed if p.accepted is None]
        return claimed, unanswered[0] if unanswered else None

    async def _refuse(self, claimed: Claim, reason: str) -> None:
        log.info("task refused", what=_headline(claimed), task=str(claimed.task), reason=reason)
        await self._refuse_task(claimed.task, reason)

    async def _introduce_one(
        self, claimed: Claim, participant: ParticipantClient, place: int
    ) -> dict[str, Any]:
        try:
            answered = await participant.introduce(_introduction(claimed, place))
        except ParleyError as error:
            return {"accepted": None, "reason": reason_at(participant.name, error)}
        return _answer_to_keep(answered)

    async def _record_nothing_more(self, claimed: Claim) -> None:
        nothing = AgendaUpdate(claimed.planned_to, None, None, 0)
        async with self._database.connection() as connection:
            await planning.finish_claims(connection, [(claimed, nothing)])


def _log_refusal(attempt: PlanningAttempt) -> None:
    """Log why slots of a task got no time in this attempt; they wait, or are given up."""
    exchange, claimed = attempt.exchange, attempt.claimed
    refused = [slot for slot in exchange.slots if slot.nominal in exchange.reasons]
    if not refused:
        return
    first = refused[0]
    log.info(
        "not booked",
        outcome=exchange.outcome,
        what=_headline(claimed),
        task=str(claimed.task),
        run=str(run_id(TaskId(claimed.task), first.nominal, first.attempt)),
        slots=len(refused),
        reason=exchange.reasons[first.nominal],
    )


def _headline(claimed: Claim) -> str:
    terms = claimed.terms
    return headline(terms.test, [each.name for each in terms.participants], terms.spec)


def _refusals(terms: TaskTerms) -> str:
    """Return why participants refuse the task, empty if none does."""
    return "; ".join(f"{p.name}: {p.reason}" for p in terms.parties if p.accepted is False)


def _progress_of(
    claimed: Claim,
    waiting: list[WaitingSlot],
    counted: int,
    touched: Mapping[int, int | None],
    told: Collection[int],
) -> tuple[list[WaitingSlot], PlanningProgress]:
    max_runs = claimed.terms.schedule.max_runs
    failed_at = {slot.slot: slot.failed_at for slot in waiting if slot.failed_at is not None}
    uncounted = len(waiting) - len(failed_at)
    remaining = None if max_runs is None else max(0, max_runs - counted - uncounted)
    pairs = [(slot.slot, slot.attempt) for slot in waiting]
    starts = claimed.starts or ()
    standing = PlanningProgress(
        claimed.next_run_at,
        claimed.planned_to,
        pairs,
        remaining,
        touched,
        starts,
        told,
        failed_at,
        retry_terms(claimed.terms.schedule),
    )
    return waiting, standing


def out_of_time(attempt: PlanningAttempt) -> Reason | None:
    """Return why a seat is useless for its node: none of its runs has time there. Pure.

    None means that some run may still have time. This happens, for example, if another lead books
    between the search for nodes and the booking.
    """
    claimed, due, exchange = attempt.claimed, attempt.agenda, attempt.exchange
    slots = due.slots
    if claimed.parent is None or exchange.outcome is not PlanningOutcome.NO_TIME:
        return None
    if (
        due.next_slot is not None
        or due.too_late
        or due.gaps
        or due.beyond
        or not exchange.plan.proposals
    ):
        return None
    if exchange.runs or any(slot.attempt > 1 for slot in slots):
        return None
    # Requested early, for the start that was found: the rest of the window is not offered yet.
    if exceeded_horizon(slots, exchange.plan.proposals, times.LATEST) is not None:
        return None
    first = claimed.terms.schedule.start or claimed.terms.created_at
    every = nominal_starts(attempt.recurrence, first - 1, times.LATEST, len(slots) + 1)
    if [slot.nominal for slot in slots] != every:
        return None
    return time_gone(exchange.reasons[slots[0].nominal])


def _planned_to(claimed: Claim) -> int:
    return claimed.next_run_at - 1 if claimed.planned_to is None else claimed.planned_to


def _is_behind(claimed: Claim, soonest: int, now: int) -> bool:
    """Return whether slots have passed unplanned, which may be told as a gap."""
    terms, after = claimed.terms, _planned_to(claimed)
    return closed_slots(terms.recurrence, terms.duration, after, soonest, now, least=1) is not None


def _introduction(claimed: Claim, place: int) -> Introduction:
    return introduction_with(
        claimed.task,
        claimed.terms,
        place,
        pool_task=claimed.parent,
        freeing=claimed.freeing,
    )


def _answer_to_keep(answered: IntroductionAnswer) -> dict[str, Any]:
    return {
        "accepted": answered.accepted,
        "reason": answered.reason,
        "tools": answered.tools,
        "lacks": answered.lacks,
    }


async def _put_off(node: str, ask_at: int, connection: Connection) -> None:
    await planning.put_off(connection, node, ask_at)


async def _wake(node: str, now: int, connection: Connection) -> None:
    await planning.note_answered(connection, [node], now)
    await planning.wake_all(connection, node, now)
