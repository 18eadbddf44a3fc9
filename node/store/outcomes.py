"""The newest outcomes of the tasks led here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from uuid import UUID

from node.store.statements import Query, Statements

_SQL = Statements("node.store", "outcomes")


@dataclass(frozen=True)
class TaskOutcome:
    """The newest outcome of an active task; ``since`` is when it began to go wrong, if it does."""

    id: UUID
    test: str
    tool: str | None
    spec: dict[str, Any]
    participants: list[dict[str, Any]]
    run: UUID
    judgement: str
    code: str
    reason: str | None
    slot: int
    since: int | None


find_all: Query[[int], list[TaskOutcome]] = _SQL.rows("outcomes", TaskOutcome)
"""The newest outcomes of the active tasks led here at an instant; those without are left out."""
