"""Writes planning decisions: commits, waiting slots, traces, and when each task is planned next.

Many tasks share one transaction, in which each statement serves all of them.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from uuid import UUID

from lead.exchange.delivery import DecidedExchange, DecisionDelivery, OutboxMessage
from lead.exchange.negotiation import Exchange
from lead.exchange.user_limits import LeadLimits
from lead.model.participants import ParticipantClient
from lead.model.reasons import (
    beyond_horizons,
    decided_too_late,
    planned_too_late,
    taken_back_meanwhile,
)
from lead.model.records import AgendaUpdate, Claim, PlanningDecision, UnplacedSlot, WaitingSlot
from lead.planning.agenda import (
    Agenda,
    Limits,
    Slot,
    earliest_deadline,
    plan_next_at,
    try_again_at,
)
from lead.planning.limited_time import NAME
from lead.planning.unreachable import UnreachablePeriod
from lead.store import ledger, planning
from node.model.gaps import Gap, given_up
from node.model.ids import TaskId, run_id
from node.model.outcomes import PlanningOutcome
from node.model.reason import Reason
from node.model.reasons import windows_over
from node.model.recurrence import Recurrence
from node.model.runstate import RunState
from node.model.seat_weights import SeatWeights
from node.runtime.batching import Batcher
from node.runtime.clock import Clock
from node.store.database import Connection, Database
from node.store.gaps import keep_gaps


@dataclass(frozen=True)
class PlanningAttempt:
    """A finished planning attempt, not written yet.

    ``limits`` has the shortest horizon of all participants. ``unreachable`` is the unreachable
    participant that the task waits for, if any.
    """

    claimed: Claim
    recurrence: Recurrence
    limits: Limits
    waiting: Sequence[WaitingSlot]
    agenda: Agenda
    exchange: Exchange
    unreachable: tuple[str, UnreachablePeriod] | None = None


Concluded = tuple[PlanningAttempt, Sequence[ParticipantClient]]


class AttemptRecorder:
    """Writes the results of planning attempts."""

    def __init__(
        self,
        database: Database,
        clock: Clock,
        delivery: DecisionDelivery,
        rng: random.Random,
        weights: SeatWeights,
        limits: LeadLimits,
    ) -> None:
        """``rng`` draws the pauses; ``weights`` are the charges for runs."""
        self._database = database
        self._weights = weights
        self._campaigns = limits.campaigns
        self._users = limits.users
        self._clock = clock
        self._delivery = delivery
        self._rng = rng
        self._batches: Batcher[Concluded, list[OutboxMessage]] = Batcher(
            self._record_all,
            weight=lambda each: len(each[0].exchange.runs),
            weight_max=8192,
            # Two workers may have planned the same task, if one lost its lease. In separate
            # transactions the lease decides which attempt counts.
            apart=lambda each: (each[0].claimed.task,),
        )

    async def record(
        self, attempt: PlanningAttempt, participants: Sequence[ParticipantClient]
    ) -> None:
        """Write the outcome in one transaction, and deliver it to the participants."""
        await self._delivery.send(await self._batches.ask((attempt, participants)))

    async def _record_all(self, concluded: Sequence[Concluded]) -> list[list[OutboxMessage]]:
        return await self._database.settle(
            lambda connection: self._record_in(connection, concluded)
        )

    async def _record_in(
        self, connection: Connection, concluded: Sequence[Concluded]
    ) -> list[list[OutboxMessage]]:
        now = self._clock.now()
        attempts = [attempt for attempt, _ in concluded]
        if any(attempt.exchange.unknown_to for attempt in attempts):
            # Their participants are written below. An end of their runs locks the task first, too.
            tasks = [attempt.claimed.task for attempt in attempts]
            await planning.lock_to_change(connection, tasks)
        await self._commit(connection, attempts, now)
        aborted = [a.exchange.id for a in attempts if a.exchange.id and not a.exchange.commit]
        if aborted:
            await planning.decide_abort(connection, aborted, now)
        decided = [
            DecidedExchange(
                attempt.exchange.id,
                attempt.claimed.task,
                attempt.claimed.lease_epoch,
                attempt.exchange.commit,
                participants,
            )
            for attempt, participants in concluded
            if attempt.exchange.id is not None
        ]
        messages = await self._delivery.write(connection, decided, now)
        await self._store_progress(connection, attempts, now)
        by_task: dict[UUID, list[OutboxMessage]] = {
            attempt.claimed.task: [] for attempt in attempts
        }
        for message in messages:
            by_task[message.task].append(message)
        return [by_task[attempt.claimed.task] for attempt in attempts]

    async def _commit(
        self, connection: Connection, attempts: Sequence[PlanningAttempt], now: int
    ) -> None:
        """Commit what all participants hold, unless the task or its lease has ended meanwhile."""
        if not any(attempt.exchange.commit for attempt in attempts):
            return
        # Lock all tasks, also those without a commit: ending a run locks its task first and the
        # sums of charges last. The same order here avoids deadlocks.
        await planning.lock_tasks(connection, [attempt.claimed.task for attempt in attempts])
        attempts = [attempt for attempt in attempts if attempt.exchange.commit]
        # Every participant holds these runs by now, so it learns of a run that ends from here on.
        runs = [run.run for attempt in attempts for run in attempt.exchange.runs]
        ended = await planning.find_ended_runs(connection, runs)
        taken_back = dict.fromkeys(ended, taken_back_meanwhile())
        for attempt in attempts:
            attempt.exchange.take_back(taken_back, PlanningOutcome.TAKEN_BACK)
        await self._take_back_beyond_campaign_limits(connection, attempts, now)
        await self._take_back_beyond_user_limits(connection, attempts)
        commits = {
            attempt.exchange.id: attempt.exchange.commit
            for attempt in attempts
            if attempt.exchange.id and attempt.exchange.commit
        }
        decided = await planning.decide_commit(connection, commits, now)
        await self._charge(connection, [a for a in attempts if a.exchange.id in decided], now)
        for attempt in attempts:
            exchange, claimed = attempt.exchange, attempt.claimed
            if exchange.commit is None or exchange.id is None:
                continue
            if exchange.id not in decided:
                exchange.fail(decided_too_late(), PlanningOutcome.TOO_LATE)
                exchange.commit = None
            elif not claimed.is_held_here:
                await planning.keep_led_runs(
                    connection, exchange.id, claimed, exchange.commit.data, exchange.runs, now
                )

    async def _take_back_beyond_campaign_limits(
        self, connection: Connection, attempts: Sequence[PlanningAttempt], now: int
    ) -> None:
        """Take back what another decision has left no room for, since the times were chosen."""
        limited = [it for it in attempts if it.claimed.limited and it.exchange.commit]
        if not limited:
            return
        beyond = await self._campaigns.beyond(
            connection, [(it.claimed.terms, it.exchange.runs) for it in limited], now
        )
        for attempt in limited:
            attempt.exchange.limited |= any(it.run in beyond for it in attempt.exchange.runs)
            attempt.exchange.take_back(beyond, PlanningOutcome.NO_TIME)

    async def _take_back_beyond_user_limits(
        self, connection: Connection, attempts: Sequence[PlanningAttempt]
    ) -> None:
        """Take back what the limits of users do not admit; holds here have counted their runs."""
        limited = [
            it
            for it in attempts
            if not it.claimed.is_held_here
            and it.exchange.commit
            and self._users.bind(it.claimed.limit)
        ]
        if not limited:
            return
        beyond = await self._users.refusals_of_user_runs(
            connection, [(it.claimed.limit, it.exchange.runs) for it in limited]
        )
        reasons = {run: refusal.why.at(NAME) for run, refusal in beyond.items()}
        for attempt in limited:
            attempt.exchange.take_back(reasons, PlanningOutcome.NO_TIME)

    async def _charge(
        self, connection: Connection, attempts: Sequence[PlanningAttempt], now: int
    ) -> None:
        moved = {
            it.claimed.task: self._campaigns.expected_bytes(it.claimed.terms) or 0
            for it in attempts
        }
        runs = {
            attempt.claimed.task: attempt.exchange.runs
            for attempt in attempts
            if moved[attempt.claimed.task]
            or self._weights.charges(attempt.claimed.terms.scheduling_class)
        }
        if runs:
            await ledger.charge(connection, runs, self._weights, moved, now)

    async def _store_progress(
        self, connection: Connection, attempts: Sequence[PlanningAttempt], now: int
    ) -> None:
        """Store the traces, the slots that wait, and what is planned next."""
        unplaced = {
            attempt.claimed.task: [
                slot for slot in attempt.agenda.slots if slot.nominal in attempt.exchange.reasons
            ]
            for attempt in attempts
        }
        following = [
            (a.claimed, _next_agenda(a, unplaced[a.claimed.task], now, self._rng)) for a in attempts
        ]
        # If the task has ended or another worker has it, this attempt must not plan its next run.
        finished = await planning.finish_claims(connection, following)
        ours = [attempt for attempt in attempts if attempt.claimed.task in finished]
        for attempt in ours:
            claimed = attempt.claimed
            waiting = _slots_to_write(
                attempt, unplaced[claimed.task], forgot=self._database.was_restored
            )
            await planning.keep_unplaced(connection, claimed, waiting, now)
            if attempt.exchange.unknown_to:
                await _forget_acceptance(connection, claimed, attempt.exchange.unknown_to)
        if gaps := [gap for attempt in ours for gap in _gaps(attempt)]:
            await keep_gaps(connection, gaps, now, restored=self._database.was_restored)
        decisions = [(a.claimed.task, _decision(a)) for a in ours if _nominals(a.agenda)]
        if decisions:
            await planning.keep_decisions(connection, decisions, now)
        if ours:
            booked = {a.claimed.task: a.exchange.commit is not None for a in ours}
            await planning.notify_planned(connection, booked)


async def _forget_acceptance(connection: Connection, claimed: Claim, unknown_to: set[str]) -> None:
    """Have a task introduced again to participants that lost it, for example with a database."""
    parties = [
        p.model_copy(update={"accepted": None}) if p.node in unknown_to else p
        for p in claimed.terms.parties
    ]
    forgotten = replace(claimed, terms=claimed.terms.with_parties(parties))
    await planning.set_participants(connection, forgotten)


def _next_agenda(
    attempt: PlanningAttempt, unplaced: Sequence[Slot], now: int, rng: random.Random
) -> AgendaUpdate:
    claimed, agenda = attempt.claimed, attempt.agenda
    regular = plan_next_at(
        attempt.recurrence, claimed.terms.duration, agenda, attempt.limits, len(unplaced), now
    )
    done = {slot.nominal for slot in (*agenda.slots, *agenda.too_late)}
    nominals = [slot.nominal for slot in unplaced]
    nominals += [slot.slot for slot in attempt.waiting if slot.slot not in done]
    if agenda.next_slot is not None:
        nominals.append(agenda.next_slot)
    following = AgendaUpdate(
        planned_to=agenda.planned_to,
        next_run_at=min(nominals, default=None),
        plan_at=regular,
        failures=claimed.failures + 1 if unplaced else 0,
        wants_room=bool(unplaced) and attempt.exchange.limited,
        known_epoch=attempt.exchange.known_epoch,
    )
    if not unplaced:
        return following
    if attempt.unreachable is None:
        later = attempt.exchange.retry_times
        again = try_again_at(unplaced, claimed.terms.duration, claimed.failures, now, rng, later)
        return replace(following, plan_at=_earlier(again, regular))
    identity, period = attempt.unreachable
    until = _earlier(earliest_deadline(unplaced, claimed.terms.duration), regular)
    return replace(
        following,
        plan_at=_earlier(period.ask_at, until),
        failures=claimed.failures,
        waits_for=identity,
        waits_until=until,
    )


def _earlier(*instants: int | None) -> int | None:
    return min((instant for instant in instants if instant is not None), default=None)


def _slots_to_write(
    attempt: PlanningAttempt, unplaced: Sequence[Slot], *, forgot: bool
) -> list[UnplacedSlot]:
    """Return the slots to write: those that were negotiated, or whose state or reason changed.

    Slots that only continue to wait for an unreachable participant are not written again. If this
    database was restored and may have forgotten (``forgot``) what was booked, the reasons say so.
    """
    task, reasons = TaskId(attempt.claimed.task), attempt.exchange.reasons
    known = {(slot.slot, slot.attempt): slot.reason for slot in attempt.waiting}
    not_asked = not attempt.exchange.plan.proposals

    def unplaced_slot(slot: Slot, state: RunState, reason: Reason) -> UnplacedSlot:
        run = run_id(task, slot.nominal, slot.attempt)
        return UnplacedSlot(run, slot.nominal, slot.attempt, state, reason)

    def has_changed(slot: Slot, reason: str) -> bool:
        return known.get((slot.nominal, slot.attempt)) != reason

    over, beyond = planned_too_late(forgotten=forgot), beyond_horizons()
    return [
        *(
            unplaced_slot(slot, RunState.WAITING, reasons[slot.nominal])
            for slot in unplaced
            if not not_asked or has_changed(slot, reasons[slot.nominal])
        ),
        *(
            unplaced_slot(slot, RunState.WAITING, beyond)
            for slot in attempt.agenda.beyond
            if has_changed(slot, beyond)
        ),
        *(unplaced_slot(slot, RunState.UNPLACED, over) for slot in attempt.agenda.too_late),
    ]


def _gaps(attempt: PlanningAttempt) -> list[Gap]:
    """Return the gaps to write; their reason is what can be said without knowing of an absence."""
    return [Gap(attempt.claimed.task, gap, windows_over()) for gap in attempt.agenda.gaps]


def _nominals(agenda: Agenda) -> list[int]:
    """Return slots that the planning was about: of gaps only the ends."""
    ends = [slot for gap in agenda.gaps for slot in (gap.first, gap.last)]
    return ends + [slot.nominal for slot in (*agenda.slots, *agenda.too_late)]


def _given_up(agenda: Agenda) -> Reason | None:
    """Return that slots are given up; None if there are none."""
    count = len(agenda.too_late) + sum(gap.slots for gap in agenda.gaps)
    return given_up(count, agenda.gaps) if count else None


def _decision(attempt: PlanningAttempt) -> PlanningDecision:
    agenda, exchange = attempt.agenda, attempt.exchange
    nominals = _nominals(agenda)
    sentence = exchange.summary()
    again = {slot.slot: slot.reason for slot in attempt.waiting if slot.attempt > 1 and slot.reason}
    before = [again[slot.nominal] for slot in agenda.slots if slot.nominal in again]
    outcome = exchange.outcome
    if (lost := _given_up(agenda)) is not None:
        sentence = sentence.beside(lost) if agenda.slots else lost
        outcome = outcome if agenda.slots else PlanningOutcome.GIVEN_UP
    return PlanningDecision(
        outcome=outcome,
        sentence=sentence,
        asked=len(agenda.slots),
        placed=len(exchange.runs) if exchange.commit else 0,
        first_slot=min(nominals, default=None),
        last_slot=max(nominals, default=None),
        exchange=exchange.id,
        trace={**exchange.trace(), **({"before": before} if before else {})},
    )
