"""This node's answers to proposals: where a run could go, and what stands in the way.

What occupies its time is kept in memory (``model/calendar.py``) while this process hears what
changes: of the database by notifications (``schema.sql``: ``taken``, ``freed``, ``changed``,
``reserved``), of what it books itself at once. A notification that comes late or never makes an
answer old, never a booking wrong: a hold asks the database. What is refused is looked up there in
any case.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from node.core import Core
from node.model import times
from node.model.calendar import CACHE_LIFETIME, Calendar
from node.model.classes import SchedulingClass, blockers
from node.model.reservations import Applicant, ReservationSpan, inadmissible_spans, is_particular
from node.model.spans import Span
from node.model.timeline import (
    Booking,
    FreeRanges,
    Occupation,
    OccupiedSpan,
    TimelineQuestion,
    free_among,
    free_ranges,
    obstacles,
    occupation_of,
    trim_window,
)
from node.model.times import format_duration, to_the_second
from node.model.wire.participants import (
    Closure,
    HoldAnswer,
    HoldRequest,
    Obstacle,
    Proposal,
    ProposalRequest,
)
from node.store import bookings, reservations
from node.store.bookings import HeldTask
from node.store.database import Connection, Notice

_SOON = 2 * times.SECOND
"""A run may have begun so long before its start: its command is made before (the launcher)."""


class Proposals:
    """Answers what is asked of this node's time line."""

    def __init__(self, core: Core) -> None:
        """Keep nothing in memory before a notification has been heard."""
        self._identity = core.identity
        self._database = core.database
        self._clock = core.clock
        self._settings = core.settings
        self._calendar = Calendar()
        self._hears = False
        self._reserved: list[ReservationSpan] = []
        self._reserved_at: int | None = None

    def heard(self, notice: Notice) -> None:
        """Keep the calendar: something has changed, or changes may have been missed."""
        match notice.kind, notice.words:
            case "taken", (priority, packed):
                spans = bookings.unpack_spans(bytes.fromhex(packed))
                self._calendar.take(SchedulingClass(notice.id), int(priority), spans)
            case (("freed" | "changed"), (end,)):
                self._calendar.give_back((int(notice.id), int(end)))
            case "reserved", _:
                self._reserved_at = None
            case (("wake" | "deaf"), _):
                self._hears = notice.kind == "wake"
                self._calendar.clear()
                self._reserved_at = None
            case _:
                pass

    def booked(self, task: HeldTask, request: HoldRequest, answered: HoldAnswer) -> None:
        """This process has booked what is held: its next answer must not offer it again."""
        spans = {run.run: (run.starts_at, run.ends_at) for run in request.runs}
        if blockers(task.scheduling_class):
            held = [spans[run] for run in answered.held]
            self._calendar.take(task.scheduling_class, request.priority, held)
        for refusal in answered.refused:
            self._calendar.give_back(spans[refusal.run])

    async def answer(self, asked: Sequence[tuple[str, ProposalRequest]]) -> list[Proposal]:
        """The free ranges inside the windows, for both passes, and what stands in the way.

        Each with the identity of the lead that asks.
        """
        now = self._clock.now()
        if not self._hears:
            self._calendar.clear()
        async with self._database.connection() as connection:
            reserved = await self._closed(connection, now)
            questions = self._questions(asked, reserved, now)
            free, there = await self._look(connection, questions, now)
            if any(each.without for each in free):
                self._reserved_at = None
                reserved = await self._closed(connection, now)
                questions = self._questions(asked, reserved, now)
                if stale := _stale(questions, free, there):
                    for window in stale:
                        self._calendar.give_back(window)
                    free, there = await self._look(connection, questions, now)
        for_some = any(is_particular(each.access) for each in reserved)
        return [
            _proposal(question, each, obstacles(question, each.without, there), now, for_some)
            for question, each in zip(questions, free, strict=True)
        ]

    async def _closed(self, connection: Connection, now: int) -> list[ReservationSpan]:
        """What is reserved up to the horizon, and as long after it as this is kept."""
        at = self._reserved_at
        if at is None or not self._hears or not now - CACHE_LIFETIME < at <= now:
            self._reserved_at = now  # unless it changes while it is read
            until = now + self._settings.horizon + CACHE_LIFETIME
            self._reserved = await reservations.between(connection, now, until)
        return self._reserved

    def _questions(
        self,
        asked: Iterable[tuple[str, ProposalRequest]],
        reserved: Sequence[ReservationSpan],
        now: int,
    ) -> list[TimelineQuestion]:
        return [self._question(lead, request, reserved, now) for lead, request in asked]

    def _question(
        self, lead: str, request: ProposalRequest, reserved: Sequence[ReservationSpan], now: int
    ) -> TimelineQuestion:
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
            scheduling_class=request.scheduling_class,
            duration=request.duration,
            priority=request.priority,
            earliest=now + self._settings.start_margin,
            latest=now + self._settings.horizon,
            closed=inadmissible_spans(applicant, reserved),
            yielding=None if request.yielding is None else frozenset(request.yielding),
        )

    async def _look(
        self, connection: Connection, questions: Sequence[TimelineQuestion], now: int
    ) -> tuple[list[FreeRanges], list[Booking]]:
        """What is free, and the runs in the windows that have nothing free."""
        free = await self._free(connection, questions, now)
        full = [window for each in zip(questions, free, strict=True) for window in _full(*each)]
        if not full:
            return free, []
        fixed_before = now + self._settings.start_margin
        return free, await bookings.blocking_runs(connection, full, fixed_before)

    async def _free(
        self, connection: Connection, questions: Sequence[TimelineQuestion], now: int
    ) -> list[FreeRanges]:
        fixed_before = now + self._settings.start_margin
        asked = list(_asked(questions))
        try:
            if missing := self._calendar.missing(asked, now):
                found = await bookings.occupied(connection, missing, fixed_before)
                self._calendar.read(missing, found, now)
            staying: list[OccupiedSpan] = []
            soon = fixed_before - 1, fixed_before + _SOON
            if _may_stay(questions, self._calendar.occupied([soon]), soon):
                staying = await bookings.occupied(connection, [soon], fixed_before)
            occupation = Occupation([*self._calendar.occupied(asked), *staying])
            return [
                await _free_if_named(connection, question, fixed_before)
                if question.yielding
                else free_ranges(question, occupation)
                for question in questions
            ]
        finally:
            self._calendar.caught_up()


async def _free_if_named(
    connection: Connection, question: TimelineQuestion, fixed_before: int
) -> FreeRanges:
    """The calendar does not tell single runs apart: where these are named, the database does."""
    windows = [window for window in question.windows if window[0] < window[1]]
    there = await bookings.blocking_runs(connection, windows, fixed_before)
    return free_among(question, there)


def _may_stay(
    questions: Iterable[TimelineQuestion], occupied: Sequence[OccupiedSpan], soon: Span
) -> bool:
    """Whether a run may stay because it has begun, or is about to, though its priority is low.

    The calendar does not tell which runs these are: the database does.
    """
    return any(
        each.scheduling_class in blockers(question.scheduling_class)
        and each.priority < question.priority
        and any(start < soon[1] and soon[0] < end for start, end in each.spans)
        for question in questions
        if any(window[0] < soon[1] for window in question.windows)
        for each in occupied
    )


def _asked(questions: Iterable[TimelineQuestion]) -> Iterable[Span]:
    return (
        cut
        for question in questions
        if blockers(question.scheduling_class)
        for window in question.windows
        if (cut := trim_window(question, window))[0] < cut[1]
    )


def _full(question: TimelineQuestion, free: FreeRanges) -> list[Span]:
    return [question.windows[index] for index in free.without]


def _stale(
    questions: Sequence[TimelineQuestion], free: Sequence[FreeRanges], there: Sequence[Booking]
) -> list[Span]:
    """Windows in which the runs that are there leave something free after all."""
    occupation = occupation_of(there)
    found: list[Span] = []
    for question, each in zip(questions, free, strict=True):
        windows = _full(question, each)
        asked = replace(question, windows=windows)
        left = free_among(asked, there) if question.yielding else free_ranges(asked, occupation)
        full = set(left.without)
        found += [window for index, window in enumerate(windows) if index not in full]
    return found


def _proposal(
    question: TimelineQuestion,
    free: FreeRanges,
    in_the_way: Sequence[tuple[int, Booking | ReservationSpan]],
    now: int,
    for_some: bool,  # noqa: FBT001 - whether time is reserved for some
) -> Proposal:
    return Proposal(
        now=now,
        horizon=question.latest,
        free=tuple(free.free),
        free_displacing=(
            None if free.free_displacing == free.free else tuple(free.free_displacing)
        ),
        obstacles=tuple(obstacle(index, each) for index, each in in_the_way),
        reason=None if free.free_displacing else _nothing_free(question, in_the_way),
        particular=for_some,
    )


def obstacle(window: int, each: Booking | ReservationSpan) -> Obstacle | Closure:
    """A run or a reservation as what stands in the way of a window."""
    if isinstance(each, ReservationSpan):
        return Closure.of(window, each)
    return Obstacle(
        window=window,
        run=each.run,
        task=each.task,
        test=each.test,
        scheduling_class=each.scheduling_class,
        priority=each.priority,
        starts_at=each.starts_at,
        ends_at=each.ends_at,
    )


def _nothing_free(
    question: TimelineQuestion, in_the_way: Sequence[tuple[int, Booking | ReservationSpan]]
) -> str:
    needed = f"no {format_duration(question.duration)} free"
    if in_the_way:
        return f"{needed}: {obstacle(*in_the_way[0]).why()}"
    if all(window[1] <= question.earliest + question.duration for window in question.windows):
        return f"{needed}: the time asked for has passed or is too close"
    return f"{needed}: beyond this node's horizon, {to_the_second(question.latest)}"
