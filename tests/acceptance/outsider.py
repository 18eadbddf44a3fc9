"""A client of a node's HTTP API that uses only aiohttp and the API's description."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import aiohttp
import orjson

from tests.support.patience import PATIENCE_S

Json = Any
LOOK_AGAIN_S = 1.0
"""Seconds between checks if no event announces a change."""


@dataclass(frozen=True)
class Answer:
    """The status, document and headers of a response."""

    status: int
    body: Json
    headers: Mapping[str, str]

    @property
    def pointers(self) -> list[str]:
        """Return the pointers of a problem document's faults."""
        return [fault["pointer"] for fault in self.body["errors"]]


@dataclass(frozen=True)
class Outsider:
    """A client of one node."""

    name: str
    url: str
    token: str
    dsn: str
    address: str
    state: str
    session: aiohttp.ClientSession

    async def ask(
        self,
        method: str,
        path: str,
        body: Json = None,
        headers: Mapping[str, str] | None = None,
        query: Mapping[str, object] | None = None,
    ) -> Answer:
        """Send a request with the token; a body of bytes is sent unchanged."""
        sent = body if isinstance(body, bytes) else json.dumps(body).encode()
        written = {name.strip("_"): str(value) for name, value in (query or {}).items()}
        async with self.session.request(
            method,
            self.url + path,
            data=None if body is None else io.BytesIO(sent),
            params=written,
            headers={"Authorization": f"Bearer {self.token}", **(headers or {})},
        ) as response:
            text = await response.read()
            with contextlib.suppress(orjson.JSONDecodeError):
                return Answer(response.status, orjson.loads(text), response.headers)
            return Answer(response.status, text, response.headers)

    async def get(self, path: str, **query: object) -> Json:
        """Return the document at a path, which must exist."""
        answer = await self.ask("GET", path, query=query)
        assert answer.status == 200, answer
        return answer.body

    async def create(self, test: str = "idle", *participants: Outsider, **document: Json) -> Json:
        """Create a task; ``spec`` is the test's."""
        spec = document.pop("spec", {})
        body = {"test": {"type": test, "spec": spec}, **document}
        if participants:
            body["participants"] = [each.name for each in participants]
        answer = await self.ask("POST", "/v1/tasks", body)
        assert answer.status == 201, answer
        assert answer.headers["Location"] == f"/v1/tasks/{answer.body['id']}"
        return answer.body

    async def planned(self, task: Json) -> Json:
        """Wait until the task has been planned, and return it."""
        current = await self.get(f"/v1/tasks/{task['id']}", wait=20)
        assert current["planned"], current
        return current

    async def runs(self, task: Json, **query: object) -> list[Json]:
        """Wait until the task has been planned, and return its runs in order."""
        await self.planned(task)
        page = await self.get(f"/v1/tasks/{task['id']}/runs", order="asc", limit=500, **query)
        return list(page["items"])

    async def run(self, task: Json) -> Json:
        """Wait until the task has been planned, and return its only run."""
        (only_run,) = await self.runs(task)
        return only_run

    async def over(self, run: Json) -> Json:
        """Wait until a run is over, and return it."""
        return await self.get(f"/v1/runs/{run['id']}", wait=PATIENCE_S)

    async def finished(self, run: Json) -> Json:
        """Wait until a run is over, check that it has finished, and return it."""
        ended = await self.over(run)
        assert ended["state"] == "finished", (ended["state"], ended["reason"])
        return ended

    async def cancel(self, task: Json) -> Json:
        """Cancel a task, and return it."""
        answer = await self.ask("DELETE", f"/v1/tasks/{task['id']}")
        assert answer.status == 200, answer
        return answer.body

    async def explain(self, kind: str, thing: Json) -> Json:
        """Return the explanation of a run or a task."""
        return await self.get(f"/v1/{kind}s/{thing['id']}/explain")

    async def until(self, path: str, holds: Callable[[Json], object]) -> Json:
        """Return the document at a path as soon as a condition holds; check at each event."""
        document: Json = None
        try:
            async with asyncio.timeout(PATIENCE_S), self.changes() as changed:
                while not holds(document := (await self.ask("GET", path)).body):
                    await changed()
        except TimeoutError:
            raise AssertionError(f"not within {PATIENCE_S} s at {path}: {document}") from None
        return document

    async def until_state(self, run: Json, *states: str) -> Json:
        """Return the run as soon as it is in one of these states on this node."""
        path = f"/v1/runs/{run['id']}"
        return await self.until(path, lambda found: found.get("state") in states)

    @contextlib.asynccontextmanager
    async def changes(self) -> AsyncIterator[Callable[[], Any]]:
        """Yield a function that returns when the node has reported a change, or after a second."""
        happened = asyncio.Event()

        async def listen() -> None:
            async for _ in self.events():
                happened.set()

        async def changed() -> None:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(happened.wait(), LOOK_AGAIN_S)
            happened.clear()

        listening = asyncio.create_task(listen())
        try:
            yield changed
        finally:
            listening.cancel()
            with contextlib.suppress(asyncio.CancelledError, aiohttp.ClientError):
                await listening

    async def events(self, after: str | None = None) -> AsyncIterator[dict[str, Json]]:
        """Yield the events of the stream, each as ``{"id", "event", "data"}``."""
        headers = {"Authorization": f"Bearer {self.token}"}
        if after is not None:
            headers["Last-Event-ID"] = after
        url = f"{self.url}/v1/events"
        async with self.session.get(url, headers=headers, timeout=_ENDLESS) as response:
            assert response.content_type == "text/event-stream"
            event: dict[str, Json] = {}
            async for line in response.content:
                field, _, value = line.decode().rstrip("\n").partition(": ")
                if field in {"id", "event"}:
                    event[field] = value
                elif field == "data":
                    event[field] = orjson.loads(value)
                elif not field and "data" in event:
                    yield event
                    event = {}


_ENDLESS = aiohttp.ClientTimeout(total=None)


def instant(text: str) -> datetime:
    """Parse an instant of the API."""
    return datetime.fromisoformat(text)


def booked(run: Json) -> tuple[str, str, str]:
    """Return the fields of a run that must be equal on all its participants."""
    return run["id"], run["starts_at"], run["ends_at"]
