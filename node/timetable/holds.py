"""Books the holds of an exchange: what is free, and for each refused run what is in the way.

A hold is one transaction, and many holds may share it (``node/runtime/batching.py``). Proposals are
only advice: whether a run has its time is decided by the constraint on the table of runs when it is
inserted. What must not happen is that a run which is then not booked has displaced, or used up,
what others need; the order of the steps in :meth:`HoldBooker._book` sees to that.

A hold is answered run by run. Its lead commits or releases what was held; until then, or until the
hold expires, the time is taken. A repeated hold gets the stored answer of its exchange, while the
task is active in the same revision, so that a lead may ask again if an answer was lost.

For a refused run the answer has the reason and what is in the way: that is looked up after the
booking, so that it may be gone by then.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from uuid import UUID

from node.model import ports, times
from node.model.errors import Conflict, InvalidDocument, NotFound, ParleyError
from node.model.exchangestate import ExchangeState
from node.model.hold_limits import IntroducedTask, contradiction
from node.model.host_limits.closed import LimitedTime
from node.model.lead_shares import KeptTime
from node.model.outside_leads import is_outside
from node.model.ranks import OWN, PEER
from node.model.reason import Reason
from node.model.reasons import (
    ends_beyond_horizon,
    exchange_of_another_task,
    exchange_released,
    lease_superseded,
    no_ports_free,
    revision_newer_here,
    revision_older_here,
    start_has_passed,
    taken_a_moment_ago,
    task_led_by_another,
    task_not_active_here,
    task_not_introduced,
    time_is_closed,
    told,
)
from node.model.reservations import Applicant, inadmissible_spans
from node.model.taskstate import OPEN, TaskState
from node.model.timeline import TimelineQuestion, answer_question
from node.model.wire.participants import (
    AboveShare,
    Closure,
    HoldAnswer,
    HoldRequest,
    HostLimit,
    Refusal,
    ResourceTaken,
    RunRequest,
    limit_obstacle,
)
from node.model.wire.tasks import PRIORITY_MAX
from node.runtime.settings import Settings
from node.sharing.lead_share_use import ShareEnforcer
from node.sharing.quota_use import LimitEnforcer
from node.sharing.resources import AdmittedRuns, ResourceCounter
from node.store import bookings, reservations
from node.store.bookings import ExchangeStatus, HeldTask, Hold, Wanted
from node.store.core import Core
from node.store.database import Connection
from node.timetable.proposals import ReportedObstacle, obstacle
from node.timetable.superseding import other_attempt_reasons, supersede

NewHold = tuple[Hold, HeldTask]
"""A hold whose exchange is new here, with its task."""

ToolFigure = Callable[[HeldTask, str], int]
"""``figure(task, tool)``: a number that depends on the tool with which a task is measured."""


class HoldBooker:
    """Books holds on this node's time line."""

    def __init__(  # noqa: PLR0913, PLR0917 - what is asked before a run is booked
        self,
        core: Core,
        needs_port: ToolFigure,
        duration_with: ToolFigure,
        rng: random.Random,
        shares: ShareEnforcer,
        limits: LimitEnforcer,
        resources: ResourceCounter,
    ) -> None:
        """``needs_port(task, tool)`` returns how many consecutive ports this node must assign.

        ``duration_with(task, tool)`` returns how long a run with that tool takes (microseconds).
        """
        self._shares = shares
        self._limits = limits
        self._resources = resources
        self._duration_with = duration_with
        self._identity = core.identity
        self._database = core.database
        self._clock = core.clock
        self._settings = core.settings
        self._ports = PortAssigner(core.settings, needs_port, rng)

    async def hold_all(
        self, holds: Sequence[Hold]
    ) -> tuple[list[HoldAnswer | ParleyError], dict[UUID, NewHold]]:
        """Book each hold, in one transaction that is repeated after a serialization failure.

        Returns the answers in the order of ``holds``, and by exchange those that were not repeats
        of an earlier request, with the priorities as which they count here.
        """
        return await self._database.settle(lambda connection: self.hold_in(connection, holds))

    async def hold_in(
        self, connection: Connection, holds: Sequence[Hold]
    ) -> tuple[list[HoldAnswer | ParleyError], dict[UUID, NewHold]]:
        """Book each hold within a transaction; see :meth:`hold_all`."""
        now = self._clock.now()
        tasks = await bookings.accept_epochs(connection, holds)
        known = [hold for hold in holds if hold.request.task in tasks]
        answers: dict[UUID, HoldAnswer | ParleyError] = self._contradiction_errors(known, tasks)
        accepted = [hold for hold in known if hold.exchange not in answers]
        opened = await bookings.open_exchanges(connection, accepted, now)
        new = [
            (self._with_counted_rank(hold, task), task)
            for hold in accepted
            if hold.exchange in opened
            for task in (tasks[hold.request.task],)
        ]
        if new:
            booked = await self._book(connection, new, now)
            documents = {exchange: it.model_dump(mode="json") for exchange, it in booked.items()}
            await bookings.keep_answers(connection, documents)
            answers |= booked
            if outside := [hold.exchange for hold, _ in new if is_outside(hold.lead)]:
                # They displace like any other node's, and give way to a higher priority alone.
                await bookings.raise_rank(connection, outside, OWN)
        if others := [hold for hold in holds if hold.exchange not in answers]:
            answers |= await _earlier_answers(connection, others, set(tasks))
        return [answers[hold.exchange] for hold in holds], {it[0].exchange: it for it in new}

    def _with_counted_rank(self, hold: Hold, task: HeldTask) -> Hold:
        """Return a hold with the rank and priority that the limits of this host give it."""
        budgeted = task.introduced.schedule.get("displacement_budget") is not None
        if task.led_here:
            return replace(hold, spare_priority=PRIORITY_MAX) if budgeted else hold
        asked = hold.request.priority
        counted = self._limits.counted_priority(asked, task.limit)
        ranked = replace(hold, rank=self._limits.rank(hold.lead, task.limit))
        if budgeted:
            highest = self._limits.counted_priority(PRIORITY_MAX, task.limit)
            ranked = replace(ranked, spare_priority=highest)
        if counted == asked:
            return ranked
        return replace(ranked, request=hold.request.model_copy(update={"priority": counted}))

    def _contradiction_errors(
        self, holds: Sequence[Hold], tasks: Mapping[UUID, HeldTask]
    ) -> dict[UUID, HoldAnswer | ParleyError]:
        """Return the errors of the holds that contradict the introductions of their tasks."""
        faults = {
            hold.exchange: contradiction(hold.request, self._allowed_terms(hold, tasks))
            for hold in holds
        }
        return {at: InvalidDocument([fault]) for at, fault in faults.items() if fault is not None}

    def _allowed_terms(self, hold: Hold, tasks: Mapping[UUID, HeldTask]) -> IntroducedTask:
        """Return the bounds of what a hold may ask for: duration, priority, and time.

        The lead may choose another tool than the introduced one once all participants have
        answered. A longer run is in order if it takes that long with the tool held.
        """
        task = tasks[hold.request.task]
        most = PRIORITY_MAX if task.led_here else self._settings.peer_priority_max
        introduced = replace(task.introduced, priority_max=most, any_time=is_outside(hold.lead))
        if max(run.ends_at - run.starts_at for run in hold.request.runs) <= introduced.duration:
            return introduced
        if task.participant is None and not task.led_here:
            return replace(introduced, duration=times.LATEST)  # no tool of this host measures
        longest = max(introduced.duration, self._duration_with(task, hold.request.tool))
        return replace(introduced, duration=longest)

    async def _book(
        self, connection: Connection, new: Sequence[NewHold], now: int
    ) -> dict[UUID, HoldAnswer]:
        """Book the runs of new exchanges that find time; return the answer for each exchange.

        The order of the steps is essential:

        1. Find consecutive ports. An exchange that gets none must not displace anything. Lock the
           resources that are taken, before any run.
        2. Give up earlier attempts of the same slots, because they may occupy the time.
        3. Leave out runs that the limits of this host do not admit, those in time that is kept for
           other leads, and those that find too little of a resource: they must not displace
           anything.
        4. Set aside runs that give way: the exclusion constraint counts them until then.
        5. Delete the waiting rows of slots led here: they have the ids that are inserted next.
        6. Insert the runs, and what they take. The constraints decide which ones have time.
        7. Undo steps 4 and 5 for the runs that were not inserted.

        Only then is it known who needs a single port, and what refused runs have in their way.
        """
        needed = self._ports.count_needed(new)
        first_ports = await self._ports.find_consecutive(connection, needed)
        lacking = {exchange for exchange, port in first_ports.items() if port is None}
        refused = _limit_refusals(new) | self._further_attempt_refusals(new)
        wanted = self._runs_within_horizon(
            [it for it in new if it[0].exchange not in lacking and not it[1].limit.refusal],
            refused.keys(),
            now,
        )
        numbers = await self._resources.lock(connection, new)
        wanted, superseding_reasons = await supersede(connection, wanted, now)
        wanted, limited = await self._limits.admit(connection, wanted)
        wanted, kept = await self._shares.admit(connection, wanted, now)
        admitted = await self._resources.admit(connection, wanted, numbers, now)
        wanted = admitted.wanted
        aside = await self._set_aside(connection, admitted, now)
        waiting = await _delete_waiting(connection, new)
        held = await bookings.book(connection, wanted, now)
        await self._resources.take(connection, wanted, held)
        await _restore_waiting(connection, new, waiting, held, now)
        await _restore_needlessly_set_aside(connection, aside, held, now)
        exchanges = {hold.exchange for hold, _ in new if not held.isdisjoint(hold.runs)}
        data = await self._ports.assign(connection, needed, first_ports, exchanges)
        reasons: dict[UUID, Reason | KeptTime | LimitedTime] = {
            **superseding_reasons,
            **kept,
            **limited,
            **admitted.refused,
            **self._ports.refusals(new, needed, lacking),
            **refused,
        }
        return {
            hold.exchange: HoldAnswer(
                held=tuple(run for run in hold.runs if run in held),
                refused=await self._refusals(connection, task, hold, held, reasons, now),
                data=data.get(hold.exchange, {}),
                set_aside=sum(aside[run] for run in hold.runs),
            )
            for hold, task in new
        }

    async def _set_aside(
        self, connection: Connection, admitted: AdmittedRuns, now: int
    ) -> Counter[UUID]:
        """Set aside the runs that give way, by what they take or by their time."""
        aside = await self._resources.set_aside(connection, admitted, now)
        earliest = now + self._settings.start_margin
        return aside + await bookings.set_aside(connection, admitted.wanted, earliest, now)

    def _runs_within_horizon(
        self, new: Sequence[NewHold], refused: AbstractSet[UUID], now: int
    ) -> Wanted:
        latest = now + self._settings.horizon
        return [
            (
                hold,
                task,
                [
                    r
                    for r in hold.request.runs
                    if r.starts_at >= now and r.ends_at <= latest and r.run not in refused
                ],
            )
            for hold, task in new
        ]

    def _further_attempt_refusals(self, new: Sequence[NewHold]) -> dict[UUID, Reason]:
        """Return by run why a slot whose run came to nothing is not booked again here."""
        return {
            run.run: refusal
            for hold, task in new
            if any(run.again for run in hold.request.runs)
            and (refusal := self._limits.further_attempt_refusal(task.limit)) is not None
            for run in hold.request.runs
            if run.again
        }

    async def _refusals(
        self,
        connection: Connection,
        task: HeldTask,
        hold: Hold,
        held: AbstractSet[UUID],
        reasons: Mapping[UUID, Reason | KeptTime | LimitedTime],
        now: int,
    ) -> tuple[Refusal, ...]:
        """Return the runs that were not booked, each with the reason and the run in its way.

        ``reasons`` are those known already, by run: sentences, or time that is kept for others or
        closed by limits.
        """
        request = hold.request
        refused = [run for run in request.runs if run.run not in held]
        if not refused:
            return ()
        unexplained = [run for run in refused if run.run not in reasons]
        reasons = {**await other_attempt_reasons(connection, task, unexplained), **reasons}
        windows = [(run.starts_at, run.ends_at) for run in refused]
        first, last = min(run.starts_at for run in refused), max(run.ends_at for run in refused)
        reserved = await reservations.spans_between(connection, first, last)
        runs = await bookings.blocking_runs(connection, windows, now + self._settings.start_margin)
        # A run that may not displace is blocked by every booked run, whatever its priority. Asking
        # with a rank below all that exist reports every one of them as an obstacle.
        displacing_nothing = TimelineQuestion(
            windows=windows,
            scheduling_class=task.occupying,
            duration=task.introduced.duration,
            priority=request.priority,
            earliest=now,
            latest=last,
            closed=[]
            if task.participant is None
            else inadmissible_spans(_applicant(task, hold), reserved),
            rank=PEER - 1,
        )
        yielding = None if request.yielding is None else frozenset(request.yielding)
        displacing = replace(displacing_nothing, rank=hold.rank, yielding=yielding)
        when_displacing = dict(answer_question(displacing, runs).obstacles)
        otherwise = dict(answer_question(displacing_nothing, runs).obstacles)
        in_the_way: dict[int, ReportedObstacle] = {
            index: obstacle(index, blocker, hold.lead, own=self._identity)
            for index, run in enumerate(refused)
            if (blocker := (when_displacing if run.displacing else otherwise).get(index))
            is not None
            and not isinstance(blocker, KeptTime | LimitedTime)
        }
        in_the_way |= _closures(refused, reasons, hold.lead, now)
        return tuple(
            Refusal(
                run=run.run,
                reason=known
                if isinstance(known := reasons.get(run.run), str)
                else _why_refused(run, in_the_way.get(index), now, now + self._settings.horizon),
                obstacle=in_the_way.get(index),
            )
            for index, run in enumerate(refused)
        )


class PortAssigner:
    """Chooses ports that no other exchange has, from the range that the owner has set."""

    def __init__(
        self,
        settings: Settings,
        needs_port: ToolFigure,
        rng: random.Random,
    ) -> None:
        """``needs_port(task, tool)`` returns how many consecutive ports a tool needs here."""
        self._range = settings.tool_ports
        self._needs_port = needs_port
        self._rng = rng

    def count_needed(self, new: Sequence[NewHold]) -> dict[UUID, int]:
        """Return how many ports each exchange needs, without those that need none."""
        counts = ((hold, self._needs_port(task, hold.request.tool)) for hold, task in new)
        return {hold.exchange: int(count) for hold, count in counts if count}

    async def find_consecutive(
        self, connection: Connection, needed: Mapping[UUID, int]
    ) -> dict[UUID, int | None]:
        """Return the first port for each exchange that needs several; None if there are none."""
        several = {exchange: count for exchange, count in needed.items() if count > 1}
        if not several:
            return {}
        used = set(await bookings.ports_in_use(connection))
        return ports.consecutive_ports(several, self._range, used, self._rng)

    async def assign(
        self,
        connection: Connection,
        needed: Mapping[UUID, int],
        first_ports: Mapping[UUID, int | None],
        exchanges: AbstractSet[UUID],
    ) -> dict[UUID, dict[str, int]]:
        """Return the data with the ports of these exchanges, which have at least one run each.

        ``first_ports`` is the result of :meth:`find_consecutive`.
        """
        data = {
            exchange: {"port": port, "ports": needed[exchange]}
            for exchange, port in first_ports.items()
            if port is not None and exchange in exchanges
        }
        single = [it for it in needed if it not in first_ports and it in exchanges]
        if not single:
            return data
        used = set(await bookings.ports_in_use(connection))
        used.update(*(range(it["port"], it["port"] + it["ports"]) for it in data.values()))
        chosen = ports.single_ports(single, self._range, used, self._rng)
        return data | {exchange: {"port": port} for exchange, port in chosen.items()}

    def refusals(
        self, new: Sequence[NewHold], needed: Mapping[UUID, int], lacking: AbstractSet[UUID]
    ) -> dict[UUID, Reason]:
        """Return by run why the exchanges in ``lacking``, which got no ports, are refused."""
        return {
            run: no_ports_free(needed[hold.exchange], self._range.start, self._range.stop - 1)
            for hold, _ in new
            if hold.exchange in lacking
            for run in hold.runs
        }


def _closures(
    refused: Sequence[RunRequest],
    reasons: Mapping[UUID, Reason | KeptTime | LimitedTime],
    lead: str,
    now: int,
) -> dict[int, ReportedObstacle]:
    """Return, by number of the refused run, what shares, limits, or resources close to it."""
    closed: dict[int, ReportedObstacle] = {}
    for index, run in enumerate(refused):
        match reasons.get(run.run):
            case KeptTime() as kept:
                closed[index] = AboveShare.of(index, kept, run.starts_at, now)
            case LimitedTime() as limit:
                closed[index] = limit_obstacle(index, limit, lead)
            case _:
                pass
    return closed


def _limit_refusals(new: Sequence[NewHold]) -> dict[UUID, Reason]:
    """Return by run why the rule of its task refuses it, if no rule admits the task any more."""
    return {
        run: told(task.limit.refusal)
        for hold, task in new
        if task.limit.refusal
        for run in hold.runs
    }


def _runs_led_here(new: Sequence[NewHold]) -> list[tuple[RunRequest, HeldTask]]:
    return [(run, task) for hold, task in new if task.led_here for run in hold.request.runs]


async def _delete_waiting(connection: Connection, new: Sequence[NewHold]) -> dict[UUID, str]:
    """Delete the waiting rows of slots led here; return the reasons they had, by run."""
    led = [run.run for run, _ in _runs_led_here(new)]
    return await bookings.take_waiting(connection, led) if led else {}


async def _restore_waiting(
    connection: Connection,
    new: Sequence[NewHold],
    waiting: Mapping[UUID, str],
    held: AbstractSet[UUID],
    now: int,
) -> None:
    rows = [
        (run, task.task, waiting[run.run])
        for run, task in _runs_led_here(new)
        if run.run in waiting and run.run not in held
    ]
    if rows:
        await bookings.give_back_waiting(connection, rows, now)


async def _restore_needlessly_set_aside(
    connection: Connection, aside: Counter[UUID], held: AbstractSet[UUID], now: int
) -> None:
    not_booked = [run for run in aside if run not in held]
    if not_booked:
        lost = await bookings.restore(connection, not_booked, now)
        await bookings.tell_leads(connection, lost, now)


async def _earlier_answers(
    connection: Connection, holds: Sequence[Hold], accepted: AbstractSet[UUID]
) -> dict[UUID, HoldAnswer | ParleyError]:
    """Return the stored answers to repeated holds, and the errors of those not accepted."""
    tasks = await bookings.task_standings(connection, [hold.request.task for hold in holds])
    exchanges = await bookings.exchange_standings(connection, [hold.exchange for hold in holds])
    return {
        hold.exchange: _earlier_answer_of(hold, exchanges.get(hold.exchange))
        if hold.request.task in accepted
        else _mismatch_error(hold.request, hold.lead, tasks.get(hold.request.task))
        for hold in holds
    }


def _earlier_answer_of(hold: Hold, exchange: ExchangeStatus | None) -> HoldAnswer | ParleyError:
    if exchange is not None and exchange.task != hold.request.task:
        return Conflict(exchange_of_another_task())
    if exchange is None or exchange.state is ExchangeState.RELEASED:
        return Conflict(exchange_released())
    return HoldAnswer.model_validate(exchange.answer)


def _mismatch_error(
    request: HoldRequest, lead: str, standing: tuple[TaskState, str, int, int] | None
) -> Conflict | NotFound:
    """Return the error for a hold whose task, lead, epoch, or revision does not match."""
    if standing is None:
        return NotFound(task_not_introduced(request.task))
    state, known_lead, epoch, revision = standing
    if known_lead != lead:
        return Conflict(task_led_by_another(request.task))
    if state in OPEN and revision < request.revision:
        return NotFound(revision_older_here(revision, request.task, request.revision))
    if state is not TaskState.ACTIVE:
        return Conflict(task_not_active_here(request.task, state))
    if revision > request.revision:
        return Conflict(revision_newer_here(revision, request.task, request.revision))
    return Conflict(lease_superseded(request.lease_epoch, epoch), epoch=epoch)


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
    run: RunRequest, in_the_way: ReportedObstacle | None, now: int, latest: int
) -> Reason:
    """Return why a run was not booked; without a known blocker its time was free again since."""
    if run.starts_at < now:
        return start_has_passed()
    if run.ends_at > latest:
        return ends_beyond_horizon(latest)
    if in_the_way is None:
        return taken_a_moment_ago()
    if isinstance(in_the_way, AboveShare | HostLimit | ResourceTaken):
        return in_the_way.why()
    if isinstance(in_the_way, Closure):
        return time_is_closed(in_the_way.why())
    return in_the_way.why_not_held()
