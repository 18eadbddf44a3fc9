"""The tasks of meshes led here, the outcomes of their slots, and the sums of these.

With a ``requester``, only the tasks that this user created count. Outcomes are read from sums by
task, day and cause, and slot by slot where these are not up to date or a span ends within an hour.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from node.model.wire.meshes import CAUSES_MAX, Cause, Delivery
from node.store.database import Connection, Database
from node.store.statements import Purge, Query, Statements

_SQL = Statements("node.store", "meshes")

BATCH = 500
"""Maximum number of changes that one transaction takes up: a tenth of a second of work."""


@dataclass(frozen=True)
class MeshTaskCounts:
    """A mesh, and its number of tasks by state."""

    mesh: str
    tasks: dict[str, int]
    campaigns: list[str]
    created_at: int
    changed_at: int


@dataclass(frozen=True)
class MeshKey:
    """One key of a mesh, and its newest task."""

    key: str
    source: str
    dest: str
    test: str
    state: str
    thresholds: Any = None
    """Thresholds of its reference, unchecked: anybody may post a task with any reference."""
    reason: str | None = None
    """The reason why its newest task was refused or has ended, or why there is none."""


@dataclass(frozen=True)
class RefusedPair:
    """A pair of a mesh for which a task was posted and not created, and why."""

    mesh: str
    key: str
    source: str
    dest: str
    test: str
    reason: str


@dataclass(frozen=True)
class LatestResult:
    """The latest result of a key."""

    test: str
    run: UUID
    ends_at: int
    summary: str | None
    verdict: str | None
    result: dict[str, Any]
    is_stale: bool
    """True if it is older than twice the interval of its task."""


@dataclass(frozen=True)
class NewestOutcome:
    """The judgement of the newest slot of a key."""

    judgement: str
    code: str
    reason: str | None
    ended_at: int


@dataclass(frozen=True)
class Square:
    """A pair of a mesh in few words; ``judgement`` and ``verdict`` are None if no slot is over."""

    key: str
    test: str
    state: str
    judgement: str | None
    verdict: str | None


@dataclass(frozen=True)
class SlotOutcome:
    """The number of slots with one outcome; missing slots have a cause, delivered ones if bad."""

    outcome: str
    state: str | None
    cause: str | None
    slots: int
    example: str | None


def delivery_of(outcomes: Iterable[SlotOutcome]) -> Delivery:
    """Return what slots with these outcomes add up to; without causes if they have no examples."""
    slots = dict.fromkeys(("delivered", "missing", "open"), 0)
    causes: list[Cause] = []
    bad = 0
    for each in outcomes:
        slots[each.outcome] += each.slots
        bad += each.slots if each.outcome == "delivered" and each.cause is not None else 0
        if each.outcome == "missing" and len(causes) < CAUSES_MAX:
            cause = Cause(
                state=each.state or "",
                cause=each.cause or "",
                count=each.slots,
                example=each.example or "",
            )
            causes.append(cause)
    return Delivery(
        due=slots["delivered"] + slots["missing"],
        delivered=slots["delivered"],
        bad=bad,
        open=slots["open"],
        causes=tuple(causes),
    )


find_all: Query[[str | None, str | None], list[MeshTaskCounts]] = _SQL.rows(
    "meshes", MeshTaskCounts
)
"""All meshes, or the one of this name. Takes ``name``, ``requester``."""

exists: Query[[str, str | None], bool] = _SQL.value("has_mesh")
"""Return whether a mesh of this name has a task. Takes ``name``, ``requester``."""


async def tasks(
    connection: Connection,
    mesh: str,
    after: tuple[str, int, UUID] | None,
    limit: int,
    requester: str | None,
) -> list[dict[str, Any]]:
    """Return a page of a mesh's tasks, those after this key, creation time, and task."""
    behind = after or (None, None, None)
    rows = await connection.fetch(_SQL["mesh_tasks"], mesh, *behind, limit, requester)
    return [dict(row) for row in rows]


keys: Query[[str, str | None, int, str | None], list[MeshKey]] = _SQL.rows("mesh_keys", MeshKey)
"""A page of the keys of a mesh. Takes ``mesh``, ``after``, ``limit``, ``requester``."""

refused_keys: Query[
    [str, str | None, str | None, str | None, int, Sequence[str] | None], list[MeshKey]
] = _SQL.rows("refused_pairs", MeshKey)
"""Pairs of a mesh for which no task was created when one was posted last.

Takes ``mesh``, the keys ``after`` and ``until`` which to look, ``requester``, ``limit``, and the
only keys to look for, if not all.
"""

matrix: Query[[str, int, str | None, int], list[Square]] = _SQL.rows("matrix", Square)
"""All pairs of a mesh at an instant that have an open task or a slot since another one, by key.

Takes ``mesh``, ``at``, ``requester``, ``since``.
"""


async def keep_refusals(
    connection: Connection, refused: Sequence[RefusedPair], requester: str | None, now: int
) -> None:
    """Keep why these pairs have no task."""
    last = {(each.mesh, each.key): each for each in refused}.values()
    columns = zip(*(vars(each).values() for each in last), strict=True)
    await connection.execute(_SQL["keep_refusals"], *map(list, columns), requester, now)


purge_refusals: Purge = _SQL.value("purge_refusals")
"""Delete refusals of pairs that were told before; return how many."""

worst_keys: Query[[str, int, int, int, str | None], list[str]] = _SQL.column("worst_keys")
"""The keys with the smallest share of delivered slots in a span ``[since, until)``.

Keys without missing slots are not among them. Takes ``mesh``, ``since``, ``until``, ``limit``,
``requester``.
"""

newest_tasks: Query[[str, Sequence[str], str | None], list[MeshKey]] = _SQL.rows(
    "newest_of_keys", MeshKey
)
"""These keys of a mesh, each with its newest task. Takes ``mesh``, ``keys``, ``requester``."""

latest_results: Query[[str, Sequence[str], int, str | None], dict[str, LatestResult]] = (
    _SQL.rows_by_key("latest_of_keys", LatestResult)
)
"""The latest result of these keys of a mesh before an instant, if any, by key.

Takes ``mesh``, ``keys``, ``before``, ``requester``.
"""


newest_outcomes: Query[[str, Sequence[str], int, str | None], dict[str, NewestOutcome]] = (
    _SQL.rows_by_key("newest_outcomes_of_keys", NewestOutcome)
)
"""The newest outcome of these keys of a mesh at an instant, if any slot is over, by key.

Takes ``mesh``, ``keys``, ``at``, ``requester``.
"""


async def sum_up(connection: Connection, at_most: int) -> int:
    """Sum up hours that have changed, in a transaction; return how many changes that were.

    While another process does so, this one does nothing.
    """
    if not await connection.fetchval(_SQL["lock_sums"]):
        return 0
    taken: int = await connection.fetchval(_SQL["sum_up_hours"], at_most)
    return taken


async def sum_up_all(database: Database) -> None:
    """Sum up the hours of all tasks whose slots have changed, batch by batch.

    Until then their slots are counted one by one whenever somebody asks, so nobody waits for this.
    """
    while True:
        async with database.transaction() as connection:
            if await sum_up(connection, BATCH) < BATCH:
                return


outcomes: Query[[str, int, int, str | None], list[SlotOutcome]] = _SQL.rows(
    "mesh_outcomes", SlotOutcome
)
"""The outcomes of all slots of a mesh in ``[since, until)``.

Takes ``mesh``, ``since``, ``until``, ``requester``.
"""

outcomes_by_key: Query[[str, int, int, str, str, str | None], dict[str, list[SlotOutcome]]] = (
    _SQL.lists_by_key("mesh_outcomes_of", SlotOutcome)
)
"""The outcomes in a span ``[since, until)`` of the keys from one to another.

Keys without slots are missing. Takes ``mesh``, ``since``, ``until``, ``first``, ``last``,
``requester``.
"""
