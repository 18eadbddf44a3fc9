"""Twins of ``node/store/sql/audit.sql``, and of the deletion in ``tokens.sql``: nothing is kept."""

from __future__ import annotations

from lead.simulation.memory.statements import Answer, Twins
from lead.simulation.memory.tables import Tables

TWINS = Twins("node.store", "audit")
TOKENS = Twins("node.store", "tokens")


@TWINS.of("purge_audit")
def purge_entries(_: Tables, _before: int, _at_most: int) -> Answer:
    """Delete nothing: no request is recorded."""
    return [(0,)]


@TOKENS.of("count")
def purge_tokens(_: Tables, _before: int, _at_most: int) -> Answer:
    """Delete nothing: there are no tokens."""
    return [(0,)]
