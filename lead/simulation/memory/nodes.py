"""Twins of ``node/store/sql/nodes.sql``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lead.simulation.memory.rows import NodeRow, pack, unpack
from lead.simulation.memory.statements import Answer, Twins
from lead.simulation.memory.tables import Tables

TWINS = Twins("node.store", "nodes")


@TWINS.of()
def keep_self(
    tables: Tables,
    identity: str,
    name: str,
    url: str,
    address: str,
    now: int,
    attributes: dict[str, Any],
    lanes: int,
) -> Answer:
    """Store this node's own card."""
    row, packed = tables.nodes.rows.get(identity), pack(attributes)
    if row is None:
        row = NodeRow(
            identity, name, url, address, now, is_self=True, attributes=packed, lanes=lanes
        )
        tables.nodes.insert(row)
    else:
        tables.nodes.change(
            row, name=name, url=url, address=address, attributes=packed, lanes=lanes
        )
    return ()


@TWINS.of("set_attributes")
def set_attributes(tables: Tables) -> Answer:
    """Return the attributes of this node that were set by hand."""
    row = tables.nodes.itself
    return () if row is None else [(unpack(row.set_attributes),)]


@TWINS.of()
def keep_set_attributes(tables: Tables, attributes: dict[str, Any]) -> Answer:
    """Replace the attributes of this node that were set by hand."""
    if tables.nodes.itself is not None:
        tables.nodes.change(tables.nodes.itself, set_attributes=pack(attributes))
    return ()


@TWINS.of()
def learn(
    tables: Tables, identity: str, attributes: dict[str, Any], lanes: int, address: str
) -> Answer:
    """Store new attributes, lanes, and a new address of another node."""
    row = tables.nodes.rows.get(identity)
    if row is not None and not row.is_self:
        tables.nodes.change(row, attributes=pack(attributes), lanes=lanes, address=address)
    return ()


@TWINS.of()
def doubt(tables: Tables, identity: str, reason: str) -> Answer:
    """Store why the changed card of another node is not believed."""
    row = tables.nodes.rows.get(identity)
    if row is not None:
        tables.nodes.change(row, last_error=reason)
    return ()


@TWINS.of("identity")
def own_identity(tables: Tables) -> Answer:
    """Return the identity of the node to which this database belongs."""
    row = tables.nodes.itself
    return () if row is None else [(row.identity,)]


@TWINS.of("identity")
def keep(
    tables: Tables,
    identity: str,
    name: str,
    url: str,
    address: str,
    now: int,
    attributes: dict[str, Any],
    lanes: int,
) -> Answer:
    """Store a node under its key."""
    row, packed = tables.nodes.rows.get(identity), pack(attributes)
    if row is None:
        row = NodeRow(
            identity, name, url, address, now, seen_at=now, attributes=packed, lanes=lanes
        )
        tables.nodes.insert(row)
    elif row.is_self:
        return ()
    else:
        tables.nodes.change(
            row,
            name=name,
            url=url,
            address=address,
            seen_at=now,
            unreachable_since=None,
            last_error=None,
            attributes=packed,
            lanes=lanes,
        )
    return [(identity,)]


@TWINS.of(
    "identity",
    "name",
    "url",
    "address",
    "is_self",
    "added_at",
    "seen_at",
    "unreachable_since",
    "last_error",
    "busy_until",
    "shortfall",
    "attributes",
    "lanes",
    "heard_at",
)
def nodes(tables: Tables) -> Answer:
    """Return all nodes, this one first, then by name."""
    rows = sorted(tables.nodes.rows.values(), key=lambda row: (not row.is_self, row.name))
    return [
        (
            row.identity,
            row.name,
            row.url,
            row.address,
            row.is_self,
            row.added_at,
            row.seen_at,
            row.unreachable_since,
            row.last_error,
            row.busy_until,
            row.shortfall,
            unpack(row.attributes),
            row.lanes,
            row.heard_at,
        )
        for row in rows
    ]


@TWINS.of("identity")
def remove(tables: Tables, name: str) -> Answer:
    """Delete a node."""
    named = [row for row in tables.nodes.rows.values() if row.name == name and not row.is_self]
    for row in named:
        tables.nodes.delete(row)
    return [(row.identity,) for row in named]


@TWINS.of("identity")
def lock_node(tables: Tables, identity: str) -> Answer:
    """Lock a node against its removal."""
    return [(identity,)] if identity in tables.nodes.rows else ()


@TWINS.of()
def reached(tables: Tables, identities: Sequence[str], now: int) -> Answer:
    """Record that these nodes have answered."""
    for identity in identities:
        row = tables.nodes.rows.get(identity)
        if row is not None:
            tables.nodes.change(row, seen_at=now, unreachable_since=None, last_error=None)
    return ()


@TWINS.of()
def not_reached(tables: Tables, identity: str, now: int, error: str) -> Answer:
    """Record that a node has not answered, and the error."""
    row = tables.nodes.rows.get(identity)
    if row is not None:
        since = now if row.unreachable_since is None else row.unreachable_since
        tables.nodes.change(row, unreachable_since=since, last_error=error)
    return ()


@TWINS.of()
def pin(tables: Tables, identity: str, name: str, now: int) -> Answer:
    """Insert a node of which only the key is known."""
    row = tables.nodes.rows.get(identity)
    if row is None:
        tables.nodes.insert(NodeRow(identity, name, None, name, now))
    elif not row.is_self:
        tables.nodes.change(row, url=None, seen_at=None, unreachable_since=None, last_error=None)
    return ()


@TWINS.of()
def keep_figures(
    tables: Tables, identity: str, busy_until: int | None, shortfall: int | None
) -> Answer:
    """Store a node's figures about the work it could still take."""
    row = tables.nodes.rows.get(identity)
    if row is not None:
        tables.nodes.change(row, busy_until=busy_until, shortfall=shortfall)
    return ()


@TWINS.of("successor")
def successor(_tables: Tables) -> Answer:
    """Return what says that another host has this node: no simulated node moves."""
    return [(None,)]


@TWINS.of("pg_notify")
def notify(tables: Tables, payload: str) -> Answer:
    """Notify every process of this node when the transaction commits."""
    tables.journal.tell(payload)
    return [(None,)]
