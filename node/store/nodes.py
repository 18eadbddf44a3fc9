"""This node, the nodes it knows, and the tokens of its users."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from node.model.predicates import Attributes
from node.model.shortfall import Shortfall
from node.model.times import to_the_second
from node.model.wire.nodes import NodeCard
from node.store.database import Connection, Queries

_SQL = Queries("node.store", "nodes")


@dataclass(frozen=True)
class KnownNode:
    """A pinned node."""

    identity: str
    name: str
    url: str | None
    address: str
    is_self: bool
    added_at: int
    seen_at: int | None
    unreachable_since: int | None
    last_error: str | None
    busy_until: int | None
    shortfall: int | None
    attributes: dict[str, Any]
    lanes: int

    @property
    def facts(self) -> Attributes:
        """What predicates may ask of it: what it says of itself, and what it is."""
        return {**self.attributes, "name": self.name, "lanes": self.lanes}

    @property
    def silence(self) -> str | None:
        """That it does not answer, since when and why; None if it does."""
        if self.unreachable_since is None:
            return None
        said = f"has not answered since {to_the_second(self.unreachable_since)}"
        return f"{said}: {self.last_error}" if self.last_error else said


async def keep_self(connection: Connection, card: NodeCard, now: int) -> None:
    """Write this node's own card."""
    await connection.execute(
        _SQL["keep_self"],
        card.identity,
        card.name,
        card.url,
        card.address,
        now,
        card.attributes,
        card.lanes,
    )


async def set_attributes(connection: Connection) -> dict[str, Any]:
    """The attributes of this node that were set by hand."""
    found: dict[str, Any] | None = await connection.fetchval(_SQL["set_attributes"])
    return found or {}


async def keep_set_attributes(connection: Connection, attributes: dict[str, Any]) -> None:
    """From now on these attributes of this node are set by hand."""
    await connection.execute(_SQL["keep_set_attributes"], attributes)


async def learn(
    connection: Connection, identity: str, attributes: dict[str, Any], lanes: int
) -> None:
    """Another node says something else of itself than before."""
    await connection.execute(_SQL["learn"], identity, attributes, lanes)


async def own_identity(connection: Connection) -> str | None:
    """The key this database belongs to; None in a new one."""
    found: str | None = await connection.fetchval(_SQL["own_identity"])
    return found


async def keep(connection: Connection, card: NodeCard, now: int) -> bool:
    """Pin a node; False if it is this node itself."""
    kept = await connection.fetchval(
        _SQL["keep"],
        card.identity,
        card.name,
        card.url,
        card.address,
        now,
        card.attributes,
        card.lanes,
    )
    return kept is not None


async def pin(connection: Connection, identity: str, name: str, now: int) -> None:
    """Pin a node that fetches its work; it is called ``name`` until it says more."""
    await connection.execute(_SQL["pin"], identity, name, now)


async def listed(connection: Connection) -> list[KnownNode]:
    """All of them, this one first, then by name."""
    return [KnownNode(*row) for row in await connection.fetch(_SQL["nodes"])]


async def remove(connection: Connection, name: str) -> bool:
    """Forget a node; False if there is none of that name."""
    return await connection.fetchval(_SQL["remove"], name) is not None


async def reached(connection: Connection, identities: Sequence[str], now: int) -> None:
    """These nodes have answered."""
    await connection.execute(_SQL["reached"], list(identities), now)


async def not_reached(connection: Connection, identity: str, now: int, error: str) -> None:
    """It has not answered, and why."""
    await connection.execute(_SQL["not_reached"], identity, now, error)


async def keep_figures(connection: Connection, identity: str, figures: Shortfall) -> None:
    """What it says of the work it could still take."""
    await connection.execute(_SQL["keep_figures"], identity, figures.busy_until, figures.missing)


async def keep_token(connection: Connection, digest: str, label: str, now: int) -> None:
    """Let the bearer of this token in."""
    await connection.execute(_SQL["keep_token"], digest, label, now)


async def has_token(connection: Connection, digest: str) -> bool:
    """Whether this token was given out."""
    return bool(await connection.fetchval(_SQL["has_token"], digest))


async def notify(connection: Connection, name: str, what: str) -> None:
    """Tell every process of this node that its directory changed."""
    await connection.execute(_SQL["notify"], f"node {name} {what}")
