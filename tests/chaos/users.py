"""Many concurrent users who post, cancel, query, and remember what they were promised.

Every answered request to a node's API is an operation. A POST without an answer is repeated later
with the same key, as a good client does.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter, deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import aiohttp

from node.runtime.clock import SystemClock
from tests.chaos.checks import Acknowledged
from tests.chaos.plan import Plan
from tests.chaos.sites import Site, Sites
from tests.chaos.wishes import Wish, edit, wish

_CLOCK = SystemClock()
_ANSWER_S = 8.0
_AWAY_S = 1.0
Json = Any


@dataclass
class Ledger:
    """The requests of all users, and what the nodes have promised."""

    operations: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    unanswered: Counter[str] = field(default_factory=Counter)
    unable: Counter[str] = field(default_factory=Counter)
    posted: dict[str, Acknowledged] = field(default_factory=dict)
    by_key: dict[str, set[str]] = field(default_factory=dict)
    ended_tasks: dict[str, Acknowledged] = field(default_factory=dict)
    ended_runs: dict[str, Acknowledged] = field(default_factory=dict)

    @property
    def total(self) -> int:
        """Return the number of answered operations."""
        return self.operations.total()

    @property
    def unserved(self) -> int:
        """Return the number of requests that no node answered or could serve."""
        return self.unanswered.total() + self.unable.total()


@dataclass
class PendingPost:
    """A POST that a node may or may not have received."""

    site: Site
    key: str
    wished: Wish


@dataclass
class Posted:
    """A task as its user remembers it."""

    id: str
    site: Site
    wished: Wish
    paused: bool = False


class User:
    """A user, who uses every node."""

    def __init__(
        self,
        number: int,
        sites: Sites,
        ledger: Ledger,
        session: aiohttp.ClientSession,
        rng: random.Random,
    ) -> None:
        """Create a user; ``number`` makes its keys unique."""
        self._number = number
        self._sites = sites
        self._ledger = ledger
        self._session = session
        self._rng = rng
        self._keys = 0
        self._tasks: list[Posted] = []
        self._runs: deque[tuple[str, Posted]] = deque(maxlen=60)
        self._unheard: deque[PendingPost] = deque(maxlen=40)
        self._actions: dict[Callable[[], Awaitable[None]], int] = {
            self._post: 34,
            self._post_again: 6,
            self._cancel_task: 14,
            self._cancel_run: 16,
            self._pause_or_resume: 8,
            self._edit: 8,
            self._look_at_runs: 14,
            self._look_at_task: 8,
            self._explain: 4,
            self._list_tasks: 2,
            self._plan: 4,
        }

    async def act(self, tasks_max: int) -> None:
        """Perform an action; with more than ``tasks_max`` own tasks, cancel one."""
        if len(self._tasks) > tasks_max:
            await self._cancel_task()
        else:
            action = self._rng.choices(list(self._actions), list(self._actions.values()))[0]
            await action()

    async def _post(self) -> None:
        self._keys += 1
        key = f"chaos-{self._number}-{self._keys}"
        site = self._rng.choice(self._sites.all)
        await self._send(PendingPost(site, key, self._wish(site, key)), "post")

    def _wish(self, site: Site, reference: str) -> Wish:
        return wish(self._rng, site, list(self._sites.all), _CLOCK.now(), reference)

    async def _post_again(self) -> None:
        if not self._unheard:
            await self._post()
            return
        await self._send(self._unheard.popleft(), "post again")

    async def _send(self, pending: PendingPost, kind: str) -> None:
        answer = await self._ask(
            kind,
            pending.site,
            "POST",
            "/v1/tasks",
            pending.wished.document,
            {"Idempotency-Key": pending.key},
        )
        if answer is None:
            self._unheard.append(pending)
        elif "id" in answer:
            task = str(answer["id"])
            self._ledger.by_key.setdefault(pending.key, set()).add(task)
            if task not in self._ledger.posted:
                self._ledger.posted[task] = _acknowledged(pending.site)
                self._tasks.append(Posted(task, pending.site, pending.wished))

    async def _cancel_task(self) -> None:
        posted = self._some_task()
        if posted is None:
            await self._post()
            return
        where = posted.site
        if self._rng.random() < 0.1:
            where = self._elsewhere(posted)
        kind = "cancel task" if where is posted.site else "withdraw from task"
        answer = await self._ask(kind, where, "DELETE", f"/v1/tasks/{posted.id}")
        if answer is not None and posted in self._tasks:
            self._tasks.remove(posted)
        if answer and "id" in answer:
            self._ledger.ended_tasks[posted.id] = _acknowledged(where)

    async def _cancel_run(self) -> None:
        if not self._runs:
            await (self._look_at_runs() if self._tasks else self._post())
            return
        run, posted = self._runs.pop()
        where = posted.site if self._rng.random() < 0.7 else self._elsewhere(posted)
        answer = await self._ask("cancel run", where, "DELETE", f"/v1/runs/{run}")
        if answer and "id" in answer:
            self._ledger.ended_runs[run] = _acknowledged(where)

    async def _pause_or_resume(self) -> None:
        posted = self._some_task()
        if posted is not None:
            word = "resume" if posted.paused else "pause"
            path = f"/v1/tasks/{posted.id}/{word}"
            answer = await self._ask(f"{word} task", posted.site, "POST", path)
            if answer and "id" in answer:
                posted.paused = not posted.paused

    async def _edit(self) -> None:
        posted = self._some_task()
        if posted is not None:
            patch = edit(self._rng, _CLOCK.now(), posted.wished)
            await self._ask("edit task", posted.site, "PATCH", f"/v1/tasks/{posted.id}", patch)

    async def _look_at_runs(self) -> None:
        posted = self._some_task()
        if posted is None:
            await self._post()
            return
        path = f"/v1/tasks/{posted.id}/runs?limit=20&state=scheduled"
        page = await self._ask("list runs", posted.site, "GET", path)
        items = page.get("items", []) if page else []
        for item in self._rng.sample(items, min(6, len(items))):
            self._runs.append((item["id"], posted))

    async def _look_at_task(self) -> None:
        posted = self._some_task()
        if posted is not None:
            await self._ask("show task", posted.site, "GET", f"/v1/tasks/{posted.id}")

    async def _explain(self) -> None:
        posted = self._some_task()
        if posted is not None:
            await self._ask("explain", posted.site, "GET", f"/v1/tasks/{posted.id}/explain?limit=3")

    async def _plan(self) -> None:
        site = self._rng.choice(self._sites.all)
        body = self._wish(site, "only a question").document
        await self._ask("plan", site, "POST", "/v1/plans", body)

    async def _list_tasks(self) -> None:
        site = self._rng.choice(self._sites.all)
        await self._ask("list tasks", site, "GET", "/v1/tasks?limit=20&state=active")

    def _some_task(self) -> Posted | None:
        now = _CLOCK.now()
        self._tasks = [posted for posted in self._tasks if posted.wished.over_at > now]
        return self._rng.choice(self._tasks) if self._tasks else None

    def _elsewhere(self, posted: Posted) -> Site:
        name = self._rng.choice(posted.wished.participants)
        return next(site for site in self._sites.all if site.name == name)

    async def _ask(
        self,
        kind: str,
        site: Site,
        method: str,
        path: str,
        body: Json = None,
        headers: dict[str, str] | None = None,
    ) -> Json | None:
        """Return the answered document, or problem; None if no node has decided anything."""
        try:
            async with self._session.request(
                method,
                site.url + path,
                json=body,
                headers={"Authorization": f"Bearer {site.token}", **(headers or {})},
                timeout=aiohttp.ClientTimeout(total=_ANSWER_S),
            ) as response:
                status, answer = response.status, await response.json(content_type=None)
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError):
            self._ledger.unanswered[kind] += 1
            await _CLOCK.sleep(_AWAY_S * self._rng.random())
            return None
        if status >= 500:
            self._ledger.unable[f"{kind}: {status} {answer.get('title')}"] += 1
            return None
        self._ledger.operations[kind] += 1
        if status >= 400:
            self._ledger.refused[f"{kind}: {status}"] += 1
        return answer


def _acknowledged(site: Site) -> Acknowledged:
    return Acknowledged(site.name, datetime.now(UTC))


async def keep_busy(sites: Sites, plan: Plan, ledger: Ledger) -> None:
    """Let all users work until the operations of the plan have been answered."""
    connector = aiohttp.TCPConnector(limit=0)
    tasks_max = 6
    async with aiohttp.ClientSession(connector=connector) as session, asyncio.TaskGroup() as group:
        for number in range(plan.clients):
            rng = random.Random(f"{plan.seed} user {number}")
            user = User(number, sites, ledger, session, rng)
            group.create_task(_work(user, ledger, plan.operations, tasks_max))


async def _work(user: User, ledger: Ledger, operations: int, tasks_max: int) -> None:
    while ledger.total < operations:
        await user.act(tasks_max)
