"""The punctuality of starts: one run a second, and fifty or 400 at the same instant."""

from __future__ import annotations

import shutil
import statistics
import time
from collections.abc import Sequence
from typing import Any

from node.model import times
from node.model.times import format_instant
from tests.bench.booking import idle
from tests.bench.figures import Figure
from tests.bench.fleet import Fleet

RUNS = 120
TOGETHER = 50
ROUNDS = 12
CROWD = 400
CROWD_ROUNDS = 3
_AHEAD = {"start": 15, "launch": 30, "crowd": 45}
"""Seconds until the first run, enough to book all runs."""


async def start_errors(fleet: Fleet) -> list[Figure]:
    """Measure ``start_error_ms_*``: the start of the process minus the agreed instant."""
    schedule = {**_schedule("start"), "repeat": "PT1S", "max_runs": RUNS}
    errors = await _errors(fleet, [idle(fleet.names, schedule)], RUNS)
    how = f"{RUNS} idle runs of two nodes, one a second; process started minus agreed instant"
    return _figures("start_error_ms", errors, how)


async def launches(fleet: Fleet) -> list[Figure]:
    """Measure ``launch_error_ms_*``: the same with fifty background runs of one node at once."""
    schedule = {**_schedule("launch"), "repeat": "PT5S", "max_runs": ROUNDS}
    return await _launches(fleet, "launch_error_ms", TOGETHER, schedule)


async def crowds(fleet: Fleet) -> list[Figure]:
    """Measure ``crowd_error_ms_*``: the same with 400 background runs of one node at once."""
    schedule = {**_schedule("crowd"), "repeat": "PT20S", "max_runs": CROWD_ROUNDS}
    return await _launches(fleet, "crowd_error_ms", CROWD, schedule)


async def _launches(
    fleet: Fleet, name: str, together: int, schedule: dict[str, Any]
) -> list[Figure]:
    spec = {"dest": "127.0.0.1", "count": 1}
    task = {"test": {"type": "rtt", "spec": spec}, "tools": ["ping"], "schedule": schedule}
    program = "ping"
    if shutil.which(program) is None:
        task, program = idle(fleet.names, schedule), "sleep, as there is no ping,"
    rounds = schedule["max_runs"]
    errors = await _errors(fleet, [task] * together, together * rounds)
    how = (
        f"{rounds} times {together} runs of {program} at the same instant on one node that also "
        "leads them; process started minus agreed instant"
    )
    return _figures(name, errors, how)


def _schedule(name: str) -> dict[str, Any]:
    start = (time.time_ns() // 1000 // times.SECOND + _AHEAD[name]) * times.SECOND
    return {"start": format_instant(start), "slip": "PT0S"}


async def _errors(fleet: Fleet, documents: Sequence[Any], count: int) -> list[float]:
    """Return the start errors of all runs of the tasks in milliseconds, once all have ended."""
    lead = fleet.names[0]
    await fleet.start_lead(lead)
    await fleet.post_all(lead, documents)

    async def all_ended() -> bool:
        active = await fleet.ask(lead, "GET", "/v1/tasks?state=active&limit=1")
        return not active["items"]

    await fleet.until(all_ended)
    runs = []
    for task in (await fleet.ask(lead, "GET", "/v1/tasks?limit=500"))["items"]:
        runs += (await fleet.ask(lead, "GET", f"/v1/tasks/{task['id']}/runs?limit=500"))["items"]
    await fleet.end_lead(lead)
    errors = sorted(run["start_error_ms"] for run in runs if run["state"] == "finished")
    assert len(errors) == count, [run["reason"] for run in runs if run["state"] != "finished"]
    return errors


def _figures(name: str, errors: Sequence[float], how: str) -> list[Figure]:
    cuts = statistics.quantiles(errors, n=100)
    return [
        Figure(f"{name}_median", cuts[49], "ms", how),
        Figure(f"{name}_p99", cuts[98], "ms", how),
        Figure(f"{name}_max", errors[-1], "ms", how),
    ]
