"""The status of this node: one answer with what operators look at first."""

from __future__ import annotations

import asyncio
import os
import shutil

from node.capability.catalog import program_version
from node.clock import synchronisation
from node.model import times
from node.model.attention import Condition, attention
from node.model.leads import LeadProcess, LeadState
from node.model.readiness import Readiness
from node.model.wire.nodes import ClockState
from node.model.wire.status import (
    BacklogStatus,
    BackupStatus,
    DatabaseStatus,
    DiskStatus,
    LeadStatus,
    LoadStatus,
    NodeStatus,
    PeerAway,
    PlanningStatus,
    RunsStatus,
)
from node.readiness import leads_of, readiness_of
from node.service import NodeService
from node.store import archives, readiness, schema
from node.store.nodes import KnownNode


async def status_of(node: NodeService) -> NodeStatus:
    """Return it.

    :raises DatabaseUnavailable: the database does not answer.
    """
    facts, settings = await readiness_of(node), node.settings
    database, standing, backlog = await _database(node, facts)
    await node.directory.refresh()
    others = [known for known in node.directory.all if not known.is_self]
    leads = [_lead(lead, state, facts.now, settings.lease) for lead, state in await leads_of(node)]
    away = tuple(_away(known) for known in others if known.unreachable_since is not None)
    clock = clock_of(node)
    condition = Condition(
        facts, clock, database, leads, away, backlog, settings.lease, settings.clock_limit
    )
    return NodeStatus(
        name=node.card.name,
        identity=node.card.identity,
        url=node.card.url,
        version=program_version(),
        started_at=node.started,
        clock=clock,
        database=database,
        leads=tuple(leads),
        planning=_planning(standing, facts),
        runs=RunsStatus(running=standing.running, next_start=standing.next_start),
        peers=len(others),
        peers_away=away,
        backlog=backlog,
        disk=await disk_of(node),
        load=load_of_host(),
        backup=BackupStatus(
            wanted=node.backups.wanted, latest_at=node.backups.latest, fault=node.backups.fault
        ),
        attention=tuple(attention(condition)),
    )


async def _database(
    node: NodeService, facts: Readiness
) -> tuple[DatabaseStatus, readiness.Standing, BacklogStatus]:
    """Return the state of the database, what it has, and what waits in it to be sent."""
    began = node.clock.monotonic()
    async with node.database.connection() as connection:
        before = facts.now + node.settings.horizon + 1
        standing = await readiness.standing(connection, facts.now, before)
        answered_in = node.clock.monotonic() - began
        archived = await archives.backlog(connection)
    database = DatabaseStatus(
        place=node.backups.place,
        server_version=standing.server_version,
        size_bytes=standing.size_bytes,
        answer_ms=round(answered_in / times.MILLISECOND, 1),
        schema_version=standing.schema_version,
        program_schema_version=schema.schema_version(),
        refused_write=facts.refused_write,
    )
    backlog = BacklogStatus(
        messages=standing.outbox,
        results_waiting=sum(row["waiting"] for row in archived),
        results_parked=sum(row["parked"] for row in archived),
    )
    return database, standing, backlog


def _planning(standing: readiness.Standing, facts: Readiness) -> PlanningStatus:
    at = standing.planned_at
    return PlanningStatus(
        due_tasks=standing.due,
        oldest_due=facts.due_for,
        waiting_for_nodes=standing.waiting_for_nodes,
        planned_at=at,
        plan_age=None if at is None else max(0, facts.now - at),
    )


async def disk_of(node: NodeService) -> DiskStatus:
    """Return how full the disk of the state directory is."""
    directory = node.settings.state_dir
    disk = await asyncio.to_thread(shutil.disk_usage, directory)
    return DiskStatus(directory=str(directory), free_bytes=disk.free, total_bytes=disk.total)


def load_of_host() -> LoadStatus:
    """Return the load of this host."""
    return LoadStatus(processors=os.cpu_count() or 1, one_minute=round(os.getloadavg()[0], 2))


def clock_of(node: NodeService) -> ClockState:
    """Return this host's clock, and its synchronisation as the kernel reports it."""
    state = synchronisation()
    bound = None if state.error_bound is None else state.error_bound / times.MILLISECOND
    return ClockState(now=node.clock.now(), synchronised=state.synchronised, error_bound_ms=bound)


def _lead(lead: LeadProcess, state: LeadState, now: int, lease: int) -> LeadStatus:
    return LeadStatus(
        owner=lead.owner,
        state=state,
        version=lead.version,
        started_at=lead.started_at,
        seen_at=lead.seen_at,
        heartbeat_age=lead.age(now),
        workers=lead.workers,
        leases=lead.leases,
        oldest_lease_age=lead.oldest_lease_age(now, lease),
        takeovers=lead.takeovers,
        took_over_at=lead.took_over_at,
    )


def _away(known: KnownNode) -> PeerAway:
    return PeerAway(name=known.name, since=known.unreachable_since, reason=known.last_error)
