"""The tables of pools, pool tasks, terms, seats, and the state of policies."""

from __future__ import annotations

from itertools import count
from uuid import UUID

from lead.simulation.memory.indexes import GroupedRows
from lead.simulation.memory.journal import Journal, Table
from lead.simulation.memory.rows import PolicyStateRow, PoolRow, PoolTaskRow, SeatRow, TermRow
from lead.simulation.memory.tasktable import TaskTable
from node.store.database import BrokenCheck, BrokenKey, BrokenReference

Key = tuple[UUID, int]
"""The key of a term: its pool task and its first slot."""


class PoolTable(Table[int, PoolRow]):
    """The named sets of nodes."""

    def __init__(self, journal: Journal) -> None:
        """Create an empty table."""
        super().__init__(journal)
        self.ids = count(1)
        self.named: dict[str, PoolRow] = {}

    def key(self, row: PoolRow) -> int:
        """Return the number."""
        return row.id

    def _enter(self, row: PoolRow) -> None:
        self.named[row.name] = row

    def _leave(self, row: PoolRow) -> None:
        del self.named[row.name]


class PoolTaskTable(Table[UUID, PoolTaskRow]):
    """The tasks that request nodes of a pool."""

    def __init__(self, journal: Journal, tasks: TaskTable) -> None:
        """Create an empty table."""
        super().__init__(journal)
        self._tasks = tasks

    def key(self, row: PoolTaskRow) -> UUID:
        """Return the task."""
        return row.task_id

    def _check(self, row: PoolTaskRow) -> None:
        if row.task_id not in self._tasks.rows:
            msg = f"there is no task {row.task_id}"
            raise BrokenReference(msg)


class TermTable(Table[Key, TermRow]):
    """The terms of pool tasks."""

    def __init__(self, journal: Journal, pool_tasks: PoolTaskTable) -> None:
        """Create an empty table."""
        super().__init__(journal)
        self._pool_tasks = pool_tasks
        self.of_task: GroupedRows[UUID, TermRow] = GroupedRows()
        self.tried: dict[Key, TermRow] = {}
        """The terms with an instant of the next try."""
        self.missing: dict[Key, TermRow] = {}
        """The terms with runs that are expected to miss their latest start."""

    def key(self, row: TermRow) -> Key:
        """Return the pool task and the first slot."""
        return row.pool_task, row.starts_at

    def _check(self, row: TermRow) -> None:
        if row.starts_at >= row.ends_at:
            msg = "a term must end after its start"
            raise BrokenCheck(msg)
        if row.pool_task not in self._pool_tasks.rows:
            msg = f"{row.pool_task} is not a pool task"
            raise BrokenReference(msg)

    def _enter(self, row: TermRow) -> None:
        self.of_task.add(row.pool_task, row)
        if row.try_at is not None:
            self.tried[self.key(row)] = row
        if row.misses:
            self.missing[self.key(row)] = row

    def _leave(self, row: TermRow) -> None:
        self.of_task.remove(row.pool_task, row)
        self.tried.pop(self.key(row), None)
        self.missing.pop(self.key(row), None)


class SeatTable(Table[tuple[UUID, int], SeatRow]):
    """The seats; ``held`` has those that are not lost by term and place."""

    def __init__(self, journal: Journal, tasks: TaskTable, terms: TermTable) -> None:
        """Create an empty table."""
        super().__init__(journal)
        self._tasks = tasks
        self._terms = terms
        self.of_task: GroupedRows[UUID, SeatRow] = GroupedRows()
        self.of_part: GroupedRows[UUID, SeatRow] = GroupedRows()
        self.held: dict[tuple[UUID, int, int], SeatRow] = {}
        self._by_node: dict[tuple[UUID, int, str], SeatRow] = {}

    def key(self, row: SeatRow) -> tuple[UUID, int]:
        """Return the task of the seat and the place."""
        return row.task_id, row.place

    def clashes(self, row: SeatRow) -> bool:
        """Return whether the seat exists, is taken, or its node has another one of the term."""
        taken = (row.pool_task, row.term, row.place) in self.held
        return taken or self.key(row) in self.rows or _node_key(row) in self._by_node

    def _check(self, row: SeatRow) -> None:
        if (row.lost_at is None) is not (row.reason is None):
            msg = "a lost seat must have a reason, a held one must not"
            raise BrokenCheck(msg)
        if row.task_id not in self._tasks.rows or (row.pool_task, row.term) not in self._terms.rows:
            msg = "the task or the term does not exist"
            raise BrokenReference(msg)
        if row.lost_at is None and _node_key(row) in self._by_node:
            msg = "a node can have only one seat of a term"
            raise BrokenKey(msg)

    def _enter(self, row: SeatRow) -> None:
        self.of_task.add(row.pool_task, row)
        self.of_part.add(row.task_id, row)
        if row.lost_at is None:
            self.held[row.pool_task, row.term, row.place] = row
            self._by_node[_node_key(row)] = row

    def _leave(self, row: SeatRow) -> None:
        self.of_task.remove(row.pool_task, row)
        self.of_part.remove(row.task_id, row)
        if row.lost_at is None:
            del self.held[row.pool_task, row.term, row.place]
            del self._by_node[_node_key(row)]


def _node_key(row: SeatRow) -> tuple[UUID, int, str]:
    return row.pool_task, row.term, row.node


class PolicyStateTable(Table[int, PolicyStateRow]):
    """The stored states of policies."""

    def key(self, row: PolicyStateRow) -> int:
        """Return the pool."""
        return row.pool_id
