"""An episode's working figures: made from the view when first needed, kept up as runs are placed.

Seats over time are counted hour by hour (``BUCKET``): what a campaign holds in an hour is what it
was charged for there, what it wants there is what its due runs would take. Amounts are seat-µs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from functools import cached_property
from itertools import chain

from lead.policy.seats import CampaignStake
from lead.policy.timetable import booked, has_gap
from lead.policy.view import (
    BUCKET,
    SUSPENDED,
    URGENT,
    Candidate,
    Exact,
    NodeView,
    PostedRun,
    ReservationView,
    View,
)
from node.model.classes import SchedulingClass, blockers
from node.model.spans import Span, normalise

Amounts = dict[int, dict[str, int]]
"""By the beginning of an hour, then by name."""


class Board:
    """Figures that several axes need."""

    candidates: Sequence[Candidate]
    """Those that are feasible; all, until that is known."""
    asked: dict[str, Candidate]
    """By task, those that are being placed: it is not known yet what comes of them."""

    def __init__(self, view: View) -> None:
        """Of one view."""
        self.view = view
        self.candidates = view.candidates
        self.placed: list[PostedRun] = []
        self.asked: dict[str, Candidate] = {}
        self.slots: list[ReservationView] = []
        self._capacity: dict[int, int] = {}
        self._usable: dict[int, tuple[Sequence[str], list[NodeView]]] = {}

    def usable(self, names: Sequence[str]) -> list[NodeView]:
        """Those of the named nodes that are there; found once for each sequence of names."""
        found = self._usable.get(id(names))
        if found is None:
            nodes = self.view.nodes
            found = names, [nodes[name] for name in names if name in nodes and nodes[name].up]
            self._usable[id(names)] = found
        return found[1]

    def bucket(self, candidate: Candidate) -> int:
        """The hour in which a candidate's seats are counted."""
        return max(candidate.next_run_at, self.view.now) // BUCKET * BUCKET

    def seats_taken(self, candidate: Candidate, count: int) -> int:
        """What so many nodes for a candidate are accounted for."""
        return self.weighed(candidate.scheduling_class, candidate.duration * count)

    def weighed(self, scheduling_class: SchedulingClass, time: int) -> int:
        """Seat-µs of so much node time: a normal run takes one lane, a background one nothing."""
        if scheduling_class is SchedulingClass.EXCLUSIVE:
            return time
        return time // self.lanes if scheduling_class is SchedulingClass.NORMAL else 0

    @cached_property
    def lanes(self) -> int:
        """How many normal runs side by side count as a seat."""
        return min((node.lanes for node in self.view.nodes.values()), default=1)

    @cached_property
    def allocated(self) -> Amounts:
        """What each campaign holds in each hour from now on."""
        first = self.view.now // BUCKET * BUCKET
        found: Amounts = {}
        for charge in self.view.ledger:
            if charge.end > first:
                for hour, amount in _by_hour(charge.start, charge.end, charge.amount):
                    held = found.setdefault(hour, {})
                    held[charge.campaign] = held.get(charge.campaign, 0) + amount
        return found

    @cached_property
    def waiting(self) -> Amounts:
        """What each campaign's due runs want in each hour."""
        found: Amounts = {}
        for candidate in self.candidates:
            wanted = found.setdefault(self.bucket(candidate), {})
            amount = self.seats_taken(candidate, candidate.k)
            wanted[candidate.campaign] = wanted.get(candidate.campaign, 0) + amount
        return found

    @cached_property
    def grains(self) -> dict[int, int]:
        """By hour, the seat-µs of the longest run that wants some of it on one node."""
        longest: dict[tuple[int, SchedulingClass], int] = {}
        for it in self.candidates:
            key = self.bucket(it), it.scheduling_class
            longest[key] = max(it.duration, longest.get(key, 0))
        found: dict[int, int] = {}
        for (hour, kind), duration in longest.items():
            found[hour] = max(found.get(hour, 0), min(BUCKET, self.weighed(kind, duration)))
        return found

    def capacity(self, hour: int) -> int:
        """What there is to share in an hour: nodes that are up, less what is reserved."""
        found = self._capacity.get(hour)
        if found is None:
            there = {name for name in self.view.pool.nodes if self._is_up(name)}
            found = len(there) * BUCKET
            for reservation in self.view.reservations:
                length = min(reservation.end, hour + BUCKET) - max(reservation.start, hour)
                found -= max(0, length) * len(there.intersection(reservation.nodes))
            found = self._capacity[hour] = max(0, found)
        return found

    def reserved_for(self, candidate: Candidate, hour: int) -> int:
        """What is reserved in an hour where the candidate may have runs, and is admitted."""
        if not self.view.reservations:
            return 0
        there = {node.name for node in self.usable(candidate.nodes)}
        begin, end = max(hour, candidate.next_run_at), min(hour + BUCKET, candidate.over_at)
        return sum(
            (min(it.end, hour + BUCKET) - max(it.start, hour)) * len(there.intersection(it.nodes))
            for it in self.view.reservations
            if it.start < end and begin < it.end and it.admits(candidate)
        )

    def _is_up(self, name: str) -> bool:
        node = self.view.nodes.get(name)
        return node is not None and node.up

    def stakes(self, hour: int, weights: Mapping[str, Exact] | None = None) -> list[CampaignStake]:
        """Where each campaign at work in an hour stands there, in seat-µs.

        ``weights`` replaces the campaigns' own.
        """
        held, wanted = self.allocated.get(hour, {}), self.waiting.get(hour, {})
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
            for name, campaign in self.view.campaigns.items()
            if (name in held or name in wanted) and campaign.level != SUSPENDED
        ]

    @cached_property
    def planned_to(self) -> int:
        """The end of the last hour that is planned here: what is booked before was had by then."""
        ahead = max((it.next_run_at for it in self.candidates), default=0)
        return ahead // BUCKET * BUCKET + BUCKET if ahead > self.view.now else self.view.now

    def ask(self, candidate: Candidate) -> None:
        """Until it is known what becomes of it, all that it wants counts for its campaign."""
        self.asked[candidate.task] = candidate
        self._take(candidate, candidate.k)

    def answer(self, candidate: Candidate, count: int) -> None:
        """It was given so many nodes."""
        del self.asked[candidate.task]
        self._take(candidate, count - candidate.k)

    def _take(self, candidate: Candidate, count: int) -> None:
        """So many nodes (fewer than none: given back) count for a candidate's campaign.

        In its hour, and in the later ones in which it has runs.
        """
        first = self.bucket(candidate)
        amounts = {first: self.seats_taken(candidate, count)}
        for start, end in candidate.runs:
            if (hour := start // BUCKET * BUCKET) > first:
                amount = self.weighed(candidate.scheduling_class, (end - start) * count)
                amounts[hour] = amounts.get(hour, 0) + amount
        for hour, amount in amounts.items():
            held = self.allocated.setdefault(hour, {})
            held[candidate.campaign] = held.get(candidate.campaign, 0) + amount

    @cached_property
    def busy(self) -> dict[int, dict[str, int]]:
        """Booked time of each node in each hour, all classes."""
        found: Amounts = {}
        for run in chain(self.view.runs, self.placed):
            self._add_busy(found, run)
        return found

    def _add_busy(self, found: Amounts, run: PostedRun) -> None:
        for hour, amount in _by_hour(run.start, run.end, run.end - run.start):
            of_nodes = found.setdefault(hour, {})
            for name in run.nodes:
                of_nodes[name] = of_nodes.get(name, 0) + amount

    def line(self, campaign: str) -> list[str]:
        """A campaign and all above it."""
        campaigns, found = self.view.campaigns, []
        name: str | None = campaign
        while name is not None and name in campaigns:
            found.append(name)
            name = campaigns[name].parent
        return found

    def with_parents(self, used: Mapping[str, Fraction]) -> dict[str, Fraction]:
        """What was used by each campaign and all below it, from what each used itself."""
        found: dict[str, Fraction] = {}
        for name, amount in used.items():
            for above in self.line(name):
                found[above] = found.get(above, Fraction(0)) + amount
        return found

    @cached_property
    def groups(self) -> dict[str, str]:
        """By campaign, the nearest of itself and its parents that is promised something."""
        campaigns = self.view.campaigns
        found: dict[str, str] = {}
        for name in campaigns:
            line: str | None = name
            while line is not None and line in campaigns and campaigns[line].target is None:
                line = campaigns[line].parent
            if line is not None and line in campaigns:
                found[name] = line
        return found

    @cached_property
    def booked(self) -> dict[SchedulingClass, dict[str, list[Span]]]:
        """By class, when nodes are busy with runs in its way."""
        return booked(chain(self.view.runs, self.placed))

    def has_room(self, candidate: Candidate, name: str) -> bool:
        """Whether a node has time for a candidate, as far as the lead knows."""
        taken = self.booked[candidate.scheduling_class].get(name, ())
        kept = [
            (reservation.start, reservation.end)
            for reservation in self._reserved.get(name, ())
            if not reservation.admits(candidate)
        ]
        if kept:
            taken = normalise([*taken, *kept])
        if not taken:
            return True
        window = max(candidate.next_run_at, self.view.now), candidate.start_by + candidate.duration
        return has_gap(taken, window, candidate.duration)

    @cached_property
    def _reserved(self) -> dict[str, list[ReservationView]]:
        found: dict[str, list[ReservationView]] = {}
        for reservation in self.view.reservations:
            for name in reservation.nodes:
                found.setdefault(name, []).append(reservation)
        return found

    def place(self, run: PostedRun) -> None:
        """A run was posted."""
        self.placed.append(run)
        if "busy" in self.__dict__:
            self._add_busy(self.busy, run)
        if "_runs_by_hour" in self.__dict__:
            self._add_run(self._runs_by_hour, run)
        if "booked" in self.__dict__:
            for asking, taken in self.booked.items():
                if run.scheduling_class in blockers(asking):
                    for name in run.nodes:
                        taken[name] = normalise([*taken.get(name, ()), (run.start, run.end)])

    @cached_property
    def _runs_by_hour(self) -> dict[int, list[PostedRun]]:
        found: dict[int, list[PostedRun]] = {}
        for run in chain(self.view.runs, self.placed):
            self._add_run(found, run)
        return found

    def _add_run(self, found: dict[int, list[PostedRun]], run: PostedRun) -> None:
        for hour in range(run.start // BUCKET * BUCKET, run.end, BUCKET):
            found.setdefault(hour, []).append(run)

    def overlapping(self, span: Span) -> list[PostedRun]:
        """The runs that are booked for some time in a span, each once."""
        hours = range(span[0] // BUCKET * BUCKET, span[1], BUCKET)
        return [
            run
            for hour in hours
            for run in self._runs_by_hour.get(hour, ())
            if run.start < span[1]
            and span[0] < run.end
            and hour == max(hours[0], run.start // BUCKET * BUCKET)
        ]

    def urgent(self, span: Span) -> int:
        """How many nodes are booked for something urgent at some time in a span."""
        urgent = self._urgent_campaigns
        runs = (run for run in self.overlapping(span) if run.campaign in urgent)
        return len({name for run in runs for name in run.nodes})

    @cached_property
    def _urgent_campaigns(self) -> frozenset[str]:
        campaigns = self.view.campaigns.values()
        return frozenset(campaign.name for campaign in campaigns if campaign.level >= URGENT)


def _by_hour(start: int, end: int, amount: int) -> Iterable[tuple[int, int]]:
    first = start // BUCKET * BUCKET
    if end <= first + BUCKET:
        return ((first, amount),)
    length = end - start
    return [
        (hour, amount * (min(end, hour + BUCKET) - max(start, hour)) // length)
        for hour in range(first, end, BUCKET)
    ]
