"""The tables of tasks and of the lead's agenda."""

from __future__ import annotations

from uuid import UUID

from lead.simulation.memory.indexes import Groups, Ordered
from lead.simulation.memory.journal import Journal, Table
from lead.simulation.memory.rows import Planning, Task
from node.store.database import BrokenReference


class Plannings(Table[UUID, Planning]):
    """The lead's agenda: by the time of planning; ``idle`` has active tasks without one.

    ``rested`` has those that have come to it, until somebody has looked.
    """

    def __init__(self, journal: Journal) -> None:
        """Empty."""
        super().__init__(journal)
        self.due: Ordered[Planning] = Ordered()
        self.idle: dict[UUID, Planning] = {}
        self.rested: dict[UUID, None] = {}
        self.waiting_for: Groups[str, Planning] = Groups()
        self._tasks: dict[UUID, Task] = {}

    def belong_to(self, tasks: dict[UUID, Task]) -> None:
        """Whose agenda it is."""
        self._tasks = tasks

    def key(self, row: Planning) -> UUID:
        """Its task."""
        return row.task_id

    def consider(self, task: Task) -> None:
        """The state of a task may be another."""
        row = self.rows.get(task.id)
        if row is not None and row.plan_at is None and task.state == "active":
            self._rest(row)
        else:
            self.idle.pop(task.id, None)

    def _rest(self, row: Planning) -> None:
        self.idle[row.task_id] = row
        self.rested[row.task_id] = None

    def _check(self, row: Planning) -> None:
        if row.task_id not in self._tasks:
            msg = f"there is no task {row.task_id}"
            raise BrokenReference(msg)

    def _enter(self, row: Planning) -> None:
        if row.waits_for is not None:
            self.waiting_for.add(row.waits_for, row)
        if row.plan_at is not None:
            self.due.add(row.plan_at, row)
        elif self._tasks[row.task_id].state == "active":
            self._rest(row)

    def _leave(self, row: Planning) -> None:
        if row.waits_for is not None:
            self.waiting_for.remove(row.waits_for, row)
        if row.plan_at is not None:
            self.due.remove(row.plan_at, row)
        else:
            self.idle.pop(row.task_id, None)


class Tasks(Table[UUID, Task]):
    """The tasks led or known here."""

    def __init__(self, journal: Journal, plannings: Plannings) -> None:
        """``plannings`` sorts its rows by the state of their tasks."""
        super().__init__(journal)
        self._plannings = plannings
        self.active_with: Groups[str, Task] = Groups()
        self.parts: Groups[UUID, Task] = Groups()
        """By pool task, the ordinary ones that have its seats."""
        self.of_pool_task: Groups[UUID, Task] = Groups()
        """The same, of pool tasks that other nodes lead."""

    def key(self, row: Task) -> UUID:
        """Its id."""
        return row.id

    def _check(self, row: Task) -> None:
        if row.parent is not None and row.parent not in self.rows:
            msg = f"there is no task {row.parent}"
            raise BrokenReference(msg)

    def _enter(self, row: Task) -> None:
        if row.parent is not None:
            self.parts.add(row.parent, row)
        if row.pool_task is not None:
            self.of_pool_task.add(row.pool_task, row)
        if row.state == "active":
            for node in row.nodes:
                self.active_with.add(node, row)
        self._plannings.consider(row)

    def _leave(self, row: Task) -> None:
        if row.parent is not None:
            self.parts.remove(row.parent, row)
        if row.pool_task is not None:
            self.of_pool_task.remove(row.pool_task, row)
        if row.state == "active":
            for node in row.nodes:
                self.active_with.remove(node, row)
