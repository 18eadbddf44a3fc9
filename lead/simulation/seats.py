"""What must hold of the seats of pool tasks in a simulated world; read off the lead's tables."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator

from lead.simulation.memory.rows import SeatRow, TaskRow, TermRow, unpack
from lead.simulation.node import Host, SimulatedWorld
from node.model import times
from node.model.recurrence import nominal_starts
from node.model.runstate import RunState
from node.model.scheduling import first_slot, recurrence_of
from node.model.taskstate import TaskState
from node.model.wire.tasks import Schedule

_SLOTS_MAX = 100_000
_PATIENCE = 10 * times.MINUTE
"""Pauses between two looks for nodes get that long."""


def find_overfull_terms(host: Host) -> Iterator[str]:
    """Nodes with two seats of a term, and terms with too many seats; at every instant."""
    tables = host.database.tables
    held: dict[TermRow, list[SeatRow]] = defaultdict(list)
    for seat in tables.seats.rows.values():
        if seat.lost_at is None:
            held[tables.terms.rows[seat.pool_task, seat.term]].append(seat)
    for term, seats in held.items():
        places = {seat.place for seat in seats}
        if len({seat.node for seat in seats}) < len(seats) or len(places) < len(seats):
            yield f"{host.name}: {_named(term)} has a node, or a number, twice"
        if not places <= set(range(1, term.seats + 1)):
            yield f"{host.name}: {_named(term)} has more seats than {term.seats}"


def find_seat_faults(world: SimulatedWorld, host: Host) -> Iterator[str]:
    """What is wrong with the seats when the dust has settled."""
    tables = host.database.tables
    for asked in tables.pool_tasks.rows.values():
        task = tables.tasks.rows[asked.task_id]
        terms = tables.terms.of_task.of(task.id)
        yield from _measured_too_often(host, task, terms)
        if task.state in {TaskState.ACTIVE, TaskState.FINISHED, TaskState.UNPLACED}:
            yield from _empty(host, task, terms)
        if task.state == TaskState.ACTIVE and unpack(task.schedule).get("max_runs") is None:
            yield from _without_term(world, host, task, terms)


def _measured_too_often(host: Host, task: TaskRow, terms: list[TermRow]) -> Iterator[str]:
    """Slots with more results than seats, or with two of one node."""
    tables = host.database.tables
    by_slot: dict[int, Counter[str]] = defaultdict(Counter)
    for part in {seat.task_id for seat in tables.seats.of_task.of(task.id)}:
        for run in tables.runs.by_task.of(part):
            if run.state == RunState.FINISHED:
                seated = [seat.node for seat in tables.seats.of_part.of(part)]
                by_slot[run.slot].update(seated)
    most = max((term.seats for term in terms), default=0)
    for slot, nodes in by_slot.items():
        if nodes.total() > most or max(nodes.values()) > 1:
            instant = times.format_instant(slot)
            yield f"{host.name}: slot {instant} of pool task {task.id} was measured too often"


def _empty(host: Host, task: TaskRow, terms: list[TermRow]) -> Iterator[str]:
    """Terms that are over, with a seat that is empty for no reason or still looked for."""
    tables, now = host.database.tables, host.clock.now()
    for term in terms:
        if term.over_at + _PATIENCE > now:
            continue
        held = sum(
            (task.id, term.starts_at, number) in tables.seats.held
            for number in range(1, term.seats + 1)
        )
        if term.try_at is not None:
            yield f"{host.name}: nodes are still looked for in {_named(term)}, which is over"
        lost = any(
            seat.term == term.starts_at and seat.lost_at is not None
            for seat in tables.seats.of_task.of(task.id)
        )
        if held < term.seats and term.reason is None and not lost:
            yield f"{host.name}: a seat of {_named(term)} is empty for no reason"


def _without_term(
    world: SimulatedWorld, host: Host, task: TaskRow, terms: list[TermRow]
) -> Iterator[str]:
    """Slots that are over and lie in no term."""
    recurrence = recurrence_of(Schedule.model_validate(unpack(task.schedule)), task.created_at)
    first = first_slot(recurrence, task.created_at)
    if first is None:
        return
    for slot in nominal_starts(recurrence, first - 1, world.end, _SLOTS_MAX):
        if slot < host.clock.now() - host.world.nodes.keep:
            continue  # its term may have been forgotten
        if not any(term.starts_at <= slot < term.ends_at for term in terms):
            yield f"{host.name}: slot {times.format_instant(slot)} of {task.id} is in no term"


def _named(term: TermRow) -> str:
    return f"term {times.format_instant(term.starts_at)} of pool task {term.pool_task}"
