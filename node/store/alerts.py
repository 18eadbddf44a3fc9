"""Alerts: what is known of the last runs of tasks with rules, and the alerts themselves.

The memory of a task is written in the transaction that ends a run, with what it raised: so that
nothing is raised twice or lost, whatever process ends when.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID, uuid5

from node.model.alerts import (
    AlertChange,
    AlertMemory,
    AlertRule,
    RunEvidence,
    UsualValues,
    evaluated,
    hour_of_day,
    watched_figures,
    with_value,
)
from node.store import notices
from node.store.database import Connection, Record
from node.store.statements import Purge, Query, Statements, as_tuple

_SQL = Statements("node.store", "alerts")

_usual: Query[[UUID, int, Sequence[str]], list[tuple[str, list[float], int]]] = _SQL.rows(
    "usual", as_tuple
)
_keep_usual: Query[[UUID, str, int, Sequence[float], int], None] = _SQL.command("keep_usual")


def is_calm(
    remembered: list[Any] | None, rules: Sequence[AlertRule], evidence: RunEvidence
) -> bool:
    """Return whether a run changes nothing, by the memory of its task as it was read with it.

    Nearly all runs are so, and need no query of their own.
    """
    if remembered is None or watched_figures(rules, evidence.figures):
        return False
    before = AlertMemory(*remembered)
    after, changes = evaluated(rules, before, evidence, {})
    return after == before and not changes


async def evaluate(
    connection: Connection,
    run: tuple[UUID, UUID],
    rules: Sequence[AlertRule],
    evidence: RunEvidence,
    now: int,
) -> None:
    """Raise and end alerts by a run (its id, its task) that ends in this transaction."""
    run_id, task = run
    row = await connection.fetchrow(_SQL["memory"], task)
    before = AlertMemory() if row is None else AlertMemory(row[0], list(row[1]), row[2])
    hour = hour_of_day(now)
    watched = watched_figures(rules, evidence.figures)
    rows = await _usual(connection, task, hour, list(watched)) if watched else []
    usual = {figure: UsualValues(tuple(values), last_at) for figure, values, last_at in rows}
    values = {figure: known.values for figure, known in usual.items()}
    memory, changes = evaluated(rules, before, evidence, values)
    if memory != before or row is None:
        await connection.execute(
            _SQL["keep_memory"], task, memory.marks, memory.raised, memory.paths
        )
    for figure, value in watched.items():
        more = with_value(usual.get(figure, UsualValues()), value, now)
        if more is not None:
            await _keep_usual(connection, task, figure, hour, more.values, now)
    for change in changes:
        await _write(connection, run_id, task, change, now)


async def _write(
    connection: Connection, run: UUID, task: UUID, change: AlertChange, now: int
) -> None:
    if change.became == "raised":
        alert = await connection.fetchval(
            _SQL["raise"],
            uuid5(run, change.name),
            task,
            change.name,
            run,
            now,
            change.sentence,
            change.value,
        )
    else:
        alert = await connection.fetchval(_SQL["end"], task, change.name, now)
    if alert is not None:
        await notices.notify(connection, "alert", alert, task, change.became)


find_page: Query[
    [
        bool | None,
        UUID | None,
        str | None,
        str | None,
        UUID | None,
        int | None,
        UUID | None,
        int,
    ],
    list[Record],
] = _SQL.records("alerts")
"""A page of alerts, the latest first.

Takes whether they are ``raised``, ``task``, ``mesh``, ``requester``, the id of one ``alert``, when
the last one of the page before was raised and its id, and ``limit``.
"""

requester: Query[[UUID], str | None] = _SQL.value("requester")
"""Return who created the task of an alert; None if no user did, or there is no such alert."""

change: Query[[UUID, bool | None, str, int | None, int], bool] = _SQL.finds("change")
"""Acknowledge an alert, or take that back, and silence it; False if there is none.

Takes ``alert``, ``acknowledged``, by whom, ``silent_until``, ``now``; None changes nothing.
"""

to_tell: Query[[str, str | None, int], list[tuple[UUID, UUID, str, str]]] = _SQL.rows(
    "to_tell", as_tuple
)
"""The raised alerts that a webhook is to be told of: id, task, rule and sentence of each.

Takes ``webhook``, ``mesh`` (None: any), ``now``.
"""

find_sentences: Query[[Sequence[UUID]], list[tuple[UUID, UUID, str, str]]] = _SQL.rows(
    "sentences", as_tuple
)
"""Id, task, rule and sentence of each of these alerts."""

purge: Purge = _SQL.value("purge")
"""Delete alerts that were over before an instant; return how many."""
