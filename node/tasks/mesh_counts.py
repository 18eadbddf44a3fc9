"""Sum up what the tasks of meshes have delivered, some seconds after their slots have changed."""

from __future__ import annotations

from node.store import meshes
from node.store.database import Database

BATCH = 500
"""Maximum number of changes that one transaction takes up: a tenth of a second of work."""


class MeshCounter:
    """Sums up the hours of tasks whose slots have changed.

    Until then their slots are counted one by one whenever somebody asks, so nobody waits for this.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    async def run_once(self) -> None:
        """Sum up everything that has changed, batch by batch."""
        while await self._sum_up_batch() == BATCH:
            pass

    async def _sum_up_batch(self) -> int:
        async with self._database.transaction() as connection:
            return await meshes.sum_up(connection, BATCH)
