"""Figures of what campaigns and meshes were promised, and got, in the last day: for metrics.

Summing up a large mesh takes tens of milliseconds, and Prometheus asks every few seconds, so the
figures are kept for a minute.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

from node.model import times
from node.model.wire.campaigns import Campaign
from node.model.wire.meshes import Delivery
from node.sharing.usage import UsageReader
from node.store import meshes
from node.store.core import Core

_KEPT = times.MINUTE


@dataclass(frozen=True)
class DeliveryFigures:
    """The campaigns with their usage, and by mesh what it delivered."""

    read_at: int
    campaigns: tuple[Campaign, ...]
    meshes: Mapping[str, Delivery]


class Deliveries:
    """Reads the figures, at most once a minute."""

    def __init__(self, core: Core, usage: UsageReader) -> None:
        self._core = core
        self._usage = usage
        self._latest: DeliveryFigures | None = None
        self._reading = asyncio.Lock()

    async def figures(self) -> DeliveryFigures:
        """Return the figures, at most a minute old.

        :raises DatabaseUnavailable: the database does not answer.
        """
        async with self._reading:
            now, latest = self._core.clock.now(), self._latest
            if latest is None or not 0 <= now - latest.read_at < _KEPT:
                latest = self._latest = await self._read(now)
            return latest

    async def _read(self, now: int) -> DeliveryFigures:
        # From a whole hour on no slot is read: these are summed up.
        since = (now - times.DAY) // times.HOUR * times.HOUR
        delivered: dict[str, Delivery] = {}
        async with self._core.database.connection() as connection:
            for mesh in await meshes.find_all(connection, None, None):
                outcomes = await meshes.outcomes(connection, mesh.mesh, since, now, None)
                delivered[mesh.mesh] = meshes.delivery_of(outcomes)
        return DeliveryFigures(now, tuple(await self._usage.all()), delivered)
