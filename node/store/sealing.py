"""The key that seals secrets, and those in clear of programs before schema version 8."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from node.store.database import Connection, Record
from node.store.statements import Query, Statements, spread

_SQL = Statements("node.store", "sealing")


sealing_key_name: Query[[], str | None] = _SQL.value("sealed_by")
"""The name of the key by which the node's service seals; None if it has noted none."""

note_sealed_by: Query[[str], None] = _SQL.command("note_sealed_by")
"""Note the name of the key by which the node's service seals."""

destinations: Query[[], list[Record]] = _SQL.records("destination_specs")
"""The destinations of archives: ``id``, ``archiver``, ``spec``."""

seal_destination: Query[[int, dict[str, Any], str], None] = _SQL.command("seal_destination")
"""Replace the spec of a destination."""

unsealed_webhooks: Query[[], dict[str, str]] = _SQL.by_key("clear_webhooks")
"""The secrets of webhooks that are not sealed, by name."""

seal_webhook: Query[[str, str, str], None] = _SQL.command("seal_webhook")
"""Replace the secret of a webhook. Takes ``name``, ``secret``, ``sealed``."""


@dataclass(frozen=True)
class PostedSecrets:
    """Secrets of a document of pScheduler: its own texts, its private members, its key.

    ``document`` and ``secret`` are JSON texts; ``words`` is how its test is told.
    """

    task: UUID
    document: str | None
    secret: str | None
    key: str | None
    words: list[str] | None


unsealed_posted: Query[[Sequence[str], Sequence[str]], list[PostedSecrets]] = _SQL.rows(
    "clear_posted", PostedSecrets
)
"""The documents of pScheduler that have secrets in clear.

Those are their keys, their private members, and literals in one of these fields of these tests.
Takes ``tests``, ``fields``.
"""

seal_posted: Query[[PostedSecrets], None] = spread(_SQL.command("seal_posted"))
"""Replace the secrets of a posted document by sealed ones, and its ``words`` if given."""

unsealed_memberships: Query[[], dict[UUID, str]] = _SQL.by_key("clear_memberships")
"""The keys of tasks at hosts that run pScheduler that are not sealed, by task there."""

seal_membership: Query[[UUID, str], None] = _SQL.command("seal_membership")
"""Replace the key of a task at a host that runs pScheduler by a sealed one."""

unsealed_tasks: Query[[str, Sequence[str], Sequence[str]], list[Record]] = _SQL.records(
    "clear_tasks"
)
"""Tasks of these tests with a literal in one of these fields of their specs.

Takes ``own``, ``tests``, ``fields``.
"""


async def seal_task(
    connection: Connection, task: UUID, before: dict[str, Any], spec: dict[str, Any]
) -> None:
    """Replace the spec of a task unless it has another one meanwhile.

    What a client of pScheduler posted stays what it posted, though an edit would make it forgotten.
    """
    posted = await connection.fetchrow(_SQL["posted_texts"], task)
    await connection.execute(_SQL["seal_task"], task, before, spec)
    if posted is not None:
        await connection.execute(_SQL["keep_posted_texts"], task, *posted)


unsealed_runs: Query[[Sequence[str], Sequence[str]], list[Record]] = _SQL.records("clear_runs")
"""Runs with specs of their own that have a literal in one of these fields.

Takes ``tests``, ``fields``.
"""

seal_run: Query[[UUID, dict[str, Any]], None] = _SQL.command("seal_run")
"""Replace the spec of a run."""
