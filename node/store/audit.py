"""The audit: who did what on this node, and who was refused; only added to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from node.model.audit import AuditEntry
from node.model.principals import PrincipalKind
from node.store.database import Connection, Record
from node.store.statements import Purge, Query, Statements, spread

_SQL = Statements("node.store", "audit")


@dataclass(frozen=True)
class AuditFilter:
    """The rows that are wanted; None and nothing mean any. Instants are in microseconds.

    ``principal`` is a label, a name, or a key; ``thing`` the beginning of an id, or a name.
    """

    principal: str | None = None
    verb: str | None = None
    thing: str | None = None
    outcomes: Sequence[str] | None = None
    since: int | None = None
    until: int | None = None


async def keep(connection: Connection, entries: Sequence[AuditEntry]) -> None:
    """Add rows, in this order."""
    rows = [_row(entry) for entry in entries]
    await connection.execute(_SQL["keep_entries"], *zip(*rows, strict=True))


def _row(entry: AuditEntry) -> tuple[object, ...]:
    who = entry.principal
    is_known = who.kind in {PrincipalKind.TOKEN, PrincipalKind.NODE}
    return (
        entry.at,
        who.kind,
        who.name if is_known else None,
        who.key,
        who.role if is_known else None,
        entry.origin,
        entry.verb,
        entry.thing,
        entry.outcome,
        entry.status,
        entry.problem,
        entry.count,
    )


first_entries: Query[[AuditFilter, int | None, int], list[Record]] = spread(
    _SQL.records("entries_forward")
)
"""A page of rows, the oldest first: at most so many beyond the row with this id."""

last_entries: Query[[AuditFilter, int | None, int], list[Record]] = spread(
    _SQL.records("entries_backward")
)
"""A page of rows, the newest first."""


purge: Purge = _SQL.value("purge_entries")
"""Delete rows that are older; return how many."""
