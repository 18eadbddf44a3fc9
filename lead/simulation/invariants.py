"""The invariants of a simulated world, which must hold whatever fails in it.

Those of ``sql/invariants.sql`` (:mod:`lead.simulation.evidence`) are the same ones that ``make
chaos`` checks: some hold at every instant and are asked of each node while the world runs
(:func:`watch`); all of them are asked of the rows of all nodes side by side once the faults are
repaired and the nodes have settled (:func:`check`). What only the history of a world can tell is
compared here. The checks do not rely on the constraints that they verify.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from lead.simulation import evidence
from lead.simulation.clock import START, pause
from lead.simulation.history import EndedRun
from lead.simulation.node import Host, SimulatedWorld
from lead.simulation.server import server
from node.model import times
from node.runtime.housekeeping import CONFIRM_S
from node.store.queries import Queries

SQL = Queries("lead.simulation", "history")

NAMES = (
    "no forbidden overlap on any node",
    "no more is taken of a resource than there is",
    "each run is on all its participants or on none",
    "no hold is older than twice its life",
    "nothing due is missing without a reason",
    "no run is ended before its start",
    "no slot is measured twice or under two ids",
    "every displaced run was planned again",
    "every message was delivered",
    "every node knows a task, and its end, as its lead does",
    "every result is at its lead, and none is taken for another",
    "no node has two seats of a term, and no term has more seats than requested",
    "no slot of a pool task is measured more often than it has seats, or twice by a node",
    "every empty seat has its reason",
    "no fault in the program was logged",
)
"""The invariants that are checked, for the report."""

_PRECISION = 10 * times.SECOND
"""Difference of the clocks of two nodes that are not far wrong, at most."""
_STARTING = 15 * times.SECOND
"""Time a node may take to drop an old hold after a start, and between two looks."""
_UNDER_WAY = 2 * times.MINUTE
"""Time after which an operation that was in progress at some instant must have ended."""
_LOOK = 6 * times.SECOND
"""Time after which who prepares a run knows that it was cancelled."""
_PURGED = times.HOUR
"""Time within which all nodes delete what is older than they keep it."""
_OVER = frozenset({"due", "slots", "in_a_gap", "measured_too_often", "terms", "in_no_term"})
"""The settled invariants that no operation in progress can break for a while."""

Found = Mapping[tuple[str, str, str], str]
"""Violations by node, invariant, and id."""


def watch(world: SimulatedWorld) -> None:
    """Check the invariants that hold at every instant."""
    for host in world.hosts:
        for row in _at_every_instant(world, host):
            world.history.record_violation(_sentence(*row))


async def check(world: SimulatedWorld) -> None:
    """Check the invariants that hold once the nodes have settled."""
    for host in world.hosts:
        harvest(world, host)
    found = _found(world)
    if found:
        # An operation may just be in progress: only what is still unsettled later is a violation.
        await pause(_UNDER_WAY)
        still = _found(world)
        for key, what in found.items():
            node, invariant, id_ = key
            name = evidence.name_of(invariant)
            if invariant.startswith("always_") or name in _OVER or key in still:
                world.history.record_violation(_sentence(node, name, id_, what))
    if world.history.repaired and not world.scenario.faults.forgotten_runs:
        sentence = f"{world.history.repaired} differences were repaired although nothing was lost"
        world.history.record_violation(sentence)
    for sentence in world.loop.faults:
        world.history.record_violation(f"uncaught error: {sentence}")


def harvest(world: SimulatedWorld, host: Host, before: int = times.LATEST) -> None:
    """Record the outcome of the runs that a host leads and that ended before ``before``."""
    for row in host.store.read(SQL["ended_runs"], before, world.end):
        world.history.over(EndedRun(**row), host.name)
    if before < times.LATEST:
        # Tasks that are finished may be deleted next, and those of seats everywhere.
        for row in host.store.read(evidence.FINISHED_TASKS):
            world.history.finished[row["id"]] = row["document"]
        for row in host.store.read(SQL["parties_of_seats"]):
            world.history.parties[row["id"]] = row["nodes"]


def _sentence(node: str, invariant: str, id_: str, what: str) -> str:
    return f"{node}: {what} ({invariant} {id_})"


def _at_every_instant(world: SimulatedWorld, host: Host) -> Iterator[tuple[str, str, str, str]]:
    """Ask a node by itself.

    Holds are not looked at while it is down, has just started, or its clock has just jumped.
    """
    now = world.loop.now
    quiet = (
        host.service is not None
        and now - host.clock.stepped_at >= _UNDER_WAY
        and now - host.up_since > _STARTING
    )
    clock = host.clock.now() if quiet else 0
    for row in host.store.read(evidence.ALWAYS, START + now, clock, _PRECISION, _STARTING):
        yield row["node"], row["invariant"], row["id"], row["what"]


def _found(world: SimulatedWorld) -> Found:
    """Compare the rows of all nodes, side by side, and what is known of the past."""
    court = server().court()
    court.write(evidence.SQL["tables"])
    for host in world.hosts:
        [row] = host.store.read(evidence.ROWS)
        court.read(evidence.FILLING, row["document"])
    for document in world.history.finished.values():
        court.write(evidence.KEEPING_FINISHED, document)
    for table, known in _rows_of_history(world).items():
        court.write(evidence.filling_statement(table), json.dumps(known))
    court.write(evidence.ROUND, *_round_row(world))
    court.write(evidence.READY)
    rows = court.read(evidence.ALL)
    return {(row["node"], row["invariant"], row["id"]): row["what"] for row in rows}


def _rows_of_history(world: SimulatedWorld) -> dict[str, list[dict[str, Any]]]:
    """Return what the history knows, as rows of tables."""
    history, format_ = world.history, times.format_instant
    return {
        "known": [
            {
                "task_id": str(task),
                "slot": format_(slot),
                "attempt": became if isinstance(became, int) else became[0],
            }
            for task, slots in history.slots.items()
            for slot, became in slots.items()
        ],
        "restored": [
            {"node": node, "dumped_at": format_(dumped), "restored_at": format_(restored)}
            for node, dumped, restored in history.restored
        ],
        "trouble": [
            {"one": one, "other": other, "began": format_(began), "ended": format_(ended)}
            for one, other, began, ended in history.troubles
        ],
        "stepped": [
            {
                "node": node,
                "began": format_(began),
                "ended": format_(ended),
                "right_at": format_(right),
            }
            for node, began, ended, right in history.stepped
        ],
    }


def _round_row(world: SimulatedWorld) -> Sequence[int]:
    nodes, now = world.scenario.nodes, START + world.loop.now
    grace = nodes.tend + nodes.part_grace + _UNDER_WAY
    return (
        now,
        now,
        _PRECISION,
        nodes.hold_life,
        _STARTING,
        grace,
        grace,
        2 * _UNDER_WAY,
        round(CONFIRM_S) * times.SECOND + grace,
        world.end,
        grace,
        nodes.horizon,
        _LOOK,
        now - max(times.HOUR, nodes.keep) + _PURGED,
    )
