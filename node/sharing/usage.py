"""Usage: what campaigns are promised, have used, have booked, and wait for.

A campaign's weight counts among its siblings, which divide what their parent is promised. Only
campaigns with demand take part: those that have tasks or were charged, themselves or below them.
Suspended campaigns get nothing, and urgent ones have no share: they are served before all others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Final

from node.model import times
from node.model.taskstate import OPEN
from node.model.timed_weights import weight_at
from node.model.wire.campaigns import (
    SUSPENDED,
    Campaign,
    TimedWeight,
    UsageHour,
    Used,
    Waiting,
)
from node.model.wire.shared_campaigns import SharedUse
from node.runtime.clock import Clock
from node.sharing.campaigns import document_of
from node.store import campaigns
from node.store.campaigns import HourFilter, SharedCampaign, StoredCampaign
from node.store.database import Database


@dataclass(frozen=True)
class Member:
    """A campaign among the others; ``wants``: it has tasks, or was charged."""

    id: int
    parent: int | None
    weight: Fraction
    urgent: bool = False
    suspended: bool = False
    wants: bool = True


def promised_shares(members: Sequence[Member]) -> dict[int, Fraction | None]:
    """Return each campaign's part of the whole; None for urgent ones and their descendants."""
    shares: dict[int, Fraction | None] = {member.id: Fraction(0) for member in members}
    below = _children_by_parent(members)
    wanting = {member.id for member in members if _has_demand(member, below)}
    pending: list[tuple[int | None, Fraction | None]] = [(None, Fraction(1))]
    while pending:
        parent, whole = pending.pop()
        siblings = [member for member in below.get(parent, ()) if member.id in wanting]
        total = sum((m.weight for m in siblings if not m.urgent), Fraction(0))
        for member in siblings:
            part = None
            if whole is not None and not member.urgent:
                part = whole * member.weight / total if total else Fraction(0)
            shares[member.id] = part
            pending.append((member.id, part))
    return shares


def with_descendants(members: Sequence[Member], used: Mapping[int, int]) -> dict[int, int]:
    """Return by campaign what it and all its descendants have used."""
    parents = {member.id: member.parent for member in members}
    sums = dict.fromkeys(parents, 0)
    for campaign, amount in used.items():
        at: int | None = campaign
        while at is not None and at in sums:
            sums[at] += amount
            at = parents[at]
    return sums


def _children_by_parent(members: Sequence[Member]) -> dict[int | None, list[Member]]:
    below: dict[int | None, list[Member]] = {}
    for member in members:
        below.setdefault(member.parent, []).append(member)
    return below


def _has_demand(member: Member, below: Mapping[int | None, Sequence[Member]]) -> bool:
    if member.suspended:
        return False
    return member.wants or any(_has_demand(child, below) for child in below.get(member.id, ()))


_HOURS: Final = 24
_SEAT_SECOND: Final = 1000 * times.SECOND


@dataclass(frozen=True)
class _Figures:
    """The figures of all campaigns, by id; seat time in thousandths of a seat times µs, bytes."""

    tasks: Mapping[int, Mapping[str, int]]
    waiting: Mapping[int, campaigns.WaitingCounts]
    delivered: Mapping[int, int]
    booked: Mapping[int, int]
    delivered_bytes: Mapping[int, int]
    booked_bytes: Mapping[int, int]


class UsageReader:
    """Reads the ledger for the API."""

    def __init__(self, database: Database, clock: Clock, name_of: Callable[[str], str]) -> None:
        """``name_of(identity)`` returns the name of a node, or its key if it has none here."""
        self._name_of = name_of
        self._database = database
        self._clock = clock

    async def all(self) -> list[Campaign]:
        """Return all campaigns with their usage, ordered by name."""
        now = self._clock.now()
        border = _next_hour(now)
        async with self._database.connection() as connection:
            there = await campaigns.find_all(connection)
            since = border - _HOURS * times.HOUR
            ahead = await campaigns.charges_ahead(connection, now, border)
            begun = await campaigns.charges_between(connection, since, border)
            later = await campaigns.charges_between(connection, border, times.LATEST - 1)
            delivered = [Counter(b) - Counter(a) for b, a in zip(begun, ahead, strict=True)]
            booked = [Counter(b) + Counter(a) for b, a in zip(later, ahead, strict=True)]
            figures = _Figures(
                await campaigns.task_counts(connection),
                await campaigns.waiting_counts(connection, now),
                delivered[0],
                booked[0],
                delivered[1],
                booked[1],
            )
            shared = await campaigns.shared(connection)
        return [
            self._with_leads(each, shared) for each in _campaigns_with_usage(there, figures, now)
        ]

    def _with_leads(self, campaign: Campaign, shared: Sequence[SharedCampaign]) -> Campaign:
        """Return a campaign with what is known of the leads that share it, by their names."""
        told = [
            SharedUse(lead=self._name_of(it.lead), told_at=it.told_at, reason=it.reason)
            for it in shared
            if it.name == campaign.name
        ]
        leads = tuple(it.lead for it in told)
        return campaign.model_copy(update={"leads": leads, "shared": tuple(told)})

    async def hours(self, wanted: HourFilter) -> list[UsageHour]:
        """Return the charges by hour and campaign."""
        async with self._database.connection() as connection:
            rows = await campaigns.charged_hours(connection, wanted)
        return [UsageHour.model_validate(dict(row)) for row in rows]

    def default_interval(self) -> tuple[int, int]:
        """Return the last 24 hours and the default horizon as one interval, in whole hours (µs)."""
        border = _next_hour(self._clock.now())
        return border - _HOURS * times.HOUR, border + _HOURS * times.HOUR


def _next_hour(now: int) -> int:
    return now - now % times.HOUR + times.HOUR


def _campaigns_with_usage(
    there: Sequence[StoredCampaign], figures: _Figures, now: int
) -> list[Campaign]:
    members = [_member(each, figures, now) for each in there]
    promises = promised_shares(members)
    by_weight = promised_shares([replace(member, wants=True) for member in members])
    delivered = with_descendants(members, figures.delivered)
    booked = with_descendants(members, figures.booked)
    delivered_bytes = with_descendants(members, figures.delivered_bytes)
    booked_bytes = with_descendants(members, figures.booked_bytes)
    whole = sum(figures.delivered.values()), sum(figures.booked.values())
    return [
        Campaign(
            **document_of(each.settings),
            revision=each.revision,
            created_at=each.created_at,
            changed_at=each.changed_at,
            tasks=dict(figures.tasks.get(each.id, {})),
            waiting=_waiting_of(figures.waiting.get(each.id)),
            used=Used(
                promised=_as_float(promises[each.id]),
                by_weight=_as_float(by_weight[each.id]),
                delivered=_ratio(delivered[each.id], whole[0]),
                booked=_ratio(booked[each.id], whole[1]),
                delivered_seat_seconds=delivered[each.id] / _SEAT_SECOND,
                booked_seat_seconds=booked[each.id] / _SEAT_SECOND,
                delivered_bytes=delivered_bytes[each.id],
                booked_bytes=booked_bytes[each.id],
            ),
        )
        for each in there
    ]


def _member(each: StoredCampaign, figures: _Figures, now: int) -> Member:
    open_tasks = any(figures.tasks.get(each.id, {}).get(state) for state in OPEN)
    charged = figures.delivered.get(each.id) or figures.booked.get(each.id)
    timed = list(map(TimedWeight.model_validate, each.settings.timed_weights))
    return Member(
        each.id,
        each.parent_id,
        Fraction(weight_at(each.settings.weight, timed, now - now % times.HOUR)),
        urgent=each.settings.level == campaigns.URGENT,
        suspended=each.settings.level == SUSPENDED,
        wants=bool(open_tasks or charged),
    )


def _waiting_of(counts: campaigns.WaitingCounts | None) -> Waiting:
    if counts is None:
        return Waiting(runs=0, tasks=0, reason=None)
    return Waiting(**vars(counts))


def _as_float(part: Fraction | None) -> float | None:
    return None if part is None else float(part)


def _ratio(amount: int, whole: int) -> float | None:
    return amount / whole if whole > 0 else None
