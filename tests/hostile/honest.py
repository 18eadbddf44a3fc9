"""An honest user beside the hostile ones, and how long this one waits for answers.

It is a process of its own, ``python -m tests.hostile.honest``, so that it waits for the node and
not for those who send the other requests. It lives until SIGTERM, and then prints its waits as
JSON.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import time
from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import orjson

from node.cli.lab.nodes import module_environment
from node.execution import process
from node.execution.process import RunningProcess
from node.runtime.clock import SystemClock
from tests.hostile.scene import Scene, Site

URL, TOKEN = "HOSTILE_URL", "HOSTILE_TOKEN"
READY = b"an honest user has measured\n"
OVER = frozenset({"finished", "failed", "missed", "cancelled", "displaced"})
_CLOCK = SystemClock()
_PAUSE_S = 0.25
_TICK_S = 0.05
_GIVE_UP_S = 30.0
_RUN_S = 30.0
_GRACE_S = 20.0
_PATHS = ("/v1/tasks", "/v1/runs?limit=20", "/v1/schedule", "/v1/nodes/self", "/readyz")
TASK = {
    "test": {
        "type": "rtt",
        "spec": {"dest": "b", "count": 3, "interval": "PT0.1S", "timeout": "PT0.5S"},
    },
    "schedule": {"slip": "PT10S"},
}


@dataclass
class Waits:
    """The seconds until each answer, what was refused, and what became of the runs."""

    seconds: list[tuple[float, str]] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    runs: dict[str, int] = field(default_factory=dict)
    late_s: float = 0.0
    """Longest time by which this host was late to go on with the user's own process."""

    @property
    def longest(self) -> tuple[float, str]:
        """Return the longest wait, and for what."""
        return max(((each[0], each[1]) for each in self.seconds), default=(0.0, "nothing"))

    def quantile(self, part: float) -> float:
        """Return the wait in seconds that this part of the answers did not exceed."""
        waits = sorted(wait for wait, _ in self.seconds)
        return waits[min(len(waits) - 1, int(part * len(waits)))] if waits else 0.0


async def start(site: Site) -> RunningProcess:
    """Start an honest user of a node; return when a first run has been measured."""
    settings = {URL: site.node.url, TOKEN: site.honest, **module_environment()}
    argv = [sys.executable, "-m", "tests.hostile.honest"]
    root = Path(__file__).parents[2]
    running = await process.start(argv, env=settings, cwd=root, output_bytes_max=20_000_000)
    await running.wait_for_output(READY)
    return running


async def stop(running: RunningProcess) -> Waits:
    """End the honest user, and return how long that one waited."""
    running.send(signal.SIGTERM)
    async with asyncio.timeout(_GRACE_S):
        finished = await running.wait()
    return Waits(**orjson.loads(finished.stdout.removeprefix(READY)))


@dataclass
class _User:
    """A user who reads, posts, and measures."""

    session: aiohttp.ClientSession
    url: str
    waits: Waits = field(default_factory=Waits)

    async def read(self) -> None:
        while True:
            for path in _PATHS:
                await self._ask("GET", path)
                await _CLOCK.sleep(_PAUSE_S)

    async def watch_host(self) -> None:
        while True:
            began = time.monotonic()
            await _CLOCK.sleep(_TICK_S)
            late = time.monotonic() - began - _TICK_S
            self.waits.late_s = max(self.waits.late_s, late)

    async def measure_on(self) -> None:
        runs: Counter[str] = Counter()
        while True:
            runs[await self.measure()] += 1
            self.waits.runs = dict(runs)

    async def measure(self) -> str:
        """Post a small measurement, wait for its end, and return its state."""
        posted = await self._ask("POST", "/v1/tasks", TASK)
        state, began = "not posted", time.monotonic()
        while posted is not None and time.monotonic() - began < _RUN_S:
            await _CLOCK.sleep(_PAUSE_S)
            listed = await self._ask("GET", f"/v1/tasks/{posted['id']}/runs")
            runs = listed["items"] if listed else []
            state = runs[0]["state"] if runs else "not planned"
            if state in OVER:
                break
        return state

    async def _ask(self, method: str, path: str, document: Any = None) -> Any:
        """Send a request, note how long the answer took, and return it; None if refused."""
        began, status, text = time.monotonic(), 0, b""
        data = None if document is None else orjson.dumps(document)
        with contextlib.suppress(aiohttp.ClientError, TimeoutError):
            async with self.session.request(method, self.url + path, data=data) as response:
                status, text = response.status, await response.read()
        what = f"{method} {path.split('?', maxsplit=1)[0]}"
        self.waits.seconds.append((time.monotonic() - began, what))
        if status not in {200, 201}:
            self.waits.refused.append(f"{what}: {status} {text[:200].decode()}")
            return None
        return orjson.loads(text)


async def wait_for_run(scene: Scene, site: Site, task: str) -> tuple[str, str]:
    """Return the state and the reason of a task's first run once it is over."""
    state, reason, began = "not planned", "", time.monotonic()
    while time.monotonic() - began < _RUN_S and state not in OVER:
        await _CLOCK.sleep(_PAUSE_S)
        for run in (await scene.ask(site, "GET", f"/v1/tasks/{task}/runs"))["items"]:
            state, reason = run["state"], str(run["reason"])
    return state, reason


async def _live() -> None:
    stop_requested = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop_requested.set)
    headers = {"Authorization": f"Bearer {os.environ[TOKEN]}"}
    timeout = aiohttp.ClientTimeout(total=_GIVE_UP_S)
    async with aiohttp.ClientSession(headers=headers, timeout=timeout) as session:
        user = _User(session, os.environ[URL])
        await user.measure()
        user.waits = Waits()
        sys.stdout.buffer.write(READY)
        sys.stdout.flush()
        lives = (user.read(), user.measure_on(), user.watch_host())
        living = [asyncio.create_task(life) for life in lives]
        await stop_requested.wait()
        for each in living:
            each.cancel()
        await asyncio.gather(*living, return_exceptions=True)
    sys.stdout.buffer.write(orjson.dumps(asdict(user.waits)))


if __name__ == "__main__":
    asyncio.run(_live())
