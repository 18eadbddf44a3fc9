"""Computes proposals: where a run could take place on this node, and what is in the way.

The occupied time is cached in memory (``model/calendar.py``) while this process learns of changes:
by notifications of the database (``schema.sql``: ``taken``, ``freed``, ``changed``, ``reserved``),
and at once of what it books itself. A late or lost notification makes a proposal outdated, but
never a booking wrong, because a hold asks the database. Before a window is refused, the database is
asked in any case.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from node.model import times
from node.model.calendar import CACHE_LIFETIME, Calendar
from node.model.classes import SchedulingClass, blockers
from node.model.host_limits.closed import LimitedTime
from node.model.lead_shares import KeptTime
from node.model.reason import Reason
from node.model.reasons import beyond_horizon, no_time_free, time_has_passed
from node.model.reservations import Applicant, ReservationSpan, inadmissible_spans, is_particular
from node.model.resources import occupied_class
from node.model.spans import Span
from node.model.timeline import (
    Booking,
    ClosedTime,
    FreeRanges,
    Occupation,
    OccupiedSpan,
    Precedence,
    TimelineQuestion,
    free_ranges,
    free_ranges_beside,
    is_below,
    obstacles,
    occupation_of,
    trim_window,
    windows_to_explain,
)
from node.model.wire.participants import (
    QUOTAS_MAX,
    RANGES_MAX,
    AboveShare,
    Closure,
    HoldAnswer,
    HostLimit,
    HostShare,
    Obstacle,
    Proposal,
    ProposalRequest,
    ResourceTaken,
    limit_obstacle,
)
from node.sharing.lead_share_use import ShareEnforcer
from node.sharing.quota_use import LimitedRequest, LimitEnforcer
from node.sharing.resources import ResourceCounter
from node.store import bookings, reservations
from node.store.bookings import HeldTask, Hold
from node.store.core import Core
from node.store.database import Connection, Notice

_SOON = 2 * times.SECOND
"""Time before its start when a run may be running already: the launcher prepares it early."""

_RANGES_TOGETHER_MAX = 100_000
"""Maximum number of free ranges in the answers to one message, beside one for each window."""

ReportedObstacle = Obstacle | Closure | AboveShare | HostLimit | ResourceTaken
"""An obstacle in a window, as a lead may know it."""


class Proposals:
    """Computes proposals for this node's time line."""

    def __init__(
        self,
        core: Core,
        shares: ShareEnforcer,
        limits: LimitEnforcer,
        resources: ResourceCounter,
    ) -> None:
        """Cache nothing before a notification has been heard; ``shares`` are those of leads."""
        self._identity = core.identity
        self._database = core.database
        self._clock = core.clock
        self._settings = core.settings
        self._shares = shares
        self._limits = limits
        self._resources = resources
        self._calendar = Calendar()
        self._listening = False
        self._reserved: list[ReservationSpan] = []
        self._reserved_at: int | None = None

    def on_notice(self, notice: Notice) -> None:
        """Update the cache with a change, or clear it if changes may have been missed."""
        match notice.kind, notice.words:
            case "taken", (priority, rank, packed):
                spans = bookings.unpack_spans(bytes.fromhex(packed))
                kind = SchedulingClass(notice.id)
                self._calendar.take(kind, int(priority), int(rank), spans)
            case (("freed" | "changed"), (end,)):
                self._calendar.give_back((int(notice.id), int(end)))
            case "reserved", _:
                self._reserved_at = None
            case (("wake" | "disconnected"), _):
                self._listening = notice.kind == "wake"
                self._calendar.clear()
                self._reserved_at = None
            case _:
                pass

    def note_booked(self, task: HeldTask, hold: Hold, answered: HoldAnswer) -> None:
        """Add what this process has just booked to the cache, so that it is not offered again.

        ``hold`` has the rank and the priority as which it counts here.
        """
        request = hold.request
        spans = {run.run: (run.starts_at, run.ends_at) for run in request.runs}
        if blockers(task.occupying):
            held = [spans[run] for run in answered.held]
            self._calendar.take(task.occupying, request.priority, hold.rank, held)
        for refusal in answered.refused:
            self._calendar.give_back(spans[refusal.run])

    async def answer(self, requests: Sequence[tuple[str, ProposalRequest]]) -> list[Proposal]:
        """Return the free ranges in the windows, for both passes, and what is in the way.

        Each request comes with the identity of the lead that asks.
        """
        now = self._clock.now()
        if not self._listening:
            self._calendar.clear()
        async with self._database.connection() as connection:
            reserved = await self._reserved_spans(connection, now)
            kept = await self._shares.time_kept_from(connection, requests, now)
            limited = await self._limits.limited_requests(connection, requests, now)
            limited = await self._resources.left_to(connection, limited, now)
            questions = self._timeline_questions(limited, reserved, kept, now)
            limited = [_with_share(it, share) for it, (_, share) in zip(limited, kept, strict=True)]
            free, runs = await self._free_and_blocking(connection, questions, now)
            if any(each.without for each in free):
                # The cache may be older than a release: compare with the database before refusing.
                self._reserved_at = None
                reserved = await self._reserved_spans(connection, now)
                questions = self._timeline_questions(limited, reserved, kept, now)
                if stale := _wrongly_full_windows(questions, free, runs):
                    for window in stale:
                        self._calendar.give_back(window)
                    free, runs = await self._free_and_blocking(connection, questions, now)
        for_some = any(is_particular(each.access) for each in reserved)
        return [
            _proposal(
                question,
                each,
                self._obstacles_for_lead(
                    limit.lead,
                    question,
                    obstacles(question, windows_to_explain(question, each), runs),
                    now,
                ),
                now,
                limit,
                for_some=for_some,
            )
            for limit, question, each in zip(limited, questions, free, strict=True)
        ]

    def _obstacles_for_lead(
        self,
        lead: str,
        question: TimelineQuestion,
        in_the_way: Iterable[tuple[int, Booking | ClosedTime]],
        now: int,
    ) -> list[ReportedObstacle]:
        """Return what is in the way of these windows, as a lead may know it."""
        return [
            AboveShare.of(window, each, question.windows[window][0], now)
            if isinstance(each, KeptTime)
            else limit_obstacle(window, each, lead)
            if isinstance(each, LimitedTime)
            else obstacle(window, each, lead, own=self._identity)
            for window, each in in_the_way
        ]

    async def _reserved_spans(self, connection: Connection, now: int) -> list[ReservationSpan]:
        """Return the reserved time up to the horizon, and beyond it for the life of the cache."""
        at = self._reserved_at
        if at is None or not self._listening or not now - CACHE_LIFETIME < at <= now:
            self._reserved_at = now  # unless it changes while it is read
            until = now + self._settings.horizon + CACHE_LIFETIME
            self._reserved = await reservations.spans_between(connection, now, until)
        return self._reserved

    def _timeline_questions(
        self,
        requests: Sequence[LimitedRequest],
        reserved: Sequence[ReservationSpan],
        kept: Sequence[tuple[Sequence[KeptTime], HostShare | None]],
        now: int,
    ) -> list[TimelineQuestion]:
        return [
            self._timeline_question(limited, reserved, [*kept_time, *limited.closed], now)
            for limited, (kept_time, _) in zip(requests, kept, strict=True)
        ]

    def _timeline_question(
        self,
        limited: LimitedRequest,
        reserved: Sequence[ReservationSpan],
        closed: Sequence[KeptTime | LimitedTime],
        now: int,
    ) -> TimelineQuestion:
        lead, request = limited.lead, limited.request
        applicant = Applicant(
            task=request.task,
            lead=lead,
            own=lead == self._identity,
            campaign=request.campaign,
            test=request.test,
            scheduling_class=request.scheduling_class,
            priority=request.priority,
            pool_task=request.pool_task,
        )
        return TimelineQuestion(
            windows=request.windows,
            scheduling_class=occupied_class(
                request.scheduling_class, keeps_only=request.keeps_only
            ),
            duration=request.duration,
            priority=request.priority,
            earliest=now + self._settings.start_margin,
            latest=now + self._settings.horizon,
            closed=[
                *([] if request.keeps_only else inadmissible_spans(applicant, reserved)),
                *closed,
            ],
            yielding=None if request.yielding is None else frozenset(request.yielding),
            rank=limited.rank,
            left_out=None if request.leaving_out is None else (request.leaving_out, lead),
            partly=bool(request.partly),
            taken=limited.taken,
        )

    async def _free_and_blocking(
        self, connection: Connection, questions: Sequence[TimelineQuestion], now: int
    ) -> tuple[list[FreeRanges], list[Booking]]:
        """Return the free ranges by question, and the runs in windows whose obstacle is wanted."""
        free = await self._free_ranges(connection, questions, now)
        told = [
            question.windows[index]
            for question, each in zip(questions, free, strict=True)
            for index in windows_to_explain(question, each)
        ]
        if not told:
            return free, []
        fixed_before = now + self._settings.start_margin
        return free, await bookings.blocking_runs(connection, told, fixed_before)

    async def _free_ranges(
        self, connection: Connection, questions: Sequence[TimelineQuestion], now: int
    ) -> list[FreeRanges]:
        fixed_before = now + self._settings.start_margin
        windows = list(_blockable_windows(questions))
        try:
            if missing := self._calendar.missing_spans(windows, now):
                occupied = await bookings.occupied_spans(connection, missing, fixed_before)
                self._calendar.read(missing, occupied, now)
            staying: list[OccupiedSpan] = []
            soon = fixed_before - 1, fixed_before + _SOON
            if _needs_database(questions, self._calendar.occupied_spans([soon]), soon):
                staying = await bookings.occupied_spans(connection, [soon], fixed_before)
            occupation = Occupation([*self._calendar.occupied_spans(windows), *staying])
            found: list[FreeRanges] = []
            room = _RANGES_TOGETHER_MAX
            for question in questions:
                most = min(room, RANGES_MAX)
                each = (
                    await _free_ranges_by_run(connection, question, fixed_before, most)
                    if question.names_runs
                    else free_ranges(question, occupation, most)
                )
                found.append(each)
                room -= len(each.free) + len(each.free_displacing)
            return found
        finally:
            self._calendar.caught_up()


async def _free_ranges_by_run(
    connection: Connection, question: TimelineQuestion, fixed_before: int, ranges_max: int
) -> FreeRanges:
    """Return what is free if named runs give way or count for nothing.

    The cache does not know single runs.
    """
    windows = [window for window in question.windows if window[0] < window[1]]
    runs = await bookings.blocking_runs(connection, windows, fixed_before)
    return free_ranges_beside(question, runs, ranges_max)


def _needs_database(
    questions: Iterable[TimelineQuestion], occupied: Sequence[OccupiedSpan], soon: Span
) -> bool:
    """Return whether a run of low priority may stay because it has begun or is about to.

    The cache does not know which runs these are, so the database must be asked then.
    """
    return any(
        each.scheduling_class in blockers(question.scheduling_class)
        and is_below(each, question.precedence)
        and any(start < soon[1] and soon[0] < end for start, end in each.spans)
        for question in questions
        if any(window[0] < soon[1] for window in question.windows)
        for each in occupied
    )


def _blockable_windows(questions: Iterable[TimelineQuestion]) -> Iterable[Span]:
    """Return the windows, cut to the bookable time, of runs that others can block."""
    return (
        cut
        for question in questions
        if blockers(question.scheduling_class)
        for window in question.windows
        if (cut := trim_window(question, window))[0] < cut[1]
    )


def _with_share(limited: LimitedRequest, share: HostShare | None) -> LimitedRequest:
    """Return a request that tells the share of its lead, too, if it tells anything."""
    if share is None or limited.quotas is None or len(limited.quotas) == QUOTAS_MAX:
        return limited
    return replace(limited, quotas=(*limited.quotas, share))


def _full_windows(question: TimelineQuestion, free: FreeRanges) -> list[Span]:
    return [question.windows[index] for index in free.without]


def _wrongly_full_windows(
    questions: Sequence[TimelineQuestion], free: Sequence[FreeRanges], runs: Sequence[Booking]
) -> list[Span]:
    """Return the windows that are full by the cache, though the booked runs leave time free."""
    occupation = occupation_of(runs)
    stale: list[Span] = []
    for question, each in zip(questions, free, strict=True):
        windows = _full_windows(question, each)
        again = replace(question, windows=windows)
        left = (
            free_ranges_beside(again, runs)
            if question.names_runs
            else free_ranges(again, occupation)
        )
        full = set(left.without)
        stale += [window for index, window in enumerate(windows) if index not in full]
    return stale


def _proposal(
    question: TimelineQuestion,
    free: FreeRanges,
    in_the_way: Sequence[ReportedObstacle],
    now: int,
    limited: LimitedRequest,
    *,
    for_some: bool,
) -> Proposal:
    return Proposal(
        now=now,
        horizon=question.latest,
        free=tuple(free.free),
        free_displacing=(
            None if free.free_displacing == free.free else tuple(free.free_displacing)
        ),
        obstacles=tuple(in_the_way),
        reason=None if free.free_displacing else _why_no_time(question, in_the_way),
        particular=for_some or limited.binds,
        quotas=limited.quotas,
        precedence=_told_precedence(limited.request, question),
    )


def _told_precedence(request: ProposalRequest, question: TimelineQuestion) -> Precedence | None:
    """Return the precedence of a preview's runs; None where only named runs may give way."""
    return question.precedence if request.preview and request.yielding is None else None


def obstacle(
    window: int, each: Booking | ReservationSpan, lead: str, *, own: str
) -> Obstacle | Closure:
    """Describe the run or the reservation that is in the way of a window, as a lead may know it.

    This node itself, whose identity is ``own``, may know everything; another lead what it leads.
    """
    if isinstance(each, ReservationSpan):
        return Closure.of(window, each)
    described = Obstacle(
        window=window,
        run=each.run,
        task=each.task,
        test=each.test,
        scheduling_class=each.scheduling_class,
        priority=each.priority,
        starts_at=each.starts_at,
        ends_at=each.ends_at,
        spared=each.spared_as is not None,
    )
    return described if lead in (own, each.lead) else described.anonymous()


def _why_no_time(question: TimelineQuestion, in_the_way: Sequence[ReportedObstacle]) -> Reason:
    """Return why no window has time: reservations, runs, or the bounds of the question."""
    if in_the_way:
        return no_time_free(question.duration, in_the_way[0].why())
    if all(window[1] <= question.earliest + question.duration for window in question.windows):
        return no_time_free(question.duration, time_has_passed())
    return no_time_free(question.duration, beyond_horizon(question.latest))
