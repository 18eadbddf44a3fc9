"""Gathers the facts that tell whether a node can work, for ``/readyz`` and ``/metrics``."""

from __future__ import annotations

import shutil
from functools import partial

from node.model.leads import LeadProcess, LeadState, leads_shown
from node.model.readiness import LEAD_SILENT, Readiness
from node.runtime.threads import aside
from node.service import NodeService
from node.store import readiness
from node.store.readiness import PlanningFacts

_FULL_S = 30.0
"""A database that refused a write for want of room counts as full for so long."""
_DAMAGED_S = 150.0
"""Likewise as damaged; jobs that may find it damaged again run every two minutes at least."""


async def readiness_of(node: NodeService) -> Readiness:
    """Return the facts by which ``/readyz`` judges the node.

    :raises DatabaseUnavailable: the database does not answer.
    """
    now = node.clock.now()
    async with node.database.connection() as connection:
        facts = await readiness.planning_facts(
            connection, now - LEAD_SILENT, now + node.settings.horizon + 1
        )
    return await readiness_by(node, now, facts)


async def readiness_by(node: NodeService, now: int, facts: PlanningFacts) -> Readiness:
    """Return the facts of readiness, given those of the planning that the database has."""
    return Readiness(
        now=now,
        lead_seen_at=facts.lead_seen_at,
        leads=facts.leads,
        due_at=facts.due_at,
        directory=str(node.settings.state_dir),
        free_bytes=await free_bytes(node),
        refused_write=refused_write(node),
        damage=damage(node),
        warnings=_warnings(node),
        clock_fault=node.clock_steps.why_waiting,
    )


async def free_bytes(node: NodeService) -> int:
    """Return how many bytes are free in the state directory."""
    usage = await aside(partial(shutil.disk_usage, node.settings.state_dir), "look at the disk")
    return usage.free


def refused_write(node: NodeService) -> str | None:
    """Return the error of the last write for which the database had no room, if it is recent."""
    return node.database.refused_write(_FULL_S)


def damage(node: NodeService) -> str | None:
    """Return the sentence of the database on damage that it found lately, if any."""
    return node.database.damage(_DAMAGED_S)


async def leads_of(node: NodeService) -> list[tuple[LeadProcess, LeadState]]:
    """Return the processes that plan the tasks led here, and those that did until lately."""
    now = node.clock.now()
    async with node.database.connection() as connection:
        processes = await readiness.lead_processes(connection, now + 2 * node.settings.lease)
    return leads_shown(processes, now)


def _warnings(node: NodeService) -> tuple[str, ...]:
    warnings = [] if node.certificates is None else node.certificates.warnings
    if (plain := node.settings.plain_warning) is not None:
        warnings.append(plain)
    return (*warnings, *node.backups.warnings)


async def missing_lead(node: NodeService) -> str | None:
    """Return why runs that are taken back here would not be placed again; None if they would."""
    heard_after = node.clock.now() - LEAD_SILENT
    async with node.database.connection() as connection:
        if await readiness.has_lead(connection, heard_after):
            return None
    return (
        "this node leads tasks, and no lead plans them at the moment, so what is taken back would "
        "not be placed again; start parley-lead, or see its log, and repeat the command"
    )
