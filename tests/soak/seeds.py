"""Plays the seeds of a scenario in several processes."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import signal
from collections.abc import Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from lead.simulation.scenario import named_scenario
from lead.simulation.server import server
from lead.simulation.world import simulate

_BATCH = 10
_PR_SET_PDEATHSIG = 1

BRIEF = str(Path(__file__).with_name("brief.toml"))
"""The scenario of which thousands of seeds are played."""
HARD = str(Path(__file__).with_name("hard.toml"))
"""Another one: several processes of each node, databases that are away, and clocks far wrong."""


@dataclass(frozen=True)
class Outcome:
    """The outcome of one seed."""

    seed: int
    violations: tuple[str, ...]
    counts: dict[str, int]


def play(scenario: str, seed: int) -> Outcome:
    """Simulate one world."""
    try:
        report = simulate(named_scenario(scenario).model_copy(update={"seed": seed}))
    except Exception as error:  # noqa: BLE001 - whatever it is, it is the seed's outcome
        none = {"promised": 0, "delivered": 0, "messages": 0, "faults": 0}
        return Outcome(seed, (f"the simulation ended: {error!r}",), none)
    counts = {
        "promised": report.promised,
        "delivered": report.delivered,
        "messages": sum(report.messages.values()),
        "faults": sum(report.faults.values()),
    }
    return Outcome(seed, report.violations, counts)


def _play_all(scenario: str, seeds: list[int]) -> list[Outcome]:
    return [_play_one(scenario, seed) for seed in seeds]


def _play_one(scenario: str, seed: int) -> Outcome:
    """Simulate one world without garbage collection, and collect once afterwards, which is faster.

    The next world then reuses the memory; imported modules are frozen and not scanned again.
    """
    gc.disable()
    gc.freeze()
    outcome = play(scenario, seed)
    gc.collect()
    return outcome


def end_with(owner: int) -> None:
    """Make a worker end on Ctrl-C, and when its owner ends for whatever reason.

    Otherwise a worker would report Ctrl-C as the outcome of its batch and wait forever for the
    next one.
    """
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != owner:  # the owner ended before prctl was called
        os._exit(1)


@contextlib.contextmanager
def _interrupted_later() -> Iterator[None]:
    """Put off Ctrl-C, also in processes forked meanwhile, until they have called ``end_with``."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


def played(scenario: str, seeds: Iterable[int], jobs: int) -> Iterator[Outcome]:
    """Play all seeds, a few at a time; yield the outcomes as they come."""
    left = iter(seeds)
    server()  # started here, so that all workers share it
    with ProcessPoolExecutor(jobs, initializer=end_with, initargs=(os.getpid(),)) as pool:
        waiting: set[Future[list[Outcome]]] = set()
        try:
            while True:
                with _interrupted_later():
                    while len(waiting) < 2 * jobs and (batch := list(islice(left, _BATCH))):
                        waiting.add(pool.submit(_play_all, scenario, batch))
                if not waiting:
                    return
                done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
                for future in done:
                    yield from future.result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
