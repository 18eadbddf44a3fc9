"""The share of a mesh that finds time: with starts chosen together, and each by a hash.

A mesh of so many nodes measures both ways between all of them, in an interval of which the runs of
a node take a given share, its load. At most so many runs find time as leave no node more than the
whole interval: the bound. Runs are booked as a lead books them, one after the other by their
starts, each as early as its slip allows. No node is asked: what is measured are the starts.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from itertools import permutations

from node.mesh.rounds import MeshRun, place
from node.mesh.spreading import phase_of
from node.model import times
from tests.bench.figures import Figure
from tests.bench.fleet import Fleet

SIZES = (100, 1000)
LOADS = (60, 80, 95, 110)
SLIPS = (0, 1, 2, 5, 10, 20, 50)
"""In % of the interval; 10 is what a task has that names none."""
_USUAL = 10
_LENGTH_S = 15
_MESH = "bench"


async def rounds(_: Fleet) -> list[Figure]:
    """Measure ``mesh_*``: shares of the bound, by nodes, load, slip, and seconds of a plan."""
    placed = [figure for nodes in SIZES for load in LOADS for figure in _placed(nodes, load)]
    return [*placed, *_slips(), *_edits()]


def _placed(nodes: int, load: int) -> list[Figure]:
    """Measure the shares of the bound of one mesh, both ways, and how long the plan takes."""
    runs = _full_mesh(nodes, load)
    began = time.process_time()
    together = place(_MESH, runs, {}).phases
    took_s = time.process_time() - began
    alone = _share_booked(runs, _hashed(runs), _USUAL)
    name, what = f"mesh_{nodes}_{load}", f"{nodes} nodes, {load} % load"
    placed = _share_booked(runs, together, 0)
    return [
        Figure(f"{name}_together", placed, "%", f"of the bound, {what}, without slip"),
        Figure(f"{name}_hash", alone, "%", f"of the bound, {what}, slip {_USUAL} %"),
        Figure(f"{name}_plan_s", took_s, "s", f"to place {len(runs)} tasks"),
    ]


def _slips() -> list[Figure]:
    """Measure the share that finds time by slip, of the smallest mesh at 95 %."""
    runs = _full_mesh(SIZES[0], 95)
    hashed = _hashed(runs)
    return [
        Figure(
            f"mesh_slip_{slip}",
            _share_booked(runs, hashed, slip),
            "%",
            f"of the bound, {SIZES[0]} nodes, 95 % load, starts by a hash, slip {slip} %",
        )
        for slip in SLIPS
    ]


def _edits() -> list[Figure]:
    """Measure how many tasks keep their starts when a node comes, and how many of all fit then."""
    nodes = SIZES[0]
    after = _full_mesh(nodes, 95)
    newest = f"n{nodes - 1}"
    before = place(_MESH, [run for run in after if newest not in run.nodes], {}).phases
    placed = place(_MESH, after, before)
    stayed = sum(placed.phases[key] == phase for key, phase in before.items())
    how = f"of {len(before)} tasks when a node is added to {nodes - 1}, 95 % load"
    return [
        Figure("mesh_edit_kept", 100 * stayed / len(before), "%", how),
        Figure("mesh_edit_placed", 100 * len(placed.phases) / len(after), "%", "of all after it"),
    ]


def _full_mesh(nodes: int, load: int) -> list[MeshRun]:
    """Return the runs of a mesh that takes this share of each node's time, in %."""
    taken = 2 * (nodes - 1) * _LENGTH_S
    interval = taken * 100 // load * times.SECOND
    names = [f"n{number}" for number in range(nodes)]
    length = _LENGTH_S * times.SECOND
    return [MeshRun(f"{a}/{b}", (a, b), length, interval) for a, b in permutations(names, 2)]


def _hashed(runs: Sequence[MeshRun]) -> dict[str, int]:
    return {run.key: phase_of(_MESH, run.key, run.interval) for run in runs}


def _share_booked(runs: Sequence[MeshRun], phases: Mapping[str, int], slip: int) -> float:
    """Return the share of the bound that is booked in an interval that follows another one, in %.

    ``slip`` is in % of the interval. What has no phase is not booked.
    """
    interval_s = runs[0].interval // times.SECOND
    window_s = interval_s * slip // 100 + _LENGTH_S
    mask = (1 << window_s) - 1
    order = sorted(
        (phases[run.key] // times.SECOND, run.nodes) for run in runs if run.key in phases
    )
    taken: dict[str, int] = {}
    booked = 0
    for lap in range(2):
        booked = 0
        for start, (one, other) in order:
            begin = start + lap * interval_s
            free = ~((taken.get(one, 0) | taken.get(other, 0)) >> begin) & mask
            if found := _starts(free):
                at = begin + (found & -found).bit_length() - 1
                run = ((1 << _LENGTH_S) - 1) << at
                taken[one] = taken.get(one, 0) | run
                taken[other] = taken.get(other, 0) | run
                booked += 1
    own = 2 * len(runs) // len({node for run in runs for node in run.nodes})
    bound = len(runs) * min(1, interval_s // _LENGTH_S / own)
    return 100 * booked / bound


def _starts(free: int) -> int:
    """Return, as bits, the seconds from which on a whole run is free."""
    length = 1
    while length < _LENGTH_S:
        step = min(length, _LENGTH_S - length)
        free &= free >> step
        length += step
    return free
