"""Webhooks: their terms, what they were told, and what there is to tell."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from node.model.webhooks import Condition, WebhookEvent
from node.model.wire.webhooks import WebhookTerms
from node.store.database import Connection, Record
from node.store.statements import Query, Statements, as_tuple

_SQL = Statements("node.store", "webhooks")

NODE = "webhook:"
"""The beginning of the receiver of a webhook's messages in the outbox; its name follows."""


@dataclass(frozen=True)
class KeptWebhook:
    """A webhook as stored, with its secret."""

    terms: WebhookTerms
    secret: str
    created_at: int
    delivered_at: int | None = None
    last_error: str | None = None
    waiting: int = 0


@dataclass(frozen=True)
class AbsentNode:
    """A node that does not answer, since when, and why."""

    name: str
    since: int
    error: str | None


async def keep(connection: Connection, webhook: KeptWebhook) -> bool:
    """Store a new webhook; False if there is one of its name."""
    terms = webhook.terms
    made = await connection.fetchval(
        _SQL["keep_webhook"],
        terms.name,
        terms.url,
        webhook.secret,
        list(terms.events),
        terms.failures,
        terms.mesh,
        terms.percent,
        terms.span,
        webhook.created_at,
    )
    return made is not None


async def find_all(connection: Connection, name: str | None = None) -> list[KeptWebhook]:
    """Return all webhooks by name, or the one of this name."""
    return [_webhook_of_row(row) for row in await connection.fetch(_SQL["webhooks"], name)]


def _webhook_of_row(row: Record) -> KeptWebhook:
    values = dict(row)
    own = ("secret", "created_at", "delivered_at", "last_error", "waiting")
    kept = {name: values.pop(name) for name in own}
    return KeptWebhook(WebhookTerms(**values), **kept)


remove: Query[[str], bool] = _SQL.finds("remove_webhook")
"""Delete a webhook and what it was not told yet; False if there is none of this name."""


async def told_conditions(connection: Connection, name: str) -> set[Condition]:
    """Return the conditions of which a webhook was told, but not yet that they are over."""
    return _conditions(await connection.fetch(_SQL["told"], name))


async def note_told(
    connection: Connection, name: str, begun: Sequence[Condition], now: int
) -> set[Condition]:
    """Record that a webhook is told of conditions; return those that it was not told of before."""
    events, subjects = _kinds_and_subjects(begun)
    return _conditions(await connection.fetch(_SQL["tell"], name, events, subjects, now))


async def note_over(connection: Connection, name: str, over: Sequence[Condition]) -> set[Condition]:
    """Record that a webhook is told that conditions are over; return those it was told of."""
    return _conditions(await connection.fetch(_SQL["tell_over"], name, *_kinds_and_subjects(over)))


def _kinds_and_subjects(conditions: Sequence[Condition]) -> tuple[list[str], list[str]]:
    return [each.event for each in conditions], [each.subject for each in conditions]


def _conditions(rows: Sequence[Record]) -> set[Condition]:
    return {Condition(WebhookEvent(row["event"]), row["subject"]) for row in rows}


note_delivery: Query[[str, int | None, str | None], None] = _SQL.command("note_delivery")
"""Record the last attempt to deliver to a webhook."""

nodes_away: Query[[], list[AbsentNode]] = _SQL.rows("nodes_away", AbsentNode)
"""The other nodes that do not answer, by name."""

failing_tasks: Query[[int], list[tuple[UUID, str | None]]] = _SQL.rows("failing_tasks", as_tuple)
"""The tasks whose last runs, that many, all had no result or no answer, with the last reason."""
