"""The key that seals secrets, and those in clear of programs before schema version 8."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, dataclass
from typing import Any
from uuid import UUID

from node.store.database import Connection, Record
from node.store.queries import Queries

_SQL = Queries("node.store", "sealing")


async def sealing_key_name(connection: Connection) -> str | None:
    """Return the name of the key by which the node's service seals; None if it has noted none."""
    name: str | None = await connection.fetchval(_SQL["sealed_by"])
    return name


async def note_sealed_by(connection: Connection, name: str) -> None:
    """Note the name of the key by which the node's service seals."""
    await connection.execute(_SQL["note_sealed_by"], name)


async def destinations(connection: Connection) -> list[Record]:
    """Return the destinations of archives: ``id``, ``archiver``, ``spec``."""
    return await connection.fetch(_SQL["destination_specs"])


async def seal_destination(
    connection: Connection, destination: int, spec: dict[str, Any], digest: str
) -> None:
    """Replace the spec of a destination."""
    await connection.execute(_SQL["seal_destination"], destination, spec, digest)


async def unsealed_webhooks(connection: Connection) -> dict[str, str]:
    """Return the secrets of webhooks that are not sealed, by name."""
    return {row[0]: row[1] for row in await connection.fetch(_SQL["clear_webhooks"])}


async def seal_webhook(connection: Connection, name: str, secret: str, sealed: str) -> None:
    """Replace the secret of a webhook."""
    await connection.execute(_SQL["seal_webhook"], name, secret, sealed)


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


async def unsealed_posted(
    connection: Connection, tests: Sequence[str], fields: Sequence[str]
) -> list[PostedSecrets]:
    """Return the documents of pScheduler that have secrets in clear.

    Those are their keys, their private members, and literals in one of these fields of these tests.
    """
    rows = await connection.fetch(_SQL["clear_posted"], list(tests), list(fields))
    return [PostedSecrets(*row) for row in rows]


async def seal_posted(connection: Connection, sealed: PostedSecrets) -> None:
    """Replace the secrets of a posted document by sealed ones, and its ``words`` if given."""
    await connection.execute(_SQL["seal_posted"], *astuple(sealed))


async def unsealed_memberships(connection: Connection) -> dict[UUID, str]:
    """Return the keys of tasks at hosts that run pScheduler that are not sealed, by task there."""
    return {row[0]: row[1] for row in await connection.fetch(_SQL["clear_memberships"])}


async def seal_membership(connection: Connection, task_there: UUID, sealed: str) -> None:
    """Replace the key of a task at a host that runs pScheduler by a sealed one."""
    await connection.execute(_SQL["seal_membership"], task_there, sealed)


async def unsealed_tasks(
    connection: Connection, own: str, tests: Sequence[str], fields: Sequence[str]
) -> list[Record]:
    """Return tasks of these tests with a literal in one of these fields of their specs."""
    return await connection.fetch(_SQL["clear_tasks"], own, list(tests), list(fields))


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


async def unsealed_runs(
    connection: Connection, tests: Sequence[str], fields: Sequence[str]
) -> list[Record]:
    """Return runs with specs of their own that have a literal in one of these fields."""
    return await connection.fetch(_SQL["clear_runs"], list(tests), list(fields))


async def seal_run(connection: Connection, run: UUID, spec: dict[str, Any]) -> None:
    """Replace the spec of a run."""
    await connection.execute(_SQL["seal_run"], run, spec)
