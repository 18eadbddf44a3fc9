"""The tables of campaigns, of charges, and of their sums by the hour."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from itertools import count
from uuid import UUID

from lead.simulation.memory.indexes import GroupedRows
from lead.simulation.memory.journal import Journal, Table
from lead.simulation.memory.rows import CampaignRow, ChargeHourRow, ChargeRow
from node.model import times
from node.store.database import BrokenCheck, BrokenOverlap

_DEPTH_MAX = 8
_CAUSES = ("booked", "unused", "measured", "moved")
_ALWAYS = times.EARLIEST


class CampaignTable(Table[int, CampaignRow]):
    """The campaigns; the first one is for tasks that name none."""

    def __init__(self, journal: Journal) -> None:
        """Create a table that contains only the default campaign."""
        super().__init__(journal)
        self.ids = count(1)
        self.named: dict[str, CampaignRow] = {}
        description = "Tasks that name no campaign belong to this one."
        self.insert(
            CampaignRow(next(self.ids), "default", _ALWAYS, _ALWAYS, description=description)
        )

    def key(self, row: CampaignRow) -> int:
        """Return the number."""
        return row.id

    def of(self, name: str | None) -> CampaignRow | None:
        """Return the campaign of a task that names ``name``."""
        return self.named.get("default" if name is None else name)

    def check_values(self, row: CampaignRow) -> None:
        """Check a row by itself; as in Postgres this comes before the check of the name."""
        twice = row.target_seats is not None and row.target_share is not None
        if row.depth > _DEPTH_MAX or twice:
            msg = "a campaign has too many ancestors or two promises"
            raise BrokenCheck(msg)

    def _check(self, row: CampaignRow) -> None:
        self.check_values(row)
        others = [other for other in self.rows.values() if other is not row]
        if any(_kind(row) and _kind(other) and _kind(row) != _kind(other) for other in others):
            msg = "campaign_targets_alike: all promises must be seats, or all must be shares"
            raise BrokenOverlap(msg)

    def _enter(self, row: CampaignRow) -> None:
        self.named[row.name] = row

    def _leave(self, row: CampaignRow) -> None:
        del self.named[row.name]


def _kind(row: CampaignRow) -> str:
    if row.target_seats is not None:
        return "seats"
    return "" if row.target_share is None else "share"


class ChargeHourTable(Table[tuple[int, int, str], ChargeHourRow]):
    """The sums of charges by hour, campaign and node."""

    def key(self, row: ChargeHourRow) -> tuple[int, int, str]:
        """Return hour, campaign and node."""
        return row.hour, row.campaign_id, row.node

    def add(self, charge: ChargeRow) -> None:
        """Add a charge to each hour it overlaps, and its bytes to the first of them."""
        hour = charge.starts_at - charge.starts_at % times.HOUR
        octets = charge.bytes
        while hour < charge.ends_at:
            spent = min(charge.ends_at, hour + times.HOUR) - max(charge.starts_at, hour)
            amount = charge.weight * spent
            there = self.rows.get((hour, charge.campaign_id, charge.node))
            if there is None:
                self.insert(ChargeHourRow(hour, charge.campaign_id, charge.node, amount, octets))
            else:
                self.change(there, amount=there.amount + amount, bytes=there.bytes + octets)
            if not charge.weight:
                return
            hour, octets = hour + times.HOUR, 0


class ChargeTable(Table[int, ChargeRow]):
    """The ledger; rows are only added."""

    def __init__(self, journal: Journal, hours: ChargeHourTable) -> None:
        """Create an empty table."""
        super().__init__(journal)
        self.ids = count(1)
        self._hours = hours
        self._by_run: GroupedRows[UUID, ChargeRow] = GroupedRows()

    def key(self, row: ChargeRow) -> int:
        """Return the number."""
        return row.id

    def insert(self, row: ChargeRow) -> None:
        """Insert a charge and add it to the sums."""
        super().insert(row)
        self._hours.add(row)

    def standing(
        self, run: UUID, starts_at: int, ends_at: int, causes: Collection[str] = _CAUSES
    ) -> list[tuple[int, int, str, int, int]]:
        """Return a run's net charges for its whole time, where those of some causes are above 0.

        Each is campaign, participant, node, weight, and bytes.
        """
        weights: dict[tuple[int, int, str], int] = defaultdict(int)
        octets: dict[tuple[int, int, str], int] = defaultdict(int)
        seats: dict[tuple[int, int, str], int] = defaultdict(int)
        traffic: dict[tuple[int, int, str], int] = defaultdict(int)
        for row in self._by_run.of(run):
            if (row.starts_at, row.ends_at) == (starts_at, ends_at):
                key = row.campaign_id, row.participant, row.node
                weights[key] += row.weight
                octets[key] += row.bytes
                seats[key] += row.weight * (row.cause in causes)
                traffic[key] += row.bytes * (row.cause in causes)
        return [
            (*key, weight, octets[key])
            for key, weight in weights.items()
            if seats[key] > 0 or traffic[key] > 0
        ]

    def _check(self, row: ChargeRow) -> None:
        if (row.weight == 0 and row.bytes == 0) or row.starts_at >= row.ends_at:
            msg = "a charge must have a weight or bytes, and a duration"
            raise BrokenCheck(msg)

    def _enter(self, row: ChargeRow) -> None:
        self._by_run.add(row.run_id, row)

    def _leave(self, row: ChargeRow) -> None:
        self._by_run.remove(row.run_id, row)
