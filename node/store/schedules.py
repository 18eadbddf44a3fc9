"""The schedule of this node as it stood, and how it has changed.

Both are read from the run table, which keeps what became of each run, and when, for as long as it
keeps the run.
"""

from __future__ import annotations

from uuid import UUID

from node.store.database import Record
from node.store.statements import Query, Statements

_SQL = Statements("node.store", "schedules")


schedule_at: Query[[int, int, int, int | None, UUID | None, str | None, int], list[Record]] = (
    _SQL.records("as_of")
)
"""A page of the runs of a span, in the states that they had at an instant.

Takes ``at``, ``since``, ``before``, start and id of the last run of the page before, ``requester``,
``limit``.
"""

changes_between: Query[[int, int, int, int, str | None, int], list[Record]] = _SQL.records(
    "changes"
)
"""The runs of a span that were booked otherwise at ``earlier`` than at ``later``.

Takes ``earlier``, ``later``, ``since``, ``before``, ``requester``, ``limit``.
"""
