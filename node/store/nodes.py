"""This node, and the nodes it knows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from node.model.nodekinds import NodeKind, kind_of
from node.model.predicates import Attributes
from node.model.reason import Reason
from node.model.reasons import silent
from node.model.shortfall import Shortfall
from node.model.wire.nodes import LANES, NodeCard
from node.store.database import Connection
from node.store.statements import Query, Statements, as_tuple
from node.trust.revocations import RevokedKey

_SQL = Statements("node.store", "nodes")


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
    followed_at: Sequence[int] | None = None

    @property
    def kind(self) -> NodeKind:
        """The program that it runs."""
        return kind_of(self.identity)

    @property
    def facts(self) -> Attributes:
        """The values that predicates may test: the node's attributes, its name, and its lanes."""
        return {**self.attributes, "name": self.name, "lanes": self.lanes}

    @property
    def silence(self) -> Reason | None:
        """The reason that tells since when and why the node does not answer; None if it does."""
        if self.unreachable_since is None:
            return None
        return silent(self.unreachable_since, self.last_error)


@dataclass(frozen=True)
class ForeignNode:
    """A node of another kind, as it is made known here."""

    identity: str
    name: str
    url: str
    address: str
    attributes: dict[str, Any]
    lanes: int = LANES


async def keep_self(connection: Connection, card: NodeCard, now: int) -> None:
    """Write this node's own card."""
    await connection.execute(_SQL["keep_self"], *_values(card, now))


def _values(known: NodeCard | ForeignNode, now: int) -> tuple[object, ...]:
    return (
        *(known.identity, known.name, known.url, known.address, now),
        *(known.attributes, known.lanes),
    )


async def attributes_set_by_hand(connection: Connection) -> dict[str, Any]:
    """Return the attributes of this node that were set by hand."""
    attributes: dict[str, Any] | None = await connection.fetchval(_SQL["set_attributes"])
    return attributes or {}


keep_attributes_set_by_hand: Query[[dict[str, Any]], None] = _SQL.command("keep_set_attributes")
"""Store the attributes of this node that are set by hand."""

keep_changed_card: Query[[str, dict[str, Any], int, str], None] = _SQL.command("learn")
"""Store attributes, lanes, and address from the changed card of another node.

Takes ``identity``, ``attributes``, ``lanes``, ``address``.
"""

note_doubt: Query[[str, str], None] = _SQL.command("doubt")
"""Record why the changed card of a node, which answers, is not believed.

Takes ``identity``, ``reason``.
"""

lock_lineage: Query[[str], str | None] = _SQL.value("lineage")
"""The lineage of a node's key, locked until the transaction ends.

None if the key is its first one.
"""

keep_lineage: Query[[str, str | None, str, Sequence[int]], bool] = _SQL.finds("keep_lineage")
"""Store the lineage of a node's key, if it was ``before``; return whether it was.

``heard_at`` are the instants at which the new successions in it were heard.
Takes ``identity``, ``before``, ``text``, ``heard_at``.
"""


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


forget_unsigned: Query[[str], None] = _SQL.command("forget_unsigned")
"""Forget that the owner of this node alone has revoked a key."""

revoked_keys: Query[[], list[RevokedKey]] = _SQL.rows("revoked", RevokedKey)
"""All revoked keys."""

revocations_to_tell: Query[[], dict[str, list[tuple[int, str]]]] = _SQL.lists_by_key(
    "revocations_to_tell", as_tuple
)
"""The revocations that each node has not been told, each with its number."""

note_revocations_told: Query[[str, int], None] = _SQL.command("told_revocations")
"""Note that a node knows the revocations up to this number."""

own_identity: Query[[], str | None] = _SQL.value("own_identity")
"""The key that this database belongs to; None in a new database."""


async def keep(connection: Connection, known: NodeCard | ForeignNode, now: int) -> bool:
    """Pin a node, or store one of another kind, which has neither key nor card.

    Return False if it is this node itself.
    """
    return await connection.fetchval(_SQL["keep"], *_values(known, now)) is not None


pin: Query[[str, str, int], None] = _SQL.command("pin")
"""Pin a node in pull mode; it is called ``name`` until its card is known.

Takes ``identity``, ``name``, ``now``.
"""

find_all: Query[[], list[KnownNode]] = _SQL.rows("nodes", KnownNode)
"""All nodes: this one first, then the others by name."""

remove: Query[[str], str | None] = _SQL.value("remove")
"""Remove a node; return its identity, or None if there is none of that name."""

lock: Query[[str], bool] = _SQL.finds("lock_node")
"""Lock a node until the transaction ends; False if it is not known here.

It serialises the new tasks of a node with each other, and with its removal.
"""

lock_outside: Query[[str], None] = _SQL.command("lock_outside")
"""Lock a lead from outside until the transaction ends: it has no row here."""

note_heard: Query[[Sequence[str], int], None] = _SQL.command("heard")
"""Record that these nodes have spoken: sent a signed request, or answered one."""

partners: Query[[], list[str]] = _SQL.column("partners")
"""The identities of the nodes with which open tasks are shared."""

silent_leads: Query[[int], list[tuple[str, str, int]]] = _SQL.rows("silent_leads", as_tuple)
"""The other nodes that lead open tasks here and were last heard of before that instant.

Each is its identity, its name, and when it was heard of last.
"""

note_answered: Query[[Sequence[str], int], None] = _SQL.command("reached")
"""Record that these nodes have answered."""

note_unanswered: Query[[str, int, str], None] = _SQL.command("not_reached")
"""Record that a node has not answered, and the error. Takes ``identity``, ``now``, ``error``."""

forget_refusals: Query[[str, int], None] = _SQL.command("pardon")
"""Forget the failed runs and the refusals that policies hold against a node."""


async def keep_figures(connection: Connection, identity: str, figures: Shortfall) -> None:
    """Store a node's figures of the work it could still take."""
    await connection.execute(_SQL["keep_figures"], identity, figures.busy_until, figures.missing)


keep_mark: Query[[str, int], int | None] = _SQL.value("keep_mark")
"""Store the mark of another node's database, if it is the latest; return the one before."""

lock_announcement: Query[[str], str | None] = _SQL.value("announcement")
"""The announcement of a node that it has moved, locked likewise; None without one."""

keep_announcement: Query[[str, str], None] = _SQL.command("keep_announcement")
"""Store the signed text in which a node announces where it goes on.

Takes ``identity``, ``text``.
"""


keep_former_url: Query[[str], None] = _SQL.command("keep_former_url")
"""Note the URL where this node was before it announced another one."""

former_url: Query[[], str | None] = _SQL.value("former_url")
"""The URL where this node was before; None if it has always been where it is."""


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


keep_copy: Query[[str | None], str | None] = _SQL.value("keep_copy")
"""Store where the original goes on of which these data are a copy; None if they are no copy.

Returns what is known then: that they are a copy is not taken back.
"""

note_moved_away: Query[[UUID, str], None] = _SQL.command("give_up")
"""Note that another host goes on as this node, later than this ``generation``."""

uncompared_nodes: Query[[], set[str]] = _SQL.distinct("uncompared")
"""The nodes that were not compared since this database was restored."""

note_compared: Query[[str, UUID], None] = _SQL.command("compared")
"""Note that a node was compared with this ``generation`` of the database."""
