"""The cost of a continuous stream."""

from __future__ import annotations

import time

from node.runtime.clock import SystemClock
from tests.bench.figures import Figure
from tests.bench.fleet import Fleet, cpu_seconds

WATCHED_S = 120.0
_RUNNING = "SELECT process_id FROM run WHERE state = 'running' AND process_id IS NOT NULL"


async def stream_cost(fleet: Fleet) -> list[Figure]:
    """Measure ``stream_core_share_*`` in percent of a core, at the sender and at the reflector."""
    lead, clock = fleet.names[0], SystemClock()
    await fleet.start_lead(lead)
    spec = {"source": lead, "dest": fleet.names[1], "duration": "PT10M", "each": "PT1M"}
    task = {"test": {"type": "latencybg", "spec": spec}, "schedule": {"start": "PT5S"}}
    await fleet.ask(lead, "POST", "/v1/tasks", task)

    async def streaming() -> bool:
        return all([await fleet.value(name, _RUNNING) for name in fleet.names])

    await fleet.until(streaming)
    await clock.sleep(10.0)  # exclude the cost of starting
    pids = [await fleet.value(name, _RUNNING) for name in fleet.names]
    cpu_before, started_at = [cpu_seconds(pid) for pid in pids], time.perf_counter()
    await clock.sleep(WATCHED_S)
    duration = time.perf_counter() - started_at
    shares = [
        (cpu_seconds(pid) - used) / duration * 100
        for pid, used in zip(pids, cpu_before, strict=True)
    ]
    await fleet.end_lead(lead)
    how = f"CPU time of its program over {WATCHED_S:.0f} s of latencybg, ten packets a second"
    return [
        Figure(f"stream_core_share_{end}", share, "%", how)
        for end, share in zip(("sender", "reflector"), shares, strict=True)
    ]
