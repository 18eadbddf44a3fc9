"""``make bench``: figures of real nodes on this machine, signatures and all.

Prints each figure with how it was measured and writes them to ``bench.json``. Figures from one
machine compare with figures from the same machine only, so nothing is asserted about seconds;
what is asserted is that everything that was asked for took place.
``python -m tests.bench WORD…`` measures only the benchmarks of these names, and
``python -m tests.bench archive NAME…`` only these archivers.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import sys
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

from tests.bench import (
    agendas,
    archives,
    booking,
    episodes,
    proposals,
    starts,
    streams,
    takers,
)
from tests.bench.figures import Figure
from tests.bench.fleet import Fleet
from tests.support.listeners import PEERS

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


def asked(wanted: list[str]) -> list[tuple[int, Benchmark]]:
    """What the words mean: benchmarks and, with ``archive``, archivers; all where there is none."""
    names = [word for word in wanted if word in PEERS]
    others = [word for word in wanted or BENCHMARKS if word not in names]
    if names:
        others = [word for word in others if word != "archive"]
    elif "archive" in others:
        names = sorted(PEERS)
    if unknown := [word for word in others if word not in BENCHMARKS]:
        sys.exit(f"no {unknown[0]!r} here, only {', '.join([*BENCHMARKS, *sorted(PEERS)])}")
    speeds = [(0, partial(_archivers, names))] if names else []
    return [*(BENCHMARKS[name] for name in others), *speeds]


async def _archivers(names: list[str], _: Fleet) -> list[Figure]:
    return await takers.delivered(names)


async def main(wanted: list[str]) -> None:
    """Measure everything, print it, write it down."""
    figures: list[Figure] = []
    for count, benchmark in asked(wanted):
        for figure in await measure(count, benchmark):
            print(f"{figure.name:26} {figure.value:10.3f} {figure.unit:4} {figure.how}", flush=True)
            figures.append(figure)
    written = [dataclasses.asdict(figure) for figure in figures]
    Path("bench.json").write_text(json.dumps(written, indent=1) + "\n")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
