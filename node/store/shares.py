"""The shares of leads in this node's time, what they used, and what they asked for."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from uuid import UUID

from node.model import times
from node.model.classes import SchedulingClass
from node.model.lead_shares import OTHERS, LeadShares
from node.store.database import Connection, Record
from node.store.statements import Query, Statements

_SQL = Statements("node.store", "shares")

HourOfUse = tuple[str, SchedulingClass, int, int]
"""A lead, a class, the number of an hour, and how long its runs last that begin then (µs)."""


async def shares(connection: Connection) -> LeadShares:
    """Return the shares that the owner has set."""
    return _shares(await connection.fetch(_SQL["lead_shares"]))


async def lock(connection: Connection) -> LeadShares:
    """Return the shares, and let nobody else lock or change them until the transaction ends."""
    return _shares(await connection.fetch(_SQL["lock_lead_shares"]))


def _shares(rows: Iterable[Record]) -> LeadShares:
    by_lead: dict[str, int] = {row[0]: row[1] for row in rows}
    others = by_lead.pop(OTHERS, 1)
    return LeadShares(by_lead, others)


async def replace(connection: Connection, given: LeadShares) -> None:
    """Store these shares instead of the earlier ones; without any lead nothing is restricted."""
    await connection.execute(_SQL["begin_lead_shares"])
    await connection.execute(_SQL["drop_lead_shares"])
    if given:
        by_lead = {**given.by_lead, OTHERS: given.others}
        await connection.execute(_SQL["keep_lead_shares"], list(by_lead), list(by_lead.values()))


async def hours_of_use(connection: Connection, since: int, until: int) -> list[HourOfUse]:
    """Return the time of the runs that begin in this time, by lead, class, and hour."""
    rows = await connection.fetch(_SQL["lead_use"], since, until)
    return [(row[0], SchedulingClass(row[1]), row[2] // times.HOUR, row[3]) for row in rows]


async def runs_to_come(
    connection: Connection, lead: str, task: UUID, since: int
) -> list[tuple[SchedulingClass, int, int]]:
    """Return class, hour, and duration (µs) of a lead's runs of a task from ``since`` on."""
    rows = await connection.fetch(_SQL["runs_to_come"], lead, task, since)
    return [(SchedulingClass(row[0]), row[1] // times.HOUR, row[2]) for row in rows]


async def asked_hours(connection: Connection, since: int) -> dict[str, dict[int, int]]:
    """Return by lead and hour when the lead last asked for that hour, if after ``since`` (µs)."""
    asked: defaultdict[str, dict[int, int]] = defaultdict(dict)
    for row in await connection.fetch(_SQL["lead_questions"], since):
        asked[row[0]][row[1] // times.HOUR] = row[2]
    return dict(asked)


async def note(connection: Connection, lead: str, hours: Iterable[int], now: int) -> None:
    """Record that a lead asks for time in these hours."""
    starts = [hour * times.HOUR for hour in sorted(hours)]
    await connection.execute(_SQL["note_questions"], lead, starts, now)


purge: Query[[int], None] = _SQL.command("purge_questions")
"""Forget the questions that were asked at or before this instant."""
