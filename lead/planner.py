"""Plans one claimed task: introduces it, asks for its slots, decides, and says what comes next."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

from lead.delivery import Delivery, Letter
from lead.model import Claim, Decision, Following, UnplacedSlot, WaitingSlot
from lead.negotiation import Exchange, Negotiator
from lead.participants import Participant
from lead.planning.agenda import (
    PAUSE_FIRST,
    PAUSE_MAX,
    Agenda,
    Limits,
    Slot,
    Standing,
    agenda,
    plan_next_at,
    soonest_end,
    try_again_at,
)
from lead.planning.silence import Silence, drawn_pause
from lead.reach import Reach, Visit
from lead.store import planning
from node.clock import Clock
from node.model.errors import NotFound, ParleyError, ToolUnavailable
from node.model.ids import TaskId, run_id
from node.model.recurrence import Recurrence
from node.model.scheduling import recurrence_of
from node.model.wire.participants import HoldRequest, Introduction, IntroductionAnswer
from node.model.wire.tasks import Participant as Listed
from node.model.wire.tasks import Schedule
from node.store.database import Connection, Database
from node.store.outbox import Kind

WAITING_MAX = 10_000
"""Slots of one task that wait and are looked at in one planning."""

BEYOND = "its window does not lie within the horizon of all participants yet"

ChooseTool = Callable[
    [str, tuple[str, ...], list[tuple[str, ...]], dict[str, Any]], tuple[str, int]
]
"""``choose(test, preferred, offers, spec)`` gives the tool's name and the duration it needs."""


@dataclass(frozen=True)
class Attempt:
    """What is known once a planning attempt is over.

    ``limits`` has the shortest horizon of all; ``silence`` is that of a participant.
    """

    claimed: Claim
    recurrence: Recurrence
    limits: Limits
    waiting: Sequence[WaitingSlot]
    asked: Agenda
    exchange: Exchange
    silence: tuple[str, Silence] | None = None


class Planner:
    """Plans claimed tasks."""

    def __init__(  # noqa: PLR0913 - what it works with
        self,
        *,
        database: Database,
        clock: Clock,
        limits: Limits,
        negotiator: Negotiator,
        reach: Reach,
        delivery: Delivery,
        participant_of: Callable[[str], Participant],
        choose_tool: ChooseTool,
        refuse_task: Callable[[UUID, str], Awaitable[None]],
        rng: random.Random,
    ) -> None:
        """``refuse_task(task, reason)`` ends a task that a participant refuses."""
        self._database = database
        self._clock = clock
        self._limits = limits
        self._negotiator = negotiator
        self._reach = reach
        self._delivery = delivery
        self._participant_of = participant_of
        self._choose_tool = choose_tool
        self._refuse_task = refuse_task
        self._rng = rng

    async def plan(self, claimed: Claim) -> None:
        """Plan a task up to the horizon; nothing is left undone without a stored reason."""
        if claimed.state != "active":
            await self._nothing_more(claimed)
            return
        try:
            with self._reach.visit(_others(claimed)) as visit:
                if visit.full is None:
                    await self._plan(claimed, visit)
                else:
                    await self._turn_away(claimed, visit.full)
        finally:
            await self.spread()

    async def _plan(self, claimed: Claim, visit: Visit) -> None:
        participants, missing = self._participants(claimed)
        if visit.silence is not None:
            missing = visit.silence.in_words()
        others = _others(claimed)
        watched = [visit.through(p) if p.identity in others else p for p in participants]
        if missing is None:
            introduced, missing = await self._introduce(claimed, watched)
            if introduced is None:
                return
            claimed = introduced
        attempt = await self._attempt(claimed, watched, missing)
        silence = self._reach.silence_among(others)
        outcome = attempt.exchange.outcome
        if silence is not None and outcome in {"unreachable", "no answer"}:
            attempt.exchange.fail(silence[1].in_words(), outcome)
        await self._decide(replace(attempt, silence=silence), participants)

    async def _attempt(
        self, claimed: Claim, participants: Sequence[Participant], missing: str | None
    ) -> Attempt:
        """Ask for what is due; for less if a participant books less far ahead than was known."""
        waiting, standing = await self._standing(claimed)
        recurrence = recurrence_of(Schedule.model_validate(claimed.schedule), claimed.created_at)

        async def ask(*, within_all: bool) -> Attempt:
            ahead = self._reach.horizon(_others(claimed), self._limits.horizon)
            limits, now = replace(self._limits, horizon=ahead), self._clock.now()
            asked = agenda(recurrence, claimed.duration, standing, limits, now)
            exchange = Exchange(asked.slots)
            if missing is not None:
                exchange.fail(missing, "unreachable")
            elif asked.slots:
                exchange = await self._negotiator.exchange(
                    claimed, participants, asked.slots, now + ahead if within_all else None
                )
            return Attempt(claimed, recurrence, limits, waiting, asked, exchange)

        attempt = await ask(within_all=True)
        return await ask(within_all=False) if attempt.exchange.beyond else attempt

    async def _turn_away(self, claimed: Claim, full: str) -> None:
        async with self._database.connection() as connection:
            await planning.turn_away(connection, claimed, full, self._clock.now())
        self._reach.turned_away(full)

    async def spread(self) -> None:
        """Let the other tasks know who answers again, and when who does not is asked again."""
        answered, put_off = self._reach.news()
        if not answered and not put_off:
            return
        async with self._database.connection() as connection:
            for identity, ask_at in put_off.items():
                await planning.put_off(connection, identity, ask_at)
            for identity in answered:
                await planning.wake_all(connection, identity, self._clock.now())

    async def broke_off(self, claimed: Claim, why: str) -> None:
        """Something nobody foresaw: what was held is released, and the task planned again later."""
        now = self._clock.now()
        participants, _ = self._participants(claimed)
        pause = drawn_pause(PAUSE_FIRST, PAUSE_MAX, claimed.failures, self._rng)
        sentence = f"planning broke off: {why}"
        decision = Decision("broken off", sentence, 0, 0, None, None)
        letters = []
        async with self._database.transaction() as connection:
            if not await planning.break_off(connection, claimed, now + pause):
                return
            await planning.keep_decision(connection, claimed.task, decision, now)
            for exchange in await planning.abort_broken_off(connection, claimed, now):
                body = {"exchange": str(exchange), "task": str(claimed.task)}
                letters += await self._delivery.write(
                    connection, participants, Kind.RELEASE, body, now
                )
            await planning.notify_planned(connection, claimed.task, booked=False)
        await self._delivery.send(letters)

    def _participants(self, claimed: Claim) -> tuple[list[Participant], str | None]:
        """The participants in order, or why one of them cannot be asked."""
        found = []
        for listed in claimed.participants:
            try:
                found.append(self._participant_of(str(listed["node"])))
            except NotFound as error:
                return [], f"{listed['name']}: {error.detail}"
        return found, None

    async def _standing(self, claimed: Claim) -> tuple[list[WaitingSlot], Standing]:
        max_runs = claimed.schedule.get("max_runs")
        async with self._database.connection() as connection:
            waiting = await planning.waiting(connection, claimed.task, WAITING_MAX)
            remaining = None
            if max_runs is not None:
                counted = await planning.counted_runs(connection, claimed.task)
                remaining = max(0, int(max_runs) - counted - len(waiting))
        pairs = [(slot.slot, slot.attempt) for slot in waiting]
        return waiting, Standing(claimed.next_run_at, claimed.planned_to, pairs, remaining)

    async def _introduce(
        self, claimed: Claim, participants: Sequence[Participant]
    ) -> tuple[Claim | None, str | None]:
        """Make the task known to those who have not answered yet; why it cannot be planned.

        No task where there is nothing left to plan: it was refused, or another worker has it.
        """
        open_places = [
            place for place, p in enumerate(claimed.participants) if p.get("accepted") is None
        ]
        if not open_places:
            return claimed, None
        answers = await asyncio.gather(
            *(self._introduce_one(claimed, participants[place], place) for place in open_places)
        )
        listed = list(claimed.participants)
        for place, answered in zip(open_places, answers, strict=True):
            listed[place] = {**listed[place], **answered}
        claimed = replace(claimed, participants=listed)
        refusals = [f"{p['name']}: {p['reason']}" for p in listed if p["accepted"] is False]
        try:
            claimed = self._with_tool(claimed)
        except ToolUnavailable as error:
            refusals.append(error.detail)
        async with self._database.connection() as connection:
            if not await planning.set_participants(connection, claimed, claimed.participants):
                return None, None
        if refusals:
            await self._refuse_task(claimed.task, "; ".join(refusals))
            return None, None
        silent = [str(p["reason"]) for p in listed if p["accepted"] is None]
        return claimed, silent[0] if silent else None

    def _with_tool(self, claimed: Claim) -> Claim:
        offers = [tuple(p["tools"]) for p in claimed.participants if p["accepted"]]
        tool, duration = self._choose_tool(claimed.test, tuple(claimed.tools), offers, claimed.spec)
        return replace(claimed, tool=tool, duration=duration)

    async def _introduce_one(
        self, claimed: Claim, participant: Participant, place: int
    ) -> dict[str, Any]:
        try:
            answered = await participant.introduce(_introduction(claimed, place))
        except ParleyError as error:
            return {"accepted": None, "reason": error.detail, "tools": []}
        return _kept(answered)

    async def _decide(self, attempt: Attempt, participants: Sequence[Participant]) -> None:
        """Make the outcome final, in one transaction, and take it to the participants."""
        now = self._clock.now()
        letters = await self._database.settle(
            lambda connection: self._conclude(connection, attempt, participants, now)
        )
        await self._delivery.send(letters)

    async def _conclude(
        self,
        connection: Connection,
        attempt: Attempt,
        participants: Sequence[Participant],
        now: int,
    ) -> list[Letter]:
        exchange, letters = attempt.exchange, list[Letter]()
        if exchange.commit is not None and exchange.id is not None:
            letters = await self._commit(connection, attempt, participants, now)
        if exchange.id is not None and exchange.commit is None:
            letters = await self._abort(connection, attempt, participants, now)
        await self._keep(connection, attempt, now)
        return letters

    async def _commit(
        self,
        connection: Connection,
        attempt: Attempt,
        participants: Sequence[Participant],
        now: int,
    ) -> list[Letter]:
        exchange, claimed = attempt.exchange, attempt.claimed
        if exchange.commit is None or exchange.id is None:
            return []
        # All hold them by now: what ends from here on is told to participants that know the run.
        exchange.take_back(await planning.ended(connection, exchange.commit.runs))
        if exchange.commit is None:
            return []
        if not await planning.decide_commit(
            connection, exchange.id, claimed.task, exchange.commit, now
        ):
            exchange.fail(
                "the decision came too late: the task ended or its lease was lost", "too late"
            )
            exchange.commit = None
            return []
        if claimed.participant is None:
            await planning.keep_led(
                connection, exchange.id, claimed, exchange.commit.data, exchange.runs, now
            )
        hold = HoldRequest(
            task=claimed.task,
            lease_epoch=claimed.lease_epoch,
            tool=claimed.tool or "",
            priority=claimed.priority,
            life=self._negotiator.hold_life,
            runs=tuple(exchange.runs),
        )
        body = {
            "exchange": str(exchange.id),
            "task": str(claimed.task),
            "commit": exchange.commit.model_dump(mode="json"),
            "hold": hold.model_dump(mode="json"),
        }
        return await self._delivery.write(connection, participants, Kind.COMMIT, body, now)

    async def _abort(
        self,
        connection: Connection,
        attempt: Attempt,
        participants: Sequence[Participant],
        now: int,
    ) -> list[Letter]:
        if attempt.exchange.id is None:
            return []
        await planning.decide_abort(connection, attempt.exchange.id, now)
        body = {"exchange": str(attempt.exchange.id), "task": str(attempt.claimed.task)}
        return await self._delivery.write(connection, participants, Kind.RELEASE, body, now)

    async def _keep(self, connection: Connection, attempt: Attempt, now: int) -> None:
        """Store the trace, the slots that wait, and what is planned next."""
        claimed, exchange, asked = attempt.claimed, attempt.exchange, attempt.asked
        unplaced = [slot for slot in asked.slots if slot.nominal in exchange.reasons]
        following = self._following(attempt, unplaced, now)
        if not await planning.finish_claim(connection, claimed, following):
            return  # The task has ended or another worker has it: not ours to say what is next.
        await planning.keep_unplaced(connection, claimed, _waiting(attempt, unplaced), now)
        if exchange.unknown_to:
            await self._forget_acceptance(connection, claimed, exchange.unknown_to)
        if asked.slots or asked.too_late:
            await planning.keep_decision(connection, claimed.task, _decision(attempt), now)
        await planning.notify_planned(connection, claimed.task, booked=exchange.commit is not None)

    def _following(self, attempt: Attempt, unplaced: Sequence[Slot], now: int) -> Following:
        claimed, asked = attempt.claimed, attempt.asked
        regular = plan_next_at(
            attempt.recurrence, claimed.duration, asked, attempt.limits, len(unplaced), now
        )
        nominals = [slot.nominal for slot in (*unplaced, *asked.beyond)]
        if asked.next_slot is not None:
            nominals.append(asked.next_slot)
        following = Following(
            planned_to=asked.planned_to,
            next_run_at=min(nominals, default=None),
            plan_at=regular,
            failures=claimed.failures + 1 if unplaced else 0,
        )
        if not unplaced:
            return following
        if attempt.silence is None:
            again = try_again_at(unplaced, claimed.duration, claimed.failures, now, self._rng)
            return replace(following, plan_at=_sooner(again, regular))
        identity, silence = attempt.silence
        until = _sooner(soonest_end(unplaced, claimed.duration), regular)
        return replace(
            following,
            plan_at=_sooner(silence.ask_at, until),
            failures=claimed.failures,
            waits_for=identity,
            waits_until=until,
        )

    async def _forget_acceptance(
        self, connection: Connection, claimed: Claim, unknown_to: set[str]
    ) -> None:
        """A participant has lost the task (a new database, say): it is introduced again."""
        listed = [
            {**p, "accepted": None} if p["node"] in unknown_to else p for p in claimed.participants
        ]
        await planning.set_participants(connection, claimed, listed)

    async def _nothing_more(self, claimed: Claim) -> None:
        nothing = Following(claimed.planned_to, None, None, 0)
        async with self._database.connection() as connection:
            await planning.finish_claim(connection, claimed, nothing)


def _introduction(claimed: Claim, place: int) -> Introduction:
    return Introduction(
        task=claimed.task,
        test=claimed.test,
        spec=claimed.spec,
        tools=tuple(claimed.tools),
        tool=claimed.tool,
        scheduling_class=claimed.scheduling_class,
        duration=claimed.duration,
        priority=claimed.priority,
        participants=tuple(Listed.model_validate(p) for p in claimed.participants),
        participant=place,
        addresses=claimed.addresses,
        schedule=Schedule.model_validate(claimed.schedule),
        campaign=claimed.campaign,
        reference=claimed.reference,
        created_at=claimed.created_at,
    )


def _kept(answered: IntroductionAnswer) -> dict[str, Any]:
    return {
        "accepted": answered.accepted,
        "reason": answered.reason,
        "tools": list(answered.tools),
    }


def _others(claimed: Claim) -> list[str]:
    """The participants but for this node itself."""
    listed = [str(p["node"]) for p in claimed.participants]
    return [node for place, node in enumerate(listed) if place != claimed.participant]


def _sooner(*instants: int | None) -> int | None:
    return min((instant for instant in instants if instant is not None), default=None)


def _waiting(attempt: Attempt, unplaced: Sequence[Slot]) -> list[UnplacedSlot]:
    """The slots whose state or reason has changed; and all that were really asked for.

    Nothing is written of those that only go on waiting for a silent participant.
    """
    task, reasons = TaskId(attempt.claimed.task), attempt.exchange.reasons
    known = {(slot.slot, slot.attempt): slot.reason for slot in attempt.waiting}
    not_asked = not attempt.exchange.proposals

    def made(slot: Slot, state: str, reason: str) -> UnplacedSlot:
        run = run_id(task, slot.nominal, slot.attempt)
        return UnplacedSlot(run, slot.nominal, slot.attempt, state, reason)

    def changed(slot: Slot, reason: str) -> bool:
        return known.get((slot.nominal, slot.attempt)) != reason

    over = "its window was over before it could be planned"
    return [
        *(
            made(slot, "waiting", reasons[slot.nominal])
            for slot in unplaced
            if not not_asked or changed(slot, reasons[slot.nominal])
        ),
        *(made(slot, "waiting", BEYOND) for slot in attempt.asked.beyond if changed(slot, BEYOND)),
        *(made(slot, "unplaced", over) for slot in attempt.asked.too_late),
    ]


def _decision(attempt: Attempt) -> Decision:
    asked, exchange = attempt.asked, attempt.exchange
    nominals = [slot.nominal for slot in (*asked.slots, *asked.too_late)]
    sentence = exchange.sentence()
    again = {slot.slot: slot.reason for slot in attempt.waiting if slot.attempt > 1 and slot.reason}
    before = [again[slot.nominal] for slot in asked.slots if slot.nominal in again]
    outcome = exchange.outcome
    if asked.too_late:
        given_up = f"{len(asked.too_late)} given up: the window is over"
        sentence = f"{sentence}; {given_up}" if asked.slots else given_up
        outcome = outcome if asked.slots else "given up"
    return Decision(
        outcome=outcome,
        sentence=sentence,
        asked=len(asked.slots),
        placed=len(exchange.runs) if exchange.commit else 0,
        first_slot=min(nominals, default=None),
        last_slot=max(nominals, default=None),
        exchange=exchange.id,
        trace={**exchange.trace(), **({"before": before} if before else {})},
    )
