"""The status of this node: one answer with what operators look at first."""

from __future__ import annotations

import os
import shutil
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeVar

from node.journal.troubles import read_troubles
from node.model import times
from node.model.attention import Condition, attention
from node.model.errors import DatabaseUnavailable
from node.model.leads import LeadProcess, LeadState
from node.model.readiness import LEAD_SILENT, Readiness
from node.model.wire.nodes import ClockState
from node.model.wire.outcomes import OutcomesStatus
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
from node.operation.readiness import leads_of, readiness_by, refused_write
from node.runtime.clock import synchronisation
from node.runtime.threads import aside
from node.runtime.version import program_version
from node.service import NodeService
from node.store import archives, outbox, readiness, schema
from node.store.nodes import KnownNode
from node.store.readiness import PlanningFacts

T = TypeVar("T")


class _Reading:
    """Reads the parts of a status, each for itself: one that cannot be read leaves the others."""

    def __init__(self) -> None:
        self.unread: dict[str, str] = {}
        """The reasons why parts could not be read, by their names."""

    async def part(self, name: str, read: Callable[[], Awaitable[T]]) -> T | None:
        """Return the part that ``read`` reads; None if the database does not answer for it."""
        try:
            return await read()
        except DatabaseUnavailable as error:
            self.unread[name] = error.detail
            return None


async def status_of(node: NodeService, *, for_peer: bool = False) -> NodeStatus:
    """Return the status; a part that the database does not answer for is None.

    ``for_peer``: what the tasks of this node measured is left out. It is no business of other
    nodes, and finding what is common to thousands of failing tasks takes seconds.
    """
    settings, now, reading = node.settings, node.clock.now(), _Reading()
    slots_before = now + settings.horizon + 1
    database = await _database_status(node, reading)
    due = await reading.part(
        "due tasks",
        _query_on_connection(node, readiness.planning_facts, now - LEAD_SILENT, slots_before),
    )
    facts = await readiness_by(node, now, due or PlanningFacts(None, 0, None))
    planned = await reading.part(
        "planning", _query_on_connection(node, readiness.planning_state, now, slots_before)
    )
    measured = await reading.part("runs", _query_on_connection(node, readiness.running_state, now))
    outcomes = None if for_peer else await reading.part("outcomes", lambda: _outcomes(node, now))
    found = await reading.part("leads", lambda: leads_of(node))
    backlog = await reading.part("backlog", lambda: _backlog_status(node))
    await reading.part("nodes", node.directory.refresh)
    others = [known for known in node.directory.all if not known.is_self]
    leads = [_lead_status(lead, state, now, settings.lease) for lead, state in found or ()]
    away = tuple(_peer_away(known) for known in others if known.unreachable_since is not None)
    clock = clock_of(node)
    condition = Condition(
        facts,
        clock,
        database,
        leads,
        away,
        backlog,
        settings.lease,
        settings.clock_limit,
        reading.unread,
        outcomes,
    )
    return NodeStatus(
        name=node.card.name,
        identity=node.card.identity,
        url=node.card.url,
        version=program_version(),
        started_at=node.started,
        clock=clock,
        database=database,
        leads=None if found is None else tuple(leads),
        planning=None if planned is None else _planning_status(planned, facts),
        runs=None if measured is None else RunsStatus(**measured._asdict()),
        outcomes=outcomes,
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


def _query_on_connection(
    node: NodeService, query: Callable[..., Awaitable[T]], *args: int
) -> Callable[[], Awaitable[T]]:
    """Return a function that opens a connection and asks the query on it."""

    async def ask() -> T:
        async with node.database.connection() as connection:
            return await query(connection, *args)

    return ask


async def _outcomes(node: NodeService, now: int) -> OutcomesStatus:
    async with node.database.connection() as connection:
        return (await read_troubles(connection, node.card.name, now)).status


async def _database_status(node: NodeService, reading: _Reading) -> DatabaseStatus:
    began = node.clock.monotonic()
    server = await reading.part("database", _query_on_connection(node, readiness.server_state))
    answered_in = round((node.clock.monotonic() - began) / times.MILLISECOND, 1)
    return DatabaseStatus(
        place=node.backups.place,
        server_version=server and server.server_version,
        size_bytes=server and server.size_bytes,
        answer_ms=None if server is None else answered_in,
        schema_version=server and server.schema_version,
        program_schema_version=schema.schema_version(),
        refused_write=refused_write(node),
        oldest_id_age=server and server.oldest_id_age,
        sorts_otherwise=server and server.sorts_otherwise,
    )


async def _backlog_status(node: NodeService) -> BacklogStatus:
    """Return the number of messages and results that wait to be sent."""
    async with node.database.connection() as connection:
        messages = await outbox.count_waiting(connection)
        archived = await archives.backlog(connection)
    return BacklogStatus(
        messages=messages,
        results_waiting=sum(row["waiting"] for row in archived),
        results_parked=sum(row["parked"] for row in archived),
    )


def _planning_status(planned: readiness.Planned, facts: Readiness) -> PlanningStatus:
    at = planned.planned_at
    return PlanningStatus(
        due_tasks=planned.due,
        oldest_due=facts.due_for,
        waiting_for_nodes=planned.waiting_for_nodes,
        planned_at=at,
        plan_age=None if at is None else max(0, facts.now - at),
    )


async def disk_of(node: NodeService) -> DiskStatus:
    """Return how full the disk of the state directory is."""
    directory = node.settings.state_dir
    disk = await aside(partial(shutil.disk_usage, directory), "look at the disk")
    return DiskStatus(directory=str(directory), free_bytes=disk.free, total_bytes=disk.total)


def load_of_host() -> LoadStatus:
    """Return the load of this host."""
    return LoadStatus(processors=os.cpu_count() or 1, one_minute=round(os.getloadavg()[0], 2))


def clock_of(node: NodeService) -> ClockState:
    """Return this host's clock, and its synchronisation as the kernel reports it."""
    state = synchronisation()
    bound = None if state.error_bound is None else state.error_bound / times.MILLISECOND
    return ClockState(now=node.clock.now(), synchronised=state.synchronised, error_bound_ms=bound)


def _lead_status(lead: LeadProcess, state: LeadState, now: int, lease: int) -> LeadStatus:
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


def _peer_away(known: KnownNode) -> PeerAway:
    return PeerAway(name=known.name, since=known.unreachable_since, reason=known.last_error)
