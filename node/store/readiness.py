"""Signs of life of the processes that plan, and how long the oldest due task has waited."""

from __future__ import annotations

from typing import NamedTuple

from node.model.leads import LeadProcess
from node.model.readiness import LEAD_SILENT
from node.store.database import Connection
from node.store.statements import Query, Statements, as_tuple

_SQL = Statements("node.store", "readiness")


class PlanningFacts(NamedTuple):
    """The last sign of a lead, the number of leads, and since when the oldest task is due."""

    lead_seen_at: int | None
    leads: int
    due_at: int | None


class LeadProgram(NamedTuple):
    """A process that plans: its start, its version, the number of its workers, its figures."""

    started_at: int | None = None
    version: str | None = None
    workers: int | None = None
    figures: str | None = None


async def keep_lead(
    connection: Connection,
    owner: str,
    now: int,
    forget_before: int,
    program: LeadProgram = LeadProgram(),  # noqa: B008 - it cannot be changed
) -> None:
    """Store that a process plans at ``now``, and forget those last heard before an instant.

    If no process was heard for :data:`LEAD_SILENT` or longer, store that as an absence.
    """
    heard_after = now - LEAD_SILENT
    await connection.execute(_SQL["keep_lead"], owner, now, forget_before, heard_after, *program)


stop_lead: Query[[str, int], None] = _SQL.command("stop_lead")
"""Store that a process was told to plan no longer."""

lead_processes: Query[[int], list[LeadProcess]] = _SQL.rows("lead_processes", LeadProcess)
"""The processes that were heard last, with their leases up to an instant."""

lead_figures: Query[[int], list[tuple[str, str]]] = _SQL.rows("lead_figures", as_tuple)
"""The figures of each lead that was heard after an instant, by its name."""


class Server(NamedTuple):
    """The server of the database; ids are those of transactions, of which 2³¹ may be in use.

    ``sorts_otherwise``: its library sorts texts otherwise than when indexes were made, perhaps.
    """

    server_version: str
    size_bytes: int
    schema_version: int
    oldest_id_age: int
    sorts_otherwise: bool


class Planned(NamedTuple):
    """The last planning of a task, the number of those that are due, and of those that wait."""

    planned_at: int | None
    due: int
    waiting_for_nodes: int


class Measured(NamedTuple):
    """The number of runs that are running, and the start of the next one."""

    running: int
    next_start: int | None


server_state: Query[[], Server] = _SQL.only_row("server", Server)
"""Version, size, schema, and age of transaction ids of the server."""

planning_state: Query[[int, int], Planned] = _SQL.only_row("planned", Planned)
"""The state of planning; due are tasks to plan by ``now`` with a slot that near.

Takes ``now``, ``slots_before``.
"""

running_state: Query[[int], Measured] = _SQL.only_row("measured", Measured)
"""The number of runs that run at ``now``, and the start of the next one."""

planning_facts: Query[[int, int], PlanningFacts] = _SQL.only_row("facts", PlanningFacts)
"""The facts of planning.

A lead counts if it was heard after the first instant, a task if its slot is before the second one.
"""

has_lead: Query[[int], bool] = _SQL.value("leads")
"""Return whether a lead was heard after an instant; True, too, if nothing is led here."""
