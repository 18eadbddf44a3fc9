"""A node's HTTP API as somebody uses it who has only read its description: with aiohttp alone."""

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

Json = Any
LOOK_AGAIN_S = 1.0
"""Facts are looked at again with each event; one without an event costs so long."""


@dataclass(frozen=True)
class Answer:
    """What came back: a status and a document."""

    status: int
    body: Json
    headers: Mapping[str, str]

    @property
    def pointers(self) -> list[str]:
        """The fields that a problem document complains of."""
        return [fault["pointer"] for fault in self.body["errors"]]


@dataclass(frozen=True)
class Outsider:
    """Somebody who speaks to one node."""

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
        """One request with the token; a body of bytes is sent as it is."""
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
        """The document at a path that must be there."""
        answer = await self.ask("GET", path, query=query)
        assert answer.status == 200, answer
        return answer.body

    async def create(self, test: str = "idle", *participants: Outsider, **document: Json) -> Json:
        """A new task; ``spec`` is the test's."""
        spec = document.pop("spec", {})
        body = {"test": {"type": test, "spec": spec}, **document}
        if participants:
            body["participants"] = [each.name for each in participants]
        answer = await self.ask("POST", "/v1/tasks", body)
        assert answer.status == 201, answer
        assert answer.headers["Location"] == f"/v1/tasks/{answer.body['id']}"
        return answer.body

    async def planned(self, task: Json) -> Json:
        """The task once it has been planned."""
        found = await self.get(f"/v1/tasks/{task['id']}", wait=20)
        assert found["planned"], found
        return found

    async def runs(self, task: Json, **query: object) -> list[Json]:
        """The runs of a planned task, in order."""
        await self.planned(task)
        page = await self.get(f"/v1/tasks/{task['id']}/runs", order="asc", limit=500, **query)
        return list(page["items"])

    async def run(self, task: Json) -> Json:
        """The one run of a planned task."""
        (found,) = await self.runs(task)
        return found

    async def over(self, run: Json, wait_s: float = 40) -> Json:
        """A run once it is over."""
        return await self.get(f"/v1/runs/{run['id']}", wait=wait_s)

    async def finished(self, run: Json) -> Json:
        """A run once it has been measured."""
        found = await self.over(run)
        assert found["state"] == "finished", (found["state"], found["reason"])
        return found

    async def cancel(self, task: Json) -> Json:
        """The task after it was cancelled."""
        answer = await self.ask("DELETE", f"/v1/tasks/{task['id']}")
        assert answer.status == 200, answer
        return answer.body

    async def explain(self, kind: str, thing: Json) -> Json:
        """Why a run or a task is as it is."""
        return await self.get(f"/v1/{kind}s/{thing['id']}/explain")

    async def until(self, path: str, holds: Callable[[Json], object], within_s: float = 20) -> Json:
        """What is at a path, as soon as something is true of it; looks again at each event."""
        found: Json = None
        try:
            async with asyncio.timeout(within_s), self.changes() as changed:
                while not holds(found := (await self.ask("GET", path)).body):
                    await changed()
        except TimeoutError:
            raise AssertionError(f"not within {within_s} s at {path}: {found}") from None
        return found

    async def until_state(self, run: Json, *states: str, within_s: float = 20) -> Json:
        """The run as soon as this node has it in one of these states."""
        path = f"/v1/runs/{run['id']}"
        return await self.until(path, lambda found: found.get("state") in states, within_s)

    @contextlib.asynccontextmanager
    async def changes(self) -> AsyncIterator[Callable[[], Any]]:
        """A function that returns when the node has told of a change, or after a second."""
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
        """The event stream: ``{"id", "event", "data"}`` each."""
        headers = {} if after is None else {"Last-Event-ID": after}
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
    """An instant of the API."""
    return datetime.fromisoformat(text)


def booked(run: Json) -> tuple[str, str, str]:
    """What all participants of a run must have alike."""
    return run["id"], run["starts_at"], run["ends_at"]
