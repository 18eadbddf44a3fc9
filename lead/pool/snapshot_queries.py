"""The queries of an episode: its terms, the runs that matter to it, and the ledger."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from uuid import UUID

from lead.model.records import Key, LedRun, OpenTerm, PoolTask, TurnedDown
from lead.planning.needs import NeedsByTest
from lead.planning.pool_view import LEDGER_LOOKBACK, SeatCase, campaigns_of, runs_to_come
from lead.policy.limit_counting import budget_periods, descendants_of, is_bounded
from lead.policy.view import BUCKET, CampaignView, Needs, PostedRun
from lead.store import episodes, ledger
from node.model import times
from node.model.byte_quotas import byte_quota_of
from node.model.classes import SchedulingClass
from node.model.recurrence import slip_of
from node.model.reservations import ReservationSpan
from node.model.spans import Span
from node.store import campaigns, reservations
from node.store.campaigns import StoredCampaign
from node.store.database import Connection

TRIED_MAX = 50
"""Maximum number of terms for which an episode asks nodes; only then are its results written."""
TERMS_MAX = 10_000
"""Maximum number of terms in an episode; an hour with more is not shared as a whole."""
RUNS_MAX = 20_000
"""Maximum number of booked runs that the policies see in one episode.

Those of the hours on which it decides come first. The pool reports when there are more."""
UNBOOKED_RUNS_MAX = 1000
"""Maximum number of runs that the policies see of a seat of which nothing is booked yet.

The pool reports when there are more."""
_FAILURES_COUNT = times.DAY
_TERMS_COUNT = times.DAY
_REFUSALS_COUNT = times.DAY


@dataclass(frozen=True)
class Scope:
    """The nodes of a pool (identities) and the time up to which they are planned (``horizon``, µs).

    ``names`` are those of all known nodes, by identity.
    """

    now: int
    horizon: int
    identities: Sequence[str]
    names: Mapping[str, str]


@dataclass(frozen=True)
class StoredTerms:
    """The terms that are due, and what is stored of them.

    By term and seat number: the nodes that have its seats (``taken``), and up to when these have
    measured. By task: the nodes that had its seats last (``before``), and the start of the last
    term in which each node had one (``used_at``); also which nodes have refused them
    (``turned_down``). ``left`` is the number of terms left for later.
    """

    terms: Sequence[OpenTerm]
    taken: Mapping[Key, Mapping[int, str]]
    measured_to: Mapping[Key, Mapping[int, int]]
    before: Mapping[UUID, Mapping[int, str]]
    used_at: Mapping[UUID, Mapping[str, int]]
    turned_down: Mapping[UUID, Mapping[str, TurnedDown]]
    reserved: Sequence[ReservationSpan]
    left: int


@dataclass(frozen=True)
class RelevantRuns:
    """The campaigns, and the runs that matter to the cases of an episode.

    ``to_come`` are runs of seats that are given and not booked yet, and ``moved`` has the bytes of
    campaigns for whom a quota counts them, by hour, with those. ``spent`` is what is used and
    booked of budgets. ``note`` says what is missing.
    """

    campaigns: Sequence[StoredCampaign]
    booked: Sequence[PostedRun]
    to_come: Sequence[PostedRun]
    moved: Mapping[str, Mapping[int, int]]
    spent: Mapping[str, int]
    note: str | None = None


@dataclass(frozen=True)
class PoolHistory:
    """The ledger by hour (campaign, hour, amount), and recent failures by node and campaign."""

    used: Sequence[tuple[str, int, int]]
    failed: Mapping[tuple[str, str], int]


async def read_terms(  # noqa: PLR0913 - what an episode is about
    connection: Connection,
    pool: str,
    tasks: Sequence[PoolTask],
    imagined: Sequence[OpenTerm],
    now: int,
    due_by: int | None = None,
    *,
    with_blocked: bool,
) -> StoredTerms:
    """Read the terms of these tasks that are due; ``imagined`` terms are treated as if stored.

    With imagined terms, only stored terms that begin in the same hour are read, and blocked ones;
    with ``due_by``, those of any hour that will be due by then.
    """
    ids = [task.id for task in tasks]
    # A term that cannot be tried in this episode must not displace one that could be.
    limit = TRIED_MAX if not imagined and due_by is None else TERMS_MAX
    last = max((it.term.starts_at for it in imagined), default=0)
    terms, left = await episodes.due_terms(
        connection,
        ids,
        due_by or now,
        limit,
        TERMS_MAX,
        blocked_to=last if with_blocked else None,
    )
    if imagined:
        hour = imagined[0].term.starts_at // BUCKET
        others = [it for it in terms if it.blocked or it.term.starts_at // BUCKET == hour]
        terms = [*others, *imagined]
    return replace(await read_stored(connection, pool, tasks, terms, now), left=left)


async def read_stored(
    connection: Connection,
    pool: str,
    tasks: Sequence[PoolTask],
    terms: Sequence[OpenTerm],
    now: int,
) -> StoredTerms:
    """Read what is stored of these terms of these tasks."""
    ids = [task.id for task in tasks]
    longest = max((task.terms.duration for task in tasks), default=0)
    until = longest + max((term.over_at for term in terms), default=now)
    reserved = await reservations.pool_spans_between(connection, [pool], now, max(now, until))
    keys = [term.key for term in terms]
    return StoredTerms(
        terms,
        await episodes.seat_holders(connection, keys),
        await episodes.last_measured_slots(connection, keys),
        await episodes.last_holders(connection, ids),
        await episodes.last_use_by_node(connection, ids),
        await episodes.refusing_nodes(connection, ids, now - _REFUSALS_COUNT),
        reserved[pool],
        0,
    )


async def read_runs(
    connection: Connection, scope: Scope, cases: Sequence[SeatCase], needs: NeedsByTest
) -> RelevantRuns:
    """Read the runs that matter to these cases.

    These are the runs in the hours of the cases and of their slip, and on the nodes in the next
    hour. A limit of a campaign is about all of its runs, at whatever instant the cases lie, and on
    nodes outside the pool too; so if any campaign has limits, all runs up to the horizon are read.
    """
    now = scope.now
    stored = await campaigns.find_all(connection)
    views = campaigns_of((vars(each.settings), each.created_at) for each in stored)
    firsts = [case.slots[0] if case.begins is None else case.begins for case in cases]
    first, last = min(firsts, default=now), max(firsts, default=now) + BUCKET
    last = max(last, min(max(map(_last_start, cases), default=now), now + scope.horizon) + BUCKET)
    end = max((case.slots[-1] + BUCKET for case in cases), default=last)
    limited = any(map(is_bounded, views.values()))
    end = max(last, end, now + scope.horizon) if limited else max(last, end)
    spans = _spans_by_importance(first, last, now, end if limited else None)
    counted = _counted_wherever(views)
    booked, first_left_out = await _read_booked(connection, spans, scope.identities, counted)
    seats = await episodes.unplanned_seat_tasks(connection, scope.identities)
    needs_by_task: dict[UUID, Needs] = {}
    # What other runs need matters only if the runs of a case need something themselves.
    if any(needs.of(case.pool_task.terms.test, case.pool_task.terms.spec) for case in cases):
        tasks = {run.task_id for run in booked} | {seat.task for seat in seats}
        tests = await episodes.tests_of(connection, tasks)
        needs_by_task = {task: needs.of(*test) for task, test in tests.items()}
    # One more than is shown, so that it is noticed when there are more.
    runs_by_seat = [
        runs_to_come(
            seat, scope.names, end, needs_by_task.get(seat.task, {}), UNBOOKED_RUNS_MAX + 1
        )
        for seat in seats
    ]
    to_come = [run for runs in runs_by_seat for run in runs[:UNBOOKED_RUNS_MAX]]
    return RelevantRuns(
        stored,
        [_posted_run(run, scope.names, needs_by_task.get(run.task_id, {})) for run in booked],
        to_come,
        await _read_moved(connection, stored, to_come, now, end, needs),
        await ledger.spent(connection, budget_periods(views.values(), views)),
        _note_of_missing_runs(first_left_out, runs_by_seat),
    )


async def _read_moved(
    connection: Connection,
    stored: Sequence[StoredCampaign],
    to_come: Sequence[PostedRun],
    now: int,
    until: int,
    needs: NeedsByTest,
) -> dict[str, dict[int, int]]:
    """Return the bytes of all campaigns by hour, with runs to come, if a quota counts bytes.

    What fills a path is counted with its booking.
    """
    quotas = [quota for each in stored if (quota := byte_quota_of(each.settings.quotas))]
    if not quotas:
        return {}
    period = max(quota.period for quota in quotas)
    names = [each.settings.name for each in stored]
    moved = await ledger.bytes_by_hour(connection, names, now - period, until + period)
    tests = await episodes.tests_of(connection, {UUID(run.task) for run in to_come})
    for run in to_come:
        expected = needs.expected_bytes(*tests[UUID(run.task)], lambda: None) or 0
        hours, hour = moved.setdefault(run.campaign, {}), run.start - run.start % BUCKET
        hours[hour] = hours.get(hour, 0) + expected * len(run.nodes)
    return moved


async def read_history(connection: Connection, scope: Scope) -> PoolHistory:
    """Read what was charged on the nodes of a pool, and which campaigns failed on them."""
    until = scope.now + scope.horizon + BUCKET
    return PoolHistory(
        await episodes.charges_by_hour(
            connection, scope.now - LEDGER_LOOKBACK, until, scope.identities
        ),
        await episodes.failure_counts(connection, scope.now - _FAILURES_COUNT, scope.identities),
    )


async def read_returnable(
    connection: Connection, pool: str, cases: Sequence[SeatCase], now: int
) -> list[str]:
    """Return the tasks of seats that may hold time these cases want, of terms of the last day."""
    if not cases:
        return []
    since, until = now - _TERMS_COUNT, max(map(_last_start, cases)) + BUCKET
    seats = await episodes.seat_tasks_ahead(connection, pool, since, until, RUNS_MAX, now)
    return [str(task) for task in seats]


def _posted_run(run: LedRun, names: Mapping[str, str], needs: Needs) -> PostedRun:
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


def _last_start(case: SeatCase) -> int:
    """Return the latest start of the first run of a case: until then, others may want its time."""
    first = case.slots[0] if case.begins is None else case.begins
    return first + slip_of(case.recurrence, case.pool_task.terms.duration, first)


def _counted_wherever(campaigns: Mapping[str, CampaignView]) -> list[str]:
    """Return the campaigns of which a limit counts the runs on whatever nodes; quotas do not."""
    holders = {name for name, each in campaigns.items() if each.limits}
    seats_max = {name for name, each in campaigns.items() if each.seats_max is not None}
    return sorted({*descendants_of(holders, campaigns), *seats_max})


def _spans_by_importance(first: int, last: int, now: int, ahead: int | None) -> list[Span]:
    """Return the time whose runs matter, the most important first: too many runs are cut off.

    Cases begin from ``first`` to ``last``. Their hours come first, then the time before them (the
    next hour, or all of it with ``ahead``), then the time up to ``ahead``.
    """
    begin = min(first, max(now, first - first % BUCKET))
    before = now, begin if ahead is not None else min(begin, now + BUCKET)
    spans = [(begin, last), before, (last, ahead or last)]
    return [(start, end) for start, end in spans if start < end]


async def _read_booked(
    connection: Connection, spans: Sequence[Span], nodes: Sequence[str], counted: Sequence[str]
) -> tuple[list[LedRun], int | None]:
    """Return the runs of these spans by start; if too many, also the start of the first left out.

    They are the runs on these nodes, and all of the ``counted`` campaigns. A run that reaches into
    two spans is counted once.
    """
    runs: dict[UUID, LedRun] = {}
    for since, until in spans:
        for run in await episodes.led_runs(connection, since, until, nodes, RUNS_MAX + 1, counted):
            if len(runs) == RUNS_MAX and run.id not in runs:
                return sorted(runs.values(), key=_BY_START), run.starts_at
            runs[run.id] = run
    return sorted(runs.values(), key=_BY_START), None


_BY_START: Callable[[LedRun], tuple[int, UUID]] = lambda run: (run.starts_at, run.id)  # noqa: E731


def _note_of_missing_runs(
    first_left_out: int | None, runs_by_seat: Sequence[Sequence[PostedRun]]
) -> str | None:
    """Return what the policies do not see of these runs, for people; None if they see all."""
    first_unbooked = min(
        (runs[UNBOOKED_RUNS_MAX].start for runs in runs_by_seat if len(runs) > UNBOOKED_RUNS_MAX),
        default=None,
    )
    notes = [
        f"of {of} the policies saw {most:,}, not all from {times.to_the_second(since)} on: "
        "limits of campaigns may not hold then; measure less often, or from fewer nodes"
        for of, most, since in (
            ("the booked runs", RUNS_MAX, first_left_out),
            ("the runs of a seat that are still to be booked", UNBOOKED_RUNS_MAX, first_unbooked),
        )
        if since is not None
    ]
    return "; ".join(notes) or None
