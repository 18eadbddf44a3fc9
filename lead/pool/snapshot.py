"""What an episode of a pool is to decide: the terms with empty seats, and the view of the pool."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID

import structlog

from lead.model import BookedRun, FinishedTerm, Key, OpenTerm, PolicyMemory, PoolTask
from lead.planning.agenda import Limits
from lead.planning.node_views import NodeLoad, NodeViewContext, node_loads, node_view_of
from lead.planning.policy_state import decode_state
from lead.planning.pool_view import (
    SeatCase,
    campaign_of,
    candidate_of,
    charges_of,
    charges_to_come,
    remembered_state,
    reservations_of,
    runs_to_come,
    windows_of,
)
from lead.planning.reserved import applicant, reserved_for_others
from lead.policy.ahead_sharing import NEAR_TIME
from lead.policy.view import (
    BUCKET,
    Needs,
    PoolView,
    PostedRun,
    RememberedState,
    ReservationView,
    View,
)
from lead.pool.membership import Membership, NeedsOf
from lead.store import episodes
from node.clock import Clock
from node.model import predicates, times
from node.model.classes import SchedulingClass
from node.model.errors import ParleyError
from node.model.reservations import ReservationSpan
from node.model.scheduling import recurrence_of
from node.model.spans import Span
from node.model.terms import open_slots
from node.model.wire.seats import SeatRequest
from node.model.wire.tasks import Schedule
from node.store import campaigns, reservations
from node.store.campaigns import CampaignSettings, StoredCampaign
from node.store.database import Connection, Database
from node.store.pools import StoredPool

TRIED_MAX = 50
"""Most terms for which nodes are asked in one episode: what came of them is written by then."""
TERMS_MAX = 10_000
"""Most terms of an episode; an hour with more is not shared as a whole."""
LEDGER_LOOKBACK = 8 * times.DAY
"""So much of the ledger is seen; no policy weighs more of it by default."""
RUNS_MAX = 20_000
"""Most booked runs that the policies see in one episode: of the hours it decides on, then others;
its pool says so if there are more."""
UNBOOKED_RUNS_MAX = 1000
"""Most runs that they see of a seat of which nothing is booked yet; it is said as well."""
_TESTS_MAX = 10_000
_FAILURES_COUNT = times.DAY

log = structlog.get_logger()


@dataclass(frozen=True)
class EpisodeInput:
    """The cases of an episode by name, its view, and the terms that are ``over``.

    ``booked`` are the runs of the view by their ids, but for those that are still to be booked.
    """

    pool: StoredPool
    remembered: PolicyMemory
    view: View
    booked: Mapping[str, PostedRun]
    coming: Sequence[PostedRun] = ()
    """Those of seats that are given: when they are to start was found out then."""
    cases: Mapping[str, SeatCase] = field(default_factory=dict)
    over: Sequence[FinishedTerm] = ()
    closed: Sequence[SeatCase] = ()
    """Those that wait because all their time is reserved for others."""
    note: str | None = None
    """What the view lacks, for people."""
    broken: Mapping[UUID, Exception] = field(default_factory=dict)
    """By task, why nothing can be said of it: what is stored of it cannot be read any more."""
    left: int = 0
    """So many terms are due, too, and come later."""


@dataclass(frozen=True)
class _Rows:
    """What is stored of some terms."""

    terms: Sequence[OpenTerm]
    taken: Mapping[Key, Mapping[int, str]]
    measured_to: Mapping[Key, Mapping[int, int]]
    before: Mapping[UUID, Mapping[int, str]]
    used_at: Mapping[UUID, Mapping[str, int]]
    reserved: Sequence[ReservationSpan]
    left: int


@dataclass(frozen=True)
class _Cases:
    """The terms that are due, those that are over, and the tasks that cannot be read."""

    due: list[SeatCase] = field(default_factory=list)
    over: list[FinishedTerm] = field(default_factory=list)
    broken: dict[UUID, Exception] = field(default_factory=dict)


@dataclass(frozen=True)
class _Runs:
    """The campaigns, and the runs near the cases; those to come are given and not booked yet."""

    campaigns: Sequence[StoredCampaign]
    booked: Sequence[PostedRun]
    to_come: Sequence[PostedRun]
    note: str | None = None


class _NeedsByTest:
    """What runs take of counted resources, found out once for equal tests."""

    def __init__(self, needs_of: NeedsOf) -> None:
        self._needs_of = needs_of
        self._known: dict[str, Needs] = {}

    def of(self, test: str, spec: dict[str, Any]) -> Needs:
        """Nothing is known of what a test takes that is not installed here any more."""
        said = json.dumps([test, spec])
        found = self._known.get(said)
        if found is None:
            try:
                found = self._needs_of(test, spec)
            except ParleyError:
                return {}
            if len(self._known) >= _TESTS_MAX:
                self._known.clear()
            self._known[said] = found
        return found


class EpisodeInputReader:
    """Reads what an episode needs."""

    def __init__(
        self,
        database: Database,
        clock: Clock,
        limits: Limits,
        needs_of: NeedsOf,
        resources: Collection[str],
    ) -> None:
        """``limits`` are those of the planning of every task; ``resources`` tests may need."""
        self._database = database
        self._clock = clock
        self._limits = limits
        self._needs = _NeedsByTest(needs_of)
        self._resources = frozenset(resources)
        self._short_sighted: set[str] = set()

    async def of(
        self,
        membership: Membership,
        pool: StoredPool,
        tasks: Sequence[PoolTask],
        imagined: Sequence[OpenTerm] = (),
    ) -> EpisodeInput:
        """What is to be decided first for these tasks of a pool.

        ``imagined`` terms are as if they were stored: then it is these, beside those that begin in
        the same hour as the first of them.
        """
        now = self._clock.now()
        async with self._database.connection() as connection:
            rows = await _rows(connection, pool.name, tasks, imagined, now)
            found = self._cases(membership, pool, tasks, rows, now)
            remembered = await episodes.policy_state(connection, pool.name)
            closed = [case for case in found.due if case.begins is None]
            cases = [case for case in found.due if case.begins is not None]
            runs = await self._runs(connection, membership, pool, cases)
            view = await self._view(connection, membership, pool, remembered, cases, runs)
            ahead = await _returnable(connection, pool.name, cases, now)
        reserved = _reservations(view, cases, rows.reserved)
        view = replace(view, reservations=reserved, returnable=ahead)
        named = {case.name: case for case in cases}
        booked = {run.run: run for run in runs.booked}
        return EpisodeInput(
            pool,
            remembered,
            view,
            booked,
            runs.to_come,
            named,
            found.over,
            closed,
            note=runs.note,
            broken=found.broken,
            left=rows.left,
        )

    def _cases(
        self,
        membership: Membership,
        pool: StoredPool,
        tasks: Sequence[PoolTask],
        rows: _Rows,
        now: int,
    ) -> _Cases:
        """A task that cannot be read is left out, with all its terms: the others go on."""
        wholes = {whole.id: whole for whole in tasks}
        found = _Cases()
        for opened in rows.terms:
            whole = wholes[opened.task]
            try:
                case = self._case(membership, pool, whole, opened, rows, now)
                if case.slots and case.empty:
                    found.due.append(_judged(membership, case))
                else:
                    found.over.append(
                        FinishedTerm(opened, whole.revision, len(case.empty), case.held)
                    )
            except Exception as error:  # noqa: BLE001 - whoever holds the episode says what it is
                found.broken[whole.id] = error
        return _Cases(
            [case for case in found.due if case.whole.id not in found.broken],
            [each for each in found.over if each.open.task not in found.broken],
            found.broken,
        )

    def _case(
        self,
        membership: Membership,
        pool: StoredPool,
        whole: PoolTask,
        opened: OpenTerm,
        rows: _Rows,
        now: int,
    ) -> SeatCase:
        request = SeatRequest.model_validate(whole.request)
        recurrence = recurrence_of(Schedule.model_validate(whole.schedule), whole.created_at)
        soonest = now + self._limits.margin
        slots = open_slots(recurrence, whole.duration, opened.term, soonest)
        measured_to = rows.measured_to[opened.key]
        last = slots[-1] if slots else 0
        taken = rows.taken[opened.key]
        empty = [
            number
            for number in range(1, opened.seats + 1)
            if number not in taken and measured_to.get(number, 0) < last
        ]

        def named(held: Mapping[int, str]) -> dict[int, str]:
            known = membership.by_identity
            return {n: known[node].name for n, node in held.items() if node in known}

        used = rows.used_at[whole.id].items()
        left = reserved_for_others(pool.name, rows.reserved, applicant(whole, whole.id))
        begins = slots[0] if slots else None
        if slots and left.spans:
            windows = windows_of(slots, recurrence, whole.duration)
            begins = left.first_open(windows, whole.duration)
        return SeatCase(
            whole=whole,
            request=request,
            open=opened,
            recurrence=recurrence,
            slots=slots,
            empty=empty if slots else [n for n in range(1, opened.seats + 1) if n not in taken],
            able=(),
            closed=left,
            begins=begins,
            sitting=named(taken),
            held=len(taken),
            before=named(rows.before[whole.id]),
            measured_to=measured_to,
            used_at={
                membership.by_identity[node].name: at
                for node, at in used
                if node in membership.by_identity
            },
            sticky=(request.choice or pool.choice) == "sticky",
        )

    async def _runs(
        self,
        connection: Connection,
        membership: Membership,
        pool: StoredPool,
        cases: Sequence[SeatCase],
    ) -> _Runs:
        """Where campaigns are limited, all that is booked ahead counts; else what is near."""
        now, names = self._clock.now(), membership.names
        members = membership.members(predicates.parse(pool.match))
        identities = [node.identity for node in members]
        ahead = now + self._limits.horizon
        listed = await campaigns.listed(connection)
        firsts = [case.slots[0] if case.begins is None else case.begins for case in cases]
        first, last = min(firsts, default=now), max(firsts, default=now) + BUCKET
        end = max((case.slots[-1] + BUCKET for case in cases), default=last)
        limited = any(_is_limited(each.settings) for each in listed)
        end = max(last, end, ahead) if limited else max(last, end)
        spans = _spans(first, last, now, end if limited else None)
        booked, unseen = await _booked(connection, spans, identities)
        to_come = await episodes.to_come(connection, identities)
        needs: dict[UUID, Needs] = {}
        if any(self._needs.of(case.whole.test, case.whole.spec) for case in cases):
            tasks = {run.task_id for run in booked} | {each.task for each in to_come}
            tests = await episodes.tests_of(connection, tasks)
            needs = {task: self._needs.of(*test) for task, test in tests.items()}
        coming = [
            runs_to_come(each, names, end, needs.get(each.task, {}), UNBOOKED_RUNS_MAX + 1)
            for each in to_come
        ]
        note = _unseen(unseen, coming)
        if note is not None and pool.name not in self._short_sighted:
            log.warning("an episode does not see all", pool=pool.name, lacks=note)
        # Said once as long as it is so: episodes follow one another within seconds.
        (self._short_sighted.discard if note is None else self._short_sighted.add)(pool.name)
        return _Runs(
            listed,
            [_posted(run, names, needs.get(run.task_id, {})) for run in booked],
            [run for runs in coming for run in runs[:UNBOOKED_RUNS_MAX]],
            note,
        )

    async def _view(
        self,
        connection: Connection,
        membership: Membership,
        pool: StoredPool,
        remembered: PolicyMemory,
        cases: Sequence[SeatCase],
        runs: _Runs,
    ) -> View:
        now, horizon = self._clock.now(), self._limits.horizon
        members = membership.members(predicates.parse(pool.match))
        identities = [node.identity for node in members]
        lanes = min((node.lanes for node in members), default=1)
        used = await episodes.used_by_hour(
            connection, now - LEDGER_LOOKBACK, now + horizon + BUCKET, identities
        )
        failed = await episodes.failed(connection, now - _FAILURES_COUNT, identities)
        names = membership.names
        state = remembered_state(decode_state(remembered.state), cases)
        used_at = {name: at for case in cases for name, at in case.used_at.items()}
        lanes_of = {node.name: node.lanes for node in members}
        busy = node_loads([*runs.booked, *runs.to_come], lanes_of, now)
        counted = self._resources.union(*(each.settings.quotas for each in runs.campaigns))
        seen = NodeViewContext(now, horizon, counted)
        return View(
            now=now,
            horizon=horizon,
            pool=PoolView(pool.name, [node.name for node in members]),
            nodes={
                it.name: node_view_of(
                    it, busy.get(it.name, NodeLoad()), used_at.get(it.name, 0), seen
                )
                for it in members
            },
            campaigns={
                each.settings.name: campaign_of(vars(each.settings), each.created_at)
                for each in runs.campaigns
            },
            candidates=[
                candidate_of(case, horizon, self._needs.of(case.whole.test, case.whole.spec))
                for case in cases
            ],
            runs=[*runs.booked, *runs.to_come],
            ledger=[*charges_of(used), *charges_to_come(runs.to_come, lanes)],
            state=_with_failures(state, failed, names),
            workers=TRIED_MAX,
        )


async def _rows(
    connection: Connection,
    pool: str,
    wholes: Sequence[PoolTask],
    imagined: Sequence[OpenTerm],
    now: int,
) -> _Rows:
    tasks = [whole.id for whole in wholes]
    # What cannot be tried in this episode is not to come before what could have been.
    enough = TERMS_MAX if imagined else TRIED_MAX
    terms, left = await episodes.terms_due(connection, tasks, now, enough, TERMS_MAX)
    if imagined:
        hour = imagined[0].term.starts_at // BUCKET
        terms = [*(it for it in terms if it.term.starts_at // BUCKET == hour), *imagined]
    longest = max((whole.duration for whole in wholes), default=0)
    until = longest + max((opened.over_at for opened in terms), default=now)
    reserved = await reservations.for_pools(connection, [pool], now, max(now, until))
    keys = [opened.key for opened in terms]
    return _Rows(
        terms,
        await episodes.taken(connection, keys),
        await episodes.measured_to(connection, keys),
        await episodes.last_holders(connection, tasks),
        await episodes.used_at(connection, tasks),
        reserved[pool],
        left,
    )


async def _returnable(
    connection: Connection, pool: str, cases: Sequence[SeatCase], now: int
) -> list[str]:
    """The tasks of seats that may have what these cases want; none that is to begin soon."""
    begins = [case.begins for case in cases if case.begins is not None]
    since, until = now + NEAR_TIME, max(begins, default=0) + BUCKET
    if not begins or max(begins) < since:
        return []
    seats = await episodes.seats_ahead(connection, pool, since, until, RUNS_MAX)
    return [str(task) for task in seats]


def _reservations(
    view: View, cases: Sequence[SeatCase], reserved: Sequence[ReservationSpan]
) -> list[ReservationView]:
    applicants = {case.name: applicant(case.whole, case.whole.id) for case in cases}
    return reservations_of(reserved, view.pool.nodes, applicants)


def _judged(membership: Membership, case: SeatCase) -> SeatCase:
    """With who could have a seat; nobody where the task itself cannot be read any more."""
    try:
        able, unable = membership.judged(case.whole)
    except ParleyError as error:
        return replace(case, unable={case.whole.test: error.detail})
    sitting = frozenset(case.sitting.values())
    free = tuple(name for name in able if name not in sitting)
    return replace(case, able=free, unable=unable)


def _posted(run: BookedRun, names: Mapping[str, str], needs: Needs) -> PostedRun:
    return PostedRun(
        run=str(run.id),
        task=str(run.task_id),
        campaign=run.campaign,
        nodes=tuple(names[node] for node in run.nodes if node in names),
        start=run.starts_at,
        end=run.ends_at,
        scheduling_class=SchedulingClass(run.scheduling_class),
        priority=run.priority,
        running=run.running,
        needs=needs,
    )


def _is_limited(campaign: CampaignSettings) -> bool:
    """Whether it matters what else it has booked when runs of it take place."""
    return bool(campaign.limits or campaign.quotas) or campaign.seats_max is not None


def _spans(first: int, last: int, now: int, ahead: int | None) -> list[Span]:
    """Which time counts for cases that begin from ``first`` to ``last``, the most important first.

    Their hours; what is booked on nodes in the next one; and all up to ``ahead``, if that is given.
    """
    begin = min(first, max(now, first - first % BUCKET))
    before = now, begin if ahead is not None else min(begin, now + BUCKET)
    spans = [(begin, last), before, (last, ahead or last)]
    return [(start, end) for start, end in spans if start < end]


async def _booked(
    connection: Connection, spans: Sequence[Span], nodes: Sequence[str]
) -> tuple[list[BookedRun], int | None]:
    """The runs of these spans, by start; and if there are too many, the first one left out."""
    found: dict[UUID, BookedRun] = {}
    for since, until in spans:
        for run in await episodes.booked(connection, since, until, nodes, RUNS_MAX + 1):
            if len(found) == RUNS_MAX and run.id not in found:
                return sorted(found.values(), key=_BY_START), run.starts_at
            found[run.id] = run
    return sorted(found.values(), key=_BY_START), None


_BY_START: Callable[[BookedRun], tuple[int, UUID]] = lambda run: (run.starts_at, run.id)  # noqa: E731


def _unseen(beyond: int | None, coming: Sequence[Sequence[PostedRun]]) -> str | None:
    """What the policies do not see of these runs, for people."""
    later = min(
        (runs[UNBOOKED_RUNS_MAX].start for runs in coming if len(runs) > UNBOOKED_RUNS_MAX),
        default=None,
    )
    lacks = [
        f"of {of} the policies saw {most:,}, not all from {times.to_the_second(since)} on: "
        "limits of campaigns may not hold then; measure less often, or from fewer nodes"
        for of, most, since in (
            ("the booked runs", RUNS_MAX, beyond),
            ("the runs of a seat that are still to be booked", UNBOOKED_RUNS_MAX, later),
        )
        if since is not None
    ]
    return "; ".join(lacks) or None


def _with_failures(
    state: RememberedState, failed: Mapping[tuple[str, str], int], names: Mapping[str, str]
) -> RememberedState:
    failures = {(names[node], campaign): n for (node, campaign), n in failed.items()}
    return replace(state, failures=failures)
