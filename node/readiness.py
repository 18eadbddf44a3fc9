"""Gathers the facts that tell whether a node can work, for ``/readyz`` and ``/metrics``."""

from __future__ import annotations

import asyncio
import shutil

from node.model.leads import LeadProcess, LeadState, leads_shown
from node.model.readiness import LEAD_SILENT, Readiness
from node.service import NodeService
from node.store import readiness

_FULL_S = 30.0
"""A database that refused a write for want of room counts as full for so long."""


async def readiness_of(node: NodeService) -> Readiness:
    """Return the facts.

    :raises DatabaseUnavailable: the database does not answer.
    """
    now = node.clock.now()
    async with node.database.connection() as connection:
        facts = await readiness.facts(
            connection, now - LEAD_SILENT, now + node.settings.horizon + 1
        )
    return Readiness(
        now=now,
        lead_seen_at=facts.lead_seen_at,
        leads=facts.leads,
        due_at=facts.due_at,
        directory=str(node.settings.state_dir),
        free_bytes=await free_bytes(node),
        refused_write=refused_write(node),
        warnings=_warnings(node),
    )


async def free_bytes(node: NodeService) -> int:
    """Return how many bytes are free in the state directory."""
    usage = await asyncio.to_thread(shutil.disk_usage, node.settings.state_dir)
    return usage.free


def refused_write(node: NodeService) -> str | None:
    """Return what the database said if it had no room for a write lately."""
    return node.database.refused_write(_FULL_S)


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
        if await readiness.leads(connection, heard_after):
            return None
    return (
        "this node leads tasks, and no lead plans them at the moment, so what is taken back would "
        "not be placed again; start parley-lead, or see its log, and repeat the command"
    )
