"""How far off the agreed instant runs start."""

from __future__ import annotations

import statistics
import time

from node.model import times
from node.model.times import format_instant
from tests.bench.booking import idle
from tests.bench.figures import Figure
from tests.bench.fleet import Fleet

RUNS = 120


async def start_errors(fleet: Fleet) -> list[Figure]:
    """``start_error_ms_*``: process started minus agreed instant."""
    lead = fleet.names[0]
    await fleet.start_lead(lead)
    start = (time.time_ns() // 1000 // times.SECOND + 5) * times.SECOND
    schedule = {
        "start": format_instant(start),
        "repeat": "PT1S",
        "slip": "PT0S",
        "max_runs": RUNS,
    }
    document = idle(fleet.names, schedule)
    task = await fleet.ask(lead, "POST", "/v1/tasks", document)

    async def over() -> bool:
        return bool((await fleet.ask(lead, "GET", f"/v1/tasks/{task['id']}"))["state"] != "active")

    await fleet.until(over)
    runs = (await fleet.ask(lead, "GET", f"/v1/tasks/{task['id']}/runs?limit=500"))["items"]
    await fleet.end_lead(lead)
    errors = sorted(run["start_error_ms"] for run in runs if run["state"] == "finished")
    assert len(errors) == RUNS, [(run["state"], run["reason"]) for run in runs]
    how = f"{RUNS} idle runs of two nodes, one a second; process started minus agreed instant"
    cuts = statistics.quantiles(errors, n=100)
    return [
        Figure("start_error_ms_median", cuts[49], "ms", how),
        Figure("start_error_ms_p99", cuts[98], "ms", how),
        Figure("start_error_ms_max", errors[-1], "ms", how),
    ]
