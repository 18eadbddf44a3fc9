"""The tokens of users; of each only the digest is stored."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from node.model.principals import Role
from node.store.database import Connection
from node.store.statements import Purge, Query, Statements

_SQL = Statements("node.store", "tokens")


@dataclass(frozen=True)
class StoredToken:
    """A token but for its secret; instants in microseconds."""

    id: UUID
    label: str
    role: Role
    created_at: int
    created_by: str
    expires_at: int | None = None
    used_at: int | None = None
    revoked_at: int | None = None


async def keep(connection: Connection, digest: str, token: StoredToken) -> None:
    """Store a new token under the digest of its secret."""
    await connection.execute(
        _SQL["keep_token"],
        token.id,
        digest,
        token.label,
        token.role,
        token.created_at,
        token.created_by,
        token.expires_at,
    )


def _token(number: UUID, label: str, role: Role, *rest: Any) -> StoredToken:
    return StoredToken(number, label, Role(role), *rest)


find: Query[[str], StoredToken | None] = _SQL.row("token_with", _token)
"""The token whose secret has this digest; None if there was never one."""

find_all: Query[[Collection[str]], dict[str, StoredToken]] = _SQL.rows_by_key("tokens_with", _token)
"""The tokens whose secrets have these digests, by digest."""


async def valid_roles(connection: Connection, label: str, now: int) -> set[Role]:
    """Return the roles of the tokens of this label that are valid now."""
    return {Role(row["role"]) for row in await connection.fetch(_SQL["valid_roles"], label, now)}


note_use: Query[[UUID, int], None] = _SQL.command("note_use")
"""Record that a token is used."""


async def find_page(
    connection: Connection, prefix: str | None, before: tuple[int, UUID] | None, limit: int
) -> list[StoredToken]:
    """Return a page of all tokens that were ever made, the newest first.

    ``prefix`` is the beginning of their ids, ``before`` the instant and the id of the last token of
    the page before.
    """
    at, last = before or (None, None)
    rows = await connection.fetch(_SQL["tokens"], prefix, at, last, limit)
    return [_token(*row) for row in rows]


revoke: Query[[UUID, int], StoredToken | None] = _SQL.row("revoke_token", _token)
"""Make a token invalid, unless it was before, and return it; None if there is none."""


purge: Purge = _SQL.value("purge_tokens")
"""Delete tokens that were revoked or have expired before; return how many."""
