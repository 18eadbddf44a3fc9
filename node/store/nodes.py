"""This node, and the nodes it knows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from node.model.nodekinds import NodeKind, kind_of
from node.model.predicates import Attributes
from node.model.shortfall import Shortfall
from node.model.times import to_the_second
from node.model.wire.nodes import LANES, NodeCard
from node.store.database import Connection
from node.store.queries import Queries

_SQL = Queries("node.store", "nodes")


@dataclass(frozen=True)
class KnownNode:
    """A known node: its pinned identity, its card, and when it was last reached."""

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
    heard_at: int | None = None

    @property
    def kind(self) -> NodeKind:
        """The program that it runs."""
        return kind_of(self.identity)

    @property
    def facts(self) -> Attributes:
        """The values that predicates may test: the node's attributes, its name, and its lanes."""
        return {**self.attributes, "name": self.name, "lanes": self.lanes}

    @property
    def silence(self) -> str | None:
        """The sentence on since when and why the node does not answer; None if it does."""
        if self.unreachable_since is None:
            return None
        since = f"has not answered since {to_the_second(self.unreachable_since)}"
        return f"{since}: {self.last_error}" if self.last_error else since


@dataclass(frozen=True)
class ForeignNode:
    """A node of another kind, as it is made known here."""

    identity: str
    name: str
    url: str
    address: str
    attributes: dict[str, Any]


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
    """Return the attributes of this node that were set by hand."""
    attributes: dict[str, Any] | None = await connection.fetchval(_SQL["set_attributes"])
    return attributes or {}


async def keep_set_attributes(connection: Connection, attributes: dict[str, Any]) -> None:
    """Store the attributes of this node that are set by hand."""
    await connection.execute(_SQL["keep_set_attributes"], attributes)


async def learn(
    connection: Connection, identity: str, attributes: dict[str, Any], lanes: int, address: str
) -> None:
    """Store the changed attributes, lanes, and address of another node."""
    await connection.execute(_SQL["learn"], identity, attributes, lanes, address)


async def doubt(connection: Connection, identity: str, reason: str) -> None:
    """Record why the changed card of a node, which answers, is not believed."""
    await connection.execute(_SQL["doubt"], identity, reason)


async def own_identity(connection: Connection) -> str | None:
    """Return the key that this database belongs to; None in a new database."""
    identity: str | None = await connection.fetchval(_SQL["own_identity"])
    return identity


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


async def keep_foreign(connection: Connection, known: ForeignNode, now: int) -> None:
    """Store a node of another kind, which has neither a key nor a card."""
    await connection.fetchval(
        _SQL["keep"],
        known.identity,
        known.name,
        known.url,
        known.address,
        now,
        known.attributes,
        LANES,
    )


async def pin(connection: Connection, identity: str, name: str, now: int) -> None:
    """Pin a node in pull mode; it is called ``name`` until its card is known."""
    await connection.execute(_SQL["pin"], identity, name, now)


async def listed(connection: Connection) -> list[KnownNode]:
    """Return all nodes: this one first, then the others by name."""
    return [KnownNode(*row) for row in await connection.fetch(_SQL["nodes"])]


async def remove(connection: Connection, name: str) -> str | None:
    """Remove a node; return its identity, or None if there is none of that name."""
    identity: str | None = await connection.fetchval(_SQL["remove"], name)
    return identity


async def lock(connection: Connection, identity: str) -> bool:
    """Lock a node until the transaction ends; False if it is not known here.

    It serialises the new tasks of a node with each other, and with its removal.
    """
    return await connection.fetchval(_SQL["lock_node"], identity) is not None


async def lock_outside(connection: Connection, identity: str) -> None:
    """Lock a lead from outside until the transaction ends: it has no row here."""
    await connection.execute(_SQL["lock_outside"], identity)


async def heard(connection: Connection, identities: Sequence[str], now: int) -> None:
    """Record that these nodes have spoken: sent a signed request, or answered one."""
    await connection.execute(_SQL["heard"], list(identities), now)


async def silent_leads(connection: Connection, before: int) -> list[tuple[str, str, int]]:
    """Return the other nodes that lead open tasks here and were last heard of before that instant.

    Each is its identity, its name, and when it was heard of last.
    """
    rows = await connection.fetch(_SQL["silent_leads"], before)
    return [(row[0], row[1], row[2]) for row in rows]


async def reached(connection: Connection, identities: Sequence[str], now: int) -> None:
    """Record that these nodes have answered."""
    await connection.execute(_SQL["reached"], list(identities), now)


async def not_reached(connection: Connection, identity: str, now: int, error: str) -> None:
    """Record that a node has not answered, and the error."""
    await connection.execute(_SQL["not_reached"], identity, now, error)


async def pardon(connection: Connection, name: str, now: int) -> None:
    """Forget the failed runs and the refusals that policies hold against a node."""
    await connection.execute(_SQL["pardon"], name, now)


async def keep_figures(connection: Connection, identity: str, figures: Shortfall) -> None:
    """Store a node's figures of the work it could still take."""
    await connection.execute(_SQL["keep_figures"], identity, figures.busy_until, figures.missing)


async def keep_mark(connection: Connection, identity: str, marked_at: int) -> int | None:
    """Store the mark of another node's database, if it is the latest; return the one before."""
    before: int | None = await connection.fetchval(_SQL["keep_mark"], identity, marked_at)
    return before


async def announcement(connection: Connection, identity: str) -> str | None:
    """Return what a node has announced, and lock it until the transaction ends."""
    text: str | None = await connection.fetchval(_SQL["announcement"], identity)
    return text


async def keep_announcement(connection: Connection, identity: str, text: str) -> None:
    """Store what a node has announced."""
    await connection.execute(_SQL["keep_announcement"], identity, text)


async def move(connection: Connection, card: NodeCard, now: int) -> None:
    """Know another node, which answers there, at the URL and the address of this card."""
    await connection.execute(_SQL["move"], card.identity, card.url, card.address, now)


async def successor(connection: Connection) -> str | None:
    """Return what this node has announced at another host, where it goes on; None if nowhere."""
    text: str | None = await connection.fetchval(_SQL["successor"])
    return text


async def give_up(connection: Connection, generation: UUID, announcement: str) -> None:
    """Note that another host goes on as this node, later than this ``generation``."""
    await connection.execute(_SQL["give_up"], generation, announcement)


async def uncompared(connection: Connection) -> frozenset[str]:
    """Return the nodes that were not compared since this database was restored."""
    return frozenset(row[0] for row in await connection.fetch(_SQL["uncompared"]))


async def compared(connection: Connection, identity: str, generation: UUID) -> None:
    """Note that a node was compared with this ``generation`` of the database."""
    await connection.execute(_SQL["compared"], identity, generation)


async def notify(connection: Connection, name: str, what: str) -> None:
    """Notify every process of this node that its directory changed."""
    await connection.execute(_SQL["notify"], f"node {name} {what}")
