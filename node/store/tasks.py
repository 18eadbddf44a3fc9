"""The tasks that this node leads or takes part in.

A task is one row at its lead and at each participant. Its revision orders all that is told of it: a
write with an older revision than the stored one changes nothing, so introductions may come late and
twice. Only its lead writes it. The lead's agenda of it, in ``planning``, is a row of its own, which
workers lease without touching the task.

Whoever changes what runs of a task are, or ends it, locks its row first (:func:`lock`), before its
runs; so edits, ends, and holds come one after the other. An Idempotency-Key is claimed in the
transaction that stores the task, so that of two equal requests one is stored.

What is deleted for age, number, or bytes are ended tasks only; all that depends on them goes along.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from node.model.host_limits.caps import CapAccount
from node.model.host_limits.standing import LimitStanding
from node.model.reasons import followed_is_over
from node.model.task_terms import TaskTerms, introduction_with, take_terms
from node.model.taskstate import TaskState
from node.model.wire.participants import Introduction
from node.model.wire.tasks import KEEPERS, PARTICIPANTS
from node.store.database import Connection, Record
from node.store.statements import Purge, Query, Statements

_SQL = Statements("node.store", "tasks")

LISTED_REFERENCE_MAX = 4096
"""Maximum length, as JSON, of a reference that lists show: a page has up to 500 of them."""


@dataclass(frozen=True)
class StoredTask:
    """A task as this node stores it; instants in microseconds.

    ``participant`` is this node's place among the participants, None if it only leads the task.
    ``parent`` is the pool task in which this node gave it seats. For a task that another node
    leads, that node's pool task is ``pool_task``. ``requester`` is the user who created it here.
    Its runs count for ``limit_user``, who created it or edited it last, from ``limit_address``, and
    is bound by the rules for targets if it is ``limit_bound``.
    """

    id: UUID
    lead: str
    state: TaskState
    terms: TaskTerms
    reason: str | None = None
    participant: int | None = None
    freeing: dict[str, Any] | None = None
    paused_at: int | None = None
    ended_at: int | None = None
    parent: UUID | None = None
    pool_task: UUID | None = None
    requester: str | None = None
    limit_user: str | None = None
    limit_address: str | None = None
    limit_bound: bool = False

    def introduction(self, place: int) -> Introduction:
        """Return the introduction of the task to its participant at this place (from 0)."""
        return introduction_with(
            self.id,
            self.terms,
            place,
            pool_task=self.parent,
            paused_at=self.paused_at,
            freeing=self.freeing,
        )


StoreAlong = Callable[[Connection, StoredTask], Awaitable[None]]
"""Stores something else that belongs to a new task, in the transaction that stores it."""


@dataclass(frozen=True)
class TaskFilter:
    """The tasks to list, their order, and the page of them.

    ``before_task`` is the last task of the page before, and ``after_place`` its place in the order,
    unless that is by creation. The ordinary tasks of seats are left out, except with ``seats``, or
    as those of ``parent``.
    """

    task: UUID | None = None
    states: Sequence[str] | None = None
    test: str | None = None
    prefix: str | None = None
    before_created: int | None = None
    before_task: UUID | None = None
    seats: bool = False
    parent: UUID | None = None
    limit: int = 50
    requester: str | None = None
    participant: str | None = None
    target: str | None = None
    campaign: str | None = None
    mesh: str | None = None
    classes: Sequence[str] | None = None
    words: Sequence[str] | None = None
    """In lower case; what people read of a task has all of them."""
    sort: str = "created"
    """created, next, name, mesh, or state."""
    descending: bool = True
    after_place: str | None = None
    outcomes: Sequence[str] | None = None
    """The judgements of their newest slots."""


async def keep(
    connection: Connection, task: StoredTask, limit: LimitStanding | None = None
) -> bool:
    """Insert or update a task; False if another node leads it, or a newer revision is stored.

    ``limit`` is how the task stands with this host's limits.
    """
    return bool(await keep_all(connection, [(task, limit)]))


async def keep_all(
    connection: Connection, tasks: Sequence[tuple[StoredTask, LimitStanding | None]]
) -> set[UUID]:
    """Write or update tasks as :func:`keep` does each of them; return the ids of those kept."""
    values = [_values(task, limit) for task, limit in tasks]
    return {row[0] for row in await connection.fetchmany(_SQL["upsert_task"], values)}


def _values(task: StoredTask, limit: LimitStanding | None) -> tuple[Any, ...]:
    """Return the values of a task in the order of the query that writes it."""
    terms = task.terms
    return (
        task.id,
        task.lead,
        terms.test,
        terms.spec,
        terms.tool,
        list(terms.tools),
        terms.scheduling_class,
        terms.duration,
        terms.priority,
        PARTICIPANTS.dump_python(terms.participants, mode="json"),
        task.participant,
        terms.addresses,
        terms.schedule.model_dump(mode="json"),
        terms.campaign,
        terms.reference,
        terms.created_at,
        terms.revision,
        task.pool_task,
        None if limit is None else limit.rule,
        None if limit is None else limit.run_bytes,
        [] if limit is None else list(map(list, limit.caps)),
        task.requester,
        task.limit_user,
        task.limit_address,
        None if limit is None else limit.refusal,
        task.limit_bound,
        KEEPERS.dump_python(terms.keepers, mode="json"),
    )


@dataclass(frozen=True)
class FirstPlanning:
    """The first slot of a new task, the instant at which it is planned, and its place in a list.

    The first two are None for a task that follows another one: it has nothing to plan yet.
    """

    next_run_at: int | None
    plan_at: int | None
    place: int = 0


async def open_planning(
    connection: Connection, plannings: Mapping[UUID, FirstPlanning]
) -> set[UUID]:
    """Put tasks on the lead's agenda; return them without those whose campaign does not exist."""
    rows = await connection.fetch(
        _SQL["open_planning"],
        list(plannings),
        [it.next_run_at for it in plannings.values()],
        [it.plan_at for it in plannings.values()],
        [it.place for it in plannings.values()],
    )
    return {row[0] for row in rows}


@dataclass(frozen=True)
class Made:
    """The thing that the request with an Idempotency-Key made, and the digest of the request."""

    digest: str
    made: UUID


async def keep_idempotency(connection: Connection, made: Mapping[str, Made], now: int) -> set[str]:
    """Claim Idempotency-Keys; return them without those that were used before."""
    rows = await connection.fetch(
        _SQL["keep_idempotency"],
        list(made),
        [it.digest for it in made.values()],
        [it.made for it in made.values()],
        now,
    )
    return {row[0] for row in rows}


find_idempotency: Query[[Sequence[str]], dict[str, Made]] = _SQL.rows_by_key(
    "find_idempotency", Made
)
"""Return what was made with each of these Idempotency-Keys; new keys are missing."""


async def lock(connection: Connection, task: UUID) -> StoredTask | None:
    """Return a task, locked until the transaction ends; None if it is unknown here."""
    await connection.execute(_SQL["lock_task"], task)
    return await fetch(connection, task)


async def fetch(connection: Connection, task: UUID) -> StoredTask | None:
    """Return a task; None if it is unknown here."""
    rows = await fetch_all(connection, [task])
    return rows[0] if rows else None


async def fetch_all(connection: Connection, tasks: Sequence[UUID]) -> list[StoredTask]:
    """Return the known ones among these tasks, in the order of their ids."""
    return [_task_of_row(dict(row)) for row in await connection.fetch(_SQL["task"], list(tasks))]


requester: Query[[UUID], str | None] = _SQL.value("requester")
"""Return who created a task; None if no user of this node did, or it is unknown here."""

requester_of_run: Query[[UUID], str | None] = _SQL.value("requester_of_run")
"""Return who created the task of a run; None as in :data:`requester`."""

find_requested: Query[[Sequence[UUID], str], set[UUID]] = _SQL.distinct("requested")
"""Return those of these tasks that this user created."""

naming_facts: Query[[Sequence[UUID]], list[Record]] = _SQL.records("measured_tasks")
"""Rows of the query ``measured_tasks``: what lists need to name these tasks."""


count_open_of: Query[[str, str | None], int] = _SQL.value("count_open_of")
"""The number of open tasks of this lead here, or only of those under this rule."""


async def count_open_capped(connection: Connection, account: CapAccount) -> int:
    """Return how many open tasks count here for a cap of groups of nodes."""
    name, holder = account.name, account.network
    return int(await connection.fetchval(_SQL["count_open_capped"], name, holder))


count_open_for: Query[[str, str, UUID], int] = _SQL.value("count_open_for")
"""Return how many open tasks this user has here under this rule, without one of them.

Takes ``user``, ``rule``, ``but``.
"""

share_limits: Query[[UUID], None] = _SQL.command("share_limits")
"""Have the tasks of a pool task's seats count for the same user, under the same rule."""

lock_open_of: Query[[str, int], list[UUID]] = _SQL.column("lock_open_of")
"""Lock some open tasks of this lead, the first ones by id; return their ids."""

lock_open_with: Query[[str, str, int], list[UUID]] = _SQL.column("lock_open_with")
"""Lock some open tasks of this lead that have this participant; return their ids.

Takes ``lead``, ``participant``, ``at_most``.
"""

leading_here: Query[[], list[str]] = _SQL.column("leading_here")
"""The identities of the nodes that lead open tasks here."""

open_tasks_of: Query[[str], list[UUID]] = _SQL.column("open_of")
"""The open tasks of another lead, in order."""


def _task_of_row(row: dict[str, Any]) -> StoredTask:
    return StoredTask(
        state=TaskState(row.pop("state")),
        terms=take_terms(row),
        **row,
    )


async def find_page(connection: Connection, wanted: TaskFilter, now: int) -> list[Record]:
    """Return rows of tasks for users, with counts of runs and the next start.

    Several tasks come without references longer than :data:`LISTED_REFERENCE_MAX`.
    """
    if wanted.task is not None:
        return await connection.fetch(_ONE_TASK, now, LISTED_REFERENCE_MAX, wanted.task)
    return await connection.fetch(_SQL["tasks"], now, LISTED_REFERENCE_MAX, *vars(wanted).values())


# Postgres plans a list anew for each filter, which takes longer than to read one task. Without
# filters and order, it keeps the plan.
_ONE_TASK = (
    _SQL["tasks"].partition("\nWHERE\n")[0].replace("$19::text", "'created'")
    + "\nWHERE task.id = $3"
)


end: Query[[Sequence[UUID], TaskState, str, int], set[UUID]] = _SQL.distinct("end_tasks")
"""End these tasks, and return those that were open."""

stop_planning: Query[[Sequence[UUID]], dict[UUID, int | None]] = _SQL.by_key("stop_planning")
"""Take these tasks off the agenda; return by task until when a worker may still plan it."""

wake_planning: Query[[UUID, int, int], None] = _SQL.command("wake_planning")
"""Plan this task now, from ``slot`` on. Takes ``task``, ``now``, ``slot``."""

wake_refused: Query[[Sequence[UUID], str, int], list[UUID]] = _SQL.column("wake_refused")
"""Plan now the waiting tasks among these that have this participant; return their ids."""


@dataclass(frozen=True)
class TaskOver:
    """A task that has ended because nothing is left to come; ``parties`` are the nodes in it."""

    task: UUID
    parties: frozenset[str]
    state: TaskState
    reason: str | None


async def finish(connection: Connection, now: int) -> list[TaskOver]:
    """End the tasks whose schedule and runs are over, and return them."""
    return [_task_over_of_row(row) for row in await connection.fetch(_SQL["finish_tasks"], now)]


async def finish_followers(connection: Connection, now: int) -> list[TaskOver]:
    """End the tasks that follow one that is over, once their own runs are; return them."""
    ended = [
        TaskOver(
            row[0],
            frozenset(row[1]),
            TaskState.FINISHED if row[3] == TaskState.FINISHED else TaskState.CANCELLED,
            followed_is_over(row[2], row[3] or "gone", row[4]),
        )
        for row in await connection.fetch(_SQL["followers_over"])
    ]
    if ended:
        columns = zip(*((it.task, it.state, it.reason) for it in ended), strict=True)
        await connection.execute(_SQL["finish_followers"], *map(list, columns), now)
    return ended


def _task_over_of_row(row: Record) -> TaskOver:
    return TaskOver(row[0], frozenset(row[1]), TaskState(row[2]), row[3])


purge: Purge = _SQL.value("purge_tasks")
"""Delete tasks that ended before, with all that depends on them; return how many."""

purge_heavy: Purge = _SQL.value("purge_heavy_tasks")
"""Shorten, then delete ended tasks of other nodes beyond so many bytes; return how many.

They are those of each lead, or of all leads together that share a cap.
"""

purge_surplus: Purge = _SQL.value("purge_surplus_tasks")
"""Delete ended tasks of other nodes beyond the latest ``kept`` of each; return how many."""
