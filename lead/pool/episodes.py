"""The loop over pools: gives the seats of pool tasks to nodes, by the policies of each pool.

For each pool with something due there is an episode: the policies say whose turn it is and which
nodes to ask, ``node_search.py`` asks them, and the results are written in one transaction
(``assignment.py``): ordinary tasks for the seats that were given, reasons for those that were not,
and the state of the policies. From then on each seat is a task like any other.

A notification wakes the loop, and so does the clock when the next term is due; the database is also
read every few seconds, in case a notification was lost. An episode that finds its pool changed is
rolled back and repeated, so several processes of one lead do no harm.

An unexpected error stops only the pool or the task that it concerns. It is stored as the reason,
and the work is retried after growing pauses.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import zlib
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from uuid import UUID

import structlog

from lead.exchange.user_limits import UserBounds
from lead.model.participants import ProposalSource
from lead.model.reasons import giving_seats_failed, lack_unknown, pool_has_enough, seats_lost
from lead.model.records import (
    HeldSeat,
    NextTerm,
    OpenTerm,
    PlanningDecision,
    PoolTask,
    PoolTaskCriteria,
)
from lead.planning.agenda import Limits
from lead.planning.needs import NeedsByTest
from lead.planning.unreachable import jittered_pause
from lead.policy.order.pacing import next_episode_at
from lead.policy.view import View
from lead.pool.assignment import PAUSE_FIRST, PAUSE_MAX, PAUSE_OF_GIVERS, RulingWriter, StaleEpisode
from lead.pool.episode_driver import EpisodeDriver, SeatTask
from lead.pool.membership import KnownNodes, Membership, WantedOf
from lead.pool.snapshot import EpisodeInputReader, policies_of, with_blocked_tasks
from lead.store import episodes, planning
from lead.store.failures import describe_failure
from node.model import times
from node.model.errors import ParleyError
from node.model.gaps import Gap, closed_slots, given_up
from node.model.outcomes import PlanningOutcome
from node.model.reason import Reason
from node.model.reasons import windows_over
from node.model.recurrence import SlotRange, nominal_range
from node.model.spans import normalise
from node.model.terms import due_at, next_term, slots_in, term_length
from node.model.wire.seats import SeatRequest
from node.runtime.clock import Clock, StepWatcher
from node.store import notices, pools
from node.store.database import Connection, Database, Notice
from node.store.gaps import keep_gaps
from node.store.pools import StoredPool

POLL_S = 5.0
CASES_MAX = 2000
"""Maximum number of pool tasks read at once; of each pool, when its seats are given."""
_TERMS_MAX = 1000
_PHASES = 120

RetryScheduler = Callable[[Connection, int, Reason], Awaitable[None]]
"""Schedules a retry for an instant (µs), with the reason for which it is needed."""

log = structlog.get_logger()


@dataclass(frozen=True)
class SeatDependencies:
    """The functions of the node that the loop uses.

    ``resources`` are the counted resources that runs of some test may need. ``users`` has the
    limits of this host for users. ``learn_uses()`` asks other leads what the campaigns that they
    share have used.
    ``take_back(task, reason)`` ends the ordinary task of a seat.
    """

    known: KnownNodes
    wanted_of: WantedOf
    needs: NeedsByTest
    resources: Collection[str]
    users: UserBounds
    learn_uses: Callable[[], Awaitable[None]]
    participant_of: Callable[[str], ProposalSource]
    seat_task: SeatTask
    take_back: Callable[[UUID, str], Awaitable[bool]]


def input_reader(
    database: Database, clock: Clock, limits: Limits, dependencies: SeatDependencies
) -> EpisodeInputReader:
    """Return what reads the input of episodes, for the loop and for those who preview it."""
    return EpisodeInputReader(
        database,
        clock,
        limits,
        dependencies.needs,
        dependencies.resources,
        dependencies.users,
    )


@dataclass(frozen=True)
class EpisodeLimits:
    """The bounds of the loop; ``limits`` are those of planning, ``clock_limit`` is in microseconds.

    ``phase`` (µs) delays the instants at which this lead gives seats (:func:`phase_of`).
    """

    limits: Limits
    clock_limit: int
    poll_s: float = POLL_S
    phase: int = 0


class EpisodeLoop:
    """Gives the seats of pool tasks to nodes."""

    def __init__(
        self,
        database: Database,
        clock: Clock,
        bounds: EpisodeLimits,
        dependencies: SeatDependencies,
        rng: random.Random,
        steps: StepWatcher,
    ) -> None:
        """``rng`` draws the pauses before retries; ``steps`` says how far to trust the clock."""
        limits = bounds.limits
        self._database = database
        self._clock = clock
        self._limits = limits
        self._dependencies = dependencies
        self._rng = rng
        self._steps = steps
        self._poll_s = bounds.poll_s
        self._phase = bounds.phase
        self._assignment = RulingWriter(database, clock, limits.horizon, bounds.phase, rng)
        self._snapshots = input_reader(database, clock, limits, dependencies)
        self._driver = EpisodeDriver(
            clock, bounds.clock_limit, dependencies.participant_of, dependencies.seat_task, rng
        )
        self._woken = asyncio.Event()
        self._recheck_at: int | None = 0
        self._known = Membership({}, [], dependencies.wanted_of)
        self._faults: Counter[str] = Counter()
        """Number of consecutive failures, by pool or task."""
        self._begun: dict[str, int] = {}
        """Start of the last episode of each pool, in monotonic time."""

    def on_notice(self, notice: Notice) -> None:
        """Wake up when pools, reservations, campaigns, nodes, or seats have changed.

        Also when notifications may have been lost.
        """
        if notice.kind in {"pool", "campaign", "node", "reservation", "wake"}:
            self._recheck_at = 0
            self._woken.set()
        if notice.kind == "seats":
            self._woken.set()

    async def run(self) -> None:
        """Give seats until cancelled."""
        while True:
            try:
                pause = await self.run_once()
            except ParleyError as error:
                log.warning("cannot give seats", error=error.detail)
                pause = self._poll_s
            except Exception:
                log.exception("cannot give seats")
                pause = self._poll_s
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._woken.wait()
            self._woken.clear()

    async def run_once(self) -> float:
        """Begin the terms that are due and run an episode of each pool with something due.

        Returns the seconds until more may be due. Changes of pools and nodes are handled between
        two episodes: many seats may have to be given, and only to nodes that are up.
        """
        if doubt := self._steps.doubt:
            return min(self._poll_s, doubt / times.SECOND)
        if self._recheck_at is not None and self._recheck_at <= self._clock.now():
            await self._recheck_seats()
        await self._empty_lost_seats()
        more = await self._open_terms()
        if await self._run_episodes() or more:
            return 0.0
        async with self._database.connection() as connection:
            # Also without an episode misses end: the task does, or the start is over.
            await episodes.notify_of_misses(connection, self._clock.now())
            due = await episodes.next_due_at(connection)
        instants = [at for at in (due, self._recheck_at) if at is not None]
        if not instants:
            return self._poll_s
        return min(self._poll_s, max(0.0, (min(instants) - self._clock.now()) / times.SECOND))

    async def _membership(self) -> Membership:
        async with self._database.connection() as connection:
            listed = await pools.find_all(connection)
        nodes = await self._dependencies.known()
        self._known = self._known.refreshed_membership({pool.name: pool for pool in listed}, nodes)
        return self._known

    async def _recheck_seats(self) -> None:
        """Take seats from nodes that cannot keep them, store what pools lack, and retry all."""
        self._recheck_at = None
        async with self._database.connection() as connection:
            asking = {each.task: each for each in await episodes.active_criteria(connection)}
            sitting = await episodes.held_seats(connection, self._clock.now()) if asking else []
        if not asking:
            return
        membership = await self._membership()
        now = self._clock.now()
        again = [membership.next_unreachable_at(now)]

        async def schedule_retry(_: Connection, at: int, why: Reason) -> None:
            del why
            again.append(at)

        for task, seats in groupby(sitting, key=lambda seat: seat.task):
            if task in asking:
                work = self._take_back(membership, asking[task], list(seats), now)
                await self._try(f"seats of {task}", [task], work, schedule_retry)
        await self._store_lacks(membership, list(asking.values()))
        if self._recheck_at is None:  # else something has changed meanwhile
            self._recheck_at = min((at for at in again if at is not None), default=None)

    async def _take_back(
        self,
        membership: Membership,
        asking: PoolTaskCriteria,
        sitting: Sequence[HeldSeat],
        now: int,
    ) -> bool:
        for seat in sitting:
            reason = membership.seat_loss_reason(asking, seat.node, now)
            if reason is not None:
                await self._dependencies.take_back(seat.seat_task, reason)
        return False

    async def _store_lacks(
        self, membership: Membership, asking: Sequence[PoolTaskCriteria]
    ) -> None:
        """Store what pools lack, in one transaction for all tasks, which may be thousands."""
        now = self._clock.now()
        lacks = {each.task: _find_lack(membership, each) for each in asking}
        async with self._database.transaction() as connection:
            new = await episodes.set_lacks(connection, lacks)
            if new:
                decided = [(task, _decision_about(lacks[task])) for task in new]
                await planning.keep_decisions(connection, decided, now)
                await notices.notify_all(connection, [("task", each, "planned") for each in new])
            await episodes.retry_all_terms(connection, now)

    async def _empty_lost_seats(self) -> list[UUID]:
        """Empty the seats whose tasks have ended, and store why; return their pool tasks."""
        now = self._clock.now()
        async with self._database.transaction() as connection:
            lost = await episodes.empty_seats_of_ended_tasks(connection, now)
            for task, of_task in groupby(lost, key=lambda seat: seat.task):
                listed = list(of_task)
                sentence = seats_lost([(it.number, it.name, it.reason) for it in listed])
                slots = [it.term for it in listed]
                decision = PlanningDecision(
                    PlanningOutcome.SEAT_LOST, sentence, len(listed), 0, min(slots), max(slots)
                )
                await planning.keep_decisions(connection, [(task, decision)], now)
        return list({seat.task for seat in lost})

    async def _open_terms(self) -> bool:
        """Begin the terms that are due; return whether there may be more of them."""
        now = self._clock.now()
        async with self._database.connection() as connection:
            due = await episodes.tasks_with_terms_to_open(connection, now, CASES_MAX)
            by_name = {pool.name: pool for pool in await pools.find_all(connection)} if due else {}
        for pool_task in due:

            async def schedule_retry(
                connection: Connection, at: int, why: Reason, pool_task: PoolTask = pool_task
            ) -> None:
                del why
                on = NextTerm(pool_task.next_slot, at, pool_task.rounds_left)
                await episodes.advance_terms(connection, pool_task.id, pool_task.next_slot or 0, on)

            work = self._open_due_terms(by_name[pool_task.pool], pool_task, now)
            await self._try(f"terms of {pool_task.id}", [pool_task.id], work, schedule_retry)
        return len(due) == CASES_MAX

    async def _open_due_terms(self, pool: StoredPool, pool_task: PoolTask, now: int) -> bool:
        request = SeatRequest.model_validate(pool_task.request)
        length = term_length(request.choice or pool.choice, pool.term)
        horizon, phase = self._limits.horizon, self._phase
        gap, following = split_closed_slots(pool_task, now + self._limits.margin, now)
        terms, on = due_terms(following, request, length, horizon, now, phase)
        async with self._database.transaction() as connection:
            if await episodes.advance_terms(connection, pool_task.id, pool_task.next_slot or 0, on):
                await episodes.open_terms(connection, terms, now)
                if gap is not None:
                    await self._record_gap(connection, pool_task.id, gap, now)
        return False

    async def _record_gap(
        self, connection: Connection, task: UUID, gap: SlotRange, now: int
    ) -> None:
        sentence = given_up(gap.slots, [gap])
        decision = PlanningDecision(PlanningOutcome.GIVEN_UP, sentence, 0, 0, gap.first, gap.last)
        told, restored = Gap(task, gap, windows_over()), self._database.was_restored
        await keep_gaps(connection, [told], now, restored=restored)
        await planning.keep_decisions(connection, [(task, decision)], now)

    async def _run_episodes(self) -> bool:
        """Run an episode for each pool with something due; return whether more is due."""
        now = self._clock.now()
        async with self._database.connection() as connection:
            due = await episodes.tasks_with_empty_seats(connection, now, CASES_MAX)
        if not due:
            return False
        membership = await self._membership()
        more = False
        for name in dict.fromkeys(pool_task.pool for pool_task in due):
            tasks = [pool_task for pool_task in due if pool_task.pool == name]
            async with self._database.connection() as connection:
                pool = membership.pools[name]
                tasks = await with_blocked_tasks(connection, pool, tasks, now, CASES_MAX)
            more |= len(tasks) == CASES_MAX
            ids = [pool_task.id for pool_task in tasks]

            async def schedule_retry(
                connection: Connection, at: int, why: Reason, ids: Sequence[UUID] = ids
            ) -> None:
                await episodes.put_off(connection, ids, now, at, why)

            work = self._run_episode(membership, name, tasks)
            more |= await self._try(f"pool {name}", ids, work, schedule_retry)
        return more

    async def _try(
        self,
        what: str,
        tasks: Sequence[UUID],
        work: Awaitable[bool],
        schedule_retry: RetryScheduler,
    ) -> bool:
        """Return the result of ``work``; if it fails, store the error with these tasks.

        ``schedule_retry(connection, at, why)`` has them tried again. If even that cannot be stored,
        the error is raised, and the whole loop retries later.
        """
        try:
            more = await work
        except Exception as error:  # noqa: BLE001 - it is stored, and logged
            await self._record_failure(what, tasks, error, schedule_retry)
            return False
        del self._faults[what]
        return more

    async def _record_failure(
        self,
        what: str,
        tasks: Sequence[UUID],
        error: Exception,
        schedule_retry: RetryScheduler,
    ) -> None:
        why = describe_failure(error, "giving seats failed")
        log.warning("giving seats failed", what=what, error=why)
        now = self._clock.now()
        pause = jittered_pause(PAUSE_FIRST, PAUSE_MAX, self._faults[what], self._rng)
        self._faults[what] += 1
        sentence = giving_seats_failed(why)
        decision = PlanningDecision.broken_off(sentence)
        async with self._database.transaction() as connection:
            await schedule_retry(connection, now + pause, sentence)
            await planning.keep_decisions(connection, [(task, decision) for task in tasks], now)
            await notices.notify_all(connection, [("task", each, "planned") for each in tasks])

    async def _run_episode(
        self, membership: Membership, pool: str, tasks: Sequence[PoolTask]
    ) -> bool:
        """Run one episode of a pool; return whether another one should follow at once.

        Some policies want a minimum interval between episodes: a task that becomes due earlier
        waits, and is decided on together with others that become due meanwhile.
        """
        if await self._is_too_soon(membership.pools[pool], tasks):
            return False
        await self._dependencies.learn_uses()
        snapshot = await self._snapshots.read(membership, membership.pools[pool], tasks)
        await self._leave_out(snapshot.broken)
        await self._assignment.give_up(snapshot.over)
        more = snapshot.left > 0
        if snapshot.cases or snapshot.closed:
            ruling, unreached = await self._driver.run(snapshot, membership)
            try:
                await self._assignment.write(ruling)
                if ruling.returned:
                    await self._give_back(ruling.returned, snapshot.view)
            except StaleEpisode:
                log.info("episode discarded, another one was faster", pool=pool)
                unreached = True
            more = more or unreached or bool(ruling.returned)
        if more:
            del self._begun[pool]  # the next episode continues this one
        return more

    async def _give_back(self, returned: Mapping[UUID, Reason], view: View) -> None:
        """End the tasks of seats that are given back, and search at once for whom they are.

        Those that had the seats wait for a moment.
        """
        for task, reason in returned.items():
            await self._dependencies.take_back(task, reason)
        givers = await self._empty_lost_seats()
        freed = [(run.start, run.end) for run in view.runs if UUID(run.task) in returned]
        now = self._clock.now()
        async with self._database.transaction() as connection:
            await episodes.put_off(connection, givers, now, now + PAUSE_OF_GIVERS)
            await episodes.retry_terms_in(connection, normalise(freed), now)

    async def _is_too_soon(self, pool: StoredPool, tasks: Sequence[PoolTask]) -> bool:
        elapsed, apart = self._clock.monotonic(), policies_of(pool).apart
        pause = next_episode_at(elapsed, self._begun.get(pool.name), apart) - elapsed
        if pause == 0:
            self._begun[pool.name] = elapsed
            return False
        now = self._clock.now()
        async with self._database.transaction() as connection:
            await episodes.put_off(connection, [task.id for task in tasks], now, now + pause)
        return True

    async def _leave_out(self, broken: Mapping[UUID, Exception]) -> None:
        """Put off tasks that cannot be read, with the error; others of their pool continue."""
        now = self._clock.now()
        for task, error in broken.items():

            async def schedule_retry(
                connection: Connection, at: int, why: Reason, task: UUID = task
            ) -> None:
                await episodes.put_off(connection, [task], now, at, why)

            await self._record_failure(f"seats of {task}", [task], error, schedule_retry)


def _find_lack(membership: Membership, asking: PoolTaskCriteria) -> Reason | None:
    """Return what its pool lacks for a task, or the error that prevents knowing it."""
    try:
        return membership.find_lack(asking)
    except Exception as error:
        log.exception("cannot say what a pool lacks", task=str(asking.task))
        return lack_unknown(repr(error))


def _decision_about(lack: Reason | None) -> PlanningDecision:
    if lack is None:
        return PlanningDecision(PlanningOutcome.GOES_ON, pool_has_enough(), 0, 0, None, None)
    return PlanningDecision(PlanningOutcome.LACKS_NODES, lack, 0, 0, None, None)


def phase_of(lead: str, horizon: int) -> int:
    """Return by how much later than due a lead gives seats: up to a minute (µs).

    Terms are due at full hours, for all leads. Two leads that search at the same instant find the
    same time; a moment later the second one sees what the first one has booked.
    """
    return zlib.crc32(lead.encode()) * times.MILLISECOND % min(times.MINUTE, horizon // _PHASES)


def split_closed_slots(
    pool_task: PoolTask, soonest: int, now: int
) -> tuple[SlotRange | None, PoolTask]:
    """Return the slots that are in no term and too late for one, and the task from then on.

    Like those of a term without nodes, they use up rounds of the task. None means that they are so
    few that a term can tell of them.
    """
    recurrence, after = pool_task.terms.recurrence, (pool_task.next_slot or 0) - 1
    gap = closed_slots(recurrence, pool_task.terms.duration, after, soonest, now)
    rounds = pool_task.rounds_left
    if gap is not None and rounds is not None:
        gap = nominal_range(recurrence, after, gap.last + 1, rounds)
    if gap is None:
        return None, pool_task
    left = None if rounds is None else rounds - gap.slots
    return gap, replace(pool_task, next_slot=gap.last + 1, rounds_left=left)


def due_terms(
    pool_task: PoolTask, request: SeatRequest, length: int, horizon: int, now: int, phase: int = 0
) -> tuple[list[OpenTerm], NextTerm]:
    """Return the terms of a task that are due, and the term that follows them."""
    recurrence = pool_task.terms.recurrence
    after, rounds = (pool_task.next_slot or 0) - 1, pool_task.rounds_left
    terms: list[OpenTerm] = []
    while (term := next_term(recurrence, length, after, rounds)) is not None:
        due = due_at(term, horizon) + phase
        if due > now or len(terms) == _TERMS_MAX:
            return terms, NextTerm(term.starts_at, max(due, now), rounds)
        over_at = term.ends_at + recurrence.slip
        terms.append(OpenTerm(pool_task.id, term, over_at, request.k))
        after = term.ends_at - 1
        if rounds is not None:
            rounds -= len(slots_in(recurrence, term))
    return terms, NextTerm(None, None, rounds)
