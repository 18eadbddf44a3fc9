"""Sizes with which each benchmark runs through in seconds, to see that it still does.

Such figures say nothing of the speed, and are not kept.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

from tests.bench import (
    agendas,
    archives,
    booking,
    episodes,
    known,
    lists,
    meshes,
    promises,
    proposals,
    rounds,
    starts,
    stored,
    streams,
)

_SIZES: dict[ModuleType, dict[str, Any]] = {
    agendas: {
        "CLAIMED": 5,
        "SIZES": (100, 1_000),
        "REPEATS": 3,
        "KEPT_TASKS": 3_000,
        "WATCHED_S": 30.0,
    },
    archives: {"RESULTS": 200, "PARKED": 200, "ROUNDS": 1},
    booking: {"BATCH_TASKS": 2, "SINGLE_TASKS": 20, "REPEATS": 2},
    episodes: {"TASKS": 200, "NODES": 20, "CAMPAIGNS": 10, "PARENTS": 2, "RUNS": 20, "WORKERS": 10},
    known: {"COUNTS": (40,), "SETTLED_S": 5.0, "WATCHED_S": 20.0},
    lists: {"MEASURES": 20, "HOSTS": 20},
    meshes: {"TASKS": 84, "HOURS": 2, "ROUNDS": 1},
    promises: {
        "TAKEOVERS": 1,
        "TAKEN_OVER": 5,
        "BURST": 50,
        "CLIENTS": 5,
        "SINGLES": 10,
        "READERS": 20,
        "EVENTS": 100,
        "EVENTS_AT_ONCE": 50,
        "RUNS_A_DAY": 500,
    },
    proposals: {"SIZES": (10, 100), "REPEATS": 3},
    rounds: {"SIZES": (20,)},
    starts: {"RUNS": 5, "TOGETHER": 3, "ROUNDS": 2, "CROWD": 10, "CROWD_ROUNDS": 1},
    stored: {"SIZES": (100,), "ASKED": 2, "HOURS": 24},
    streams: {"WATCHED_S": 5.0},
}


def make_small() -> None:
    """Let all benchmarks of this process have these sizes.

    :raises AttributeError: a benchmark has no such size any more.
    """
    for module, sizes in _SIZES.items():
        for name, size in sizes.items():
            getattr(module, name)
            setattr(module, name, size)
