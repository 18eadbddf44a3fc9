"""The tables of pools, pool tasks, their terms and seats, and what policies remember."""

from __future__ import annotations

from itertools import count
from uuid import UUID

from lead.simulation.memory.indexes import Groups
from lead.simulation.memory.journal import Journal, Table
from lead.simulation.memory.rows import PolicyState, Pool, PoolTask, Seat, Term
from lead.simulation.memory.tasktable import Tasks
from node.store.database import BrokenCheck, BrokenKey, BrokenReference

Key = tuple[UUID, int]
"""A term: its pool task and its first slot."""


class Pools(Table[int, Pool]):
    """Named sets of nodes."""

    def __init__(self, journal: Journal) -> None:
        """Empty."""
        super().__init__(journal)
        self.ids = count(1)
        self.named: dict[str, Pool] = {}

    def key(self, row: Pool) -> int:
        """Its number."""
        return row.id

    def _enter(self, row: Pool) -> None:
        self.named[row.name] = row

    def _leave(self, row: Pool) -> None:
        del self.named[row.name]


class PoolTasks(Table[UUID, PoolTask]):
    """The tasks that ask for nodes of a pool."""

    def __init__(self, journal: Journal, tasks: Tasks) -> None:
        """Empty."""
        super().__init__(journal)
        self._tasks = tasks

    def key(self, row: PoolTask) -> UUID:
        """Its task."""
        return row.task_id

    def _check(self, row: PoolTask) -> None:
        if row.task_id not in self._tasks.rows:
            msg = f"there is no task {row.task_id}"
            raise BrokenReference(msg)


class Terms(Table[Key, Term]):
    """The terms of pool tasks."""

    def __init__(self, journal: Journal, pool_tasks: PoolTasks) -> None:
        """Empty."""
        super().__init__(journal)
        self._pool_tasks = pool_tasks
        self.of_task: Groups[UUID, Term] = Groups()
        self.tried: dict[Key, Term] = {}
        """Those that are to be tried at some time."""

    def key(self, row: Term) -> Key:
        """Its pool task and its first slot."""
        return row.pool_task, row.starts_at

    def _check(self, row: Term) -> None:
        if row.starts_at >= row.ends_at:
            msg = "a term lasts"
            raise BrokenCheck(msg)
        if row.pool_task not in self._pool_tasks.rows:
            msg = f"{row.pool_task} is no pool task"
            raise BrokenReference(msg)

    def _enter(self, row: Term) -> None:
        self.of_task.add(row.pool_task, row)
        if row.try_at is not None:
            self.tried[self.key(row)] = row

    def _leave(self, row: Term) -> None:
        self.of_task.remove(row.pool_task, row)
        self.tried.pop(self.key(row), None)


class Seats(Table[tuple[UUID, int], Seat]):
    """The seats; ``held`` by term and place, those that are not lost."""

    def __init__(self, journal: Journal, tasks: Tasks, terms: Terms) -> None:
        """Empty."""
        super().__init__(journal)
        self._tasks = tasks
        self._terms = terms
        self.of_task: Groups[UUID, Seat] = Groups()
        self.of_part: Groups[UUID, Seat] = Groups()
        self.held: dict[tuple[UUID, int, int], Seat] = {}
        self._by_node: dict[tuple[UUID, int, str], Seat] = {}

    def key(self, row: Seat) -> tuple[UUID, int]:
        """Its ordinary task and its place."""
        return row.task_id, row.place

    def clashes(self, row: Seat) -> bool:
        """Whether it is there already, or somebody else has it, or the node another one."""
        taken = (row.pool_task, row.term, row.place) in self.held
        return taken or self.key(row) in self.rows or _sits(row) in self._by_node

    def _check(self, row: Seat) -> None:
        if (row.lost_at is None) is not (row.reason is None):
            msg = "who has lost a seat has lost it for a reason"
            raise BrokenCheck(msg)
        if row.task_id not in self._tasks.rows or (row.pool_task, row.term) not in self._terms.rows:
            msg = "there is no such task, or term"
            raise BrokenReference(msg)
        if row.lost_at is None and _sits(row) in self._by_node:
            msg = "a node has one seat of a term"
            raise BrokenKey(msg)

    def _enter(self, row: Seat) -> None:
        self.of_task.add(row.pool_task, row)
        self.of_part.add(row.task_id, row)
        if row.lost_at is None:
            self.held[row.pool_task, row.term, row.place] = row
            self._by_node[_sits(row)] = row

    def _leave(self, row: Seat) -> None:
        self.of_task.remove(row.pool_task, row)
        self.of_part.remove(row.task_id, row)
        if row.lost_at is None:
            del self.held[row.pool_task, row.term, row.place]
            del self._by_node[_sits(row)]


def _sits(row: Seat) -> tuple[UUID, int, str]:
    return row.pool_task, row.term, row.node


class PolicyStates(Table[int, PolicyState]):
    """What policies remember."""

    def key(self, row: PolicyState) -> int:
        """Its pool."""
        return row.pool_id
