"""Worlds with a pool: nodes with attributes, and a lead that assigns the seats of pool tasks."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from lead.assembly.with_node import limits_of, seat_dependencies
from lead.pool.episodes import EpisodeLimits, EpisodeLoop, SeatDependencies
from node.model import times
from node.model.wire.pools import PoolDocument
from node.model.wire.tasks import TaskDocument, TaskPatch
from tests.support.clocks import START
from tests.support.worlds import Site, World


def bounds_of(site: Site) -> EpisodeLimits:
    """Return the bounds for assigning seats at a site."""
    settings = site.node.settings
    return EpisodeLimits(limits_of(settings), settings.clock_limit)


def seat_dependencies_of(site: Site) -> SeatDependencies:
    """Return the dependencies of seat assignment at a site."""
    return seat_dependencies(site.node, site._participant)


def episodes_of(site: Site) -> EpisodeLoop:
    """Return the loop that assigns the seats of a site's pool tasks; it is not started."""
    bounds, dependencies = bounds_of(site), seat_dependencies_of(site)
    rng, steps = random.Random(1), site.node.core.steps
    return EpisodeLoop(site.node.database, site.clock, bounds, dependencies, rng, steps)


@dataclass
class Pooled:
    """A lead outside the pool, and the nodes n1, n2, … of its pool ``europe``."""

    world: World
    lead: Site
    nodes: list[Site]
    episodes: EpisodeLoop

    async def seat(self) -> None:
        """Assign due seats, plan their tasks, and deliver the decisions."""
        while not await self.episodes.run_once():
            pass
        await self.lead.plan()
        await self.world.settle()

    async def changed(self) -> None:
        """React to changes of pools, nodes, or campaigns, as after a notification."""
        self.episodes._recheck_at = 0
        await self.seat()

    async def create(self, k: int, *, seat: bool = True, **options: Any) -> UUID:
        """Create a pool task of idle runs; ``options`` are request, schedule, and others."""
        document = idle(k, **options)
        task, _ = await self.lead.node.admission.create(document, None)
        if seat:
            await self.seat()
        return task

    async def edit(self, task: UUID, **changes: Any) -> None:
        """Edit a pool task."""
        await self.lead.node.editing.edit(task, TaskPatch.model_validate(changes))

    async def seats(self, task: UUID) -> dict[int, dict[int, str]]:
        """Return by term (hours since the world began), then number, the node of each seat."""
        rows = await self.lead.rows(
            "SELECT term, place, name FROM seat INNER JOIN node ON node = identity "
            "WHERE pool_task = $1 AND lost_at IS NULL ORDER BY term, place",
            task,
        )
        found: dict[int, dict[int, str]] = {}
        for term, number, name in rows:
            found.setdefault((term - START) // times.HOUR, {})[number] = name
        return found

    async def told(self, task: UUID) -> list[tuple[str, str]]:
        """Return outcome and sentence of each decision on a task."""
        rows = await self.lead.rows(
            "SELECT outcome, sentence FROM decision WHERE task_id = $1 ORDER BY id", task
        )
        return [(row[0], row[1]) for row in rows]

    async def states(self, site: Site, task: UUID) -> Counter[str]:
        """Return the states of the runs of a pool task's seats, as its lead sees them."""
        parts = await self.lead.rows("SELECT id FROM task WHERE parent = $1", task)
        rows = await site.rows(
            "SELECT state FROM run_known WHERE task_id = ANY($1::uuid [])", [p[0] for p in parts]
        )
        return Counter(row[0] for row in rows)


def idle(
    k: int,
    *,
    request: Mapping[str, Any] | None = None,
    schedule: Mapping[str, Any] | None = None,
    length: str = "PT1M",
    kind: str = "exclusive",
    priority: int = 0,
    campaign: str | None = None,
) -> TaskDocument:
    """Return a document of hourly idle runs on ``k`` nodes of ``europe`` by default."""
    return TaskDocument.model_validate(
        {
            "test": {"type": "idle", "spec": {"duration": length, "class": kind}},
            "participants": {"pool": "europe", "k": k, **(request or {})},
            "schedule": {"repeat": "PT1H", "slip": "PT5M", **(schedule or {})},
            "priority": priority,
            "campaign": campaign,
        }
    )


async def pooled(world: World, attributes: Sequence[Mapping[str, Any]], **options: Any) -> Pooled:
    """Create a lead, a node for each set of attributes, and a pool of them."""
    lead = await world.site("lead")
    nodes = [
        await world.site(f"n{number}", attributes={"in": "europe", **each})
        for number, each in enumerate(attributes, 1)
    ]
    await known_as_they_are(world)
    document = {"name": "europe", "match": {"in": "europe"}, **options}
    await lead.node.pools.create(PoolDocument.model_validate(document))
    return Pooled(world, lead, nodes, episodes_of(lead))


async def known_as_they_are(world: World) -> None:
    """Make all attributes of nodes known to all nodes."""
    for site in world.sites:
        async with site.database.transaction() as connection:
            await site.node.own_card.write(connection)
    await world._make_known()
