"""``make bench``: figures of real nodes on this machine, including signatures.

The program prints each figure, its ratio to the last one on such a machine, and how it was
measured, and appends the figures to ``tests/bench/history.jsonl``. Figures compare only with
figures from the same machine, so no durations are asserted; it is asserted that everything
requested took place. ``python -m tests.bench WORD…`` runs only the benchmarks of these names, and
``python -m tests.bench archive NAME…`` only these archivers. With ``--small`` each runs through in
seconds, to see that it still does; such figures are not kept.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from functools import partial

from tests.bench import (
    agendas,
    archiver_speed,
    archives,
    booking,
    episodes,
    history,
    known,
    lists,
    meshes,
    promises,
    proposals,
    pscheduler,
    rounds,
    starts,
    stored,
    streams,
)
from tests.bench.figures import Figure
from tests.bench.fleet import Fleet
from tests.bench.small import make_small
from tests.support.listeners import PEERS

SMALL = "--small"
Benchmark = Callable[[Fleet], Awaitable[list[Figure]]]

BENCHMARKS: dict[str, tuple[int, Benchmark]] = {
    "batch2": (2, booking.batches),
    "batch3": (3, booking.batches),
    "single": (2, booking.singles),
    "latency": (2, booking.latency),
    "apply": (3, lists.lists),
    "meshes": (1, meshes.meshes),
    "proposal": (2, proposals.proposals),
    "claim": (1, agendas.claims),
    "agenda": (2, agendas.core_share),
    "archive": (1, archives.archives),
    "start": (2, starts.start_errors),
    "launch": (1, starts.launches),
    "crowd": (1, starts.crowds),
    "stream": (2, streams.stream_cost),
    "episode": (0, episodes.episodes),
    "rounds": (0, rounds.rounds),
    "takeover": (2, promises.takeover),
    "restart": (2, promises.restart),
    "burst": (3, promises.burst),
    "slowpeer": (5, promises.slow_peer),
    "hogs": (2, promises.hogged_starts),
    "readers": (1, promises.slow_readers),
    "year": (1, promises.year),
    "purge": (1, promises.purge),
    "stored": (1, stored.stored),
    "pscheduler": (1, pscheduler.conversations),
    "known": (1, known.known),
}
"""By name: the number of nodes (0 for benchmarks of pure functions) and the benchmark."""


async def measure(count: int, benchmark: Benchmark) -> list[Figure]:
    """Run a benchmark on nodes of its own."""
    fleet = Fleet(count)
    if not count:
        return await benchmark(fleet)
    try:
        await fleet.start()
        return await benchmark(fleet)
    finally:
        await fleet.stop()


def selected(words: list[str]) -> list[tuple[int, Benchmark]]:
    """Return the benchmarks and archivers of these names; ``archive`` alone stands for all."""
    names = [word for word in words if word in PEERS]
    others = [word for word in words or BENCHMARKS if word not in names]
    if names:
        others = [word for word in others if word != "archive"]
    elif "archive" in others:
        names = sorted(PEERS)
    if unknown := [word for word in others if word not in BENCHMARKS]:
        sys.exit(f"there is no {unknown[0]!r}; use {', '.join([*BENCHMARKS, *sorted(PEERS)])}")
    speeds = [(0, partial(_archivers, names))] if names else []
    return [*(BENCHMARKS[name] for name in others), *speeds]


async def _archivers(names: list[str], _: Fleet) -> list[Figure]:
    return await archiver_speed.delivered(names)


async def main(words: list[str]) -> None:
    """Run the selected benchmarks, print the figures and write them to the file."""
    if is_small := SMALL in words:
        make_small()
        words = [word for word in words if word != SMALL]
    machine, before = history.this_machine(), history.read()
    for count, benchmark in selected(words):
        figures = await measure(count, benchmark)
        for figure in figures:
            value = f"{figure.name:26} {figure.value:10.3f} {figure.unit:4}"
            print(f"{value} {history.ratio(figure, machine, before):26} {figure.how}", flush=True)
        if not is_small:
            history.keep(machine, figures)  # at once: a later benchmark may fail


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
