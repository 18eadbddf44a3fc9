"""The tasks of other nodes, as the limits of the owner of this host see them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from node.store.database import Connection, Queries

_SQL = Queries("node.store", "host_limits")


@dataclass(frozen=True)
class LimitStanding:
    """The rule that admits a task of another node, or why it is refused by now.

    Both are None for a task that this node leads.
    """

    rule: str | None = None
    refusal: str | None = None


async def foreign_open(connection: Connection, after: UUID, at_most: int) -> list[UUID]:
    """Return open tasks that other nodes lead, in the order of their ids, after this one."""
    return [row[0] for row in await connection.fetch(_SQL["foreign_open"], after, at_most)]


async def keep_verdicts(
    connection: Connection, judged: Mapping[tuple[UUID, int], LimitStanding]
) -> None:
    """Write the verdicts on tasks, by id and revision; one that has changed since keeps its own."""
    await connection.execute(
        _SQL["keep_verdicts"],
        [task for task, _ in judged],
        [revision for _, revision in judged],
        [standing.rule for standing in judged.values()],
        [standing.refusal for standing in judged.values()],
    )


async def standings(connection: Connection, tasks: Sequence[UUID]) -> dict[UUID, LimitStanding]:
    """Return how the known ones among these tasks stand."""
    rows = await connection.fetch(_SQL["limit_standings"], list(tasks))
    return {row[0]: LimitStanding(row[1], row[2]) for row in rows}


async def refused_count(connection: Connection) -> int:
    """Return how many open tasks are refused by the present limits."""
    return int(await connection.fetchval(_SQL["refused_count"]))
