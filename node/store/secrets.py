"""Secrets of the owner that specs of tests name."""

from __future__ import annotations

from collections.abc import Collection

from node.model.named_secrets import KeptSecret
from node.model.wire.secrets import SecretTerms
from node.store.database import Connection
from node.store.statements import Query, Statements

_SQL = Statements("node.store", "secrets")


async def keep(connection: Connection, secret: KeptSecret, *, replace: bool) -> bool:
    """Store a secret; False if there is one of its name, and that is not to be replaced."""
    terms = secret.terms
    kept = await connection.fetchval(
        _SQL["keep_secret"],
        terms.name,
        secret.sealed,
        list(terms.hosts),
        list(terms.users),
        list(terms.leads),
        secret.changed_at,
        replace,
    )
    return kept is not None


async def find_all(
    connection: Connection, names: Collection[str] | None = None
) -> list[KeptSecret]:
    """Return all secrets by name, or those of these names."""
    wanted = None if names is None else sorted(names)
    return [
        KeptSecret(
            SecretTerms.model_construct(
                name=row["name"],
                hosts=tuple(row["hosts"]),
                users=tuple(row["users"]),
                leads=tuple(row["leads"]),
            ),
            row["sealed"],
            row["created_at"],
            row["changed_at"],
        )
        for row in await connection.fetch(_SQL["secrets"], wanted)
    ]


remove: Query[[str], bool] = _SQL.finds("remove_secret")
"""Delete a secret; False if there is none of this name."""
