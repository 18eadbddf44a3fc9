"""Campaigns of the tasks led here: their settings, uses, and charges."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

from node.model.errors import Conflict
from node.model.wire.shared_campaigns import ChargedHour
from node.store import notices
from node.store.database import BrokenCheck, BrokenOverlap, BrokenReference, Connection, Record
from node.store.statements import Purge, Query, Statements, spread

_SQL = Statements("node.store", "campaigns")

URGENT: Final = 10
"""The stored level of urgent campaigns."""

_MEANWHILE = "another campaign was changed at the same moment; check it and retry"


@dataclass(frozen=True)
class CampaignSettings:
    """The settings of a campaign."""

    name: str
    parent: str | None
    weight: Decimal
    level: int
    priority: int
    preemptor: bool
    preemptee: bool
    seats_max: int | None
    target_seats: int | None
    target_share: Decimal | None
    target_borrow: int | None
    target_lend: Decimal | None
    fairshare: dict[str, Any] | None
    limits: dict[str, Any]
    quotas: dict[str, Any]
    queue: dict[str, Any] | None
    budget: dict[str, Any] | None
    owner: str | None
    contact: str | None
    description: str | None
    state: str
    timed_weights: list[dict[str, Any]]
    leads: list[str]


@dataclass(frozen=True)
class StoredCampaign:
    """A campaign with its settings and its state, as the database has it.

    ``bounded`` is whether it has a limit on what is booked.
    """

    id: int
    parent_id: int | None
    revision: int
    created_at: int
    changed_at: int
    bounded: bool
    settings: CampaignSettings


@dataclass(frozen=True)
class WaitingCounts:
    """The waiting runs and seats of a campaign, their tasks, and the most frequent reason."""

    runs: int
    seats: int
    tasks: int
    reason: str


@dataclass(frozen=True)
class CampaignUses:
    """The tasks, child campaigns, charges, and reservations that refer to a campaign."""

    tasks: int
    children: tuple[str, ...]
    charged: bool
    admitted_by: tuple[UUID, ...]


@dataclass(frozen=True)
class HourFilter:
    """The hours to list, their campaign, and the page."""

    since: int
    until: int
    campaign: str | None
    after_hour: int | None
    after_campaign: str | None
    limit: int


states: Query[[], dict[str, str]] = _SQL.by_key("names")
"""The state of every campaign, by name."""

exists: Query[[str], bool] = _SQL.value("has_campaign")
"""Return whether there is a campaign of this name."""


async def find_all(connection: Connection) -> list[StoredCampaign]:
    """Return all campaigns, by name."""
    return [_campaign_of_row(dict(row)) for row in await connection.fetch(_SQL["campaigns"])]


def _campaign_of_row(row: dict[str, Any]) -> StoredCampaign:
    own = {word: row.pop(word) for word in ("id", "parent_id", "revision", "bounded")}
    instants = {word: row.pop(word) for word in ("created_at", "changed_at")}
    return StoredCampaign(**own, **instants, settings=CampaignSettings(**row))


async def keep(connection: Connection, settings: CampaignSettings, now: int) -> bool:
    """Store a new campaign; False if the name is taken or its parent is gone.

    :raises Conflict: it is inconsistent with a campaign that was changed at the same time.
    """
    try:
        kept = await connection.fetchval(_SQL["keep_campaign"], *_column_values(settings), now)
    except (BrokenCheck, BrokenOverlap) as error:
        raise Conflict(_MEANWHILE) from error
    return kept is not None


async def change(
    connection: Connection, settings: CampaignSettings, now: int, revision: int
) -> bool:
    """Change a campaign; False if it was changed since that revision was read.

    :raises Conflict: it is inconsistent with a campaign that was changed at the same time.
    """
    try:
        kept = await connection.fetchval(
            _SQL["change_campaign"], *_column_values(settings), now, revision
        )
    except (BrokenCheck, BrokenOverlap) as error:
        raise Conflict(_MEANWHILE) from error
    return kept is not None


plan_again: Query[[str, int], None] = _SQL.command("plan_again")
"""Plan the waiting tasks of a campaign and its descendants now."""

plan_others: Query[[str, int, int], None] = _SQL.command("plan_others")
"""Plan tasks of other campaigns now, because this one gives way more easily or wants no time.

These are tasks that wait for a soft limit, and those that may displace runs of others; at most
``limit``, those whose runs come soonest.
Takes ``name``, ``now``, ``limit``.
"""


def _column_values(settings: CampaignSettings) -> Iterator[Any]:
    return iter(vars(settings).values())


async def uses(connection: Connection, name: str, now: int) -> CampaignUses | None:
    """Return what refers to a campaign; None if there is no such campaign."""
    row = await connection.fetchrow(_SQL["uses"], name, now)
    return (
        None
        if row is None
        else CampaignUses(row[0], tuple(row[1] or ()), row[2], tuple(row[3] or ()))
    )


async def remove(connection: Connection, name: str) -> int | None:
    """Remove a campaign, and return its last revision; None if there is none of that name.

    :raises Conflict: something has begun to refer to it at the same moment.
    """
    try:
        revision: int | None = await connection.fetchval(_SQL["remove_campaign"], name)
    except BrokenReference as error:
        raise Conflict(_MEANWHILE) from error
    return revision


async def assign(connection: Connection, task: UUID, now: int) -> None:
    """Assign a task to the campaign it names now, and move the charges of its future runs."""
    campaign = await connection.fetchval(_SQL["assign"], task)
    if campaign is not None:
        await connection.execute(_SQL["move_charges"], task, campaign, now)


async def notify_of_room(connection: Connection, name: str) -> None:
    """Notify that there is room in a campaign, or rather in the highest limited one of its line.

    The database does so itself when a run ends; this is for runs that count elsewhere from now on.
    """
    by_name = {each.settings.name: each for each in await find_all(connection)}
    highest: str | None = None
    at: str | None = name
    while at is not None and at in by_name:
        if by_name[at].bounded:
            highest = at
        at = by_name[at].settings.parent
    if highest is not None:
        await notices.notify(connection, "room", highest)


async def task_counts(connection: Connection) -> dict[int, dict[str, int]]:
    """Return by campaign how many tasks it has by state."""
    found: dict[int, dict[str, int]] = {}
    for campaign, state, count in await connection.fetch(_SQL["tasks_of"]):
        found.setdefault(campaign, {})[state] = count
    return found


waiting_counts: Query[[int], dict[int, WaitingCounts]] = _SQL.rows_by_key(
    "waiting_of", WaitingCounts
)
"""The counts of waiting runs and seats, by campaign."""


async def charges_between(
    connection: Connection, since: int, until: int
) -> tuple[dict[int, int], dict[int, int]]:
    """Return by campaign the charges of these whole hours: seats (thousandths) times µs; bytes."""
    return _charges_of_rows(await connection.fetch(_SQL["used_between"], since, until))


async def charges_ahead(
    connection: Connection, now: int, until: int
) -> tuple[dict[int, int], dict[int, int]]:
    """Return by campaign the charges for the time from ``now`` to the end of this hour."""
    return _charges_of_rows(await connection.fetch(_SQL["charged_ahead"], now, until))


def _charges_of_rows(rows: Sequence[Any]) -> tuple[dict[int, int], dict[int, int]]:
    return {row[0]: row[1] for row in rows}, {row[0]: row[2] for row in rows}


charged_hours: Query[[HourFilter], list[Record]] = spread(_SQL.records("hours"))
"""Rows of charges by hour and campaign."""


purge_charges: Purge = _SQL.value("purge_charges")
"""Delete charges of time that is over; return how many."""

purge_hours: Purge = _SQL.value("purge_hours")
"""Delete the sums of old hours; return how many."""


# -- campaigns that are one with those of other leads --------------------------------------------


@dataclass(frozen=True)
class SharedCampaign:
    """A campaign that counts as one with that of another lead (its identity).

    ``told_at`` is when that lead last told what it uses, ``whole_at`` when it told all hours, and
    ``reason`` why it has told nothing since. A budget counts from ``budget_since`` on.
    """

    name: str
    lead: str
    told_at: int | None
    whole_at: int | None
    reason: str | None
    budget_since: int | None


shared: Query[[], list[SharedCampaign]] = _SQL.rows("shared", SharedCampaign)
"""The campaigns that are shared with other leads, one for each lead, by name."""

shared_with: Query[[Sequence[str], str], list[str]] = _SQL.column("shared_with")
"""The ones of these campaigns that are shared with a lead."""

hours_for: Query[[Sequence[str], str, int, int], list[ChargedHour]] = _SQL.rows(
    "hours_for", ChargedHour
)
"""The charges here of campaigns that a lead shares, hour by hour.

Takes ``names``, ``lead``, ``since``, and ``limit``, the maximum number of rows.
"""


async def keep_hours(
    connection: Connection,
    lead: str,
    names: Sequence[str],
    since: int,
    until: int | None,
    hours: Sequence[ChargedHour],
) -> list[str]:
    """Replace what a lead has told of these campaigns; return those that have less now."""
    columns = [[each[place] for each in hours] for place in range(len(ChargedHour._fields))]
    rows = await connection.fetch(_SQL["keep_hours"], lead, names, since, until, *columns)
    return [row[0] for row in rows]


note_told: Query[[str, Sequence[str], int, bool], None] = _SQL.command("note_told")
"""Note that a lead has told of campaigns.

Takes ``lead``, ``names``, ``now``, and whether it told all that may count.
"""

note_untold: Query[[str, Sequence[str], str], None] = _SQL.command("note_untold")
"""Note why a lead has told nothing of campaigns.

Takes ``lead``, ``names``, and ``reason``.
"""

forget_told: Query[[str], None] = _SQL.command("forget_told")
"""Forget what leads have told with which a campaign is no longer shared."""
