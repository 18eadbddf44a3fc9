"""Twins of ``node/store/sql/audit.sql``, and of the deletion in ``tokens.sql``: nothing is kept."""

from __future__ import annotations

from collections.abc import Sequence

from lead.simulation.memory.statements import Answer, Twins
from lead.simulation.memory.tables import Tables

TWINS = Twins("node.store", "audit")
TOKENS = Twins("node.store", "tokens")


@TWINS.of()
def keep_entries(
    _: Tables,
    _at: Sequence[int],
    _kind: Sequence[str],
    _principal: Sequence[str],
    _key: Sequence[str],
    _role: Sequence[str],
    _origin: Sequence[str],
    _verb: Sequence[str],
    _thing: Sequence[str],
    _outcome: Sequence[str],
    _status: Sequence[int],
    _problem: Sequence[str],
    _count: Sequence[int],
) -> Answer:
    """Record nothing: nobody asks a simulated node who did what."""
    return ()


@TWINS.of("purge_audit")
def purge_entries(_: Tables, _before: int, _at_most: int) -> Answer:
    """Delete nothing: no request is recorded."""
    return [(0,)]


@TOKENS.of("count")
def purge_tokens(_: Tables, _before: int, _at_most: int) -> Answer:
    """Delete nothing: there are no tokens."""
    return [(0,)]
