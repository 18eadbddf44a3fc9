"""Gathers the facts that tell whether a node can work, for ``/readyz`` and ``/metrics``."""

from __future__ import annotations

import asyncio
import shutil

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
    directory = node.settings.state_dir
    usage = await asyncio.to_thread(shutil.disk_usage, directory)
    return Readiness(
        now=now,
        lead_seen_at=facts.lead_seen_at,
        leads=facts.leads,
        due_at=facts.due_at,
        directory=str(directory),
        free_bytes=usage.free,
        refused_write=node.database.refused_write(_FULL_S),
    )
