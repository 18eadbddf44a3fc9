"""Reserving parts of the hours ahead for campaigns that have not asked for them yet.

Seats are given a day ahead. If the first campaign to ask got all that is free, another one that
asks seconds later would find a full day. So only the *near* hours, the one in progress and the
next, go to whichever campaign wants them. Of each later hour, a campaign gets no more than its part
among all existing campaigns, whether these want anything or not; the rest is given when that hour
is near, an hour before it begins. No time stays unused because of that, and a campaign that asks
later finds its part of all but two hours.

What a campaign got while fewer campaigns were known, or on more nodes, may exceed its part. If a
campaign below its own part then finds no time, seats of terms that are not near are given back, the
youngest first, until their holders are down to their parts.

Runs are not cut: a campaign below its part may get one more run. The excess counts for all hours
ahead together, up to each of them, so that long and wide runs even out as well.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, chain

from lead.policy.contracts import EpisodeShare
from lead.policy.episode_figures import Board
from lead.policy.placement_requests import AllocationRound
from lead.policy.verdict import Axis, PolicyRefusal, RefusalRule
from lead.policy.view import BUCKET, URGENT, Candidate, PostedRun, RememberedState
from node.model.times import to_the_second

NEAR_TIME = 2 * BUCKET
"""The time from the hour in progress on that is given without regard to parts (µs)."""

KEPT = RefusalRule(
    Axis.SHARE,
    "kept",
    "{whose} has {held} of the {part} seat-hours that are its part from {since} to {to}; the rest "
    "is reserved for campaigns that may still come, and given from {given} on",
    "ahead",
)

GIVEN_BACK = RefusalRule(
    Axis.SHARE,
    "given-back",
    "given back to {campaign}, which is below its part of the hours ahead; {whose} was {above} "
    "seat-hours above its own",
)

Parts = Callable[[int], Mapping[str, int]]
"""``parts(seats)``: each campaign's part of ``seats`` seat-µs, with all campaigns counted."""


@dataclass(frozen=True, slots=True)
class _Seat:
    """A seat that may be given back: its task, its holder, its seat-µs by hour, and its nodes."""

    task: str
    whose: str
    amounts: Counter[int]
    total: int
    nodes: frozenset[str]


class AheadSharing:
    """A decorator of a share rule that limits everyone to their part of the hours ahead."""

    def __init__(
        self,
        sharing: EpisodeShare,
        board: Board,
        near: int,
        parts: Parts,
        groups: Mapping[str, str] | None = None,
    ) -> None:
        """Wrap a rule; ``groups`` maps campaigns to the holder of their part.

        By default each campaign holds its own part.
        """
        self.serving = sharing.serving
        self._sharing = sharing
        self._board = board
        self._first = (board.view.now // BUCKET + -(-near // BUCKET)) * BUCKET
        self._end = board.view.now + board.view.horizon
        self._parts = parts
        self._groups = groups
        self._by_capacity: dict[int, Mapping[str, int]] = {}
        self._above_from: dict[int, dict[str, int]] = {}
        self._seats_by_hour: dict[int, Sequence[_Seat]] = {}
        self._members: dict[str, list[str]] = {}
        for name, group in (groups or {}).items():
            self._members.setdefault(group, []).append(name)

    def find_refusal(self, candidate: Candidate, turn: AllocationRound) -> PolicyRefusal | None:
        """Return a refusal if the part is reached, else the wrapped rule's answer."""
        return self._find_refusal(candidate) or self._sharing.find_refusal(candidate, turn)

    def updated_state(self, state: RememberedState) -> RememberedState:
        """Return what the wrapped rule remembers."""
        return self._sharing.updated_state(state)

    def _find_refusal(self, candidate: Candidate) -> PolicyRefusal | None:
        """Return a refusal if the campaign's part of some hour is reached.

        All hours in which the candidate has runs count, but only if the first of them is not near.
        """
        begins = self._board.hour_of(candidate)
        if begins < self._first or not self._board.seats_taken(candidate, candidate.k):
            return None
        if self._board.view.campaigns[candidate.campaign].level >= URGENT:
            return None
        whose = self._holder_of(candidate.campaign)
        if whose is None:
            return None
        reserved_for, last = self._board.reserved_for, candidate.spans[-1][0]
        held = part = 0
        for hour in range(self._first, max(last + 1, self._end), BUCKET):
            held_here, part_here = self._held(hour, whose), self._part(hour, whose)
            held, part = held + held_here, part + part_here
            if hour < begins or reserved_for(candidate, hour) > held_here:
                continue
            # First the part of this hour, then that of all hours up to it: uncut runs of earlier
            # hours may have taken more than their part.
            if hour <= last and held_here >= part_here:
                return self._refusal(whose, (held_here, part_here), (hour, hour), begins)
            if held >= part:
                return self._refusal(whose, (held, part), (self._first, hour), begins)
        return None

    def _holder_of(self, campaign: str) -> str | None:
        return campaign if self._groups is None else self._groups.get(campaign)

    def seats_to_return(self, candidates: Sequence[Candidate]) -> Mapping[str, PolicyRefusal]:
        """Return the seats to give back to these candidates, if they are below their part.

        Seats are named by their ordinary tasks. They belong to campaigns that hold more than their
        part of that hour, and exceed their part of all hours ahead, up to it or a later one, by at
        least that seat.
        """
        if not self._board.view.returnable:
            return {}
        returned, returned_by_hour = Counter[str](), Counter[tuple[str, int]]()
        refusals: dict[str, PolicyRefusal] = {}
        for candidate in candidates:
            begins = self._board.hour_of(candidate)
            if begins < self._first or self._find_refusal(candidate) is not None:
                continue
            missing = self._board.seats_taken(candidate, candidate.k)
            usable = frozenset(candidate.nodes)
            above = self._excess_by_holder(begins)
            for seat in self._seats_in(begins):
                whose = seat.whose
                if missing <= 0:
                    break
                excess = above.get(whose, 0) - returned[whose]
                if (
                    excess < seat.total
                    or seat.task in refusals
                    or usable.isdisjoint(seat.nodes)
                    or self._held(begins, whose) - returned_by_hour[whose, begins]
                    <= self._part(begins, whose)
                ):
                    continue
                refusals[seat.task] = GIVEN_BACK.refuse(
                    campaign=candidate.campaign, whose=whose, above=excess / BUCKET
                )
                returned[whose] += seat.total
                returned_by_hour.update({(whose, hour): it for hour, it in seat.amounts.items()})
                missing -= seat.amounts[begins]
        return refusals

    def _excess_by_holder(self, begins: int) -> Mapping[str, int]:
        """Return by how much each holder exceeds its part of all hours ahead (seat-µs).

        The sum runs up to ``begins`` or the later hour with the largest excess, since nobody needs
        to hold its part of later hours yet.
        """
        above = self._above_from.get(begins)
        if above is None:
            above = self._above_from[begins] = {}
            for name in self._parts(self._board.capacity(self._first)):
                excess = [
                    self._held(hour, name) - self._part(hour, name)
                    for hour in range(self._first, self._end, BUCKET)
                ]
                above[name] = max(0, *list(accumulate(excess))[(begins - self._first) // BUCKET :])
        return above

    def _seats_in(self, hour: int) -> Sequence[_Seat]:
        """Return the seats that take time in an hour and may be given back.

        Seats that begin in the hour come first, and among them the youngest.
        """
        seats = self._seats_by_hour.get(hour)
        if seats is None:
            candidates = (
                it
                for it in self._seats
                if it.amounts[hour] and self._excess_by_holder(hour).get(it.whose)
            )
            seats = sorted(candidates, key=lambda it: min(it.amounts) != hour)
            self._seats_by_hour[hour] = seats
        return seats

    @cached_property
    def _seats(self) -> Sequence[_Seat]:
        """Return all seats that may be given back, from their known runs, the youngest first."""
        runs: dict[str, list[PostedRun]] = {task: [] for task in self._board.view.returnable}
        for run in self._board.view.runs:
            if run.task in runs:
                runs[run.task].append(run)
        seats: list[_Seat] = []
        for task, runs_of_task in runs.items():
            whose = self._holder_of(runs_of_task[0].campaign) if runs_of_task else None
            if whose is None:
                continue
            amounts = Counter[int]()
            for run in runs_of_task:
                time = (run.end - run.start) * len(run.nodes)
                hour = run.start // BUCKET * BUCKET
                amounts[hour] += self._board.seat_time(run.scheduling_class, time)
            nodes = frozenset(chain(*(it.nodes for it in runs_of_task)))
            seats.append(_Seat(task, whose, amounts, amounts.total(), nodes))
        return seats

    def _refusal(
        self, whose: str, figures: tuple[int, int], hours: tuple[int, int], begins: int
    ) -> PolicyRefusal:
        released_at = begins - (self._first - self._board.view.now // BUCKET * BUCKET) + BUCKET
        return KEPT.refuse(
            whose=whose,
            held=figures[0] / BUCKET,
            part=figures[1] / BUCKET,
            since=to_the_second(hours[0]),
            to=to_the_second(hours[1] + BUCKET),
            given=to_the_second(released_at),
            until=released_at,
        )

    def _held(self, hour: int, whose: str) -> int:
        by_campaign = self._board.allocations.get(hour)
        if not by_campaign:
            return 0
        if self._groups is None:
            return by_campaign.get(whose, 0)
        return sum(by_campaign.get(name, 0) for name in self._members[whose])

    def _part(self, hour: int, whose: str) -> int:
        seats = self._board.capacity(hour)
        parts = self._by_capacity.get(seats)
        if parts is None:
            parts = self._by_capacity[seats] = self._parts(seats)
        return parts.get(whose, 0)
