"""This node's side of booking: proposals, holds, commits, releases, and holds that run out.

The same object serves the participant API (another node leads) and the lead on this host (called
directly). Every answer is a wire document. A hold is one transaction: it books what it can and says
run by run what it refused, and by what.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from uuid import UUID

import structlog

from node.batching import Batcher
from node.core import Core
from node.model import ports
from node.model.digests import fingerprint
from node.model.errors import Conflict, NotAllowed, NotFound, ParleyError
from node.model.reservations import Applicant, ReservationSpan, inadmissible_spans
from node.model.timeline import Booking, TimelineQuestion, answer_question
from node.model.times import to_the_second
from node.model.wire.participants import (
    DIFFERENCES_MAX,
    Closure,
    CommitAnswer,
    CommitRequest,
    DecisionAnswer,
    Differences,
    DigestRequest,
    HoldAnswer,
    HoldRequest,
    Proposal,
    ProposalRequest,
    Refusal,
    RunRequest,
)
from node.model.wire.tasks import PRIORITY_MAX
from node.store import bookings, reservations
from node.store.bookings import ExchangeRuling, ExchangeStatus, ExpiredHold, HeldTask, Hold, Wanted
from node.store.database import Connection, Notice
from node.timetable.proposals import Proposals, obstacle
from node.timetable.superseding import supersede

_EXPIRED_MAX = 200
"""So many holds are settled at the same time."""

_RUNS_AT_ONCE = 2048
"""Most runs booked or decided in one transaction: it must not keep others waiting for long."""

log = structlog.get_logger()


class TimeLine:
    """This node's time line, as those who book on it see it."""

    def __init__(
        self,
        core: Core,
        needs_port: Callable[[HeldTask, str], int],
        rng: random.Random,
    ) -> None:
        """``needs_port(task, tool)`` returns how many consecutive ports this node must assign."""
        self._database = core.database
        self._clock = core.clock
        self._settings = core.settings
        self._needs_port = needs_port
        self._rng = rng
        self._offers = Proposals(core)
        self._proposals = Batcher(self._offers.answer)
        self._holds = Batcher(
            self._hold_all,
            weight=lambda hold: len(hold.request.runs),
            weight_max=_RUNS_AT_ONCE,
            apart=lambda hold: (hold.exchange, hold.request.task, *hold.runs),
        )
        self._rulings = Batcher(
            self._rule_all,
            weight=lambda ruling: len(ruling.commit.runs) if ruling.commit else 1,
            weight_max=_RUNS_AT_ONCE,
            apart=lambda ruling: (ruling.exchange,),
        )

    async def propose(self, lead: str, request: ProposalRequest) -> Proposal:
        """The free ranges inside the windows, for both passes, and what stands in the way.

        ``lead`` is the identity of the node that asks.
        """
        return await self._proposals.ask((lead, request))

    def heard(self, notice: Notice) -> None:
        """Something has changed on this node."""
        self._offers.heard(notice)

    async def hold(self, exchange: UUID, lead: str, request: HoldRequest) -> HoldAnswer:
        """Book these runs until the lead decides; a repeat gets the same answer.

        :raises NotFound: the task was never made known here.
        :raises Conflict: it is over, led by somebody else, or the lease epoch is old.
        """
        return await self._holds.ask(Hold(exchange, lead, request))

    async def _hold_all(self, holds: Sequence[Hold]) -> list[HoldAnswer | ParleyError]:
        fresh: dict[UUID, HeldTask] = {}

        async def hold(connection: Connection) -> list[HoldAnswer | ParleyError]:
            fresh.clear()
            return await self._hold_in(connection, holds, fresh)

        answers = await self._database.settle(hold)
        for each, answered in zip(holds, answers, strict=True):
            if each.exchange in fresh and isinstance(answered, HoldAnswer):
                self._offers.booked(fresh[each.exchange], each.request, answered)
        return answers

    async def _hold_in(
        self, connection: Connection, holds: Sequence[Hold], new: dict[UUID, HeldTask]
    ) -> list[HoldAnswer | ParleyError]:
        """``new`` gets the exchanges that were not there before, each with its task."""
        now = self._clock.now()
        tasks = await bookings.accept_epochs(connection, holds)
        accepted = [hold for hold in holds if hold.request.task in tasks]
        opened = await bookings.open_exchanges(connection, accepted, now)
        fresh = [(hold, tasks[hold.request.task]) for hold in accepted if hold.exchange in opened]
        answers: dict[UUID, HoldAnswer | ParleyError] = {}
        if fresh:
            booked = await self._book(connection, fresh, now)
            kept = {exchange: each.model_dump(mode="json") for exchange, each in booked.items()}
            await bookings.keep_answers(connection, kept)
            answers |= booked
            new |= {hold.exchange: task for hold, task in fresh}
        if left := [hold for hold in holds if hold.exchange not in answers]:
            answers |= await _kept_answers(connection, left, set(tasks))
        return [answers[hold.exchange] for hold in holds]

    async def _book(
        self, connection: Connection, fresh: Sequence[tuple[Hold, HeldTask]], now: int
    ) -> dict[UUID, HoldAnswer]:
        latest = now + self._settings.horizon
        needing = self._needing(fresh)
        rows = await self._rows(connection, needing)
        lacking = {exchange for exchange, port in rows.items() if port is None}
        wanted: Wanted = [
            (
                hold,
                task,
                [r for r in hold.request.runs if r.starts_at >= now and r.ends_at <= latest],
            )
            for hold, task in fresh
            if hold.exchange not in lacking
        ]
        wanted, known = await supersede(connection, wanted, now)
        known = {
            **known,
            **{
                run.run: ports.no_free_ports_reason(needing[hold.exchange], self._ports)
                for hold, _ in fresh
                if hold.exchange in lacking
                for run in hold.request.runs
            },
        }
        earliest = now + self._settings.start_margin
        aside = await bookings.set_aside(connection, wanted, earliest, now)
        led = [(run, task) for hold, task in fresh if task.led_here for run in hold.request.runs]
        waited = await bookings.take_waiting(connection, [run.run for run, _ in led]) if led else {}
        held = await bookings.book(connection, wanted, now)
        if back := [
            (run, task.task, waited[run.run])
            for run, task in led
            if run.run in waited and run.run not in held
        ]:
            await bookings.give_back_waiting(connection, back, now)
        if vain := [run for run in aside if run not in held]:
            lost = await bookings.restore(connection, vain, now)
            await bookings.tell_leads(connection, lost, now)
        kept = {hold.exchange for hold, _ in fresh if held & {r.run for r in hold.request.runs}}
        data = await self._data(connection, needing, rows, kept)
        return {
            hold.exchange: HoldAnswer(
                held=tuple(run.run for run in hold.request.runs if run.run in held),
                refused=await self._refusals(connection, task, hold, held, known, now),
                data=data.get(hold.exchange, {}),
                set_aside=sum(aside[run.run] for run in hold.request.runs),
            )
            for hold, task in fresh
        }

    async def _refusals(
        self,
        connection: Connection,
        task: HeldTask,
        hold: Hold,
        held: set[UUID],
        known: Mapping[UUID, str],
        now: int,
    ) -> tuple[Refusal, ...]:
        request = hold.request
        refused = [run for run in request.runs if run.run not in held]
        if not refused:
            return ()
        windows = [(run.starts_at, run.ends_at) for run in refused]
        first, last = min(run.starts_at for run in refused), max(run.ends_at for run in refused)
        reserved = await reservations.between(connection, first, last)
        found = await bookings.blocking_runs(connection, windows, now + self._settings.start_margin)
        whatever = TimelineQuestion(
            windows=windows,
            scheduling_class=task.scheduling_class,
            duration=task.duration,
            priority=-PRIORITY_MAX - 1,
            earliest=now,
            latest=last,
            closed=inadmissible_spans(_applicant(task, hold), reserved),
        )
        named = None if request.yielding is None else frozenset(request.yielding)
        own = replace(whatever, priority=request.priority, yielding=named)
        staying = dict(answer_question(own, found).obstacles)
        there = dict(answer_question(whatever, found).obstacles)
        in_the_way = {
            index: booking
            for index, run in enumerate(refused)
            if (booking := (staying if run.displacing else there).get(index)) is not None
        }
        return tuple(
            Refusal(
                run=run.run,
                reason=known.get(run.run)
                or _why_refused(run, in_the_way.get(index), now, now + self._settings.horizon),
                obstacle=obstacle(index, in_the_way[index]) if index in in_the_way else None,
            )
            for index, run in enumerate(refused)
        )

    def _needing(self, fresh: Sequence[tuple[Hold, HeldTask]]) -> dict[UUID, int]:
        """How many ports each exchange needs here, of those whose tool needs some."""
        counted = ((hold, self._needs_port(task, hold.request.tool)) for hold, task in fresh)
        return {hold.exchange: int(count) for hold, count in counted if count}

    async def _rows(
        self, connection: Connection, needing: Mapping[UUID, int]
    ) -> dict[UUID, int | None]:
        """Where the ports begin of those that need several; they are refused if there are none."""
        several = {exchange: count for exchange, count in needing.items() if count > 1}
        if not several:
            return {}
        used = set(await bookings.ports_in_use(connection))
        return ports.consecutive_ports(several, self._ports, used, self._rng)

    async def _data(
        self,
        connection: Connection,
        needing: Mapping[UUID, int],
        rows: Mapping[UUID, int | None],
        kept: AbstractSet[UUID],
    ) -> dict[UUID, dict[str, int]]:
        """What this participant adds: ports no other exchange has, where its tool needs some."""
        given = {
            exchange: {"port": port, "ports": needing[exchange]}
            for exchange, port in rows.items()
            if port is not None and exchange in kept
        }
        single = [exchange for exchange in needing if exchange not in rows and exchange in kept]
        if not single:
            return given
        used = set(await bookings.ports_in_use(connection))
        used.update(*(range(row["port"], row["port"] + row["ports"]) for row in given.values()))
        found = ports.single_ports(single, self._ports, used, self._rng)
        return given | {exchange: {"port": port} for exchange, port in found.items()}

    @property
    def _ports(self) -> range:
        return range(self._settings.port_first, self._settings.port_last + 1)

    async def commit(
        self, exchange: UUID, request: CommitRequest, sender: str | None = None
    ) -> CommitAnswer:
        """Keep these runs, drop the rest; what was set aside for the kept ones is displaced.

        :raises NotAllowed: another node than ``sender`` leads the task.
        """
        return await self._rulings.ask(ExchangeRuling(exchange, None, request, sender))

    async def release(self, exchange: UUID, task: UUID, sender: str | None = None) -> CommitAnswer:
        """Drop a hold; its time is free at once. Harmless if it is not held, or not yet.

        :raises NotAllowed: another node than ``sender`` leads the task.
        """
        return await self._rulings.ask(ExchangeRuling(exchange, task, None, sender))

    async def _rule_all(
        self, rulings: Sequence[ExchangeRuling]
    ) -> list[CommitAnswer | ParleyError]:
        return await self._database.settle(lambda connection: self._rule_in(connection, rulings))

    async def _rule_in(
        self, connection: Connection, rulings: Sequence[ExchangeRuling]
    ) -> list[CommitAnswer | ParleyError]:
        now = self._clock.now()
        if releases := [ruling for ruling in rulings if ruling.commit is None]:
            await bookings.refuse(connection, releases, now)
        decided = await bookings.decide(connection, rulings, now)
        keep = [(r.exchange, run) for r in rulings if r.commit for run in r.commit.runs]
        dropped = []
        if led := [exchange for exchange, (_, led_here) in decided.items() if led_here]:
            dropped += await bookings.drop_led_runs(connection, led, keep, now)
        if others := [exchange for exchange, (_, led_here) in decided.items() if not led_here]:
            dropped += await bookings.drop_runs(connection, others, keep)
        lost = await bookings.restore(connection, dropped, now)
        committed = [r.exchange for r in rulings if r.commit and r.exchange in decided]
        if committed:
            lost += await bookings.displace(connection, committed, now)
        await bookings.tell_leads(connection, lost, now)
        if committed:
            notices = [("exchange", each, decided[each][0], "committed") for each in committed]
            await bookings.notify_all(connection, notices)
        left = [ruling for ruling in rulings if ruling.exchange not in decided]
        why = await _why_not_decided(connection, left) if left else {}
        return [why.get(ruling.exchange, CommitAnswer()) for ruling in rulings]

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
        differing: dict[UUID, tuple[UUID, ...]] = {}
        ended = {}
        told = 0
        for task, digest in asked.items():
            state, runs = known.get(task, ("unknown", []))
            if state not in {"active", "paused"}:
                ended[task] = state
            elif fingerprint(runs) != digest.fingerprint:
                told += len(runs)
                if not differing or told <= DIFFERENCES_MAX:
                    differing[task] = tuple(runs)
        return Differences(tasks=differing, ended=ended)


class HoldKeeper:
    """Asks the leads of holds that ran out for their decision (presumed abort)."""

    def __init__(
        self,
        core: Core,
        time_line: TimeLine,
        ask: Callable[[str, UUID], Awaitable[CommitRequest | str | None]],
    ) -> None:
        """``ask(lead, exchange)`` gives the commit, "aborted", "open", or None: unreachable."""
        self._time_line = time_line
        self._database = core.database
        self._clock = core.clock
        self._ask = ask

    async def run_once(self) -> int:
        """Settle the holds whose life is over; how many were settled.

        Where there are many, the next ones follow at once; a lead that gives no decision keeps
        nobody's holds waiting but its own.
        """
        settled, silent = 0, set[str]()
        while True:
            async with self._database.connection() as connection:
                expired = await bookings.expired_holds(
                    connection, self._clock.now(), sorted(silent), _EXPIRED_MAX
                )
            done = await asyncio.gather(*(self._settle(hold) for hold in expired))
            settled += sum(done)
            silent |= {hold.lead for hold, was in zip(expired, done, strict=True) if not was}
            if len(expired) < _EXPIRED_MAX:
                return settled

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


async def _kept_answers(
    connection: Connection, holds: Sequence[Hold], accepted: set[UUID]
) -> dict[UUID, HoldAnswer | ParleyError]:
    """What was answered before to holds that come again, and why others cannot be booked."""
    tasks = await bookings.task_standings(connection, [hold.request.task for hold in holds])
    known = await bookings.exchange_standings(connection, [hold.exchange for hold in holds])
    return {
        hold.exchange: _kept_answer(hold, known.get(hold.exchange))
        if hold.request.task in accepted
        else _not_bookable(hold.request, hold.lead, tasks.get(hold.request.task))
        for hold in holds
    }


def _kept_answer(hold: Hold, known: ExchangeStatus | None) -> HoldAnswer | ParleyError:
    if known is not None and known.task != hold.request.task:
        return Conflict("this exchange is about another task; open another")
    if known is None or known.state == "released":
        return Conflict("this exchange has been released; open another")
    return HoldAnswer.model_validate(known.answer)


async def _why_not_decided(
    connection: Connection, rulings: Sequence[ExchangeRuling]
) -> dict[UUID, CommitAnswer | ParleyError]:
    """What to say of exchanges that were not held."""
    known = await bookings.exchange_standings(connection, [each.exchange for each in rulings])
    tasks = await bookings.task_standings(connection, [r.task for r in rulings if r.task])
    answers: dict[UUID, CommitAnswer | ParleyError] = {}
    for ruling in rulings:
        standing = known.get(ruling.exchange)
        lead = standing.lead if standing else None
        if lead is None and ruling.task in tasks:
            lead = tasks[ruling.task][1]
        if lead is not None and ruling.sender not in (None, lead):
            said = f"exchange {ruling.exchange} is led by another node"
            answers[ruling.exchange] = NotAllowed(said)
        else:
            late = standing is None or standing.state != "committed"
            answers[ruling.exchange] = CommitAnswer(late=late)
    return answers


def _not_bookable(
    request: HoldRequest, lead: str, standing: tuple[str, str, int, int] | None
) -> Conflict | NotFound:
    if standing is None:
        return NotFound(f"task {request.task} was never made known here; introduce it first")
    state, known_lead, epoch, revision = standing
    if known_lead != lead:
        return Conflict(f"task {request.task} is led by another node")
    if state in {"active", "paused"} and revision < request.revision:
        return NotFound(f"task {request.task} is known here as it was before its last change")
    if state != "active":
        return Conflict(f"task {request.task} is {state} here")
    if revision > request.revision:
        return Conflict(f"task {request.task} has been changed since, revision {revision} is known")
    return Conflict(f"lease epoch {request.lease_epoch} is older than {epoch}, which is known here")


def _applicant(task: HeldTask, hold: Hold) -> Applicant:
    return Applicant(
        task=task.task,
        lead=hold.lead,
        own=task.led_here,
        campaign=task.campaign,
        test=task.test,
        scheduling_class=task.scheduling_class,
        priority=hold.request.priority,
        pool_task=task.pool_task,
    )


def _why_refused(
    run: RunRequest, each: Booking | ReservationSpan | None, now: int, latest: int
) -> str:
    if run.starts_at < now:
        return "its start has passed"
    if run.ends_at > latest:
        return f"it ends beyond this node's horizon, {to_the_second(latest)}"
    if each is None:
        return "its time was taken a moment ago"
    in_the_way = obstacle(0, each)
    if isinstance(in_the_way, Closure):
        return f"its time is {in_the_way.why()}"
    return f"its time was just taken by {in_the_way.in_words()}"
