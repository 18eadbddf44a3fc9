"""The invariants of the seats of pool tasks in a simulated world, read from the lead's tables."""

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
"""Upper bound on the pause between two searches for nodes."""


def find_overfull_terms(host: Host) -> Iterator[str]:
    """Describe nodes with two seats of a term, and terms with too many seats."""
    tables = host.database.tables
    seats_by_term: dict[TermRow, list[SeatRow]] = defaultdict(list)
    for seat in tables.seats.rows.values():
        if seat.lost_at is None:
            seats_by_term[tables.terms.rows[seat.pool_task, seat.term]].append(seat)
    for term, seats in seats_by_term.items():
        places = {seat.place for seat in seats}
        if len({seat.node for seat in seats}) < len(seats) or len(places) < len(seats):
            yield f"{host.name}: {_term_name(term)} has a node, or a number, twice"
        if not places <= set(range(1, term.seats + 1)):
            yield f"{host.name}: {_term_name(term)} has more seats than {term.seats}"


def find_seat_faults(world: SimulatedWorld, host: Host) -> Iterator[str]:
    """Describe what is wrong with the seats once the nodes have settled."""
    tables = host.database.tables
    for pool_task in tables.pool_tasks.rows.values():
        task = tables.tasks.rows[pool_task.task_id]
        terms = tables.terms.of_task.of(task.id)
        yield from _measured_too_often(host, task, terms)
        if task.state in {TaskState.ACTIVE, TaskState.FINISHED, TaskState.UNPLACED}:
            yield from _empty(host, task, terms)
        if task.state == TaskState.ACTIVE and unpack(task.schedule).get("max_runs") is None:
            yield from _without_term(world, host, task, terms)


def _measured_too_often(host: Host, task: TaskRow, terms: list[TermRow]) -> Iterator[str]:
    """Describe slots with more results than seats, or with two results of one node."""
    tables = host.database.tables
    by_slot: dict[int, Counter[str]] = defaultdict(Counter)
    for part in {seat.task_id for seat in tables.seats.of_task.of(task.id)}:
        for run in tables.runs.by_task.of(part):
            if run.state == RunState.FINISHED:
                nodes = [seat.node for seat in tables.seats.of_part.of(part)]
                by_slot[run.slot].update(nodes)
    most = max((term.seats for term in terms), default=0)
    for slot, counts in by_slot.items():
        if counts.total() > most or max(counts.values()) > 1:
            instant = times.format_instant(slot)
            yield f"{host.name}: slot {instant} of pool task {task.id} was measured too often"


def _empty(host: Host, task: TaskRow, terms: list[TermRow]) -> Iterator[str]:
    """Describe ended terms with a seat that is empty without a reason or still searched for."""
    tables, now = host.database.tables, host.clock.now()
    for term in terms:
        if term.over_at + _PATIENCE > now:
            continue
        occupied = sum(
            (task.id, term.starts_at, number) in tables.seats.held
            for number in range(1, term.seats + 1)
        )
        if term.try_at is not None:
            yield f"{host.name}: {_term_name(term)} has ended, but its node search still runs"
        lost = any(
            seat.term == term.starts_at and seat.lost_at is not None
            for seat in tables.seats.of_task.of(task.id)
        )
        if occupied < term.seats and term.reason is None and not lost:
            yield f"{host.name}: a seat of {_term_name(term)} is empty without a reason"


def _without_term(
    world: SimulatedWorld, host: Host, task: TaskRow, terms: list[TermRow]
) -> Iterator[str]:
    """Describe past slots that lie in no term."""
    recurrence = recurrence_of(Schedule.model_validate(unpack(task.schedule)), task.created_at)
    first = first_slot(recurrence, task.created_at)
    if first is None:
        return
    for slot in nominal_starts(recurrence, first - 1, world.end, _SLOTS_MAX):
        if slot < host.clock.now() - host.world.nodes.keep:
            continue  # its term may have been purged
        if not any(term.starts_at <= slot < term.ends_at for term in terms):
            yield f"{host.name}: slot {times.format_instant(slot)} of {task.id} is in no term"


def _term_name(term: TermRow) -> str:
    return f"term {times.format_instant(term.starts_at)} of pool task {term.pool_task}"
