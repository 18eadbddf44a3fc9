"""Keeps all tasks within the limits of their campaigns.

Before the times of runs are chosen, limits take part like a participant that is busy. When the
choice is decided, runs are counted again in the same transaction, one decision of a campaign after
the other: two tasks that were planned at the same time cannot both take the last place.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol
from uuid import UUID

from lead.planning.campaign_budgets import budgets_of
from lead.planning.campaign_room import (
    CampaignRoom,
    Counted,
    Imagined,
    RunAdmission,
    bounded_line,
    limits_delivered,
    limits_time,
    room_for,
)
from lead.planning.needs import NeedsByTest
from lead.planning.node_views import NodeDescription, slowest_mbps
from lead.planning.pool_view import LEDGER_LOOKBACK, campaigns_of, charges_of
from lead.policy.limit_counting import (
    CountedRun,
    RunDemand,
    budget_periods,
    descendants_of,
    spent_with,
)
from lead.policy.throttle.active_limits import LimitLevel
from lead.policy.view import CampaignView, Charge
from lead.store import episodes, ledger
from lead.store.ledger import BookedTime
from node.model import times
from node.model.classes import SchedulingClass
from node.model.reason import Reason
from node.model.seat_weights import SeatWeights
from node.model.task_terms import TaskTerms
from node.model.wire.campaigns import DEFAULT, Budget
from node.model.wire.participants import RunRequest
from node.store import campaigns
from node.store.database import Connection

BOOKED_AHEAD = 31 * times.DAY
"""Time ahead within which booked runs are read to find the most that is used at once."""

LANES = 8
"""Lanes of a node that is not known any more, as in the ledger."""


class IdentifiedNode(NodeDescription, Protocol):
    """A node description with the identity of its node."""

    @property
    def identity(self) -> str:
        """The public key."""


class CampaignLimits:
    """Reads what counts toward the limits of campaigns, and refuses runs beyond them."""

    def __init__(
        self,
        nodes: Callable[[], Sequence[IdentifiedNode]],
        needs: NeedsByTest,
        weights: SeatWeights,
    ) -> None:
        """``nodes()`` returns all known nodes, ``needs`` what runs of each test need and move."""
        self._nodes = nodes
        self._needs = needs
        self._weights = weights

    def expected_bytes(self, terms: TaskTerms) -> int | None:
        """Return the bytes that a run of a task moves on each participant, None if unknown."""

        def mbps() -> int | None:
            identities = {participant.node for participant in terms.participants}
            return slowest_mbps(it for it in self._nodes() if it.identity in identities)

        return self._needs.expected_bytes(terms.test, terms.spec, mbps)

    async def room(
        self,
        connection: Connection,
        terms: TaskTerms,
        until: int,
        now: int,
        imagined: Imagined | None = None,
    ) -> CampaignRoom | None:
        """Return the room for runs of a task up to ``until``; None if no limit binds them."""
        views = await campaign_views(connection)
        line = bounded_line(campaign_name(terms), views)
        if not line:
            return None
        beside = imagined or Imagined()
        runs = await self._read_counted_runs(connection, line, views, until, now, beside)
        level = await _limit_level(connection, terms, line, until)
        delivered = await _delivered(connection, line, now)
        moved = await _moved(connection, line, views, until, now)
        spent = await ledger.spent(connection, budget_periods(line, views))
        booked = _Counting(runs, moved, spent)
        names = descendants_of({each.name for each in line}, views) if beside.before else ()
        for other, starts in beside.before:
            if campaign_name(other) in names:
                booked.add(self._demand(other), starts, views)
        return room_for(self._demand(terms), views, booked.counted(delivered), level, now)

    async def budgets(self, connection: Connection, now: int) -> dict[str, tuple[Budget, ...]]:
        """Return by campaign what it uses of its limits and quotas; those without are missing."""
        views = await campaign_views(connection)
        holders = [each for each in views.values() if bounded_line(each.name, {each.name: each})]
        if not holders:
            return {}
        until = now + BOOKED_AHEAD
        runs = await self._read_counted_runs(connection, holders, views, until, now)
        delivered = await _delivered(connection, holders, now)
        moved = await _moved(connection, holders, views, until, now)
        spent = await ledger.spent(connection, budget_periods(holders, views))
        counted = Counted(runs, delivered, moved, spent)
        # A busy day has runs enough to block the event loop.
        return await asyncio.to_thread(budgets_of, views, counted, now)

    async def beyond(
        self,
        connection: Connection,
        chosen: Sequence[tuple[TaskTerms, Sequence[RunRequest]]],
        now: int,
    ) -> dict[UUID, Reason]:
        """Return, by run, the refusals of chosen runs that limits do not permit, in their order.

        Other decisions about these campaigns wait until the end of the transaction.
        """
        views = await campaign_views(connection)
        lines = [bounded_line(campaign_name(terms), views) for terms, _ in chosen]
        holders = {each.name: each for line in lines for each in line}
        if not holders:
            return {}
        await ledger.lock_campaigns(connection, holders)
        until = max(run.ends_at for _, runs in chosen for run in runs)
        counted = await self._read_counted_runs(
            connection, list(holders.values()), views, until, now
        )
        delivered = await _delivered(connection, list(holders.values()), now)
        moved = await _moved(connection, list(holders.values()), views, until, now)
        spent = await ledger.spent(connection, budget_periods(holders.values(), views))
        booked = _Counting(counted, moved, spent)
        refused: dict[UUID, Reason] = {}
        for (terms, runs), line in zip(chosen, lines, strict=True):
            if line:
                level = await _limit_level(connection, terms, line, until)
                demand = self._demand(terms)
                room = room_for(demand, views, booked.counted(delivered), level, now)
                over = _refusals_beyond(room, runs)
                refused |= over
                starts = [run.starts_at for run in runs if run.run not in over]
                booked.add(demand, starts, views)
        return refused

    async def _read_counted_runs(
        self,
        connection: Connection,
        line: Sequence[CampaignView],
        views: Mapping[str, CampaignView],
        until: int,
        now: int,
        beside: Imagined | None = None,
    ) -> list[CountedRun]:
        """Return the booked runs of campaigns and their descendants, up to ``until``.

        A limit on all booked time counts later runs too.
        """
        names = descendants_of({each.name for each in line}, views)
        last = times.LATEST if any(map(limits_time, line)) else until
        booked = await ledger.booked_times(connection, names, now, last)
        if beside is not None:
            booked = [run for run in booked if beside.counts(run.task_id, run.starts_at)]
        needs: Mapping[UUID, Mapping[str, int | None]] = {}
        if any(each.quotas for each in line):
            tests = await episodes.tests_of(connection, {run.task_id for run in booked})
            needs = {task: self._needs.of(*test) for task, test in tests.items()}
        nodes = {node.identity: node for node in self._nodes()}
        return [self._count(run, needs.get(run.task_id, {}), nodes) for run in booked]

    def _count(
        self,
        run: BookedTime,
        needs: Mapping[str, int | None],
        nodes: Mapping[str, IdentifiedNode],
    ) -> CountedRun:
        return CountedRun(
            run.campaign,
            run.starts_at,
            run.ends_at,
            len(run.nodes),
            self._seats(SchedulingClass(run.scheduling_class), run.nodes, nodes),
            _resources_taken(needs, run.nodes, nodes),
        )

    def _demand(self, terms: TaskTerms) -> RunDemand:
        identities = [participant.node for participant in terms.participants]
        nodes = {node.identity: node for node in self._nodes()}
        return RunDemand(
            campaign_name(terms),
            terms.duration,
            len(identities),
            self._seats(terms.scheduling_class, identities, nodes),
            _resources_taken(self._needs.of(terms.test, terms.spec), identities, nodes),
            self._bytes_per_run(terms),
        )

    def _bytes_per_run(self, terms: TaskTerms) -> int | None:
        """Return the bytes that a run moves on all its nodes together, None if unknown."""
        moved = self.expected_bytes(terms)
        return None if moved is None else moved * len(terms.participants)

    def _seats(
        self,
        scheduling_class: SchedulingClass,
        identities: Sequence[str],
        nodes: Mapping[str, IdentifiedNode],
    ) -> int:
        lanes = [nodes[each].lanes if each in nodes else LANES for each in identities]
        return sum(self._weights.on(scheduling_class, each) for each in lanes)


def campaign_name(terms: TaskTerms) -> str:
    """Return the campaign to which a task belongs."""
    return terms.campaign or DEFAULT


async def campaign_views(connection: Connection) -> dict[str, CampaignView]:
    """Return all campaigns as policies see them, by name."""
    listed = await campaigns.find_all(connection)
    return campaigns_of((vars(each.settings), each.created_at) for each in listed)


async def _limit_level(
    connection: Connection, terms: TaskTerms, line: Sequence[CampaignView], until: int
) -> LimitLevel:
    """Return soft while a task of another campaign waits for time on one of the nodes."""
    if not any(limit.soft is not None for each in line for limit in each.limits.values()):
        return LimitLevel.HARD
    nodes = [participant.node for participant in terms.participants]
    contested = await ledger.is_contested(connection, campaign_name(terms), nodes, until)
    return LimitLevel.SOFT if contested else LimitLevel.HARD


@dataclass
class _Counting:
    """Runs, bytes by hour, and seat-time of budgets that count, and grow."""

    runs: list[CountedRun]
    moved: dict[str, dict[int, int]]
    spent: dict[str, int]

    def add(
        self, demand: RunDemand, starts: Sequence[int], views: Mapping[str, CampaignView]
    ) -> None:
        """Count runs of a task with these starts as if booked."""
        self.runs += map(demand.run_at, starts)
        hours = self.moved.setdefault(demand.campaign, {})
        for start in starts:
            hour = start - start % times.HOUR
            hours[hour] = hours.get(hour, 0) + (demand.moves or 0)
        charges = [
            Charge(demand.campaign, start, start + demand.duration, demand.seat_time)
            for start in starts
        ]
        self.spent = spent_with(self.spent, charges, views)

    def counted(self, delivered: Sequence[Charge]) -> Counted:
        """Return all that counts, as it is now."""
        return Counted(self.runs, delivered, self.moved, self.spent)


def _refusals_beyond(room: CampaignRoom, runs: Sequence[RunRequest]) -> dict[UUID, Reason]:
    refused: dict[UUID, Reason] = {}
    admission = RunAdmission(room)
    for run in runs:
        why = room.why_not(run.starts_at, run.ends_at) or admission.refuse(run.starts_at)
        if why is not None:
            refused[run.run] = why.at(room.name)
    return refused


async def _delivered(
    connection: Connection, line: Sequence[CampaignView], now: int
) -> list[Charge]:
    """Return what was delivered within the last days on any node, if a limit depends on it."""
    if not any(map(limits_delivered, line)):
        return []
    used = await episodes.charges_by_hour(connection, now - LEDGER_LOOKBACK, now, None)
    return charges_of(used)


async def _moved(
    connection: Connection,
    line: Sequence[CampaignView],
    views: Mapping[str, CampaignView],
    until: int,
    now: int,
) -> dict[str, dict[int, int]]:
    """Return the bytes of campaigns by hour, in every period with a time up to ``until``."""
    quotas = {each.name: each.byte_quota for each in line if each.byte_quota}
    if not quotas:
        return {}
    period = max(quota.period for quota in quotas.values())
    names = descendants_of(quotas, views)
    return await ledger.bytes_by_hour(connection, names, now - period, until + period)


def _resources_taken(
    needs: Mapping[str, int | None], identities: Sequence[str], nodes: Mapping[str, IdentifiedNode]
) -> dict[str, int]:
    """Return what a run takes of each counted resource, on all its nodes together.

    All that a node has counts as nothing if the node does not say how much that is.
    """
    taken = {}
    for resource, amount in needs.items():
        if amount is not None:
            taken[resource] = amount * len(identities)
        else:
            facts = [nodes[each].facts.get(resource, 0) for each in identities if each in nodes]
            taken[resource] = sum(int(it) for it in facts if isinstance(it, int | float))
    return taken
