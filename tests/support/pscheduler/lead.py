"""A small lead that runs pScheduler: it asks a participant as the real one does, in its order.

It is written from the description of the protocol: each request has a connection of its own over
TLS, whatever the certificate; some paths have a doubled slash; the key that it has made goes with
all calls but the first. Its own part of a throughput run is a real ``iperf3``.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode
from uuid import UUID, uuid4

import aiohttp
from yarl import URL

from node.model import times
from node.runtime.clock import Clock, SystemClock
from node.trust.tls import anybody
from tests.support.pscheduler.command import Reply

JsonObject = dict[str, Any]

API_LEVEL = 6
RESULTS_S = 15.0
"""Within this time after the end all participants must have their results."""
_CLIENT_DELAY = 3 * times.SECOND
"""Its iperf3 begins so long after the start."""


@dataclass
class LedTask:
    """A task as this lead knows it."""

    id: UUID
    document: JsonObject
    key: str
    runs: list[UUID] = field(default_factory=list)


class RefusedByParticipant(Exception):
    """A call was answered with another status than 200; the message has both."""


class Lead:
    """A lead of tasks in which one node takes part, as participant 1."""

    def __init__(self, host: str, address: str = "127.0.0.1", clock: Clock | None = None) -> None:
        """``host`` is where the participant is, HOST:PORT; ``address`` is the lead's own."""
        self.host = host
        self.address = address
        self.clock = clock or SystemClock()

    async def ask(
        self,
        method: str,
        path: str,
        document: Any = None,
        query: Mapping[str, object] | None = None,
    ) -> Reply:
        """Send one request below ``/pscheduler``, over a connection of its own.

        As there, what is deleted has a URL with a second, empty list of parameters.
        """
        connector = aiohttp.TCPConnector(local_addr=(self.address, 0), force_close=True)
        body = None if document is None else json.dumps(document)
        words = urlencode({name: str(value) for name, value in (query or {}).items()})
        path += f"?{words}" if words else ""
        path += "?" if method == "DELETE" else ""
        async with (
            aiohttp.ClientSession(connector=connector) as session,
            session.request(
                method,
                URL(f"https://{self.host}/pscheduler{path}", encoded=True),
                data=body,
                headers={"Content-Type": "application/json", "User-Agent": "PycURL/7.45.2"},
                allow_redirects=False,
                **anybody(),
            ) as response,
        ):
            return Reply(response.status, response.content_type, await response.text())

    async def done(
        self,
        method: str,
        path: str,
        document: Any = None,
        query: Mapping[str, object] | None = None,
    ) -> Reply:
        """Send one request that must be answered with 200."""
        reply = await self.ask(method, path, document, query)
        if reply.status != 200:
            raise RefusedByParticipant(f"{reply.status} {reply.text.strip()}")
        return reply

    async def create(
        self, test: str, spec: JsonObject, tool: str, participants: Sequence[str], **more: Any
    ) -> LedTask:
        """Let the participant take part in a new task, after it was asked for its tools."""
        level = (await self.done("GET", "//api")).json
        wanted = {"type": test, "spec": spec}
        query = {"test": json.dumps(wanted), "api": level}
        offered = (await self.done("GET", "//tools", query=query)).json
        names = [each.get("tool", each)["name"] for each in offered]
        if tool not in names:
            raise RefusedByParticipant(f"no common tool: {offered}")
        key = uuid4().hex
        document = {
            "schema": 1,
            "test": wanted,
            "tool": tool,
            "schedule": {"slip": "PT5M"},
            "participants": list(participants),
            "_key": key,
            **more,
        }
        task = LedTask(uuid4(), document, key)
        await self.post(task)
        await self.done("GET", f"/tasks/{task.id}", query={"detail": True, "key": key})
        return task

    async def post(self, task: LedTask, participant: int = 1) -> Reply:
        """Post a task to the participant."""
        query = {"participant": participant}
        return await self.done("POST", f"/tasks/{task.id}", task.document, query)

    async def runtimes(
        self, task: LedTask, start: int, end: int, **more: object
    ) -> list[tuple[int, int]]:
        """Return the ranges that the participant offers."""
        query = {"start": _written(start), "end": _written(end), "key": task.key, **more}
        offered = (await self.done("GET", f"/tasks/{task.id}/runtimes", query=query)).json
        return [(_read(each["lower"]), _read(each["upper"])) for each in offered]

    async def hold(self, task: LedTask, start: int, run: UUID | None = None) -> UUID:
        """Have the participant book a run; return its id."""
        run = run or uuid4()
        document = {"start-time": _written(start)}
        await self.done("PUT", f"/tasks/{task.id}/runs/{run}", document, {"key": task.key})
        task.runs.append(run)
        return run

    async def data_of(self, task: LedTask, run: UUID) -> JsonObject:
        """Return the participant's data."""
        data: JsonObject = (await self.run(task, run))["participant-data"]
        return data

    async def tell(self, task: LedTask, run: UUID, data: Sequence[JsonObject]) -> None:
        """Tell the participant the data of all, which makes the run final there."""
        await self.done(
            "PUT", f"/tasks/{task.id}/runs/{run}", {"part-data-full": list(data)}, {"key": task.key}
        )

    async def run(self, task: LedTask, run: UUID, **query: object) -> JsonObject:
        """Return a run as the participant tells it."""
        words = {"key": task.key, **query}
        document: JsonObject = (
            await self.done("GET", f"/tasks/{task.id}/runs/{run}", query=words)
        ).json
        return document

    async def give_up(self, task: LedTask, run: UUID) -> Reply:
        """Delete a run at the participant."""
        return await self.ask("DELETE", f"/tasks/{task.id}/runs/{run}", query={"key": task.key})

    async def end(self, task: LedTask) -> Reply:
        """Delete a task at the participant."""
        return await self.ask("DELETE", f"/tasks/{task.id}", query={"key": task.key})

    async def arrange(
        self, task: LedTask, start: int, end: int, own: JsonObject | None = None
    ) -> tuple[UUID, list[JsonObject]]:
        """Arrange a run within a span as the scheduler does; return it with the data of all."""
        await self.done("GET", "/")
        offered = await self.runtimes(task, start, end)
        if not offered:
            raise RefusedByParticipant("no time")
        run = await self.hold(task, offered[0][0])
        data = [own or {}, await self.data_of(task, run)]
        await self.tell(task, run, data)
        return run, data

    async def result(self, task: LedTask, run: UUID) -> JsonObject | None:
        """Return the participant's part, in the time that the lead has for it."""
        found = await self.run(task, run, **{"wait-local": True, "wait": RESULTS_S})
        part: JsonObject | None = found["result"]
        return part

    async def iperf3(self, start: int, dest: str, port: int, duration_s: int) -> JsonObject:
        """Measure with a real client, at its time after the start; return its own part."""
        argv = ["iperf3", "-c", dest, "-p", str(port), "-t", str(duration_s), "-J"]
        await self.clock.sleep_until(start + _CLIENT_DELAY)
        client = await asyncio.create_subprocess_exec(
            *argv, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
        )
        stdout, _ = await client.communicate()
        printed: JsonObject = json.loads(stdout)
        return printed

    async def stream(self, start: int, dest: str, port: int, text: str) -> None:
        """Send a text, trying again for a while as simplestreamer does."""
        await self.clock.sleep_until(start)
        for _ in range(10):
            try:
                _, writer = await asyncio.open_connection(dest, port)
            except ConnectionRefusedError:
                await self.clock.sleep(0.3)
                continue
            writer.write(text.encode())
            writer.close()
            await writer.wait_closed()
            return
        raise ConnectionRefusedError(f"nobody listens at {dest} port {port}")


def _written(instant: int) -> str:
    """Return an instant as Python's ``isoformat`` writes it, with what it has of microseconds."""
    return times.to_datetime(instant).isoformat()


def _read(text: str) -> int:
    return times.parse_instant(text)
