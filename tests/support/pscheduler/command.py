"""The requests of pScheduler's command line, verb by verb, written from how it was seen to behave.

Each request has a connection of its own over TLS, whatever the certificate. Nothing of the answers
is worked out here: what a verb prints is what the server has told.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import aiohttp

from node.model import times
from node.runtime.clock import SystemClock
from node.trust.tls import unchecked_options

AGENT = {"User-Agent": "PycURL/7.45.2 libcurl/7.88.1 OpenSSL/3.0.15", "Accept": "*/*"}
RUNS = "pending on-deck running cleanup finished overdue missed failed preempted nonstart"
ARCHIVED_WITHIN = 5 * times.SECOND
TROUBLESHOT = ("/tests", "/tools", "/archivers", "/contexts")


class Failed(Exception):
    """A verb that ended with a message."""


@dataclass(frozen=True)
class Reply:
    """The answer to one request, of whichever client."""

    status: int
    content_type: str
    text: str

    @property
    def json(self) -> Any:
        """The body as JSON."""
        return json.loads(self.text)


@dataclass
class CommandLine:
    """The command ``pscheduler`` on some host; ``host`` is where it posts, ``HOST:PORT``.

    ``address`` is the one from which it asks, if it is to be a certain one.
    """

    host: str
    address: str | None = None
    asked: list[str] = field(default_factory=list)
    """Each request: method and path."""
    took: list[tuple[str, float]] = field(default_factory=list)
    """Each request with the seconds until its answer; one that waits for a run ends in ``wait``."""
    clock: SystemClock = field(default_factory=SystemClock)

    async def request(
        self,
        method: str,
        url: str,
        query: Mapping[str, object] | None = None,
        body: Any = None,
    ) -> Reply:
        """Send one request, over a connection of its own."""
        self.asked.append(f"{method} {urlsplit(url).path.removeprefix('/pscheduler')}")
        headers = dict(AGENT)
        data = None
        if body is not None:
            headers["Content-Type"] = "application/json"
            data = json.dumps(body).encode()
        began = self.clock.monotonic()
        connector = aiohttp.TCPConnector(
            ssl=unchecked_options()["ssl"],
            force_close=True,
            local_addr=None if self.address is None else (self.address, 0),
        )
        async with (
            aiohttp.ClientSession(connector=connector) as session,
            session.request(
                method,
                url,
                params={name: str(value) for name, value in (query or {}).items()},
                data=data,
                headers=headers,
                allow_redirects=True,
            ) as answer,
        ):
            reply = Reply(answer.status, answer.content_type, await answer.text())
        waits = " wait" if "wait-merged" in (query or {}) else ""
        seconds = (self.clock.monotonic() - began) / times.SECOND
        self.took.append((f"{self.asked[-1]}{waits}", seconds))
        return reply

    def url(self, path: str, host: str = "") -> str:
        """Return the URL of a path of a server."""
        return f"https://{host or self.host}/pscheduler{path}"

    async def get(self, url: str, **query: object) -> Any:
        """Return a JSON answer.

        :raises Failed: with the server's text.
        """
        named = {name.replace("_", "-"): value for name, value in query.items()}
        reply = await self.request("GET", url, named)
        if reply.status != 200:
            raise Failed(reply.text)
        assert reply.content_type == "application/json", reply
        assert reply.text.endswith("\n")
        return reply.json

    async def ping(self, host: str = "") -> str:
        """Ask whether a server is there."""
        answer = await self.get(self.url("/", host))
        if not isinstance(answer, str):
            raise Failed("Not running pScheduler")
        return f"{host or self.host}: pScheduler is alive"

    async def spec(self, test: str, words: Sequence[str]) -> dict[str, Any]:
        """Return the spec of a test's words."""
        await self.ping()
        return dict(await self.get(self.url(f"/tests/{test}/spec"), args=json.dumps(list(words))))

    async def post(self, test: str, *words: str, **terms: Any) -> str:
        """Create a task as ``task --url`` does, and return its URL.

        ``terms`` are further members of the task.
        """
        spec = await self.spec(test, words)
        told = await self.get(self.url(f"/tests/{test}/participants"), spec=json.dumps(spec))
        lead = told["participants"][0] or self.host
        await self.ping(lead)
        schedule = {"slip": "PT5M", **terms.pop("schedule", {})}
        task = {"schedule": schedule, "test": {"type": test, "spec": spec}, **terms}
        reply = await self.request("POST", self.url("/tasks", lead), body=task)
        if reply.status != 200:
            raise Failed(reply.text)
        url = reply.json
        assert isinstance(url, str)
        detail = await self.get(url, detail=1)
        assert detail["detail"]["first-run-href"]
        return url

    async def task(self, test: str, *words: str, **terms: Any) -> str:
        """Create a task, follow its runs, and return what is printed."""
        url = await self.post(test, *words, **terms)
        await self.get(f"{url}/runs/first")
        return await self.watch(url, first=True)

    async def watch(self, url: str, *, first: bool = False) -> str:
        """Follow the runs of a task, and return what is printed of them."""
        task = await self.get(url, detail=True)
        printed: list[str] = []
        last, place = None, "first-run-href" if first else "next-run-href"
        while True:
            reply = await self.request("GET", task["detail"][place], {"wait": 0})
            if reply.status == 404:
                return "\n".join([*printed, "No further runs scheduled."])
            assert reply.status == 200, reply
            place = "next-run-href"
            run = reply.json
            if run["href"] == last:
                await self._until(run["end-time"], times.SECOND)
                continue
            last = run["href"]
            if run["state"] == "nonstart":
                printed.append(run["errors"])
                if "repeat" not in task["schedule"]:
                    return "\n".join(printed)
                continue
            await self._until(run["end-time"])
            await self.get(run["href"], wait_merged=True)
            printed.append(await self.result(run["href"]))

    async def _until(self, instant: str, at_least: int = 0) -> None:
        ends = times.parse_instant(instant)
        await self.clock.sleep_until(max(ends, self.clock.now() + at_least))

    async def result(self, url: str, form: str = "text/plain") -> str:
        """Return the result of a run as it is printed."""
        run = await self.get(url, detail=True)
        assert run["participant"] == 0
        if form != "text/plain":
            return (await self.request("GET", run["result-href"], {"format": form})).text
        words = await self.request("GET", f"{run['task-href']}/cli")
        assert words.content_type == "text/html"
        await self.get(run["task-href"], detail=True)
        merged = run["result-merged"]
        if merged is None or not merged["succeeded"]:
            return f"{run['state-display']}: {run['errors']}"
        reply = await self.request("GET", run["result-href"], {"format": form})
        assert (reply.status, reply.content_type) == (200, form)
        return f"{' '.join(words.json)}\n{reply.text}"

    async def results(self, url: str) -> list[str]:
        """Return the results of all runs of a task."""
        task = await self.get(url, detail=True)
        runs = await self.get(task["detail"]["runs-href"])
        return [await self.result(run) for run in runs]

    async def cancel(self, url: str) -> None:
        """End a task.

        :raises Failed: with the server's text.
        """
        reply = await self.request("DELETE", url)
        if reply.status != 200:
            raise Failed(reply.text)
        assert reply.text == "OK\n"

    async def schedule(self, **query: object) -> list[dict[str, Any]]:
        """Return the schedule of the server."""
        return list(await self.get(self.url("/schedule"), **query))

    async def metrics(self) -> dict[str, int]:
        """Return the figures of the server."""
        paths = [f"/stat/runs/{state}" for state in RUNS.split()]
        paths += ["/stat/archiving/backlog", "/stat/http-queue/backlog"]
        figures = {}
        for path in paths:
            reply = await self.request("GET", self.url(path))
            assert reply.status == 200
            assert reply.content_type == "text/html"
            figures[path] = int(reply.text)
        return figures

    async def monitor(self, window: int = 5) -> list[dict[str, Any]]:
        """Return what the monitor shows."""
        await self.ping()
        assert await self.get(self.url("/hostname"))
        return list(await self.get(self.url("/monitor"), window=window))

    async def troubleshoot(self) -> None:
        """Check the server, and run a second of idle with the archives of two releases."""
        assert (await self.get(self.url("/mtu-safe"), dest=urlsplit(f"//{self.host}").hostname))[
            "safe"
        ]
        await self.ping()
        assert isinstance(await self.get(self.url("/api")), int)
        assert {"time", "synchronized"} <= set(await self.get(self.url("/clock")))
        for path in TROUBLESHOT:
            assert await self.get(self.url(path))
        status = await self.get(self.url("/status"))
        for service in ("ticker", "scheduler", "runner", "archiver"):
            assert status["services"][service]["overdue"] is None
        drop = {"archiver": "bitbucket", "data": {}, "ttl": "PT1M"}
        idle = {"type": "idle", "spec": {"duration": "PT1S", "schema": 1}}
        older = {"archiver": "failer", "data": {"fail": 0.0, "retry": 0.0}, "ttl": "PT1M"}
        named = [drop, drop, older]
        task = {"schema": 1, "test": idle, "schedule": {}, "archives": named}
        reply = await self.request("POST", self.url("/tasks"), body=task)
        assert reply.status == 200, reply
        first = (await self.get(f"{reply.json}?detail"))["detail"]["first-run-href"]
        run = await self.get(first)
        await self._until(run["end-time"])
        run = await self.get(first, wait_merged=True)
        assert (await self.get(run["result-href"], wait_merged=True))["succeeded"], run
        ends = self.clock.now() + ARCHIVED_WITHIN
        while not all(each["archived"] and each["completed"] for each in run["archivings"]):
            assert self.clock.now() < ends, run["archivings"]
            run = await self.get(first)
        assert len(run["archivings"]) == len(named)
