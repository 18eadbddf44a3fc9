"""Twins of ``lead/store/sql/limits.sql``: what counts toward the limits of campaigns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from uuid import UUID

from lead.simulation.memory.rows import CampaignRow, RunRow, unpack
from lead.simulation.memory.statements import Answer, Twins
from lead.simulation.memory.tables import Tables
from node.model import times
from node.model.wire.campaigns import SUSPENDED

TWINS = Twins("lead.store", "limits")


def line_of(tables: Tables, campaign: CampaignRow | None) -> Iterator[CampaignRow]:
    """Yield a campaign and those above it."""
    while campaign is not None:
        yield campaign
        above = campaign.parent_id
        campaign = None if above is None else tables.campaigns.rows[above]


def suspended_in(tables: Tables, campaign: CampaignRow) -> str | None:
    """Return the highest suspended campaign of a line; None if none is suspended."""
    names = [each.name for each in line_of(tables, campaign) if each.level == SUSPENDED]
    return names[-1] if names else None


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
        and suspended_in(tables, other) is None
        and not {str(it["node"]) for it in unpack(task.participants)}.isdisjoint(nodes)
    )


@TWINS.of("id")
def lock_campaigns(tables: Tables, campaigns: Sequence[str]) -> Answer:
    """Return the campaigns; transactions in memory come one after the other."""
    return sorted((row.id,) for row in tables.campaigns.rows.values() if row.name in campaigns)


@TWINS.of("task_id")
def wake_tasks(tables: Tables, campaigns: Sequence[str], now: int, limit: int) -> Answer:
    """Schedule named tasks that wait for room in these campaigns, or below them, for now."""
    below = _below(tables, campaigns)
    waiting = [
        row
        for row in tables.plannings.rows.values()
        if row.campaign_id in below
        and (row.wants_room or row.lease_until is not None)
        and row.plan_at is not None
        and row.plan_at > now
    ]
    waiting.sort(key=lambda row: (row.next_run_at or times.LATEST, row.added_at, row.task_id))
    for row in waiting[:limit]:
        tables.plannings.change(row, plan_at=now)
    return [(row.task_id,) for row in waiting[:limit]]


@TWINS.of("pool_task")
def wake_terms(tables: Tables, campaigns: Sequence[str], now: int) -> Answer:
    """Schedule the terms that wait for room there for now."""
    below, woken = _below(tables, campaigns), dict[UUID, None]()
    for row in list(tables.terms.tried.values()):
        planning = tables.plannings.rows.get(row.pool_task)
        waits = row.wants_room and row.try_at is not None and row.try_at > now
        if waits and planning is not None and planning.campaign_id in below:
            tables.terms.change(row, try_at=now)
            woken[row.pool_task] = None
    return [(task,) for task in woken]


def _below(tables: Tables, campaigns: Sequence[str]) -> set[int]:
    """Return the ids of these campaigns and of their descendants."""
    below: set[int] = set()
    for row in tables.campaigns.rows.values():
        above: CampaignRow | None = row
        while above is not None and row.id not in below:
            if above.name in campaigns:
                below.add(row.id)
            parent = above.parent_id
            above = None if parent is None else tables.campaigns.rows[parent]
    return below
