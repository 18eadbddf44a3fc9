"""An episode's working figures: computed from the view on first use, updated with each run.

Seats over time are counted hour by hour (``BUCKET``): a campaign holds in an hour what it was
charged for there, and wants there what its due runs would take. Amounts are in seat-µs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import cached_property
from itertools import accumulate, chain
from typing import Any, cast
from zlib import crc32

from lead.policy.seats import CampaignStake
from lead.policy.timetable import first_gap, timetables_by_class
from lead.policy.view import (
    BUCKET,
    SUSPENDED,
    URGENT,
    CampaignView,
    Candidate,
    Exact,
    NodeView,
    PostedRun,
    ReservationView,
    View,
    mean_weight,
)
from node.model.classes import SchedulingClass, blockers
from node.model.spans import Span, normalise
from node.model.timed_weights import weight_at

Amounts = dict[int, dict[str, int]]
"""Amounts by the beginning of an hour, then by name."""


class Board:
    """The figures that several axes need."""

    candidates: Sequence[Candidate]
    """The feasible candidates; all, until feasibility is known."""
    asked: dict[str, Candidate]
    """By task, the candidates that are being placed: their outcome is not known yet."""

    def __init__(self, view: View) -> None:
        self.view = view
        self.candidates = view.candidates
        self.placed: list[PostedRun] = []
        self.asked: dict[str, Candidate] = {}
        self.slots: list[ReservationView] = []
        self._capacity: dict[int, int] = {}
        self._campaigns: dict[int, Mapping[str, CampaignView]] = {}
        self._usable: dict[int, tuple[Sequence[str], list[NodeView]]] = {}

    def usable_nodes(self, names: Sequence[str]) -> list[NodeView]:
        """Return the named nodes that are up, computed once for each sequence of names."""
        names_and_nodes = self._usable.get(id(names))
        if names_and_nodes is None:
            nodes = self.view.nodes
            names_and_nodes = (
                names,
                [nodes[name] for name in names if name in nodes and nodes[name].up],
            )
            self._usable[id(names)] = names_and_nodes
        return names_and_nodes[1]

    def hour_of(self, candidate: Candidate) -> int:
        """Return the hour in which a candidate's seats are counted."""
        return max(candidate.next_run_at, self.view.now) // BUCKET * BUCKET

    def seats_taken(self, candidate: Candidate, count: int) -> int:
        """Return the seat-µs that ``count`` nodes for a candidate are charged."""
        return self.seat_time(candidate.scheduling_class, candidate.duration * count)

    def seat_time(self, scheduling_class: SchedulingClass, time: int) -> int:
        """Return the seat-µs of ``time`` µs on a node.

        A normal run takes one lane, a background run nothing.
        """
        if scheduling_class is SchedulingClass.EXCLUSIVE:
            return time
        return time // self.lanes if scheduling_class is SchedulingClass.NORMAL else 0

    @cached_property
    def lanes(self) -> int:
        """Return how many normal runs side by side count as a seat."""
        return min((node.lanes for node in self.view.nodes.values()), default=1)

    @cached_property
    def allocations(self) -> Amounts:
        """Return what each campaign holds in each hour from now on."""
        first = self.view.now // BUCKET * BUCKET
        amounts: Amounts = {}
        for charge in self.view.ledger:
            if charge.end > first:
                for hour, amount in _by_hour(charge.start, charge.end, charge.amount):
                    by_campaign = amounts.setdefault(hour, {})
                    by_campaign[charge.campaign] = by_campaign.get(charge.campaign, 0) + amount
        return amounts

    @cached_property
    def waiting_demand(self) -> Amounts:
        """Return what each campaign's due runs want in each hour."""
        amounts: Amounts = {}
        for candidate in self.candidates:
            by_campaign = amounts.setdefault(self.hour_of(candidate), {})
            amount = self.seats_taken(candidate, candidate.k)
            by_campaign[candidate.campaign] = by_campaign.get(candidate.campaign, 0) + amount
        return amounts

    @cached_property
    def grains(self) -> dict[int, int]:
        """Return, by hour, the seat-µs on one node of the longest run that wants some of it."""
        longest: dict[tuple[int, SchedulingClass], int] = {}
        for it in self.candidates:
            key = self.hour_of(it), it.scheduling_class
            longest[key] = max(it.duration, longest.get(key, 0))
        grains: dict[int, int] = {}
        for (hour, kind), duration in longest.items():
            grains[hour] = max(grains.get(hour, 0), min(BUCKET, self.seat_time(kind, duration)))
        return grains

    def capacity(self, hour: int) -> int:
        """Return what an hour has to share: the nodes that are up, less what is reserved."""
        amount = self._capacity.get(hour)
        if amount is None:
            members = {name for name in self.view.pool.nodes if self._is_up(name)}
            amount = len(members) * BUCKET
            for reservation in self.view.reservations:
                length = min(reservation.end, hour + BUCKET) - max(reservation.start, hour)
                amount -= max(0, length) * len(members.intersection(reservation.nodes))
            amount = self._capacity[hour] = max(0, amount)
        return amount

    def reserved_for(self, candidate: Candidate, hour: int) -> int:
        """Return what is reserved in an hour where the candidate may run and is admitted."""
        if not self.view.reservations:
            return 0
        members = {node.name for node in self.usable_nodes(candidate.nodes)}
        begin, end = max(hour, candidate.next_run_at), min(hour + BUCKET, candidate.over_at)
        return sum(
            (min(it.end, hour + BUCKET) - max(it.start, hour)) * len(members.intersection(it.nodes))
            for it in self.view.reservations
            if it.start < end and begin < it.end and it.admits(candidate)
        )

    def _is_up(self, name: str) -> bool:
        node = self.view.nodes.get(name)
        return node is not None and node.up

    def stakes(self, hour: int, weights: Mapping[str, Exact] | None = None) -> list[CampaignStake]:
        """Return the stake of each campaign that is active in an hour, in seat-µs.

        ``weights`` replaces the campaigns' own.
        """
        held, wanted = self.allocations.get(hour, {}), self.waiting_demand.get(hour, {})
        campaigns = self.campaigns_at(hour)
        return [
            CampaignStake(
                name,
                campaign.weight if weights is None else weights.get(name, 0),
                campaign.level,
                held.get(name, 0),
                wanted.get(name, 0),
                None if campaign.seats_max is None else campaign.seats_max * BUCKET,
                0,
                campaign.created_at,
            )
            for name, campaign in campaigns.items()
            if (name in held or name in wanted) and campaign.level != SUSPENDED
        ]

    @cached_property
    def _has_timed_weights(self) -> bool:
        return any(it.timed_weights for it in self.view.campaigns.values())

    def campaigns_at(self, hour: int) -> Mapping[str, CampaignView]:
        """Return the campaigns with the weights that count in an hour."""
        if not self._has_timed_weights:
            return self.view.campaigns
        if hour not in self._campaigns:
            self._campaigns[hour] = {
                name: replace(it, weight=weight_at(it.weight, it.timed_weights, hour))
                for name, it in self.view.campaigns.items()
            }
        return self._campaigns[hour]

    def campaigns_lately(self, window: int) -> Mapping[str, CampaignView]:
        """Return the campaigns with the mean weights of a window (µs) before now.

        What they used in it is compared with these.
        """
        if not self._has_timed_weights:
            return self.view.campaigns
        return {
            name: replace(it, weight=mean_weight(it, self.view.now, window))
            for name, it in self.view.campaigns.items()
        }

    def weights_lately(self, window: int) -> dict[str, float]:
        """Return the mean weights of a window (µs) before now."""
        return {name: float(it.weight) for name, it in self.campaigns_lately(window).items()}

    def weights_at(self, hour: int) -> tuple[Exact, ...]:
        """Return the weights in an hour if they change with time, to tell hours apart by them."""
        if not self._has_timed_weights:
            return ()
        return tuple(it.weight for it in self.campaigns_at(hour).values())

    @cached_property
    def planned_to(self) -> int:
        """Return the end of the last hour planned here; usage up to it counts as delivered."""
        ahead = max((it.next_run_at for it in self.candidates), default=0)
        return ahead // BUCKET * BUCKET + BUCKET if ahead > self.view.now else self.view.now

    def add_demand(self, candidate: Candidate) -> None:
        """Count all that a candidate wants for its campaign until its outcome is known."""
        self.asked[candidate.task] = candidate
        self._charge(candidate, candidate.k)

    def settle_demand(self, candidate: Candidate, count: int) -> None:
        """Replace what the candidate wanted by the ``count`` nodes that it got."""
        del self.asked[candidate.task]
        self._charge(candidate, count - candidate.k)

    def _charge(self, candidate: Candidate, count: int) -> None:
        """Charge a candidate's campaign for ``count`` nodes (negative: give them back).

        The amount counts in the candidate's hour, and in the later ones in which it has runs.
        """
        first = self.hour_of(candidate)
        amounts = {first: self.seats_taken(candidate, count)}
        for start, end in candidate.runs:
            if (hour := start // BUCKET * BUCKET) > first:
                amount = self.seat_time(candidate.scheduling_class, (end - start) * count)
                amounts[hour] = amounts.get(hour, 0) + amount
        for hour, amount in amounts.items():
            by_campaign = self.allocations.setdefault(hour, {})
            by_campaign[candidate.campaign] = by_campaign.get(candidate.campaign, 0) + amount

    @cached_property
    def booked_time(self) -> dict[int, dict[str, int]]:
        """Return the booked time of each node in each hour, over all classes."""
        amounts: Amounts = {}
        for run in chain(self.view.runs, self.placed):
            self._add_booked_time(amounts, run)
        return amounts

    def _add_booked_time(self, amounts: Amounts, run: PostedRun) -> None:
        for hour, amount in _by_hour(run.start, run.end, run.end - run.start):
            of_nodes = amounts.setdefault(hour, {})
            for name in run.nodes:
                of_nodes[name] = of_nodes.get(name, 0) + amount

    def lineage(self, campaign: str) -> list[str]:
        """Return a campaign and all its ancestors, the campaign first."""
        campaigns, names = self.view.campaigns, []
        name: str | None = campaign
        while name is not None and name in campaigns:
            names.append(name)
            name = campaigns[name].parent
        return names

    def totals_with_descendants(self, used: Mapping[str, Fraction]) -> dict[str, Fraction]:
        """Return the usage of each campaign and all below it, from what each used itself."""
        totals: dict[str, Fraction] = {}
        for name, amount in used.items():
            for above in self.lineage(name):
                totals[above] = totals.get(above, Fraction(0)) + amount
        return totals

    @cached_property
    def groups(self) -> dict[str, str]:
        """Return, by campaign, the nearest of itself and its ancestors that has a target."""
        campaigns = self.view.campaigns
        nearest: dict[str, str] = {}
        for name in campaigns:
            ancestor: str | None = name
            while (
                ancestor is not None
                and ancestor in campaigns
                and campaigns[ancestor].target is None
            ):
                ancestor = campaigns[ancestor].parent
            if ancestor is not None and ancestor in campaigns:
                nearest[name] = ancestor
        return nearest

    @cached_property
    def booked_spans(self) -> dict[SchedulingClass, dict[str, list[Span]]]:
        """Return, by class, when nodes are busy with conflicting runs."""
        return timetables_by_class(chain(self.view.runs, self.placed))

    def earliest_starts(self, candidate: Candidate) -> dict[str, int]:
        """Return when each node could begin a candidate's first run, as far as the lead knows.

        Nodes that have no time for it in its window, unless others give way, are left out.
        """
        nodes = self.usable_nodes(candidate.nodes)
        starts = {node.name: self._earliest_start(candidate, node) for node in nodes}
        start_by = max(candidate.start_by, self.view.now)
        return {name: at for name, at in starts.items() if at <= start_by}

    def _earliest_start(self, candidate: Candidate, node: NodeView) -> int:
        since = max(candidate.next_run_at, self.view.now)
        if candidate.scheduling_class is SchedulingClass.EXCLUSIVE:
            since = max(since, node.busy_until)
        busy = self.booked_spans[candidate.scheduling_class].get(node.name, ())
        reserved = [
            (reservation.start, reservation.end)
            for reservation in self._reservations.get(node.name, ())
            if not reservation.admits(candidate)
        ]
        if reserved:
            busy = normalise([*busy, *reserved])
        return first_gap(busy, since, candidate.duration)

    def least_used_first(self, candidate: Candidate, nodes: Iterable[NodeView]) -> list[NodeView]:
        """Return nodes by the time that is booked there in the hour of a candidate.

        Ties are broken by a hash of the node's name and of what the candidate is, so that no name
        is better than another. Its id does not count: a plan, and the task that is posted then,
        have others, and the same nodes.
        """
        booked = self.booked_time.get(self.hour_of(candidate), {})
        kind = crc32(f"{candidate.campaign} {candidate.target} {candidate.duration}".encode())

        def rank(node: NodeView) -> tuple[int, int, str]:
            return booked.get(node.name, 0), crc32(node.name.encode(), kind), node.name

        return sorted(nodes, key=rank)

    @cached_property
    def _reservations(self) -> dict[str, list[ReservationView]]:
        reservations: dict[str, list[ReservationView]] = {}
        for reservation in self.view.reservations:
            for name in reservation.nodes:
                reservations.setdefault(name, []).append(reservation)
        return reservations

    def record_run(self, run: PostedRun) -> None:
        """Record a posted run."""
        self.placed.append(run)
        if self._is_known(Board.booked_time):
            self._add_booked_time(self.booked_time, run)
        if self._is_known(Board._runs_by_hour):
            self._add_run(self._runs_by_hour, run)
        if self._is_known(Board.booked_spans):
            for wanted_class, spans in self.booked_spans.items():
                if run.scheduling_class in blockers(wanted_class):
                    for name in run.nodes:
                        spans[name] = normalise([*spans.get(name, ()), (run.start, run.end)])

    def _is_known(self, figure: object) -> bool:
        """Return whether a figure was asked for before, so that it has to be kept up to date."""
        return cast("cached_property[Any]", figure).attrname in self.__dict__

    @cached_property
    def _runs_by_hour(self) -> dict[int, list[PostedRun]]:
        runs: dict[int, list[PostedRun]] = {}
        for run in chain(self.view.runs, self.placed):
            self._add_run(runs, run)
        return runs

    def _add_run(self, runs: dict[int, list[PostedRun]], run: PostedRun) -> None:
        for hour in range(run.start // BUCKET * BUCKET, run.end, BUCKET):
            runs.setdefault(hour, []).append(run)

    def overlapping_runs(self, span: Span) -> list[PostedRun]:
        """Return the runs that overlap a span, each once."""
        hours = range(span[0] // BUCKET * BUCKET, span[1], BUCKET)
        return [
            run
            for hour in hours
            for run in self._runs_by_hour.get(hour, ())
            if run.start < span[1]
            and span[0] < run.end
            and hour == max(hours[0], run.start // BUCKET * BUCKET)
        ]

    def count_urgent_nodes(self, span: Span) -> int:
        """Return how many of the pool's nodes urgent campaigns have at some time in a span."""
        urgent = self._urgent_campaigns
        runs = (run for run in self.overlapping_runs(span) if run.campaign in urgent)
        return len({name for run in runs for name in self.pool_nodes_of(run)})

    def pool_nodes_of(self, run: PostedRun) -> list[str]:
        """Return the nodes of the pool on which a run is."""
        return [name for name in run.nodes if name in self.view.nodes]

    @cached_property
    def _urgent_campaigns(self) -> frozenset[str]:
        campaigns = self.view.campaigns.values()
        return frozenset(campaign.name for campaign in campaigns if campaign.level >= URGENT)


class PeakUse:
    """The most that runs use of each resource at one instant of a span.

    Runs that follow each other use a resource one after the other, and not together.
    """

    def __init__(self, span: Span) -> None:
        self._span = span
        self._changes: dict[str, list[tuple[int, int]]] = {}

    def add(self, resource: str, run: Span, amount: int) -> None:
        """Count a run that overlaps the span."""
        begins = max(run[0], self._span[0])
        self._changes.setdefault(resource, []).extend(((begins, amount), (run[1], -amount)))

    def peaks(self) -> dict[str, int]:
        """Return the peak of each resource."""
        # At equal instants, ends (negative) sort before beginnings.
        return {
            resource: max(accumulate(change for _, change in sorted(changes)))
            for resource, changes in self._changes.items()
        }


def _by_hour(start: int, end: int, amount: int) -> Iterable[tuple[int, int]]:
    first = start // BUCKET * BUCKET
    if end <= first + BUCKET:
        return ((first, amount),)
    length = end - start
    return [
        (hour, amount * (min(end, hour + BUCKET) - max(start, hour)) // length)
        for hour in range(first, end, BUCKET)
    ]
