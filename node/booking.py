"""This node's side of booking: proposals, holds, commits, releases, and holds that run out.

The same object serves the participant API (another node leads) and the lead on this host (called
directly). Every answer is a wire document. A hold is one transaction: it books what it can and says
run by run what it refused, and by what.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from uuid import UUID

import structlog

from node.clock import Clock
from node.model.digests import fingerprint
from node.model.errors import Conflict, NotAllowed, NotFound, ParleyError
from node.model.timeline import Booking, Question, answer
from node.model.times import format_duration, to_the_second
from node.model.wire.participants import (
    CommitAnswer,
    CommitRequest,
    DecisionAnswer,
    Differences,
    DigestRequest,
    HoldAnswer,
    HoldRequest,
    Obstacle,
    Proposal,
    ProposalRequest,
    Refusal,
    RunRequest,
)
from node.model.wire.tasks import PRIORITY_MAX
from node.settings import Settings
from node.store import bookings
from node.store.bookings import ExpiredHold, HeldTask
from node.store.database import Connection, Database

log = structlog.get_logger()


class TimeLine:
    """This node's time line, as those who book on it see it."""

    def __init__(
        self,
        database: Database,
        clock: Clock,
        settings: Settings,
        needs_port: Callable[[HeldTask, str], bool],
        rng: random.Random,
    ) -> None:
        """``needs_port(task, tool)`` says whether this node must give out a port for its part."""
        self._database = database
        self._clock = clock
        self._settings = settings
        self._needs_port = needs_port
        self._rng = rng

    async def propose(self, request: ProposalRequest) -> Proposal:
        """The free ranges inside the windows, for both passes, and what stands in the way."""
        now = self._clock.now()
        question = Question(
            windows=request.windows,
            scheduling_class=request.scheduling_class,
            duration=request.duration,
            priority=request.priority,
            earliest=now + self._settings.start_margin,
            latest=now + self._settings.horizon,
        )
        start = max(min(window[0] for window in request.windows), question.earliest)
        end = min(max(window[1] for window in request.windows), question.latest)
        found: list[Booking] = []
        if start < end:
            async with self._database.connection() as connection:
                found = await bookings.blocking_runs(connection, start, end, question.earliest)
        answered = answer(question, found)
        return Proposal(
            now=now,
            horizon=question.latest,
            free=tuple(answered.free),
            free_displacing=(
                None
                if answered.free_displacing == answered.free
                else tuple(answered.free_displacing)
            ),
            obstacles=tuple(_obstacle(index, booking) for index, booking in answered.obstacles),
            reason=None
            if answered.free_displacing
            else _nothing_free(question, answered.obstacles),
        )

    async def hold(self, exchange: UUID, lead: str, request: HoldRequest) -> HoldAnswer:
        """Book these runs until the lead decides; a repeat gets the same answer.

        :raises NotFound: the task was never made known here.
        :raises Conflict: it is over, led by somebody else, or the lease epoch is old.
        """
        return await self._database.settle(
            lambda connection: self._hold(connection, exchange, lead, request)
        )

    async def _hold(
        self, connection: Connection, exchange: UUID, lead: str, request: HoldRequest
    ) -> HoldAnswer:
        now = self._clock.now()
        task = await bookings.accept_epoch(connection, lead, request)
        if task is None:
            standing = await bookings.task_standing(connection, request.task)
            raise _not_bookable(request, lead, standing)
        if not await bookings.open_exchange(connection, exchange, request, now):
            return await _kept_answer(connection, exchange, request.task)
        answered = await self._book(connection, exchange, task, request, now)
        await bookings.keep_answer(
            connection, exchange, request.tool, request.task, answered.model_dump(mode="json")
        )
        return answered

    async def _book(
        self,
        connection: Connection,
        exchange: UUID,
        task: HeldTask,
        request: HoldRequest,
        now: int,
    ) -> HoldAnswer:
        earliest = now + self._settings.start_margin
        latest = now + self._settings.horizon
        in_time = [run for run in request.runs if run.starts_at >= now and run.ends_at <= latest]
        set_aside = 0
        if any(run.displacing for run in in_time):
            set_aside = await bookings.set_aside(connection, task, request, earliest, now)
        waited = {}
        if task.led_here:
            waited = await bookings.take_waiting(connection, [run.run for run in request.runs])
        held = await bookings.book(connection, exchange, task, request, in_time, now)
        if left := {run: reason for run, reason in waited.items() if run not in held}:
            await bookings.give_back_waiting(connection, request.task, task, request, left, now)
        refused = [run for run in request.runs if run.run not in held]
        if set_aside and refused:
            lost = await bookings.restore(connection, [run.run for run in refused], now)
            await bookings.tell_leads(connection, lost, now)
        return HoldAnswer(
            held=tuple(run.run for run in request.runs if run.run in held),
            refused=await self._refusals(connection, task, request, refused, now),
            data=await self._data(connection, task, request.tool) if held else {},
            set_aside=set_aside,
        )

    async def _refusals(
        self,
        connection: Connection,
        task: HeldTask,
        request: HoldRequest,
        refused: Sequence[RunRequest],
        now: int,
    ) -> tuple[Refusal, ...]:
        if not refused:
            return ()
        start = min(run.starts_at for run in refused)
        end = max(run.ends_at for run in refused)
        found = await bookings.blocking_runs(
            connection, start, end, now + self._settings.start_margin
        )
        whatever = Question(
            windows=[(run.starts_at, run.ends_at) for run in refused],
            scheduling_class=task.scheduling_class,
            duration=task.duration,
            priority=-PRIORITY_MAX - 1,
            earliest=now,
            latest=end,
        )
        staying = dict(answer(replace(whatever, priority=request.priority), found).obstacles)
        there = dict(answer(whatever, found).obstacles)
        in_the_way = {
            index: booking
            for index, run in enumerate(refused)
            if (booking := (staying if run.displacing else there).get(index)) is not None
        }
        return tuple(
            Refusal(
                run=run.run,
                reason=_why_refused(run, in_the_way.get(index), now, now + self._settings.horizon),
                obstacle=_obstacle(index, in_the_way[index]) if index in in_the_way else None,
            )
            for index, run in enumerate(refused)
        )

    async def _data(self, connection: Connection, task: HeldTask, tool: str) -> dict[str, int]:
        """What this participant adds: a port no other exchange uses, if its tool needs one."""
        if not self._needs_port(task, tool):
            return {}
        used = await bookings.ports_in_use(connection)
        every = range(self._settings.port_first, self._settings.port_last + 1)
        free = [port for port in every if port not in used]
        return {"port": self._rng.choice(free or every)}

    async def commit(self, exchange: UUID, request: CommitRequest) -> CommitAnswer:
        """Keep these runs, drop the rest; what was set aside for the kept ones is displaced."""
        return await self._database.settle(
            lambda connection: self._commit(connection, exchange, request)
        )

    async def _commit(
        self, connection: Connection, exchange: UUID, request: CommitRequest
    ) -> CommitAnswer:
        now = self._clock.now()
        found = await bookings.commit_exchange(connection, exchange, request.data, now)
        if found is None:
            known = await bookings.exchange_answer(connection, exchange)
            return CommitAnswer(late=known is None or known[0] != "committed")
        task, led_here = found
        dropped = await bookings.drop_runs(
            connection, exchange, request.runs, now, led_here=led_here
        )
        lost = await bookings.restore(connection, dropped, now)
        lost += await bookings.displace(connection, exchange, now)
        await bookings.tell_leads(connection, lost, now)
        await bookings.notify(connection, "exchange", exchange, task, "committed")
        return CommitAnswer()

    async def check_lead(self, exchange: UUID, sender: str, task: UUID | None = None) -> None:
        """Only who leads the task of an exchange decides on it; ``task`` if it is not known yet.

        :raises NotAllowed: somebody else asked.
        """
        async with self._database.connection() as connection:
            lead = await bookings.lead_of_exchange(connection, exchange, task)
        if lead is not None and lead != sender:
            msg = f"exchange {exchange} is led by another node"
            raise NotAllowed(msg)

    async def release(self, exchange: UUID, task: UUID) -> None:
        """Drop a hold; its time is free at once. Harmless if it is not held, or not yet."""
        await self._database.settle(lambda connection: self._release(connection, exchange, task))

    async def _release(self, connection: Connection, exchange: UUID, task: UUID) -> None:
        now = self._clock.now()
        await bookings.refuse_exchange(connection, exchange, task, now)
        found = await bookings.release_exchange(connection, exchange, now)
        if found is None:
            return
        dropped = await bookings.drop_runs(connection, exchange, (), now, led_here=found[1])
        lost = await bookings.restore(connection, dropped, now)
        await bookings.tell_leads(connection, lost, now)

    async def decision(self, exchange: UUID) -> DecisionAnswer:
        """As lead: what became of an exchange. What is unknown is aborted."""
        async with self._database.connection() as connection:
            found = await bookings.decision(connection, exchange, self._clock.now())
        if found is None:
            return DecisionAnswer(state="aborted")
        commit = None if found[1] is None else CommitRequest.model_validate(found[1])
        return DecisionAnswer(state=found[0], commit=commit)

    async def compare(self, lead: str, request: DigestRequest) -> Differences:
        """Of the lead's tasks: those unknown or over here, and those whose runs differ."""
        asked = {digest.task: digest for digest in request.tasks}
        async with self._database.connection() as connection:
            known = await bookings.runs_to_come(
                connection, list(asked), lead, request.now, request.until
            )
        differing = {}
        ended = {}
        for task, digest in asked.items():
            state, runs = known.get(task, ("unknown", []))
            if state not in {"active", "paused"}:
                ended[task] = state
            elif fingerprint(runs) != digest.fingerprint:
                differing[task] = tuple(runs)
        return Differences(tasks=differing, ended=ended)


class HoldKeeper:
    """Asks the leads of holds that ran out for their decision (presumed abort)."""

    def __init__(
        self,
        time_line: TimeLine,
        database: Database,
        clock: Clock,
        ask: Callable[[str, UUID], Awaitable[CommitRequest | str | None]],
    ) -> None:
        """``ask(lead, exchange)`` gives the commit, "aborted", "open", or None: unreachable."""
        self._time_line = time_line
        self._database = database
        self._clock = clock
        self._ask = ask

    async def run_once(self) -> int:
        """Settle the holds whose life is over; how many were settled."""
        async with self._database.connection() as connection:
            expired = await bookings.expired_holds(connection, self._clock.now())
        return sum(await asyncio.gather(*(self._settle(hold) for hold in expired)))

    async def _settle(self, hold: ExpiredHold) -> bool:
        """Do what the lead has decided; one that gives no decision is waited for, up to a point."""
        try:
            decision = await self._ask(hold.lead, hold.exchange)
        except ParleyError as error:
            log.info("no decision on a hold", exchange=str(hold.exchange), error=error.detail)
            decision = None
        life = hold.expires_at - hold.held_at
        if isinstance(decision, CommitRequest):
            await self._time_line.commit(hold.exchange, decision)
        elif decision == "aborted" or self._clock.now() >= hold.expires_at + life * 3 // 4:
            # A quarter of the life is kept back so that the hold is gone before twice its life.
            await self._time_line.release(hold.exchange, hold.task)
        else:
            return False
        await self._plan_again(hold.task)
        return True

    async def _plan_again(self, task: UUID) -> None:
        """A hold runs out when whoever negotiated is gone: its lead plans the slots anew."""
        async with self._database.transaction() as connection:
            if await bookings.wake_waiting(connection, task, self._clock.now()):
                await bookings.notify(connection, "task", task, "plan")


async def _kept_answer(connection: Connection, exchange: UUID, task: UUID) -> HoldAnswer:
    known = await bookings.exchange_answer(connection, exchange)
    if known is not None and known[2] != task:
        msg = "this exchange is about another task; open another"
        raise Conflict(msg)
    if known is None or known[0] == "released":
        msg = "this exchange has been released; open another"
        raise Conflict(msg)
    return HoldAnswer.model_validate(known[1])


def _not_bookable(
    request: HoldRequest, lead: str, standing: tuple[str, str, int, int] | None
) -> Conflict | NotFound:
    if standing is None:
        return NotFound(f"task {request.task} was never made known here; introduce it first")
    state, known_lead, epoch, revision = standing
    if known_lead != lead:
        return Conflict(f"task {request.task} is led by another node")
    if state != "active":
        return Conflict(f"task {request.task} is {state} here")
    if revision < request.revision:
        return NotFound(f"task {request.task} is known here as it was before its last change")
    if revision > request.revision:
        return Conflict(f"task {request.task} has been changed since, revision {revision} is known")
    return Conflict(f"lease epoch {request.lease_epoch} is older than {epoch}, which is known here")


def _obstacle(window: int, booking: Booking) -> Obstacle:
    return Obstacle(
        window=window,
        run=booking.run,
        task=booking.task,
        test=booking.test,
        scheduling_class=booking.scheduling_class,
        priority=booking.priority,
        starts_at=booking.starts_at,
        ends_at=booking.ends_at,
    )


def _nothing_free(question: Question, obstacles: Sequence[tuple[int, Booking]]) -> str:
    needed = f"no {format_duration(question.duration)} free"
    if obstacles:
        return f"{needed}: busy with {_obstacle(*obstacles[0]).in_words()}"
    if all(window[1] <= question.earliest + question.duration for window in question.windows):
        return f"{needed}: the time asked for has passed or is too close"
    return f"{needed}: beyond this node's horizon, {to_the_second(question.latest)}"


def _why_refused(run: RunRequest, booking: Booking | None, now: int, latest: int) -> str:
    if run.starts_at < now:
        return "its start has passed"
    if run.ends_at > latest:
        return f"it ends beyond this node's horizon, {to_the_second(latest)}"
    if booking is None:
        return "its time was taken a moment ago"
    return f"its time was just taken by {_obstacle(0, booking).in_words()}"
