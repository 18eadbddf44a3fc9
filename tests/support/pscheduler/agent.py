"""One pass of psConfig's agent, with the requests and the comparison that it was seen to make.

Each parameter is written as JSON. A task is known again by a checksum over the whole document that
the server returns, but for what a server may add or change.
"""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import aiohttp

from node.model import times
from node.trust.tls import unchecked_options

AGENT = {"User-Agent": "python-urllib3/2.3.0"}


@dataclass
class Pass:
    """The outcome of a pass: URLs of tasks."""

    kept: list[str] = field(default_factory=list)
    added: list[str] = field(default_factory=list)
    deleted: list[str] = field(default_factory=list)


@dataclass
class Agent:
    """An agent with the assist server ``host``; ``uuid`` is its own."""

    host: str
    uuid: str = "0f0f3a4e-3c1f-4d3c-8d8f-5f3b6c1d2e3f"

    async def _ask(
        self, method: str, path: str, body: Any = None, **query: object
    ) -> tuple[int, str]:
        parameters = {name.replace("_", "-"): json.dumps(value) for name, value in query.items()}
        connector = aiohttp.TCPConnector(ssl=unchecked_options()["ssl"], force_close=True)
        url = path if path.startswith("https:") else f"https://{self.host}/pscheduler{path}"
        headers = AGENT if body is None else {**AGENT, "Content-Type": "application/json"}
        async with (
            aiohttp.ClientSession(connector=connector, skip_auto_headers=["Accept"]) as session,
            session.request(
                method,
                url,
                params=parameters,
                data=None if body is None else json.dumps(body).encode(),
                headers=headers,
            ) as answer,
        ):
            return answer.status, await answer.text()

    async def get(self, path: str, **query: object) -> Any:
        """Return a JSON answer."""
        status, text = await self._ask("GET", path, **query)
        assert status == 200, text
        return json.loads(text)

    @property
    def created_by(self) -> dict[str, str]:
        """The mark in its tasks by which it finds them."""
        return {"uuid": self.uuid, "user-agent": "psconfig-pscheduler-agent"}

    def task(self, test: str, spec: dict[str, Any], now: int, **terms: Any) -> dict[str, Any]:
        """Return a task as the agent posts it."""
        schedule = {
            "repeat": "PT1H",
            "slip": "PT30M",
            "sliprand": True,
            **terms.pop("schedule", {}),
        }
        return {
            "schema": 1,
            "test": {"type": test, "spec": {"schema": 1, **spec}},
            "schedule": {"until": _instant(now + times.DAY), **schedule},
            "archives": [],
            "reference": {
                "psconfig": {"created-by": {**self.created_by, "agent-hostname": "agent.example"}},
                "display-task-name": "Throughput Tests 10 Gb/s",
            },
            **terms,
        }

    async def mine(self) -> list[dict[str, Any]]:
        """Return the tasks that the agent finds at the server."""
        assert isinstance(await self.get("/hostname"), str)
        wanted = {
            "detail": {"enabled": True},
            "reference": {"psconfig": {"created-by": self.created_by}},
        }
        return list(await self.get("/tasks", detail=True, expanded=True, json=wanted))

    async def run(self, wanted: Sequence[dict[str, Any]]) -> Pass:
        """Make the server have these tasks, and no others of the agent."""
        done = Pass()
        there = {checksum(task): task for task in await self.mine()}
        assert await self.get("/tests")
        for task in wanted:
            spec = task["test"]["spec"]
            path = f"/tests/{task['test']['type']}/participants"
            told = await self.get(path, spec=spec, lead_bind="127.0.0.1")
            assert told["participants"]
            known = there.pop(checksum(task), None)
            if known is not None:
                done.kept.append(known["href"])
                continue
            status, text = await self._ask("POST", "/tasks", task)
            assert status == 200, text
            url = json.loads(text)
            UUID(url.rpartition("/")[2])
            done.added.append(url)
        for task in there.values():
            detail = task["detail"]
            assert {
                "enabled",
                "start",
                "added",
                "exclusive",
                "multi-result",
                "runs-started",
            } <= set(detail)
            UUID(detail["href"].rpartition("/")[2])
            status, text = await self._ask("DELETE", task["href"])
            assert (status, text) == (200, "OK\n")
            done.deleted.append(task["href"])
        return done


def checksum(task: dict[str, Any]) -> str:
    """Return by what the agent knows a task again."""
    bare = copy.deepcopy(task)
    for name in ("schema", "tool", "href", "detail"):
        bare.pop(name, None)
    bare["schedule"].pop("start", None)
    bare["schedule"].pop("until", None)
    bare["test"]["spec"].pop("schema", None)
    for private in (bare["test"]["spec"], *(each["data"] for each in bare.get("archives", []))):
        for name in private:
            if name.startswith("_"):
                private[name] = ""
    text = json.dumps(bare, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _instant(at: int) -> str:
    return times.to_datetime(at - at % times.SECOND).isoformat()
