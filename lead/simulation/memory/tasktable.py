"""The tables of tasks and of the lead's agenda."""

from __future__ import annotations

from uuid import UUID

from lead.simulation.memory.indexes import GroupedRows, OrderedRows
from lead.simulation.memory.journal import Journal, Table
from lead.simulation.memory.rows import PlanningRow, TaskRow
from node.store.database import BrokenReference

_OPEN = frozenset({"active", "paused"})


class PlanningTable(Table[UUID, PlanningRow]):
    """The lead's agenda by planning time; ``idle`` has active tasks without one.

    ``rested`` has the tasks that became idle, until ``tasks.finish_tasks`` has checked them.
    """

    def __init__(self, journal: Journal) -> None:
        """Create an empty table."""
        super().__init__(journal)
        self.due: OrderedRows[PlanningRow] = OrderedRows()
        self.idle: dict[UUID, PlanningRow] = {}
        self.rested: dict[UUID, None] = {}
        self.waiting_for: GroupedRows[str, PlanningRow] = GroupedRows()
        self._tasks: dict[UUID, TaskRow] = {}

    def belong_to(self, tasks: dict[UUID, TaskRow]) -> None:
        """Set the tasks to which the rows belong."""
        self._tasks = tasks

    def key(self, row: PlanningRow) -> UUID:
        """Return the task."""
        return row.task_id

    def consider(self, task: TaskRow) -> None:
        """Update ``idle`` after a change of a task's state."""
        row = self.rows.get(task.id)
        if row is not None and row.plan_at is None and task.state == "active":
            self._rest(row)
        else:
            self.idle.pop(task.id, None)

    def _rest(self, row: PlanningRow) -> None:
        self.idle[row.task_id] = row
        self.rested[row.task_id] = None

    def _check(self, row: PlanningRow) -> None:
        if row.task_id not in self._tasks:
            msg = f"there is no task {row.task_id}"
            raise BrokenReference(msg)

    def _enter(self, row: PlanningRow) -> None:
        if row.waits_for is not None:
            self.waiting_for.add(row.waits_for, row)
        if row.plan_at is not None:
            self.due.add(row.plan_at, row)
        elif self._tasks[row.task_id].state == "active":
            self._rest(row)

    def _leave(self, row: PlanningRow) -> None:
        if row.waits_for is not None:
            self.waiting_for.remove(row.waits_for, row)
        if row.plan_at is not None:
            self.due.remove(row.plan_at, row)
        else:
            self.idle.pop(row.task_id, None)


class TaskTable(Table[UUID, TaskRow]):
    """The tasks led or known here."""

    def __init__(self, journal: Journal, plannings: PlanningTable) -> None:
        """Create an empty table; ``plannings`` follows the states of the tasks."""
        super().__init__(journal)
        self._plannings = plannings
        self.open_with: GroupedRows[str, TaskRow] = GroupedRows()
        self.open_of: GroupedRows[str, TaskRow] = GroupedRows()
        """By lead: its open tasks."""
        self.parts: GroupedRows[UUID, TaskRow] = GroupedRows()
        """By pool task: the tasks of its seats."""
        self.followers: GroupedRows[UUID, TaskRow] = GroupedRows()
        """By task: those that follow it."""

    def key(self, row: TaskRow) -> UUID:
        """Return the id."""
        return row.id

    def _check(self, row: TaskRow) -> None:
        if row.parent is not None and row.parent not in self.rows:
            msg = f"there is no task {row.parent}"
            raise BrokenReference(msg)

    def _enter(self, row: TaskRow) -> None:
        if row.parent is not None:
            self.parts.add(row.parent, row)
        if row.follows is not None:
            self.followers.add(row.follows, row)
        if row.state in _OPEN:
            self.open_of.add(row.lead, row)
            for node in row.nodes:
                self.open_with.add(node, row)
        self._plannings.consider(row)

    def _leave(self, row: TaskRow) -> None:
        if row.parent is not None:
            self.parts.remove(row.parent, row)
        if row.follows is not None:
            self.followers.remove(row.follows, row)
        if row.state in _OPEN:
            self.open_of.remove(row.lead, row)
            for node in row.nodes:
                self.open_with.remove(node, row)
