"""The run table: the constraints behind promise 1, and indexes by state, time, task, exchange."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from heapq import heappop, heappush
from typing import Any
from uuid import UUID

from lead.simulation.memory.exchangetable import ExchangeTable
from lead.simulation.memory.indexes import GroupedRows, LaneIndex, OrderedGroupedRows, OrderedRows
from lead.simulation.memory.journal import Journal, Table
from lead.simulation.memory.rows import RunRow, pack_spans
from lead.simulation.memory.tasktable import TaskTable
from node.store.database import BrokenCheck, BrokenKey, BrokenOverlap, BrokenReference

OPEN = frozenset({"waiting", "booked", "set-aside", "running", "merging"})
LIVE = frozenset({"booked", "running"})
_OVER = frozenset({"finished", "failed", "missed", "cancelled", "displaced", "unplaced"})
_REASONED = frozenset({"failed", "missed", "cancelled", "displaced", "unplaced", "waiting"})
_FREE = (OPEN - LIVE - {"set-aside"}) | _OVER
_PLACED = frozenset({"exchange_id", "lane", "starts_at", "ends_at", "displaced_by"})

_SPANS_MAX = 240
"""Maximum number of spans in one notification."""
_CHARGED = frozenset({"booked", "set-aside", "running", "merging"})

_Heap = list[tuple[int, int, RunRow]]


class RunTable(Table[UUID, RunRow]):
    """The runs that this node leads or takes part in."""

    def __init__(
        self,
        journal: Journal,
        tasks: TaskTable,
        exchanges: ExchangeTable,
        give_back: Callable[[RunRow, str, int, int], None],
        tell_room: Callable[[RunRow], None],
    ) -> None:
        """Create an empty table; ``exchanges`` counts the live runs of each exchange.

        ``give_back(run, state before, start, end)`` is called for each run that no longer takes
        its time, or is finished late; ``tell_room(run)`` for those that ended early.
        """
        super().__init__(journal)
        self._give_back = give_back
        self._tell_room = tell_room
        self._tasks = tasks
        self._exchanges = exchanges
        self._slots: dict[tuple[UUID, int, int], RunRow] = {}
        self._over: tuple[_Heap, _Heap] = ([], [])
        self.by_task: OrderedGroupedRows[UUID, RunRow] = OrderedGroupedRows()
        self.open: GroupedRows[UUID, RunRow] = GroupedRows()
        self.done_with: dict[UUID, None] = {}
        """Tasks whose last open run has ended, until ``tasks.finish_tasks`` has checked them."""
        self.waiting: GroupedRows[UUID, RunRow] = GroupedRows()
        self.by_exchange: GroupedRows[UUID, RunRow] = GroupedRows()
        self.set_aside_for: GroupedRows[UUID | None, RunRow] = GroupedRows()
        self.booked: OrderedRows[RunRow] = OrderedRows()
        self.by_start: OrderedRows[RunRow] = OrderedRows()
        """The runs with a lane, in any state."""
        self.running: dict[UUID, RunRow] = {}
        self.merging: dict[UUID, RunRow] = {}
        self._lanes = {"exclusive": LaneIndex(), "normal": LaneIndex()}

    def key(self, row: RunRow) -> UUID:
        """Return the id."""
        return row.id

    def is_to_be_placed_again(self, task: UUID, now: int) -> bool:
        """Return whether a run was displaced before its start, and has no later attempt."""
        runs = list(self.by_task.of(task))
        latest: dict[int, int] = {}
        for run in runs:
            latest[run.slot] = max(run.attempt, latest.get(run.slot, 0))
        return any(
            run.state == "displaced" and run.starts_at > now and run.attempt == latest[run.slot]
            for run in runs
        )

    def offer(self, run: RunRow) -> bool:
        """Insert a run unless its key or its time is taken: ``ON CONFLICT DO NOTHING``."""
        if run.id in self.rows or (run.task_id, run.slot, run.attempt) in self._slots:
            return False
        if run.lane is not None and run.state in LIVE and self.in_the_way(run):
            return False
        self._check_values(run)
        self._check_state(run, was=run.state)
        self._add(run)
        return True

    def earlier(self, task: UUID, slot: int, attempt: int) -> list[RunRow]:
        """Return the runs of a slot with lower attempts."""
        runs = (self._slots.get((task, slot, number)) for number in range(1, attempt))
        return [run for run in runs if run is not None]

    def from_attempt(self, task: UUID, slot: int, attempt: int) -> list[RunRow]:
        """Return the runs of a slot with this attempt or a later one, from all runs."""
        return [
            run
            for (of, at, number), run in self._slots.items()
            if (of, at) == (task, slot) and number >= attempt
        ]

    def touching(self, start: int, end: int) -> list[RunRow]:
        """Return the runs with a lane that overlap [start, end); none if that is empty."""
        lanes = self._lanes.values() if start < end else ()
        return [run for lane in lanes for run in lane.touching(start, end)]

    def in_the_way(self, run: RunRow) -> bool:
        """Return whether another run takes time of an exclusive or normal one."""
        if self._lanes["exclusive"].in_the_way(run):
            return True
        return run.lane == "exclusive" and self._lanes["normal"].in_the_way(run)

    def over_before(self, finished: int, others: int) -> Iterator[RunRow]:
        """Yield runs that ended before a bound, each once: the caller must delete or keep them.

        ``finished`` is the bound of finished runs, ``others`` that of all others.
        """
        for heap, bound, is_finished in (
            (self._over[1], finished, True),
            (self._over[0], others, False),
        ):
            while heap and heap[0][0] < bound:
                ends_at, _, run = heappop(heap)
                is_current = self.rows.get(run.id) is run and run.ends_at == ends_at
                if (
                    is_current
                    and run.state not in OPEN
                    and (run.state == "finished") == is_finished
                ):
                    yield run

    def ended_before(self, instant: int) -> Iterator[RunRow]:
        """Yield runs that ended before an instant, in no order; some more than once."""
        for heap in self._over:
            places = [0]
            while places:
                place = places.pop()
                if place < len(heap) and heap[place][0] < instant:
                    # The children of an entry of a heap are never earlier than the entry.
                    places += (2 * place + 1, 2 * place + 2)
                    run = heap[place][2]
                    if self.rows.get(run.id) is run and run.state not in OPEN:
                        yield run

    def keep(self, run: RunRow) -> None:
        """Let :meth:`over_before` yield the run again."""
        heappush(self._over[run.state == "finished"], (run.ends_at, run.number, run))

    def delete(self, row: RunRow) -> None:
        """Delete a run and notify that its time is free."""
        if row.lane is not None and row.state in LIVE:
            self._tell_freed(row)
        super().delete(row)

    def _tell_freed(self, row: RunRow) -> None:
        self._journal.tell(f"freed {row.starts_at} {row.ends_at}")

    def tell_taken(self, taken: Iterable[RunRow]) -> None:
        """Notify of the runs that one statement has booked."""
        by_kind: dict[tuple[str, int, int], list[tuple[int, int]]] = {}
        for run in taken:
            if run.lane is not None:
                kind = run.scheduling_class, run.priority, run.rank
                by_kind.setdefault(kind, []).append((run.starts_at, run.ends_at))
        for (scheduling_class, priority, rank), spans in by_kind.items():
            spans.sort()
            for first in range(0, len(spans), _SPANS_MAX):
                packed = pack_spans(spans[first : first + _SPANS_MAX]).hex()
                self._journal.tell(f"taken {scheduling_class} {priority} {rank} {packed}")

    def change(self, row: RunRow, **changes: Any) -> None:
        """Give columns new values; notify if the run frees its time or takes it differently."""
        state = changes.get("state", row.state)
        if row.lane is not None and changes.get("lane", row.lane) is not None:
            asides = {row.state, state} == {"booked", "set-aside"}
            if asides or (state in LIVE and changes.get("priority", row.priority) != row.priority):
                self._journal.tell(f"changed {row.starts_at} {row.ends_at}")
        if row.lane is not None and row.state in LIVE and state in _FREE:
            self._tell_freed(row)
        was, starts_at, ends_at = row.state, row.starts_at, row.ends_at
        ends = (was in _CHARGED and state not in _CHARGED) or (was, state) == ("failed", "finished")
        self._change(row, state, changes)
        if ends:
            self._give_back(row, was, starts_at, ends_at)
            if was in _CHARGED and row.changed_at < ends_at:
                self._tell_room(row)

    def _change(self, row: RunRow, state: str, changes: dict[str, Any]) -> None:
        if not _PLACED.isdisjoint(changes):
            super().change(row, **changes)
            return
        previous = {column: getattr(row, column) for column in changes}
        self._restate(row, changes)
        try:
            self._check_state(row, was=previous.get("state", state))
        except BaseException:
            self._restate(row, previous)
            raise
        self._journal.write(self._restate, row, previous)

    def _restate(self, row: RunRow, values: dict[str, Any]) -> None:
        """Set values of which no index but the one by state depends."""
        was, state = row.state, values.get("state", row.state)
        if was == state:
            self._set(row, values)
            return
        stays_open = was in OPEN and state in OPEN
        stays_live = was in LIVE and state in LIVE
        self._leave_state(row, stays_open=stays_open, stays_live=stays_live)
        self._set(row, values)
        self._enter_state(row, was_open=stays_open, was_live=stays_live)

    def _set(self, row: RunRow, values: dict[str, Any]) -> None:
        for column, value in values.items():
            setattr(row, column, value)

    def _put(self, row: RunRow) -> None:
        self._slots[row.task_id, row.slot, row.attempt] = row
        self.by_task.add(row.task_id, row.slot, row)
        super()._put(row)

    def _take(self, row: RunRow) -> None:
        super()._take(row)
        self.by_task.remove(row.task_id, row.slot, row)
        del self._slots[row.task_id, row.slot, row.attempt]

    def _check(self, row: RunRow) -> None:
        taken = self._slots.get((row.task_id, row.slot, row.attempt))
        if taken is not None and taken is not row:
            msg = "run_slot_once: this slot has this attempt already"
            raise BrokenKey(msg)
        self._check_values(row)
        self._check_state(row, was=None)

    def _check_state(self, row: RunRow, was: str | None) -> None:
        if row.reason is None and row.state in _REASONED:
            msg = f"a run that is {row.state} must have a reason"
            raise BrokenCheck(msg)
        comes_to_life = row.state in LIVE and was not in LIVE
        if comes_to_life and row.lane is not None and self.in_the_way(row):
            msg = "run_no_overlap: this time is taken"
            raise BrokenOverlap(msg)

    def _check_values(self, row: RunRow) -> None:
        if row.exchange_id is not None and row.exchange_id not in self._exchanges.rows:
            msg = f"there is no exchange {row.exchange_id}"
            raise BrokenReference(msg)
        if row.task_id not in self._tasks.rows:
            msg = f"there is no task {row.task_id}"
            raise BrokenReference(msg)
        if row.starts_at >= row.ends_at:
            msg = "a run must end after its start"
            raise BrokenCheck(msg)

    def _enter(self, row: RunRow) -> None:
        if row.exchange_id is not None:
            self.by_exchange.add(row.exchange_id, row)
        if row.lane is not None:
            self.by_start.add(row.starts_at, row)
        self._enter_state(row)

    def _enter_state(self, row: RunRow, *, was_open: bool = False, was_live: bool = False) -> None:
        state = row.state
        if state not in OPEN:
            self.keep(row)
            return
        if not was_open:
            self.open.add(row.task_id, row)
        if state == "booked":
            self.booked.add(row.starts_at, row)
        elif state == "running":
            self.running[row.id] = row
        elif state == "merging":
            self.merging[row.id] = row
        elif state == "waiting":
            self.waiting.add(row.task_id, row)
        else:
            self.set_aside_for.add(row.displaced_by, row)
        if state in LIVE and not was_live:
            self._live(row)

    def _live(self, row: RunRow) -> None:
        if row.lane is not None:
            self._lanes[row.lane].add(row)
        if row.exchange_id is not None:
            self._exchanges.run_lives(row.exchange_id, 1)

    def _leave(self, row: RunRow) -> None:
        if row.exchange_id is not None and self.by_exchange.remove(row.exchange_id, row):
            self._exchanges.bare[row.exchange_id] = None
        if row.lane is not None:
            self.by_start.remove(row.starts_at, row)
        self._leave_state(row)

    def _leave_state(
        self, row: RunRow, *, stays_open: bool = False, stays_live: bool = False
    ) -> None:
        state = row.state
        if state not in OPEN:
            return
        if not stays_open and self.open.remove(row.task_id, row):
            self.done_with[row.task_id] = None
        if state == "booked":
            self.booked.remove(row.starts_at, row)
        elif state == "running":
            del self.running[row.id]
        elif state == "merging":
            del self.merging[row.id]
        elif state == "waiting":
            self.waiting.remove(row.task_id, row)
        else:
            self.set_aside_for.remove(row.displaced_by, row)
        if state in LIVE and not stays_live:
            self._die(row)

    def _die(self, row: RunRow) -> None:
        if row.lane is not None:
            self._lanes[row.lane].remove(row)
        if row.exchange_id is not None:
            self._exchanges.run_lives(row.exchange_id, -1)
