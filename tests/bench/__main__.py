"""``make bench``: figures of a lab of two real nodes on this machine, signatures and all.

Prints each figure with how it was measured and writes them to ``bench.json``. Figures from one
machine compare with figures from the same machine only, so nothing is asserted about seconds;
what is asserted is that everything that was asked for took place.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import aiohttp

from node.lab.nodes import LabNode
from node.lab.supervisor import Lab
from node.model import times
from node.model.times import format_instant

REPEATS = 5
START_RUNS = 200

Figure = dict[str, Any]


class Caller:
    """Calls one node's API as any user would."""

    def __init__(self, session: aiohttp.ClientSession, node: LabNode) -> None:
        """The session is the caller's to close."""
        self._session = session
        self._node = node

    async def ask(self, method: str, path: str, document: object = None) -> Any:
        """The answer as JSON; anything but a success ends the benchmark."""
        headers = {"Authorization": f"Bearer {self._node.token}"}
        async with self._session.request(
            method, self._node.url + path, json=document, headers=headers
        ) as response:
            answer = await response.json()
            assert response.ok, answer
            return answer


def idle(spec: dict[str, Any], schedule: dict[str, Any]) -> dict[str, Any]:
    """A task that does nothing on both nodes."""
    return {
        "test": {"type": "idle", "spec": {"duration": "PT1S", **spec}},
        "participants": ["a", "b"],
        "schedule": schedule,
    }


async def batch_rate(caller: Caller) -> Figure:
    """Runs booked per second by one exchange of 288 runs on two nodes, repeated."""
    rates = []
    for _ in range(REPEATS):
        before = time.perf_counter()
        task = await caller.ask("POST", "/v1/tasks", idle({"class": "normal"}, {"repeat": "PT5M"}))
        shown = await caller.ask("GET", f"/v1/tasks/{task['id']}?wait=30")
        elapsed = time.perf_counter() - before
        booked = sum(shown["runs"].get(state, 0) for state in ("held", "scheduled"))
        assert booked >= 287, shown["runs"]
        rates.append(booked / elapsed)
        await caller.ask("DELETE", f"/v1/tasks/{task['id']}")
    how = f"POST of a task every 5 min over 24 h until planned, one at a time, median of {REPEATS}"
    return {
        "name": "post_batch_runs_per_s",
        "value": statistics.median(rates),
        "unit": "1/s",
        "how": how,
    }


async def post_to_commit(caller: Caller) -> Figure:
    """How long one run takes from POST to committed on an idle system."""
    took = []
    for _ in range(4 * REPEATS):
        before = time.perf_counter()
        task = await caller.ask("POST", "/v1/tasks", idle({}, {"slip": "PT10M"}))
        await caller.ask("GET", f"/v1/tasks/{task['id']}?wait=30")
        took.append((time.perf_counter() - before) * 1000)
        await caller.ask("DELETE", f"/v1/tasks/{task['id']}")
    how = f"idle task on two nodes, POST until planned as a client sees it, median of {4 * REPEATS}"
    return {"name": "post_to_commit_ms", "value": statistics.median(took), "unit": "ms", "how": how}


async def start_errors(caller: Caller) -> list[Figure]:
    """Start minus agreed instant, over 200 idle runs at whole seconds."""
    start = (time.time_ns() // 1000 // times.SECOND + 5) * times.SECOND
    schedule = {
        "start": format_instant(start),
        "repeat": "PT1S",
        "slip": "PT0S",
        "max_runs": START_RUNS,
    }
    task = await caller.ask("POST", "/v1/tasks", idle({}, schedule))
    state = "active"
    while state == "active":
        counted = await caller.ask("GET", f"/v1/tasks/{task['id']}")
        state = counted["state"]
        path = f"/v1/tasks/{task['id']}/runs?state=failed,missed,unplaced&wait=10"
        await caller.ask("GET", path)
    runs = (await caller.ask("GET", f"/v1/tasks/{task['id']}/runs?limit=500"))["items"]
    errors = sorted(run["start_error_ms"] for run in runs if run["state"] == "finished")
    assert len(errors) == START_RUNS, [(run["state"], run["reason"]) for run in runs]
    how = f"{START_RUNS} idle runs of two nodes, one a second; process started minus agreed instant"
    cuts = statistics.quantiles(errors, n=100)
    return [
        {"name": "start_error_ms_median", "value": cuts[49], "unit": "ms", "how": how},
        {"name": "start_error_ms_p99", "value": cuts[98], "unit": "ms", "how": how},
        {"name": "start_error_ms_max", "value": errors[-1], "unit": "ms", "how": how},
    ]


async def main() -> None:
    """Measure everything, print it, write it down."""
    lab = Lab(2, progress=print)
    figures: list[Figure] = []
    try:
        await lab.start()
        async with aiohttp.ClientSession() as session:
            caller = Caller(session, lab.nodes[0])
            measures: list[Callable[[Caller], Awaitable[Figure]]] = [post_to_commit, batch_rate]
            figures += [await measure(caller) for measure in measures]
            figures += await start_errors(caller)
    finally:
        await lab.stop()
    for figure in figures:
        print(f"{figure['name']:24} {figure['value']:10.2f} {figure['unit']:4} {figure['how']}")
    Path("bench.json").write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    asyncio.run(main())
