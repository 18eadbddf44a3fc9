"""What a stream costs that goes on all the time."""

from __future__ import annotations

import time

from node.clock import SystemClock
from tests.bench.figures import Figure
from tests.bench.fleet import Fleet, cpu_seconds

WATCHED_S = 120.0
_RUNNING = "SELECT process_id FROM run WHERE state = 'running' AND process_id IS NOT NULL"


async def stream_cost(fleet: Fleet) -> list[Figure]:
    """``stream_core_share_*``: of the sender's host and of the reflector's, in percent."""
    lead, clock = fleet.names[0], SystemClock()
    await fleet.start_lead(lead)
    spec = {"source": lead, "dest": fleet.names[1], "duration": "PT10M", "each": "PT1M"}
    task = {"test": {"type": "latencybg", "spec": spec}, "schedule": {"start": "PT5S"}}
    await fleet.ask(lead, "POST", "/v1/tasks", task)

    async def streaming() -> bool:
        return all([await fleet.value(name, _RUNNING) for name in fleet.names])

    await fleet.until(streaming)
    await clock.sleep(10.0)  # what starting costs is no part of it
    pids = [await fleet.value(name, _RUNNING) for name in fleet.names]
    before, since = [cpu_seconds(pid) for pid in pids], time.perf_counter()
    await clock.sleep(WATCHED_S)
    lasted = time.perf_counter() - since
    shares = [(cpu_seconds(pid) - at) / lasted * 100 for pid, at in zip(pids, before, strict=True)]
    await fleet.end_lead(lead)
    how = f"CPU time of its program over {WATCHED_S:.0f} s of latencybg, ten packets a second"
    return [
        Figure(f"stream_core_share_{end}", share, "%", how)
        for end, share in zip(("sender", "reflector"), shares, strict=True)
    ]
