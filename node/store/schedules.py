"""The schedule of this node as it stood, and how it has changed.

Both are read from the run table, which keeps what became of each run, and when, for as long as it
keeps the run.
"""

from __future__ import annotations

from uuid import UUID

from node.store.database import Connection, Record
from node.store.statements import Query, Statements

_SQL = Statements("node.store", "schedules")


async def schedule_at(  # noqa: PLR0913, PLR0917 - an instant, a span, and a page of it
    connection: Connection,
    at: int,
    since: int,
    before: int,
    after: tuple[int, UUID] | None,
    requester: str | None,
    limit: int,
) -> list[Record]:
    """Return a page of the runs of a span, in the states that they had at an instant.

    ``after`` has start and id of the last run of the page before.
    """
    start, run = after or (None, None)
    rows: list[Record] = await connection.fetch(
        _SQL["as_of"], at, since, before, start, run, requester, limit
    )
    return rows


changes_between: Query[[int, int, int, int, str | None, int], list[Record]] = _SQL.records(
    "changes"
)
"""The runs of a span that were booked otherwise at ``earlier`` than at ``later``.

Takes ``earlier``, ``later``, ``since``, ``before``, ``requester``, ``limit``.
"""
