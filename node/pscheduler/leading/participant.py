"""A host that runs pScheduler as a participant of tasks led here.

It books at once and for good, keeps nothing for a while only, and tells nobody when it takes time
away. So everything that is asked of it is written first (``node/store/pscheduler_bookings.py``),
and what has to be deleted there stays written until that is certain; ``bookings.py`` repeats it.

A task there cannot be changed: each revision of ours is a task of its own, and those before it are
deleted once none of their runs is left. The same run of ours that is booked in another exchange is
another run there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NoReturn
from uuid import UUID, uuid5

import structlog

from node.client.pscheduler import JsonObject, PschedulerHost
from node.model import times
from node.model.digests import fingerprint
from node.model.errors import (
    Conflict,
    NotAllowed,
    NotFound,
    PeerFailed,
    RequestError,
)
from node.model.spans import Span, intersect, normalise
from node.model.taskstate import OPEN, UNKNOWN, TaskState
from node.model.wire.checks import Diagnosis, PeerFacts, ProbeOffer, ProbeRequest
from node.model.wire.comparisons import NodeComparison, task_comparison
from node.model.wire.host_limits import GrantedLimits
from node.model.wire.impacts import Impact, ImpactRequest
from node.model.wire.participants import (
    BookedRun,
    CommitAnswer,
    CommitRequest,
    ConfirmationAnswer,
    ConfirmationRequest,
    DecisionAnswer,
    Differences,
    DigestRequest,
    FreedTime,
    HoldAnswer,
    HoldRequest,
    IntervalsMessage,
    Introduction,
    IntroductionAnswer,
    PartMessage,
    Proposal,
    ProposalRequest,
    Refusal,
    Release,
    RunEnd,
    TaskEnd,
)
from node.model.wire.shared_campaigns import CampaignUse, CampaignUseRequest
from node.pscheduler.dialects.registry import DIALECTS
from node.pscheduler.leading.bookings import (
    LOOKED_AT_BEFORE,
    SCHEDULED_WITHIN,
    ForeignBookings,
    whole_second,
)
from node.pscheduler.leading.delegation import DELEGATED, data_of, document_of, is_delegated
from node.pscheduler.leading.membership import Memberships
from node.pscheduler.leading.translation import data_of_all
from node.pscheduler.refusals import Refusal as TextRefusal
from node.store import pscheduler_bookings as store
from node.store.core import Core
from node.store.pscheduler_bookings import (
    BookedThere,
    BookingState,
    Membership,
    MembershipState,
    NewBooking,
)

UNCERTAIN_FOR = times.MINUTE
"""Time after which a booking whose request got no answer cannot be under way any more."""
_BOOKED_BEFORE = 5 * times.SECOND
"""Least time between a booking there and its start; their own leads keep as much."""
_POSTED_BEFORE = 20 * times.SECOND
"""Least time between the post of what it leads itself and its start: its scheduler looks for new
tasks every ten seconds, and posting takes some more."""
_TOO_SOON = "what it leads itself has to be posted there 20 s before"
_ASKED_TOGETHER = times.HOUR
"""Windows that are no further apart are asked for in one question."""
_LOST = frozenset({"missed", "preempted", "canceled", "nonstart", "failed"})
"""States of a run there that is not going to take place."""
_TAKEN_BACK = "it was taken back in the meantime"

log = structlog.get_logger()


@dataclass(frozen=True)
class _Booked:
    """The outcome of one booking: the data of the host, or why it is refused."""

    data: dict[str, int] | None
    reason: str = ""


class PschedulerParticipant:
    """One host, as the lead of tasks sees it."""

    binding = True

    def __init__(
        self, core: Core, identity: str, name: str, host: PschedulerHost, bookings: ForeignBookings
    ) -> None:
        """``bookings`` takes back there what has to be taken back."""
        self.identity = identity
        self.name = name
        self._lead = core.identity
        self._database = core.database
        self._sealing = core.sealing
        self._clock = core.clock
        self._host = host
        self._bookings = bookings
        self._memberships = Memberships(core, identity, name, host)

    async def consider(self, introduction: Introduction) -> IntroductionAnswer:
        """Return whether it has a tool for the test; its limits are only known when it is asked."""
        return await self._memberships.consider(introduction)

    async def introduce(self, introduction: Introduction) -> IntroductionAnswer:
        """Post a revision of a task there, unless it stands; end the revisions before it."""
        task, now = introduction.task, self._clock.now()
        if introduction.freeing is not None:
            async with self._database.connection() as connection:
                await store.drop_freed(connection, self.identity, task, introduction.freeing, now)
        if introduction.paused_at is not None:
            await self._bookings.clear(self.identity, task)
            return await self.consider(introduction)  # it is posted once it goes on
        answer = await self._memberships.join(introduction)
        await self._bookings.clear(self.identity, task)
        return answer

    async def propose(self, request: ProposalRequest) -> Proposal:
        """Ask when it has time, once for each stretch of windows.

        Its answers are hints: only the booking shows. A host that does not know the task offers all
        in which it could book, and refuses the hold, so that the task is introduced to it again.
        """
        now = await self._now()
        horizon = await self._host.horizon()
        there = await self._memberships.find(request.task)
        soonest = now + _BOOKED_BEFORE
        free = _spans_from(soonest, request.windows)
        everything = Proposal(now=now, horizon=now + horizon, free=free)
        if _leads_itself(there, request):
            # It says whether it has time once a run is posted, and its scheduler has looked.
            free = _spans_from(now + _POSTED_BEFORE, request.windows)
            return everything.model_copy(update={"free": free, "reason": _TOO_SOON})
        if there is None or there.duration is None:
            return everything
        try:
            free = await self._free_ranges(there, request, None)
            displacing = None
            if request.priority > 0 and request.yielding is None and free != request.windows:
                displacing = await self._free_ranges(there, request, request.priority)
        except NotFound:
            await self._memberships.lose(there)
            return everything
        update = {
            "free": _spans_from(soonest, free),
            "free_displacing": None if displacing is None else _spans_from(soonest, displacing),
        }
        return everything.model_copy(update=update)

    async def _now(self) -> int:
        """Return the host's time (µs); this node's, if the host's clock cannot be read."""
        try:
            return (await self._host.clock()).now
        except PeerFailed:
            return self._clock.now()

    async def _free_ranges(
        self, there: Membership, request: ProposalRequest, priority: int | None
    ) -> tuple[Span, ...]:
        """Return the free ranges in the windows, in whole seconds and as long as needed there."""
        longer = max(0, (there.duration or 0) - request.duration)
        ranges: list[Span] = []
        for start, end in _stretches(request.windows):
            asked = whole_second(start), _next_second(end + longer)
            ranges += await self._host.runtimes(there.task_there, there.key, asked, priority)
        fitting = normalise((_next_second(start), end - longer) for start, end in ranges)
        free: list[Span] = []
        for window in request.windows:
            free += intersect([window], fitting)
        return tuple(free)

    async def hold(self, exchange: UUID, request: HoldRequest) -> HoldAnswer:
        """Book the runs one after the other; each is written before.

        :raises NotFound: it does not know this revision of the task.
        """
        there = await self._memberships.find(request.task, request.revision)
        if there is None or there.state is not MembershipState.STANDING or not there.duration:
            msg = f"{self.name} does not know revision {request.revision} of the task"
            raise NotFound(msg)
        duration = there.duration
        new = [
            NewBooking(
                uuid5(exchange, str(run.run)),
                run.run,
                run.slot,
                run.starts_at,
                whole_second(run.starts_at) + duration,
            )
            for run in request.runs
        ]
        async with self._database.connection() as connection:
            await store.write_bookings(
                connection,
                there,
                exchange,
                request.lease_epoch,
                new,
                next_at=self._clock.now() + UNCERTAIN_FOR,
            )
            rows = await store.bookings_of_exchange(
                connection, self._sealing, self.identity, exchange
            )
        written = {row.run: row for row in rows}
        return await self._book_all(there, request, [written[run.run] for run in request.runs])

    async def _book_all(
        self, there: Membership, request: HoldRequest, rows: Sequence[BookedThere]
    ) -> HoldAnswer:
        """Book runs, but stop after half of the life of the other participants' holds."""
        until = self._clock.monotonic() + request.life // 2
        held: list[UUID] = []
        refused: list[Refusal] = []
        data: dict[str, int] | None = None
        for row in rows:
            if self._clock.monotonic() > until and row.state is BookingState.BOOKING:
                async with self._database.connection() as connection:
                    await store.forget(connection, row.run_there)
                reason = "booking the runs before took too long there; it is booked later"
                refused.append(Refusal(run=row.run, reason=reason))
                continue
            booked = await self._book(there, row, request)
            if booked.data is not None and data is not None and booked.data != data:
                await self._take_back(row)
                ports = ", ".join(f"{name} {value}" for name, value in booked.data.items())
                booked = _Booked(None, f"it has another {ports} for this run; it is booked later")
            if booked.data is None:
                refused.append(Refusal(run=row.run, reason=booked.reason[:1000]))
                continue
            data = booked.data
            held.append(row.run)
        return HoldAnswer(held=tuple(held), refused=tuple(refused), data=data or {})

    async def _book(self, there: Membership, row: BookedThere, request: HoldRequest) -> _Booked:
        """Book one run there, and read what it says for the others.

        :raises NotFound: it does not know the task any more.
        """
        if row.state is BookingState.HELD:
            return self._read_data(there, row.data)
        if row.state is not BookingState.BOOKING:
            return _Booked(None, _TAKEN_BACK)
        if there.participant == DELEGATED:
            return await self._delegate(there, row, request)
        refusal = await self._request_booking(there, row)
        if refusal is not None:
            return refusal
        run = await self._host.run(there.task_there, row.run_there, there.key)
        if run.get("state") in _LOST:
            await self._take_back(row)
            return _Booked(None, str(run.get("errors") or f"the run is {run['state']} there"))
        return await self._hold(there, row, run.get("participant-data") or {}, request.life)

    async def _hold(
        self, there: Membership, row: BookedThere, data: JsonObject, life: int
    ) -> _Booked:
        """Note that a run is booked there, and read what the host says for the others."""
        async with self._database.connection() as connection:
            expires_at = min(self._clock.now() + life, row.starts_at - LOOKED_AT_BEFORE)
            is_held = await store.note_held(connection, row.run_there, data, expires_at)
        understood = self._read_data(there, data) if is_held else _Booked(None, _TAKEN_BACK)
        if understood.data is None:
            await self._take_back(replace(row, data=data))
        return understood

    async def _delegate(self, there: Membership, row: BookedThere, request: HoldRequest) -> _Booked:
        """Post a run as a task that the host leads."""
        document = document_of(there.test_there, row, request.tool)
        try:
            task = await self._host.post(document)
        except NotAllowed as error:
            return await self._note_refusal(row, f"its limits forbid the task: {error.detail}")
        except RequestError as error:
            return await self._note_refusal(row, error.detail)
        return await self._hold(there, row, data_of(task), request.life)

    async def _request_booking(self, there: Membership, row: BookedThere) -> _Booked | None:
        """Request a booking; return the refusal, None if it stands.

        :raises NotFound: it does not know the task any more.
        """
        try:
            await self._host.book(there.task_there, row.run_there, there.key, row.starts_at)
        except Conflict as error:
            return await self._note_refusal(row, error.detail)
        except NotFound as error:
            await self._memberships.lose(there)
            raise NotFound(f"{self.name} does not know the task any more") from error
        except RequestError as error:
            await self._take_back(row)
            return _Booked(None, error.detail)
        return None

    async def _note_refusal(self, row: BookedThere, reason: str) -> _Booked:
        async with self._database.connection() as connection:
            await store.forget(connection, row.run_there)
        return _Booked(None, reason)

    def _read_data(self, there: Membership, data: JsonObject) -> _Booked:
        if there.participant == DELEGATED:
            return _Booked({})
        try:
            return _Booked(DIALECTS[there.tool].command_data(there.participant, data))
        except TextRefusal as refusal:
            return _Booked(None, refusal.text)

    async def _take_back(self, row: BookedThere) -> None:
        async with self._database.connection() as connection:
            await store.drop_some(connection, [row.run_there], self._clock.now())
        await self._bookings.try_to_drop(replace(row, state=BookingState.DROPPING))

    async def commit(self, exchange: UUID, request: CommitRequest) -> CommitAnswer:
        """Tell it what all participants say, for the runs that are kept; take the others back.

        ``late`` if none of them is booked there any more. If only some are not, these are ended
        like runs that the host displaced.
        """
        async with self._database.connection() as connection:
            rows = await store.bookings_of_exchange(
                connection, self._sealing, self.identity, exchange
            )
        kept = [row for row in rows if row.run in request.runs]
        surplus = [row for row in rows if row.run not in request.runs]
        for row in surplus:
            await self._take_back(row)
        late = [row for row in kept if not await self._complete(row, request)]
        if len(late) == len(request.runs):
            async with self._database.connection() as connection:
                for row in late:
                    await store.forget(connection, row.run_there)
            return CommitAnswer(late=True)
        async with self._database.connection() as connection:
            for row in late:
                reason = f"{self.name} had taken its time away before the run was decided"
                await store.note_lost(connection, row.run_there, reason, self._clock.now())
        return CommitAnswer()

    async def _complete(self, row: BookedThere, request: CommitRequest) -> bool:
        """Give a booking the data of all participants; return whether it stands at the host."""
        if row.state in {BookingState.KEPT, BookingState.BEGUN}:
            return True
        if row.state is not BookingState.HELD:
            return False
        if row.participant != DELEGATED and not await self._tell(row, request):
            return False
        look_at = row.starts_at - LOOKED_AT_BEFORE
        if row.participant == DELEGATED:
            look_at = min(look_at, self._clock.now() + SCHEDULED_WITHIN)
        async with self._database.connection() as connection:
            return await store.note_kept(connection, row.run_there, look_at)

    async def _tell(self, row: BookedThere, request: CommitRequest) -> bool:
        """Tell a host what all participants say; return whether it has the run."""
        data = data_of_all(row.tool, row.participant, row.data, request.data)
        try:
            await self._host.tell_data(row.task_there, row.run_there, row.key, data)
        except NotFound:
            return False
        return True

    async def release(self, exchange: UUID, release: Release) -> None:  # noqa: ARG002 - port
        """Take all bookings of an exchange back; those that fail are repeated until their end."""
        async with self._database.connection() as connection:
            await store.drop_exchange(connection, self.identity, exchange, self._clock.now())
            rows = await store.bookings_of_exchange(
                connection, self._sealing, self.identity, exchange
            )
        await self._drop(rows)

    async def _drop(self, rows: Sequence[BookedThere]) -> None:
        for row in rows:
            if row.state is BookingState.DROPPING:
                await self._bookings.try_to_drop(row)

    async def end_run(self, end: RunEnd) -> None:
        """Take a run back; what measures there already goes on."""
        async with self._database.connection() as connection:
            await store.drop_run(connection, self.identity, end.run, self._clock.now())
            rows = await store.bookings_of_run(connection, self._sealing, self.identity, end.run)
        await self._drop(rows)

    async def end_task(self, end: TaskEnd) -> None:
        """End a task there; of one whose schedule is over the last parts are still fetched."""
        async with self._database.connection() as connection:
            if end.state != TaskState.FINISHED:
                await store.drop_task(connection, self.identity, end.task, self._clock.now())
            await store.end_memberships(connection, end.task, self.identity)
        await self._bookings.clear(self.identity, end.task)

    async def compare(self, request: DigestRequest) -> Differences:
        """Look in its schedule for the runs that it has of these tasks."""
        tasks: dict[UUID, dict[UUID, int]] = {}
        ended: dict[UUID, str] = {}
        revisions: dict[UUID, int] = {}
        for digest in request.tasks:
            there = await self._memberships.find(digest.task)
            if there is None or there.state is not MembershipState.STANDING:
                if digest.state in OPEN and digest.state != TaskState.PAUSED:
                    ended[digest.task] = UNKNOWN
                continue
            if there.revision != digest.revision and digest.state != TaskState.PAUSED:
                revisions[digest.task] = there.revision
            if digest.fingerprint is None:
                continue
            booked = await self._runs_of_both(digest.task, request.now, request.until)
            if fingerprint(booked) != digest.fingerprint:
                tasks[digest.task] = booked
        return Differences(tasks=tasks, ended=ended, revisions=revisions)

    async def _runs_of_both(self, task: UUID, since: int, until: int) -> dict[UUID, int]:
        """Return the runs of a task that both sides have, with our starts, in a span of starts."""
        async with self._database.connection() as connection:
            rows = await store.bookings_of_task(connection, self._sealing, self.identity, task)
        rows = [
            row
            for row in rows
            if row.state in {BookingState.KEPT, BookingState.BEGUN}
            and since <= row.starts_at < until
        ]
        # What it leads itself is looked at before its start only: each run is a task of its own.
        found = {row.run: row.starts_at for row in rows if row.participant == DELEGATED}
        rows = [row for row in rows if row.participant != DELEGATED]
        for task_id in {row.task_there for row in rows}:
            entries = await self._host.schedule(task_id, whole_second(since), until + times.DAY)
            there = {
                run: self._host.start_of(entry)
                for run, entry in entries.items()
                if entry.get("state") not in _LOST
            }
            found |= {
                row.run: row.starts_at
                for row in rows
                if there.get(row.run_there) == whole_second(row.starts_at)
            }
        return found

    async def booked_run(self, run: UUID) -> BookedRun:
        """Return a run that this node leads if the host still has it.

        It tells no node of runs that another one leads.

        :raises NotFound: it does not have it, or another node leads it.
        """
        async with self._database.connection() as connection:
            rows = await store.bookings_of_run(connection, self._sealing, self.identity, run)
        for row in rows:
            if row.state in {BookingState.KEPT, BookingState.BEGUN}:
                there = await self._bookings.run_of(row)
                if there.get("state") not in _LOST:
                    return BookedRun(task=row.task, lead=self._lead, starts_at=row.starts_at)
        raise NotFound(f"{self.name} has no run {run} that this node leads")

    async def confirm(self, request: ConfirmationRequest) -> ConfirmationAnswer:  # noqa: ARG002
        """Look whether it answers; it has nothing to say about its own tasks by this way."""
        await self._host.level()
        return ConfirmationAnswer()

    async def compare_with_sender(self) -> NodeComparison:
        """Return nothing: it leads nothing here by this way."""
        nothing = task_comparison(0, 0, [])
        return NodeComparison(led_here=nothing, led_there=nothing)

    async def report_freed_time(self, message: FreedTime) -> None:
        """Tell it nothing: it does not listen."""

    async def impact(self, request: ImpactRequest) -> Impact:  # noqa: ARG002 - port
        """Raise PeerFailed, for it cannot say what would give way."""
        self._raise_unsupported("say what would give way, or how full it would be")

    async def limits(self) -> GrantedLimits:
        """Raise PeerFailed, for it does not tell its limits."""
        self._raise_unsupported("tell what its limits allow")

    async def decision(self, exchange: UUID) -> DecisionAnswer:  # noqa: ARG002 - port
        """Raise PeerFailed, for it leads no exchange."""
        self._raise_unsupported("lead an exchange")

    async def check(self, towards: str) -> Diagnosis:  # noqa: ARG002 - port
        """Raise PeerFailed, for it checks no ways."""
        self._raise_unsupported("check the way to another node")

    async def campaign_use(self, request: CampaignUseRequest) -> CampaignUse:  # noqa: ARG002 - port
        """Raise PeerFailed, for it shares no campaigns."""
        self._raise_unsupported("share campaigns")

    async def facts(self) -> PeerFacts:
        """Raise PeerFailed, for it does not tell the state of its host."""
        self._raise_unsupported("tell the state of its host")

    async def probe(self, request: ProbeRequest) -> ProbeOffer:  # noqa: ARG002 - port
        """Raise PeerFailed, for it opens no ports for probes."""
        self._raise_unsupported("open a port for a probe")

    async def send_part(self, part: PartMessage) -> None:  # noqa: ARG002 - port
        """Raise PeerFailed, for it leads nothing here by this way."""
        self._raise_unsupported("take parts")

    async def send_intervals(self, intervals: IntervalsMessage) -> None:  # noqa: ARG002 - port
        """Raise PeerFailed, for it leads nothing here by this way."""
        self._raise_unsupported("take intervals")

    def _raise_unsupported(self, what: str) -> NoReturn:
        msg = f"{self.name} cannot {what}: it runs pScheduler"
        raise PeerFailed(msg)


def _leads_itself(there: Membership | None, request: ProposalRequest) -> bool:
    """Return whether a host leads the runs of a task itself, or would if it was introduced."""
    if there is not None and there.duration is not None:
        return there.participant == DELEGATED
    return request.introduction is not None and is_delegated(request.introduction)


def _spans_from(soonest: int, spans: Sequence[Span]) -> tuple[Span, ...]:
    """Return the part of spans from an instant on, beginning with whole seconds."""
    later = ((_next_second(max(start, soonest)), end) for start, end in spans)
    return tuple((start, end) for start, end in later if start < end)


def _next_second(instant: int) -> int:
    return -(-instant // times.SECOND) * times.SECOND


def _stretches(windows: Sequence[Span]) -> list[Span]:
    """Return the spans of few requests: windows that are close to each other in one."""
    stretches: list[Span] = []
    for start, end in normalise(windows):
        if stretches and start - stretches[-1][1] <= _ASKED_TOGETHER:
            stretches[-1] = stretches[-1][0], max(stretches[-1][1], end)
        else:
            stretches.append((start, end))
    return stretches
