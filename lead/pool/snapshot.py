"""The input of an episode of a pool: the terms with empty seats, and the view of the pool."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from uuid import UUID

import structlog

from lead.exchange.user_limits import UserBounds
from lead.model.reasons import refused_before
from lead.model.records import FinishedTerm, Key, OpenTerm, PolicyMemory, PoolTask, TurnedDown
from lead.planning.agenda import Limits
from lead.planning.limited_time import UserRoom
from lead.planning.needs import NeedsByTest
from lead.planning.pool_view import SeatCase, windows_of
from lead.planning.reserved import applicant, reserved_for_others
from lead.policy.feasible.backoff import pause
from lead.policy.sets import PolicyComposition
from lead.policy.settings import configured_set
from lead.policy.view import PostedRun, View
from lead.pool.membership import Membership
from lead.pool.snapshot_queries import (
    Scope,
    StoredTerms,
    read_history,
    read_returnable,
    read_runs,
    read_stored,
    read_terms,
)
from lead.pool.snapshot_view import ViewSources, view_of
from lead.store import episodes
from node.model import predicates
from node.model.errors import ParleyError
from node.model.reason import Reason
from node.model.terms import open_slots
from node.model.wire.seats import SeatRequest
from node.runtime.clock import Clock
from node.store.database import Connection, Database
from node.store.pools import StoredPool

log = structlog.get_logger()


@dataclass(frozen=True)
class EpisodeInput:
    """The cases of an episode by name, its view, and the terms that are ``over``.

    ``booked`` are the booked runs of the view, by id.
    """

    pool: StoredPool
    remembered: PolicyMemory
    view: View
    booked: Mapping[str, PostedRun]
    coming: Sequence[PostedRun] = ()
    """The runs of given seats that are not booked yet, at the starts found when they were given."""
    cases: Mapping[str, SeatCase] = field(default_factory=dict)
    over: Sequence[FinishedTerm] = ()
    closed: Sequence[SeatCase] = ()
    """The cases that wait because all their time is reserved for others."""
    note: str | None = None
    """A sentence about what the view lacks, if anything."""
    broken: Mapping[UUID, Exception] = field(default_factory=dict)
    """By task, the error with which its stored document could not be read."""
    left: int = 0
    """Number of due terms that are left for a later episode."""


@dataclass(frozen=True)
class PoolAhead:
    """A pool with all of its terms up to an instant, stored ones and those to come.

    The candidates of the ``view`` are the ``cases``, in this order. ``seats`` are by ordinary task
    the term and the number of a seat that it holds.
    """

    view: View
    cases: Sequence[SeatCase]
    seats: Mapping[str, tuple[Key, int]]
    note: str | None


def policies_of(pool: StoredPool) -> PolicyComposition:
    """Return the policies of a pool: its set, with options and overrides."""
    return configured_set(pool.policy_set, pool.overrides, pool.options)


def minds_blocked(pool: StoredPool) -> bool:
    """Return whether terms that found no time take part in all episodes of a pool."""
    return policies_of(pool).minds_blocked


async def with_blocked_tasks(
    connection: Connection, pool: StoredPool, due: Sequence[PoolTask], now: int, most: int
) -> list[PoolTask]:
    """Return tasks of a pool that are due, and up to ``most`` for which they may have to wait."""
    if not minds_blocked(pool):
        return list(due)
    blocked = await episodes.tasks_with_blocked_terms(connection, pool.name, now, most)
    known = {pool_task.id for pool_task in due}
    return [*due, *(pool_task for pool_task in blocked if pool_task.id not in known)]


@dataclass(frozen=True)
class _Cases:
    """The terms that are due, those that are over, and the tasks that cannot be read."""

    due: list[SeatCase] = field(default_factory=list)
    over: list[FinishedTerm] = field(default_factory=list)
    broken: dict[UUID, Exception] = field(default_factory=dict)


class EpisodeInputReader:
    """Reads what an episode needs."""

    def __init__(
        self,
        database: Database,
        clock: Clock,
        limits: Limits,
        needs: NeedsByTest,
        resources: Collection[str],
        users: UserBounds,
    ) -> None:
        """``limits`` are those of planning; ``resources`` are counted resources tests may need.

        ``users`` has the limits of this host for users.
        """
        self._database = database
        self._clock = clock
        self._limits = limits
        self._needs = needs
        self._resources = frozenset(resources)
        self._users = users
        self._pools_with_note: set[str] = set()

    async def read(
        self,
        membership: Membership,
        pool: StoredPool,
        tasks: Sequence[PoolTask],
        imagined: Sequence[OpenTerm] = (),
        due_by: int | None = None,
    ) -> EpisodeInput:
        """Read the input of the next episode for these tasks of a pool.

        With ``due_by``, terms that are tried again by then are in it, too, of whatever hour.
        ``imagined`` terms are treated as if they were stored; the episode is then about them, and
        about the stored terms that begin in the same hour as the first of them.
        """
        now = self._clock.now()
        async with self._database.connection() as connection:
            terms = await read_terms(
                connection,
                pool.name,
                tasks,
                imagined,
                now,
                due_by,
                with_blocked=minds_blocked(pool),
            )
            sorted_terms = self._cases_of(membership, pool, tasks, terms, now)
            open_cases = [it for it in sorted_terms.due if it.begins is not None]
            sources = await self._sources(connection, membership, pool, open_cases, terms)
            returnable = await read_returnable(connection, pool.name, sources.cases, now)
        sources, runs = replace(sources, returnable=returnable), sources.runs
        self._log_note(pool.name, runs.note)
        return EpisodeInput(
            pool,
            sources.remembered,
            view_of(sources, self._needs, self._resources),
            {run.run: run for run in runs.booked},
            runs.to_come,
            {case.name: case for case in sources.cases},
            sorted_terms.over,
            [case for case in sorted_terms.due if case.begins is None],
            note=runs.note,
            broken=sorted_terms.broken,
            left=terms.left,
        )

    async def _sources(
        self,
        connection: Connection,
        membership: Membership,
        pool: StoredPool,
        cases: Sequence[SeatCase],
        stored: StoredTerms,
    ) -> ViewSources:
        """Return all of which the view on a pool with these cases is made; no seat is returned."""
        now, tasks = self._clock.now(), {case.pool_task.id: case.pool_task for case in cases}
        rooms = await self._read_user_rooms(connection, tasks.values(), now)
        cases = [replace(it, user=rooms.get(it.pool_task.id)) for it in cases]
        members = membership.members(predicates.parse(pool.match))
        identities = [node.identity for node in members]
        scope = Scope(now, self._limits.horizon, identities, membership.names)
        return ViewSources(
            pool.name,
            pool.patience,
            scope,
            members,
            await episodes.policy_state(connection, pool.name),
            cases,
            await read_runs(connection, scope, cases, self._needs),
            await read_history(connection, scope),
            stored.reserved,
            (),
        )

    async def _read_user_rooms(
        self, connection: Connection, tasks: Iterable[PoolTask], now: int
    ) -> dict[UUID, UserRoom]:
        """Return by task what the limits of this host leave to its user, where they bind."""
        bound = {it.id: (it.limit, it.terms.duration) for it in tasks if self._users.bind(it.limit)}
        rooms = {
            (limit, duration): UserRoom(
                *await self._users.left_to_user(connection, limit, duration, now)
            )
            for limit, duration in set(bound.values())
        }
        return {task: rooms[of] for task, of in bound.items()}

    async def read_ahead(
        self,
        membership: Membership,
        pool: StoredPool,
        tasks: Sequence[PoolTask],
        coming: Sequence[OpenTerm],
        until: int,
    ) -> PoolAhead:
        """Read all terms of these tasks up to an instant, with those ``coming``.

        A task that cannot be read is left out.
        """
        now = self._clock.now()
        ids = [task.id for task in tasks]
        async with self._database.connection() as connection:
            terms = [*await episodes.terms_ahead(connection, ids, now, until), *coming]
            stored = await read_stored(connection, pool.name, tasks, terms, now)
            held = await episodes.seats_of_terms(connection, ids, now)
            cases = self._cases_ahead(membership, pool, tasks, stored, now)
            sources = await self._sources(connection, membership, pool, cases, stored)
        view = view_of(sources, self._needs, self._resources)
        seats = {str(task): (key, number) for task, key, number in held}
        return PoolAhead(view, sources.cases, seats, sources.runs.note)

    def _cases_ahead(
        self,
        membership: Membership,
        pool: StoredPool,
        tasks: Sequence[PoolTask],
        stored: StoredTerms,
        now: int,
    ) -> list[SeatCase]:
        """Make a case of each term that has open time, even if none of its seats is empty."""
        by_id = {task.id: task for task in tasks}
        cases: list[SeatCase] = []
        for term in stored.terms:
            try:
                case = self._case(membership, pool, by_id[term.task], term, stored, now)
                if case.begins is not None:
                    refusing = _refusing_nodes(stored.turned_down[term.task], membership, now)
                    cases.append(_with_able_nodes(membership, case, refusing))
            except Exception as error:  # noqa: BLE001 - one task that cannot be read stops no other
                log.warning("a task is left out", task=str(term.task), error=str(error))
        return cases

    def _log_note(self, pool: str, note: str | None) -> None:
        """Log the note once as long as there is one: episodes may follow within seconds."""
        if note is None:
            self._pools_with_note.discard(pool)
        elif pool not in self._pools_with_note:
            self._pools_with_note.add(pool)
            log.warning("an episode does not see all", pool=pool, lacks=note)

    def _cases_of(
        self,
        membership: Membership,
        pool: StoredPool,
        tasks: Sequence[PoolTask],
        stored: StoredTerms,
        now: int,
    ) -> _Cases:
        """Make a case of each term; a task that cannot be read is left out with all its terms."""
        tasks_by_id = {task.id: task for task in tasks}
        keeps_nodes = policies_of(pool).keeps_nodes
        cases = _Cases()
        for term in stored.terms:
            task = tasks_by_id[term.task]
            try:
                case = self._case(membership, pool, task, term, stored, now)
                case = case if keeps_nodes else replace(case, sticky=False)
                if case.slots and case.empty:
                    refusing = _refusing_nodes(stored.turned_down[task.id], membership, now)
                    cases.due.append(_with_able_nodes(membership, case, refusing))
                else:
                    cases.over.append(
                        FinishedTerm(term, task.terms.revision, len(case.empty), case.held)
                    )
            except Exception as error:  # noqa: BLE001 - the caller reports it with the task
                cases.broken[task.id] = error
        return _Cases(
            [case for case in cases.due if case.pool_task.id not in cases.broken],
            [each for each in cases.over if each.open.task not in cases.broken],
            cases.broken,
        )

    def _case(
        self,
        membership: Membership,
        pool: StoredPool,
        task: PoolTask,
        term: OpenTerm,
        stored: StoredTerms,
        now: int,
    ) -> SeatCase:
        request = SeatRequest.model_validate(task.request)
        recurrence = task.terms.recurrence
        soonest = now + self._limits.margin
        slots = open_slots(recurrence, task.terms.duration, term.term, soonest)
        measured_to = stored.measured_to[term.key]
        last = slots[-1] if slots else 0
        taken = stored.taken[term.key]
        numbers = [number for number in range(1, term.seats + 1) if number not in taken]
        unmeasured = [number for number in numbers if measured_to.get(number, 0) < last]
        known = membership.by_identity

        def named(held: Mapping[int, str]) -> dict[int, str]:
            return {n: known[node].name for n, node in held.items() if node in known}

        reserved = reserved_for_others(pool.name, stored.reserved, applicant(task.terms, task.id))
        begins = slots[0] if slots else None
        if slots and reserved.spans:
            windows = windows_of(slots, recurrence, task.terms.duration)
            begins = reserved.first_open(windows, task.terms.duration)
        used_at, choice = stored.used_at[task.id].items(), request.choice or pool.choice
        return SeatCase(
            pool_task=task,
            request=request,
            open=term,
            recurrence=recurrence,
            slots=slots,
            empty=unmeasured if slots else numbers,
            able=(),
            closed=reserved,
            begins=begins,
            sitting=named(taken),
            held=len(taken),
            before=named(stored.before[task.id]),
            measured_to=measured_to,
            used_at={known[node].name: at for node, at in used_at if node in known},
            sticky=choice == "sticky",
            rotating=choice == "rotating",
        )


def _refusing_nodes(
    turned_down: Mapping[str, TurnedDown], membership: Membership, now: int
) -> dict[str, Reason]:
    """Return by name the nodes that refused the task and are not asked again yet, with the reason.

    The pause is that after refused questions, without jitter.
    """
    reasons: dict[str, Reason] = {}
    for identity, refusals in turned_down.items():
        until = refusals.last_at + pause(refusals.times)
        if now < until and identity in membership.by_identity:
            name = membership.by_identity[identity].name
            reasons[name] = refused_before(until, refusals.reason.removeprefix(f"{name}: "))
    return reasons


def _with_able_nodes(
    membership: Membership, case: SeatCase, refusing: Mapping[str, Reason]
) -> SeatCase:
    """Add the nodes that could have a seat; none if the test of the task is not known here.

    ``refusing`` are those that have refused the task and are left alone, with the reason.
    """
    try:
        able, unable = membership.judgement_of(case.pool_task.criteria)
    except ParleyError as error:
        return replace(case, unable={case.pool_task.terms.test: error.reason})
    sitting = frozenset(case.sitting.values())
    free = tuple(name for name in able if name not in sitting and name not in refusing)
    return replace(case, able=free, unable={**unable, **refusing})
