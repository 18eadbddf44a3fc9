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
from node.trust.revocations import RevokedKey

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
    lineage: str | None = None

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


async def attributes_set_by_hand(connection: Connection) -> dict[str, Any]:
    """Return the attributes of this node that were set by hand."""
    attributes: dict[str, Any] | None = await connection.fetchval(_SQL["set_attributes"])
    return attributes or {}


async def keep_attributes_set_by_hand(connection: Connection, attributes: dict[str, Any]) -> None:
    """Store the attributes of this node that are set by hand."""
    await connection.execute(_SQL["keep_set_attributes"], attributes)


async def keep_changed_card(
    connection: Connection, identity: str, attributes: dict[str, Any], lanes: int, address: str
) -> None:
    """Store attributes, lanes, and address from the changed card of another node."""
    await connection.execute(_SQL["learn"], identity, attributes, lanes, address)


async def note_doubt(connection: Connection, identity: str, reason: str) -> None:
    """Record why the changed card of a node, which answers, is not believed."""
    await connection.execute(_SQL["doubt"], identity, reason)


async def lock_lineage(connection: Connection, identity: str) -> str | None:
    """Return the lineage of a node's key, and lock it until the transaction ends.

    None if the key is its first one.
    """
    text: str | None = await connection.fetchval(_SQL["lineage"], identity)
    return text


async def keep_lineage(
    connection: Connection,
    identity: str,
    before: str | None,
    text: str,
    heard_at: Sequence[int],
) -> bool:
    """Store the lineage of a node's key, if it was ``before``; return whether it was.

    ``heard_at`` are the instants at which the new successions in it were heard.
    """
    kept = await connection.fetchval(_SQL["keep_lineage"], identity, before, text, list(heard_at))
    return kept is not None


async def successions_heard_at(connection: Connection, identity: str) -> Sequence[int]:
    """Return when the successions of a node's keys were heard (µs), and lock them likewise."""
    return await connection.fetchval(_SQL["followed_at"], identity) or ()


async def keep_revocation(
    connection: Connection, key: str, text: str, now: int, *, ends_node: bool
) -> bool:
    """Store the revocation of a key; False if there is one already.

    ``text`` is empty if the owner of this node alone says so.
    """
    rows = await connection.fetch(_SQL["keep_revocation"], key, text, ends_node, now)
    return bool(rows)


async def forget_unsigned(connection: Connection, key: str) -> None:
    """Forget that the owner of this node alone has revoked a key."""
    await connection.execute(_SQL["forget_unsigned"], key)


async def revoked_keys(connection: Connection) -> list[RevokedKey]:
    """Return all revoked keys."""
    return [RevokedKey(*row) for row in await connection.fetch(_SQL["revoked"])]


async def revocations_to_tell(connection: Connection) -> dict[str, list[tuple[int, str]]]:
    """Return by node the revocations that it has not been told, each with its number."""
    untold: dict[str, list[tuple[int, str]]] = {}
    for identity, number, text in await connection.fetch(_SQL["revocations_to_tell"]):
        untold.setdefault(identity, []).append((number, text))
    return untold


async def note_revocations_told(connection: Connection, identity: str, number: int) -> None:
    """Note that a node knows the revocations up to this number."""
    await connection.execute(_SQL["told_revocations"], identity, number)


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


async def find_all(connection: Connection) -> list[KnownNode]:
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


async def note_heard(connection: Connection, identities: Sequence[str], now: int) -> None:
    """Record that these nodes have spoken: sent a signed request, or answered one."""
    await connection.execute(_SQL["heard"], list(identities), now)


async def silent_leads(connection: Connection, before: int) -> list[tuple[str, str, int]]:
    """Return the other nodes that lead open tasks here and were last heard of before that instant.

    Each is its identity, its name, and when it was heard of last.
    """
    rows = await connection.fetch(_SQL["silent_leads"], before)
    return [(row[0], row[1], row[2]) for row in rows]


async def note_answered(connection: Connection, identities: Sequence[str], now: int) -> None:
    """Record that these nodes have answered."""
    await connection.execute(_SQL["reached"], list(identities), now)


async def note_unanswered(connection: Connection, identity: str, now: int, error: str) -> None:
    """Record that a node has not answered, and the error."""
    await connection.execute(_SQL["not_reached"], identity, now, error)


async def forget_refusals(connection: Connection, name: str, now: int) -> None:
    """Forget the failed runs and the refusals that policies hold against a node."""
    await connection.execute(_SQL["pardon"], name, now)


async def keep_figures(connection: Connection, identity: str, figures: Shortfall) -> None:
    """Store a node's figures of the work it could still take."""
    await connection.execute(_SQL["keep_figures"], identity, figures.busy_until, figures.missing)


async def keep_mark(connection: Connection, identity: str, marked_at: int) -> int | None:
    """Store the mark of another node's database, if it is the latest; return the one before."""
    before: int | None = await connection.fetchval(_SQL["keep_mark"], identity, marked_at)
    return before


async def lock_announcement(connection: Connection, identity: str) -> str | None:
    """Return the announcement of a node that it has moved, None without one; lock it likewise."""
    text: str | None = await connection.fetchval(_SQL["announcement"], identity)
    return text


async def keep_announcement(connection: Connection, identity: str, text: str) -> None:
    """Store the signed text in which a node announces where it goes on."""
    await connection.execute(_SQL["keep_announcement"], identity, text)


async def keep_new_address(connection: Connection, card: NodeCard, now: int) -> None:
    """Store URL and address of the card of another node, which has moved and answers there."""
    await connection.execute(_SQL["move"], card.identity, card.url, card.address, now)


async def successor(connection: Connection) -> tuple[str | None, str | None]:
    """Return the announcement that this node goes on elsewhere, and what the data are a copy of.

    The first is None if there is none. The second is None if the data are no copy, and empty while
    it is not known of what.
    """
    row = await connection.fetchrow(_SQL["successor"])
    return (None, None) if row is None else (row["successor"], row["copy_of"])


async def keep_copy(connection: Connection, copy_of: str | None) -> None:
    """Store where the original goes on of which these data are a copy.

    None if they are no copy.
    """
    await connection.execute(_SQL["keep_copy"], copy_of)


async def note_moved_away(connection: Connection, generation: UUID, announcement: str) -> None:
    """Note that another host goes on as this node, later than this ``generation``."""
    await connection.execute(_SQL["give_up"], generation, announcement)


async def uncompared_nodes(connection: Connection) -> frozenset[str]:
    """Return the nodes that were not compared since this database was restored."""
    return frozenset(row[0] for row in await connection.fetch(_SQL["uncompared"]))


async def note_compared(connection: Connection, identity: str, generation: UUID) -> None:
    """Note that a node was compared with this ``generation`` of the database."""
    await connection.execute(_SQL["compared"], identity, generation)


async def notify(connection: Connection, name: str, what: str) -> None:
    """Notify every process of this node that its directory changed."""
    await connection.execute(_SQL["notify"], f"node {name} {what}")
