"""Twins of ``lead/store/sql/ledger.sql`` and of ``node/store/sql/campaigns.sql``."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any
from uuid import UUID

from lead.simulation.memory.rows import CampaignRow, ChargeRow, TaskRow, pack, pack_optional, unpack
from lead.simulation.memory.statements import Answer, Twins
from lead.simulation.memory.tables import Tables

TWINS = Twins("lead.store", "ledger")
CAMPAIGNS = Twins("node.store", "campaigns")

_LANES = 8
_EXACT = Decimal("0.000001")


@TWINS.of()
def charge(
    tables: Tables,
    tasks: Sequence[UUID],
    numbers: Sequence[int],
    runs: Sequence[UUID],
    starts: Sequence[int],
    ends: Sequence[int],
    exclusive: int,
    normal: int | None,
    background: int,
    now: int,
    moved: Sequence[int],
) -> Answer:
    """Charge committed runs to the campaigns of their tasks, for each participant."""
    seats = [
        _seats(tables, task, exclusive, normal, background, octets)
        for task, octets in zip(tasks, moved, strict=True)
    ]
    for number, run, start, end in zip(numbers, runs, starts, ends, strict=True):
        for campaign, participant, node, weight, octets in seats[number - 1]:
            values = (campaign, run, participant, node, start, end, weight, octets, "booked", now)
            tables.charges.insert(ChargeRow(next(tables.charges.ids), *values))
    return ()


@TWINS.of("name", "hour", "bytes")
def moved_by_hour(tables: Tables, campaigns: Sequence[str], since: int, until: int) -> Answer:
    """Return the bytes charged to these campaigns, by hour."""
    sums: dict[tuple[str, int], int] = {}
    for row in tables.charge_hours.rows.values():
        name = tables.campaigns.rows[row.campaign_id].name
        if row.bytes and name in campaigns and since <= row.hour < until:
            sums[name, row.hour] = sums.get((name, row.hour), 0) + row.bytes
    return [(*key, octets) for key, octets in sorted(sums.items())]


def _seats(
    tables: Tables, task: UUID, exclusive: int, normal: int | None, background: int, octets: int
) -> list[tuple[int, int, str, int, int]]:
    """Return the charge for each participant of a task: campaign, place, node, weight, bytes."""
    row, agenda = tables.tasks.rows.get(task), tables.plannings.rows.get(task)
    if row is None or agenda is None:
        return []
    seats = []
    for place, participant in enumerate(unpack(row.participants)):
        node = str(participant["node"])
        weight = _weight(tables, row, node, exclusive, normal, background)
        if weight > 0 or octets > 0:
            seats.append((agenda.campaign_id, place, node, weight, octets))
    return seats


def _weight(
    tables: Tables, task: TaskRow, node: str, exclusive: int, normal: int | None, background: int
) -> int:
    if task.scheduling_class == "exclusive":
        return exclusive
    if task.scheduling_class != "normal":
        return background
    row = tables.nodes.rows.get(node)
    return exclusive // (_LANES if row is None else row.lanes) if normal is None else normal


@CAMPAIGNS.of("name", "state")
def names(tables: Tables) -> Answer:
    """Return every campaign's state by name."""
    return [(row.name, row.state) for _, row in sorted(tables.campaigns.named.items())]


_COLUMNS = (
    *("level", "priority", "preemptor", "preemptee", "seats_max", "target_seats", "target_share"),
    *("fairshare", "limits", "quotas", "queue", "owner", "contact", "description", "state"),
)


@CAMPAIGNS.of(
    *("id", "name", "created_at", "changed_at", "parent_id", "parent", "weight"),
    *(*_COLUMNS, "revision"),
)
def campaigns(tables: Tables) -> Answer:
    """Return all campaigns by name."""
    answer = []
    for _, row in sorted(tables.campaigns.named.items()):
        parent = None if row.parent_id is None else tables.campaigns.rows[row.parent_id].name
        values = (getattr(row, word) for word in _COLUMNS)
        answer.append(
            (
                *(row.id, row.name, row.created_at, row.changed_at, row.parent_id, parent),
                row.weight,
                *(unpack(value) if isinstance(value, bytes) else value for value in values),
                row.revision,
            )
        )
    return answer


@CAMPAIGNS.of("id")
def keep_campaign(
    tables: Tables,
    name: str,
    parent: str | None,
    weight: Decimal,
    level: int,
    priority: int,
    preemptor: bool,
    preemptee: bool,
    seats_max: int | None,
    target_seats: int | None,
    target_share: Decimal | None,
    fairshare: dict[str, Any] | None,
    limits: dict[str, Any],
    quotas: dict[str, Any],
    queue: dict[str, Any] | None,
    owner: str | None,
    contact: str | None,
    description: str | None,
    state: str,
    now: int,
) -> Answer:
    """Insert a campaign, unless its name is taken or its parent does not exist."""
    parent_row = None if parent is None else tables.campaigns.named.get(parent)
    if parent is not None and parent_row is None:
        return ()
    number = next(tables.campaigns.ids)
    row = CampaignRow(
        number,
        name,
        now,
        now,
        parent_id=None if parent_row is None else parent_row.id,
        parent_depth=None if parent_row is None else parent_row.depth,
        weight=weight.quantize(_EXACT),
        level=level,
        priority=priority,
        preemptor=preemptor,
        preemptee=preemptee,
        seats_max=seats_max,
        target_seats=target_seats,
        target_share=None if target_share is None else target_share.quantize(_EXACT),
        fairshare=pack_optional(fairshare),
        limits=pack(limits),
        quotas=pack(quotas),
        queue=pack_optional(queue),
        owner=owner,
        contact=contact,
        description=description,
        state=str(state),
    )
    tables.campaigns.check_values(row)
    if name in tables.campaigns.named:
        return ()
    tables.campaigns.insert(row)
    return [(number,)]


@CAMPAIGNS.of("campaign_id")
def assign(tables: Tables, task: UUID) -> Answer:
    """Assign a task to the campaign that it names now."""
    row, agenda = tables.tasks.rows.get(task), tables.plannings.rows.get(task)
    campaign = None if row is None else tables.campaigns.of(row.campaign)
    if agenda is None or campaign is None or agenda.campaign_id == campaign.id:
        return ()
    tables.plannings.change(agenda, campaign_id=campaign.id)
    return [(campaign.id,)]


@CAMPAIGNS.of()
def move_charges(tables: Tables, task: UUID, campaign: int, now: int) -> Answer:
    """Move the charges of a task's future runs to another campaign."""
    for run in tables.runs.open.of(task):
        if run.state not in {"booked", "set-aside"} or run.starts_at <= now:
            continue
        times = run.starts_at, run.ends_at
        for current, participant, node, weight, octets in tables.charges.standing(run.id, *times):
            if current != campaign:
                for side, sign in ((current, -1), (campaign, 1)):
                    amounts = sign * weight, sign * octets
                    values = (side, run.id, participant, node, *times, *amounts, "moved", now)
                    tables.charges.insert(ChargeRow(next(tables.charges.ids), *values))
    return ()


@CAMPAIGNS.of("count")
def purge_charges(tables: Tables, before: int, at_most: int) -> Answer:
    """Delete old charges."""
    old = [r for r in tables.charges.rows.values() if r.starts_at < before and r.ends_at < before]
    gone = sorted(old, key=lambda row: (row.starts_at, row.run_id, row.id))[:at_most]
    for row in gone:
        tables.charges.delete(row)
    return [(len(gone),)]


@CAMPAIGNS.of("count")
def purge_hours(tables: Tables, before: int, at_most: int) -> Answer:
    """Delete the sums of old hours."""
    old = [row for row in tables.charge_hours.rows.values() if row.hour < before]
    gone = sorted(old, key=lambda row: (row.hour, row.campaign_id, row.node))[:at_most]
    for row in gone:
        tables.charge_hours.delete(row)
    return [(len(gone),)]
