"""The standing of campaigns in contested time of pools, as the next episode would see it.

The view is that of an episode over all terms that wait, and what divides in an episode divides
here: nothing is asked of nodes, and nothing is stored.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

from lead.policy.contested_standing import BranchFigures, Standing, standings_of
from lead.policy.episode import Episode
from lead.pool.episodes import CASES_MAX, EpisodeLimits, SeatDependencies, input_reader
from lead.pool.membership import Membership
from lead.pool.snapshot import policies_of
from lead.store import episodes
from node.model import times
from node.model.wire.campaigns import ContestedPart, ContestedTime
from node.runtime.clock import Clock
from node.store import pools
from node.store.database import Database
from node.store.pools import StoredPool

_TRIED_WITHIN = times.DAY
"""Terms that are tried again within this time wait: no pause is longer but that of what is held."""


class ContestedTimeReader:
    """Reads how campaigns stand."""

    def __init__(
        self,
        database: Database,
        clock: Clock,
        bounds: EpisodeLimits,
        dependencies: SeatDependencies,
    ) -> None:
        """``bounds`` and ``dependencies`` are those of the episode loop."""
        self._database = database
        self._clock = clock
        self._dependencies = dependencies
        self._snapshots = input_reader(database, clock, bounds.limits, dependencies)

    async def of(self, campaign: str) -> list[ContestedTime]:
        """Return how a campaign stands, pool by pool, and the soonest time first."""
        due_by = self._clock.now() + _TRIED_WITHIN
        async with self._database.connection() as connection:
            listed = {pool.name: pool for pool in await pools.find_all(connection)}
            waiting = await episodes.tasks_with_empty_seats(connection, due_by, CASES_MAX)
        known = await self._dependencies.known()
        membership = Membership(listed, known, self._dependencies.wanted_of)
        times_of_pools: list[ContestedTime] = []
        for name in sorted({task.pool for task in waiting}):
            tasks = [task for task in waiting if task.pool == name]
            found = await self._snapshots.read(membership, listed[name], tasks, due_by=due_by)
            episode = Episode(found.view, policies_of(listed[name]), random.Random(0))
            by_starts = episode.contests.by_starts
            for standing in standings_of(episode.contests, campaign):
                times_of_pools += _levels_of(listed[name], standing, by_starts=by_starts)
        return times_of_pools


def _levels_of(pool: StoredPool, standing: Standing, *, by_starts: bool) -> Iterator[ContestedTime]:
    one = 1 if by_starts else times.SECOND
    for depth, level in enumerate(standing.levels):
        yield ContestedTime(
            **_part(level.own, one).model_dump(),
            pool=pool.name,
            starts_at=standing.span[0],
            ends_at=standing.span[1],
            unit="starts" if by_starts else "seat-seconds",
            depth=depth,
            behind=round(standing.behind / one, 3),
            caught_up_at=standing.caught_up_at,
            others=tuple(_part(it, one) for it in level.others),
        )


def _part(figures: BranchFigures, one: int) -> ContestedPart:
    return ContestedPart(
        campaign=figures.name,
        weight=float(figures.weight),
        had=round(figures.held / one, 3),
        due=round(figures.due / one, 3),
        wanted=round(figures.demand / one, 3),
    )
