"""Writes the results of an episode: seats and their tasks, reasons, and the state of the policies.

All of it is one transaction, which is rolled back if another episode of the pool came first. A task
that was changed meanwhile is left out: it is due again at once.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from lead.model.reasons import chosen_too_late, seats_stayed_empty
from lead.model.records import FinishedTerm, NextTry, PlanningDecision, PolicyMemory, SeatGrant
from lead.planning.pool_view import SeatCase
from lead.planning.seat_selection import SeatSearchAccount
from lead.planning.unreachable import align_retries, jittered_pause
from lead.policy.feasible.deferral import ON_HOLD
from lead.policy.verdict import Axis, PolicyRefusal
from lead.store import episodes, planning
from node.model import times
from node.model.outcomes import PlanningOutcome
from node.model.reason import Reason
from node.model.reasons import told
from node.runtime.clock import Clock
from node.store import notices, tasks
from node.store.database import Connection, Database
from node.store.tasks import StoredTask

PAUSE_FIRST = times.SECOND
PAUSE_MAX = 5 * times.MINUTE
PAUSE_OF_HOLDERS = 30 * times.SECOND
"""Maximum pause where others wait for a task that found no time: nodes may be idle meanwhile."""
PAUSE_OF_GIVERS = 5 * times.SECOND
"""Pause of a seat that was given back: those to whom it was given come first."""
_OF_WHAT_IS_LEFT = 64
_UNHURRIED = 30 * times.SECOND
"""Maximum first pause. It is a part of the time until the seat is needed, so that a seat that is
needed much later is not searched for every few seconds."""


class StaleEpisode(Exception):
    """Raised when another episode of the pool was written first."""


@dataclass(frozen=True)
class SeatTaskPlan:
    """An ordinary task to be created for some seats, with the node (identity) of each seat.

    ``yielding`` are the runs that may give way to its own; None is any of lower priority. Its own
    runs start at ``starts`` if that time is still free.
    """

    task: StoredTask
    seats: Mapping[int, str]
    yielding: Sequence[UUID] | None
    starts: Sequence[int]


@dataclass(frozen=True)
class CaseResult:
    """The result of one case: nodes by seat, their tasks, and the reasons against other nodes.

    ``misses`` are the latest starts that its runs are expected to miss, in order.
    """

    case: SeatCase
    taken: Mapping[int, str] = field(default_factory=dict)
    parts: Sequence[SeatTaskPlan] = ()
    reasons: Mapping[str, Reason] = field(default_factory=dict)
    verdicts: Sequence[PolicyRefusal] = ()
    misses: Sequence[int] = ()


@dataclass
class EpisodeRuling:
    """The result of an episode; ``returned`` are tasks of seats to give back, with the reasons."""

    pool: str
    policies: str
    remembered: PolicyMemory
    results: list[CaseResult] = field(default_factory=list)
    returned: Mapping[UUID, Reason] = field(default_factory=dict)
    pause_max: int = PAUSE_MAX


class RulingWriter:
    """Writes the rulings of episodes to the database."""

    def __init__(
        self, database: Database, clock: Clock, horizon: int, phase: int, rng: random.Random
    ) -> None:
        """``rng`` draws the pauses; ``phase`` (µs) delays the instants of this lead's retries."""
        self._database = database
        self._clock = clock
        self._horizon = horizon
        self._phase = phase
        self._rng = rng

    async def write(self, ruling: EpisodeRuling) -> None:
        """Write a ruling in one transaction.

        :raises StaleEpisode: another episode of the pool was first; nothing was written.
        """
        await self._database.settle(lambda connection: self._write(connection, ruling))

    async def _write(self, connection: Connection, ruling: EpisodeRuling) -> None:
        now = self._clock.now()
        revision = await episodes.keep_policy_state(connection, ruling.pool, ruling.remembered, now)
        if revision is None:
            raise StaleEpisode
        new_tasks: list[UUID] = []
        decided: list[UUID] = []
        for result in sorted(ruling.results, key=lambda it: it.case.pool_task.id):
            pool_task = result.case.pool_task
            if await episodes.lock_revision(connection, pool_task.id) != pool_task.terms.revision:
                continue
            new_tasks += await self._grant_seats(connection, result, now)
            account = search_account_of(ruling, result)
            await self._schedule_retry(connection, result, account, ruling.pause_max, now)
            # One at a time: a task may have several terms here.
            await planning.keep_decisions(connection, [(pool_task.id, _decision(account))], now)
            decided.append(pool_task.id)
        await episodes.notify_of_misses(connection, now)
        await notices.notify_all(connection, [("task", each, "active") for each in new_tasks])
        await notices.notify_all(
            connection, [("task", each, "planned") for each in list(dict.fromkeys(decided))]
        )

    async def _grant_seats(
        self, connection: Connection, result: CaseResult, now: int
    ) -> list[UUID]:
        """Create the ordinary tasks of the seats and grant the seats; return the tasks."""
        grants: list[SeatGrant] = []
        for place, part in enumerate(result.parts):
            await tasks.keep(connection, part.task)
            first = part.task.terms.schedule.start or now
            plan_at = max(now, first - self._horizon + part.task.terms.duration)
            first_planning = {part.task.id: tasks.FirstPlanning(first, plan_at, place)}
            await tasks.open_planning(connection, first_planning)
            grants += [
                SeatGrant(number, node, part.task.id, part.yielding, part.starts)
                for number, node in part.seats.items()
            ]
        if grants:
            taken = await episodes.give_seats(connection, result.case.open.key, grants, now)
            if len(taken) < len(grants):
                raise StaleEpisode
        return [part.task.id for part in result.parts]

    async def _schedule_retry(
        self,
        connection: Connection,
        result: CaseResult,
        account: SeatSearchAccount,
        pause_max: int,
        now: int,
    ) -> None:
        """Store when the seats that are still empty are tried again, and why they are empty."""
        opened, full = result.case.open, account.outcome is PlanningOutcome.SEATED
        tries = 0 if account.taken else opened.tries + 1
        left = result.case.slots[0] - now
        first = max(PAUSE_FIRST, min(left // _OF_WHAT_IS_LEFT, _UNHURRIED))
        pause = jittered_pause(first, pause_max, tries, self._rng)
        again = align_retries(now, pause, self._phase)
        if result.verdicts:
            again = _retry_at(result.verdicts[0], now) or min(
                again, _displacing_instant(result.verdicts)
            )
        # Not later than the end of the term, because then the reason is reported.
        again = min(again, opened.over_at)
        if full:
            held = result.case.held + len(account.taken)
            await episodes.record_attempt(connection, opened, NextTry(tries, None, None), held)
        else:
            following = NextTry(
                tries,
                again,
                account.why_not(),
                wants_room=any(it.axis is Axis.THROTTLE for it in result.verdicts),
                misses=result.misses,
            )
            await episodes.record_attempt(connection, opened, following)

    async def give_up(self, terms: Sequence[FinishedTerm]) -> None:
        """Close these terms: no seats of them are given any more. Changed tasks are left out."""
        if not terms:
            return
        now = self._clock.now()
        async with self._database.transaction() as connection:
            for over in sorted(terms, key=lambda it: it.open.key):
                opened, empty = over.open, over.empty
                if await episodes.lock_revision(connection, opened.task) != over.revision:
                    continue
                if not empty:
                    await episodes.record_attempt(
                        connection, opened, NextTry(0, None, None), over.held
                    )
                    continue
                why = told(opened.reason) if opened.reason else chosen_too_late()
                if not await episodes.record_attempt(
                    connection, opened, NextTry(opened.tries, None, why)
                ):
                    continue
                sentence = seats_stayed_empty(empty, opened.seats, why)
                slot, last = opened.term.starts_at, opened.term.ends_at - 1
                decision = PlanningDecision(
                    PlanningOutcome.GIVEN_UP, sentence, opened.seats, 0, slot, last
                )
                await planning.keep_decisions(connection, [(opened.task, decision)], now)


def _retry_at(decisive: PolicyRefusal, now: int) -> int | None:
    """Return when the decisive reason says to try again; None if it does not say that."""
    if decisive.rule is ON_HOLD:  # whoever releases it has it tried at once
        return times.LATEST
    if decisive.until is None or decisive.until < now + PAUSE_FIRST:
        return None
    return decisive.until


def _displacing_instant(verdicts: Sequence[PolicyRefusal]) -> int:
    """Return when runs that are in the way may be displaced, after all time if never."""
    delays = (it.until for it in verdicts if it.axis is Axis.PREEMPT and it.until is not None)
    return min(delays, default=times.LATEST)


def search_account_of(ruling: EpisodeRuling, result: CaseResult) -> SeatSearchAccount:
    """Return the result of one case as it is reported and traced."""
    case = result.case
    return SeatSearchAccount(
        pool=ruling.pool,
        policies=ruling.policies,
        slots=case.slots,
        wanted=len(case.empty),
        taken=result.taken,
        refused={**result.reasons, **case.unable},
        verdicts=[_plain_refusal(refusal, case) for refusal in result.verdicts],
        yielding=[str(run) for part in result.parts for run in part.yielding or ()],
        held=case.held,
    )


def _plain_refusal(refusal: PolicyRefusal, case: SeatCase) -> dict[str, Any]:
    """Return a refusal as it is stored, without the internal name of the term."""
    why = refusal.reason
    sentence = Reason(why.replace(case.name, "it"), why.code, why.figures)
    return refusal.to_trace() | {"sentence": sentence}


def _decision(account: SeatSearchAccount) -> PlanningDecision:
    return PlanningDecision(
        outcome=account.outcome,
        sentence=account.summary(),
        asked=account.wanted,
        placed=len(account.taken),
        first_slot=account.slots[0],
        last_slot=account.slots[-1],
        trace=account.trace(),
    )
