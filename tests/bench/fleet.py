"""Nodes and leads as an operator runs them, each as a process, for the benchmarks.

The lead of a node is started once the tasks exist, so that planning is measured and not the
admission of tasks.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import re
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import asyncpg

from node.cli.lab import nodes
from node.cli.lab.nodes import LabNode, NodePlan
from node.cli.lab.supervisor import Lab
from node.execution import process
from node.execution.process import RunningProcess
from node.runtime.clock import SystemClock
from node.trust.keys import NodeKey

_REQUESTS = re.compile(
    rb'^parley_request_seconds_count\{.*route="/v1/participant/.*\} ([0-9.e+]+)$', re.MULTILINE
)

_LIMITS = {
    "PARLEY_PEER_TASKS": "1000000",
    "PARLEY_PEER_INTRODUCTIONS": "10000",
    "PARLEY_PEER_WORK": "1000",
}
"""Settings of all nodes: a benchmark has one lead create very many tasks as fast as it can."""


class Fleet:
    """``count`` nodes on this host without leads; a lead can be started for each."""

    def __init__(self, count: int) -> None:
        """Create a fleet without starting it."""
        self._plans: dict[str, NodePlan] = {}
        self._lab = Lab(count, command=self._node_command)
        self._leads: dict[str, RunningProcess] = {}
        self._clock = SystemClock()
        self.session: aiohttp.ClientSession

    @property
    def names(self) -> list[str]:
        """Return the names of the nodes."""
        return [node.name for node in self._lab.nodes]

    async def start(self) -> None:
        """Start the nodes and make them known to each other."""
        self.session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=16))
        os.environ.update(_LIMITS)
        await self._lab.start()

    async def stop(self) -> None:
        """End all processes."""
        for name in list(self._leads):
            await self.end_lead(name)
        await self._lab.stop()
        await self.session.close()

    async def start_lead(self, name: str) -> RunningProcess:
        """Start the lead of a node as a process of its own."""
        argv = _command("lead_main", self._plans[name])
        log = self._plans[name].state / "lead.log"
        lead = await process.start(
            argv, log=log, env={**nodes.settings_given(os.environ), **nodes.module_environment()}
        )
        self._leads[name] = lead
        return lead

    async def end_lead(self, name: str) -> None:
        """End the lead of a node."""
        await self._leads.pop(name).end(10)

    def _node_command(self, plan: NodePlan) -> list[str]:
        self._plans[plan.name] = plan
        served = f"PARLEY_PSCHEDULER_LISTEN={facade_of(plan.url)}"
        allowed = "PARLEY_PSCHEDULER_ALLOW=127.0.0.0/8"
        archives = "PARLEY_PSCHEDULER_ARCHIVES=https://archive.example/"
        return ["env", served, allowed, archives, *_command("node_main", plan)]

    def pid(self, name: str) -> int:
        """Return the process id of a node's service."""
        return self._lab.pid(name)

    def key(self, name: str) -> NodeKey:
        """Return a node's private key, to sign as that node."""
        return NodeKey.load_or_create(self._plans[name].state / "node.pem")

    def node(self, name: str) -> LabNode:
        """Return the node of that name."""
        return next(node for node in self._lab.nodes if node.name == name)

    def authorization(self, name: str) -> dict[str, str]:
        """Return the header by which the owner of a node is known."""
        return {"Authorization": f"Bearer {self.node(name).token}"}

    async def ask(self, name: str, method: str, path: str, document: object = None) -> Any:
        """Return the JSON answer of a node; any failure ends the benchmark."""
        url, headers = self.node(name).url + path, self.authorization(name)
        async with self.session.request(method, url, json=document, headers=headers) as response:
            answer = await response.json()
            assert response.ok, answer
            return answer

    async def peer_requests(self) -> float:
        """Return the number of signed requests that all nodes have served so far."""
        total = 0.0
        for name in self.names:
            url, headers = self.node(name).url + "/metrics", self.authorization(name)
            async with self.session.get(url, headers=headers) as response:
                response.raise_for_status()
                total += sum(float(count) for count in _REQUESTS.findall(await response.read()))
        return total

    @contextlib.asynccontextmanager
    async def database(self, name: str) -> AsyncIterator[asyncpg.Connection[asyncpg.Record]]:
        """Open a connection to a node's database."""
        connection = await asyncpg.connect(self.node(name).dsn)
        try:
            yield connection
        finally:
            await connection.close()

    async def value(self, name: str, query: str) -> Any:
        """Return one value from a node's database."""
        async with self.database(name) as connection:
            return await connection.fetchval(query)

    async def until(self, condition: Callable[[], Awaitable[bool]]) -> None:
        """Poll ten times a second until the condition holds, which other processes bring about."""
        while not await condition():
            await self._clock.sleep(0.1)

    async def post_all(self, name: str, documents: Sequence[object]) -> None:
        """Create tasks, at most eight at a time."""
        gate = asyncio.Semaphore(8)

        async def post(document: object) -> None:
            async with gate:
                await self.ask(name, "POST", "/v1/tasks", document)

        await asyncio.gather(*(post(document) for document in documents))

    async def cancel_all(self) -> None:
        """Delete every task on all nodes, so that the next benchmark begins with empty tables."""
        for name in self.names:
            async with self.database(name) as connection:
                await self.until(functools.partial(_truncated, connection))
                await connection.execute("VACUUM ANALYZE")
                # TRUNCATE notifies nobody.
                await connection.execute("SELECT pg_notify('parley', 'wake')")


async def _truncated(connection: asyncpg.Connection[asyncpg.Record]) -> bool:
    """Empty the tables; False if the node locked some of them meanwhile, in another order."""
    try:
        await connection.execute(
            "TRUNCATE task, negotiation, decision, outbox, charge, charge_hour CASCADE"
        )
    except asyncpg.DeadlockDetectedError:
        return False
    return True


def facade_of(url: str) -> str:
    """Return where a node serves clients of pScheduler."""
    return f"{urlsplit(url).hostname}:8443"


def _command(entry: str, plan: NodePlan) -> list[str]:
    argv = [sys.executable, "-c", f"from node.cli.services import {entry}; {entry}()"]
    argv += ["--name", plan.name, "--listen", plan.listen, "--url", plan.url]
    return [*argv, "--address", plan.address, "--dsn", plan.dsn, "--state-dir", str(plan.state)]


def rss_mb(pid: int) -> float:
    """Return the resident memory of a process in MB of 10^6 bytes."""
    status = Path(f"/proc/{pid}/status").read_text()
    size = re.search(r"VmRSS:\s+(\d+) kB", status)
    assert size
    return int(size[1]) * 1024 / 1e6


def cpu_seconds(pid: int) -> float:
    """Return the CPU time of a process in user and system mode, in seconds."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100
