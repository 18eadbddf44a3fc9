"""The tables of exchanges: as the lead, and as a participant."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heappop, heappush
from uuid import UUID

from lead.simulation.memory.indexes import GroupedRows
from lead.simulation.memory.journal import Journal, Table
from lead.simulation.memory.rows import ExchangeRow, NegotiationRow
from lead.simulation.memory.tasktable import TaskTable
from node.store.database import BrokenReference


class NegotiationTable(Table[UUID, NegotiationRow]):
    """The exchanges led here."""

    def __init__(self, journal: Journal, tasks: TaskTable) -> None:
        """Create an empty table."""
        super().__init__(journal)
        self._tasks = tasks
        self.open: dict[UUID, NegotiationRow] = {}
        self.by_task: GroupedRows[UUID, NegotiationRow] = GroupedRows()
        self._decided: list[tuple[int, int, NegotiationRow]] = []

    def key(self, row: NegotiationRow) -> UUID:
        """Return the exchange."""
        return row.id

    def decided_before(self, instant: int) -> Iterator[NegotiationRow]:
        """Yield those decided before an instant, each once: the caller must delete or keep them."""
        yielded: set[UUID] = set()  # a change that was rolled back has entered its row twice
        while self._decided and self._decided[0][0] < instant:
            decided_at, _, row = heappop(self._decided)
            current = self.rows.get(row.id) is row and row.decided_at == decided_at
            if current and row.id not in yielded:
                yielded.add(row.id)
                yield row

    def keep(self, row: NegotiationRow) -> None:
        """Let :meth:`decided_before` yield the negotiation again, once it is decided."""
        if row.decided_at is not None:
            heappush(self._decided, (row.decided_at, row.number, row))

    def _check(self, row: NegotiationRow) -> None:
        if row.task_id not in self._tasks.rows:
            msg = f"there is no task {row.task_id}"
            raise BrokenReference(msg)

    def _enter(self, row: NegotiationRow) -> None:
        self.by_task.add(row.task_id, row)
        if row.state == "open":
            self.open[row.id] = row
        self.keep(row)

    def _leave(self, row: NegotiationRow) -> None:
        self.by_task.remove(row.task_id, row)
        self.open.pop(row.id, None)


class ExchangeTable(Table[UUID, ExchangeRow]):
    """The exchanges in which this node takes part; ``ported`` has the ports of live ones."""

    def __init__(self, journal: Journal, tasks: TaskTable) -> None:
        """Create an empty table."""
        super().__init__(journal)
        self._tasks = tasks
        self.held: dict[UUID, ExchangeRow] = {}
        self.bare: dict[UUID, None] = {}
        self.live: dict[UUID, int] = {}
        self.ported: dict[UUID, range] = {}

    def key(self, row: ExchangeRow) -> UUID:
        """Return the id."""
        return row.id

    def run_lives(self, exchange: UUID, more: int) -> None:
        """Count a run that begins (``more`` is 1) or ceases (-1) to occupy its time."""
        count = self.live.get(exchange, 0) + more
        if not count:
            del self.live[exchange]
            self.ported.pop(exchange, None)
            return
        self.live[exchange] = count
        self._keep_port(self.rows[exchange])

    def _keep_port(self, row: ExchangeRow) -> None:
        if row.ports is not None and row.id in self.live and row.state != "released":
            self.ported[row.id] = row.ports

    def _check(self, row: ExchangeRow) -> None:
        if row.task_id not in self._tasks.rows:
            msg = f"there is no task {row.task_id}"
            raise BrokenReference(msg)

    def _enter(self, row: ExchangeRow) -> None:
        if row.state == "held":
            self.held[row.id] = row
        self._keep_port(row)
        self.bare[row.id] = None

    def _leave(self, row: ExchangeRow) -> None:
        self.held.pop(row.id, None)
        self.ported.pop(row.id, None)
