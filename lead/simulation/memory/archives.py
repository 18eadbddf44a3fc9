"""Twins of ``node/store/sql/archives.sql``: simulated nodes archive nothing."""

from __future__ import annotations

from lead.simulation.memory.statements import Answer, Twins
from lead.simulation.memory.tables import Tables

TWINS = Twins("node.store", "archives")


@TWINS.of("count")
def purge_archives(tables: Tables, at_most: int) -> Answer:  # noqa: ARG001 - all twins' own
    """Do nothing: there are no archives."""
    return [(0,)]


@TWINS.of("count")
def purge_destinations(tables: Tables, at_most: int) -> Answer:  # noqa: ARG001 - all twins' own
    """Do nothing: there are no destinations."""
    return [(0,)]
