"""A pool of the three nodes in an hour to come, and campaigns that want its time."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from uuid import uuid4

from tests.acceptance.outsider import Json, Outsider, instant
from tests.support.patience import PATIENCE_S


@dataclass(frozen=True)
class Scene:
    """A pool of all nodes of the lab, its lead, and the hour in which runs are to be booked."""

    lead: Outsider
    pool: str
    hour: datetime
    campaigns: list[str] = field(default_factory=list)

    async def policies(self, name: str, **overrides: Json) -> None:
        """Give the pool a set of policies."""
        patch = {"policy": {"set": name, "overrides": overrides}}
        answer = await self.lead.ask("PATCH", f"/v1/pools/{self.pool}", patch)
        assert answer.status == 200, answer

    async def campaign(self, word: str, **settings: Json) -> str:
        """Create a campaign, and return its name, which no other test uses."""
        name = f"{word}-{uuid4().hex[:6]}"
        answer = await self.lead.ask("POST", "/v1/campaigns", {"name": name, **settings})
        assert answer.status == 201, answer
        self.campaigns.append(name)
        return name

    def idle(self, minutes: int = 10, *, at: float = 0, slip: float = 0, **more: Json) -> Json:
        """Return a document of exclusive runs, the first ``at`` minutes after the hour.

        ``every`` minutes ``runs`` of them are wanted, or one.
        """
        start = self.hour + timedelta(minutes=at)
        schedule = {"start": start.isoformat(), "slip": f"PT{round(slip * 60)}S"}
        if "runs" in more:
            schedule |= {"repeat": f"PT{more.pop('every')}M", "max_runs": more.pop("runs")}
        spec = {"duration": f"PT{minutes}M", "class": more.pop("kind", "exclusive")}
        return {"spec": spec, "schedule": schedule | more.pop("schedule", {}), **more}

    async def named(self, *nodes: Outsider, **document: Json) -> Json:
        """Create a task that names its participants, and return it once it was planned."""
        return await self.lead.planned(
            await self.lead.create("idle", *nodes, **self.idle(**document))
        )

    async def pooled(self, k: int = 1, *, request: Json = None, **document: Json) -> Json:
        """Create a task that wants ``k`` nodes of the pool."""
        wanted = {"pool": self.pool, "k": k, **(request or {})}
        return await self.lead.create("idle", participants=wanted, **self.idle(**document))

    async def booked(self, task: Json, count: int) -> list[float]:
        """Return the minutes after the hour at which so many runs of a task are booked."""
        path = f"/v1/tasks/{task['id']}/runs?state=scheduled&limit=500"
        page = await self.lead.until(path, lambda found: len(found["items"]) == count)
        starts = (instant(run["starts_at"]) - self.hour for run in page["items"])
        return sorted(start.total_seconds() / 60 for start in starts)

    async def given(self, total: int, *groups: Sequence[Json]) -> list[int]:
        """Return how many seats each group of tasks has, as soon as they are so many together."""
        seats: list[int] = []
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE_S), self.lead.changes() as changed:
                while sum(seats := [await self._taken(group) for group in groups]) != total:
                    await changed()
        assert sum(seats) == total, seats
        return seats

    async def _taken(self, tasks: Sequence[Json]) -> int:
        shown = await asyncio.gather(*(self.lead.get(f"/v1/tasks/{it['id']}") for it in tasks))
        return sum(it["seats"]["taken"] for it in shown if it["seats"])

    async def waits(self, task: Json, *words: str) -> str:
        """Return why a task on named nodes has no time, once the reason has these words."""

        def why(found: Json) -> str:
            return next((run["reason"] or "" for run in found["items"]), "")

        path = f"/v1/tasks/{task['id']}/runs"
        return why(
            await self.lead.until(path, lambda found: all(word in why(found) for word in words))
        )

    async def unseated(self, task: Json, *words: str) -> str:
        """Return why a seat of a pool task is empty, as soon as the reason has these words."""

        def why(found: Json) -> str:
            return ((found["seats"] or {}).get("reason")) or ""

        path = f"/v1/tasks/{task['id']}"
        return why(
            await self.lead.until(path, lambda found: all(word in why(found) for word in words))
        )

    @contextlib.asynccontextmanager
    async def together(self) -> AsyncIterator[list[Json]]:
        """Reserve the pool while tasks are created, so that all find free time in one episode.

        The tasks are to be added to the list.
        """
        reservation = {
            "kind": "quiet",
            "name": self.pool,
            "pool": self.pool,
            "duration": "PT6H",
            "schedule": {"start": self.hour.isoformat()},
        }
        answer = await self.lead.ask("POST", "/v1/reservations", reservation)
        assert answer.status == 201, answer
        tasks: list[Json] = []
        yield tasks
        for task in tasks:
            await self.unseated(task, "reserved")
        path = f"/v1/reservations/{answer.body['id']}"
        assert (await self.lead.ask("DELETE", path)).status < 300
