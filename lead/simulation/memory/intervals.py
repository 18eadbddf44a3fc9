"""Twins of ``node/store/sql/intervals.sql``: simulated runs have no intermediate results."""

from __future__ import annotations

from lead.simulation.memory.statements import Answer, Twins
from lead.simulation.memory.tables import Tables

TWINS = Twins("node.store", "intervals")


@TWINS.of("run_id", "array_agg")
def overdue_intervals(tables: Tables, ended_before: int) -> Answer:  # noqa: ARG001 - all twins' own
    """Return nothing: there are no intermediate results."""
    return ()
