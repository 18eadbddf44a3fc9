"""Twins of ``lead/store/sql/limits.sql``: what counts toward the limits of campaigns."""

from __future__ import annotations

from collections.abc import Sequence

from lead.simulation.memory.rows import RunRow, unpack
from lead.simulation.memory.statements import Answer, Twins
from lead.simulation.memory.tables import Tables

TWINS = Twins("lead.store", "limits")


@TWINS.of("task_id", "campaign", "starts_at", "ends_at", "scheduling_class", "nodes")
def counted(tables: Tables, campaigns: Sequence[str], since: int, until: int) -> Answer:
    """Return the decided runs of these campaigns in this period."""
    found = []
    for row in tables.plannings.rows.values():
        campaign = tables.campaigns.rows[row.campaign_id].name
        if campaign not in campaigns:
            continue
        task = tables.tasks.rows[row.task_id]
        nodes = [str(participant["node"]) for participant in unpack(task.participants)]
        found += [
            ((run.starts_at, run.id), (task.id, campaign, run.starts_at, run.ends_at), run, nodes)
            for run in tables.runs.open.of(task.id)
            if run.state != "waiting"
            and run.starts_at < until
            and run.ends_at > since
            and _is_decided(tables, run)
        ]
    found.sort(key=lambda each: each[0])
    return [(*values, run.scheduling_class, nodes) for _, values, run, nodes in found]


def _is_decided(tables: Tables, run: RunRow) -> bool:
    if run.exchange_id is None:
        return False
    negotiation = tables.negotiations.rows.get(run.exchange_id)
    decided = negotiation is not None and negotiation.state == "committed"
    return decided or tables.committed(run.exchange_id)


@TWINS.of("exists")
def is_contested(tables: Tables, campaign: str, nodes: Sequence[str], until: int) -> Answer:
    """Return whether another campaign has a run that waits for time on one of these nodes."""
    return [
        (any(_waits(tables, run, campaign, nodes, until) for run in tables.runs.rows.values()),)
    ]


def _waits(tables: Tables, run: RunRow, campaign: str, nodes: Sequence[str], until: int) -> bool:
    row = tables.plannings.rows.get(run.task_id)
    if run.state != "waiting" or run.starts_at >= until or row is None:
        return False
    other = tables.campaigns.rows[row.campaign_id]
    task = tables.tasks.rows[run.task_id]
    return (
        other.name != campaign
        and other.level > 0
        and not {str(it["node"]) for it in unpack(task.participants)}.isdisjoint(nodes)
    )


@TWINS.of("id")
def lock_campaigns(tables: Tables, campaigns: Sequence[str]) -> Answer:
    """Return the campaigns; transactions in memory come one after the other."""
    return sorted((row.id,) for row in tables.campaigns.rows.values() if row.name in campaigns)
