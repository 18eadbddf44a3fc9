"""``make bench``: figures of real nodes on this machine, signatures and all.

Prints each figure with how it was measured and writes them to ``bench.json``. Figures from one
machine compare with figures from the same machine only, so nothing is asserted about seconds;
what is asserted is that everything that was asked for took place.
``python -m tests.bench WORD…`` measures only the benchmarks of these names.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

from tests.bench import agendas, archives, booking, episodes, proposals, starts, streams
from tests.bench.figures import Figure
from tests.bench.fleet import Fleet

Benchmark = Callable[[Fleet], Awaitable[list[Figure]]]

BENCHMARKS: dict[str, tuple[int, Benchmark]] = {
    "batch2": (2, booking.batches),
    "batch3": (3, booking.batches),
    "single": (2, booking.singles),
    "latency": (2, booking.latency),
    "proposal": (2, proposals.proposals),
    "claim": (1, agendas.claims),
    "agenda": (2, agendas.core_share),
    "archive": (1, archives.archives),
    "start": (2, starts.start_errors),
    "launch": (1, starts.launches),
    "stream": (2, streams.stream_cost),
    "episode": (0, episodes.episodes),
}
"""By name: how many nodes it takes (none: it is about pure functions), and what it does."""


async def measure(count: int, benchmark: Benchmark) -> list[Figure]:
    """One benchmark, on nodes of its own."""
    fleet = Fleet(count)
    if not count:
        return await benchmark(fleet)
    try:
        await fleet.start()
        return await benchmark(fleet)
    finally:
        await fleet.stop()


async def main(wanted: list[str]) -> None:
    """Measure everything, print it, write it down."""
    figures: list[Figure] = []
    for name in wanted or BENCHMARKS:
        for figure in await measure(*BENCHMARKS[name]):
            print(f"{figure.name:24} {figure.value:10.3f} {figure.unit:4} {figure.how}", flush=True)
            figures.append(figure)
    written = [dataclasses.asdict(figure) for figure in figures]
    Path("bench.json").write_text(json.dumps(written, indent=1) + "\n")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
