"""What of the hours ahead is kept for campaigns that do not ask for it yet.

Seats are given a day ahead. If whoever asks had all that is free, who comes seconds later would
find a day that is full. So only the *near* hours, the one in progress and the next, go to whoever
wants them. Of each hour beyond, a campaign gets no more than its part among all campaigns there
are, whether these want anything or not; the rest is given when that hour is near, an hour before
it begins. Nothing is lost by that, and who comes later finds its part of all but two hours.

What was given while fewer campaigns were known, or to more nodes, may be more than a campaign's
part. If one that is below its own finds no time then, seats of terms that are not near are given
back, the youngest first, until those that give back are down to their part.

A run is not cut: who holds less than its part may have one more. What is too much of it counts for
all hours ahead together, up to each of them, so that long and wide runs come out even as well.
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
"""How much of the time ahead goes to whoever wants it, from the hour in progress on."""

KEPT = RefusalRule(
    Axis.SHARE,
    "kept",
    "{whose} has {held} of the {part} seat-hours that are its part from {since} to {to}; what is "
    "left is kept for campaigns that may still come, and given from {given} on",
)

GIVEN_BACK = RefusalRule(
    Axis.SHARE,
    "given-back",
    "given back to {campaign}, which is below its part of the hours ahead; {whose} was {above} "
    "seat-hours above its own",
)

Parts = Callable[[int], Mapping[str, int]]
"""``parts(seats)``: what each is entitled to of so many seat-µs, all campaigns counted."""


@dataclass(frozen=True, slots=True)
class _Seat:
    """What may be given back as a whole: its task, whose it is, seat-µs by hour, and its nodes."""

    task: str
    whose: str
    amounts: Counter[int]
    nodes: frozenset[str]


class AheadSharing:
    """Another rule of sharing, and before it: nobody has more than its part of the hours ahead."""

    def __init__(
        self,
        sharing: EpisodeShare,
        board: Board,
        near: int,
        parts: Parts,
        groups: Mapping[str, str] | None = None,
    ) -> None:
        """``groups`` names who has a part for each campaign; otherwise each has one of its own."""
        self.serving = sharing.serving
        self._sharing = sharing
        self._board = board
        self._near = near
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

    def admit(self, candidate: Candidate, turn: AllocationRound) -> PolicyRefusal | None:
        """Whether it is to be given as far ahead; then, what the other rule says."""
        return self._keeps(candidate) or self._sharing.admit(candidate, turn)

    def remember(self, state: RememberedState) -> RememberedState:
        """What the other rule remembers."""
        return self._sharing.remember(state)

    def _keeps(self, candidate: Candidate) -> PolicyRefusal | None:
        """All hours in which it has runs count, but only if the first of them is not near."""
        begins = self._board.bucket(candidate)
        if begins < self._first or not self._board.seats_taken(candidate, candidate.k):
            return None
        if self._board.view.campaigns[candidate.campaign].level >= URGENT:
            return None
        whose = self._whose(candidate.campaign)
        if whose is None:
            return None
        reserved_for, last = self._board.reserved_for, candidate.spans[-1][0]
        held = part = 0
        for hour in range(self._first, max(last + 1, self._end), BUCKET):
            held_here, part_here = self._held(hour, whose), self._part(hour, whose)
            held, part = held + held_here, part + part_here
            if hour < begins or reserved_for(candidate, hour) > held_here:
                continue
            if hour <= last and held_here >= part_here:
                return self._no(whose, (held_here, part_here), (hour, hour), begins)
            if held >= part:
                return self._no(whose, (held, part), (self._first, hour), begins)
        return None

    def _whose(self, campaign: str) -> str | None:
        return campaign if self._groups is None else self._groups.get(campaign)

    def returned(self, candidates: Sequence[Candidate]) -> Mapping[str, PolicyRefusal]:
        """Seats that give back what these lack in their hours, as far as they are below their part.

        By their ordinary tasks, those of campaigns that hold more than their part of that hour, and
        of all hours ahead up to it or a later one so much more.
        """
        if not self._board.view.returnable:
            return {}
        gone, gone_here = Counter[str](), Counter[tuple[str, int]]()
        found: dict[str, PolicyRefusal] = {}
        for candidate in candidates:
            begins = self._board.bucket(candidate)
            if begins < self._first or self._keeps(candidate) is not None:
                continue
            lacking = self._board.seats_taken(candidate, candidate.k)
            usable = frozenset(candidate.nodes)
            for seat in self._seats_in(begins):
                whose = seat.whose
                if lacking <= 0:
                    break
                left = self._above(begins).get(whose, 0) - gone[whose]
                held = self._held(begins, whose) - gone_here[whose, begins]
                over = left >= seat.amounts.total() and held > self._part(begins, whose)
                if not over or seat.task in found or usable.isdisjoint(seat.nodes):
                    continue
                found[seat.task] = GIVEN_BACK.says_no(
                    campaign=candidate.campaign, whose=whose, above=left / BUCKET
                )
                gone[whose] += seat.amounts.total()
                gone_here.update({(whose, hour): it for hour, it in seat.amounts.items()})
                lacking -= seat.amounts[begins]
        return found

    def _above(self, begins: int) -> Mapping[str, int]:
        """How much more than its part each holds of all hours ahead, up to this one or a later one.

        Up to that for which it is most (seat-µs): nobody has to have what comes later already.
        """
        found = self._above_from.get(begins)
        if found is None:
            found = self._above_from[begins] = {}
            for name in self._parts(self._board.capacity(self._first)):
                more = [
                    self._held(hour, name) - self._part(hour, name)
                    for hour in range(self._first, self._end, BUCKET)
                ]
                found[name] = max(0, *list(accumulate(more))[(begins - self._first) // BUCKET :])
        return found

    def _seats_in(self, hour: int) -> Sequence[_Seat]:
        """Seats with something in an hour that may be given back.

        Those first that begin in it, and the youngest first.
        """
        found = self._seats_by_hour.get(hour)
        if found is None:
            there = (
                it for it in self._seats if it.amounts[hour] and self._above(hour).get(it.whose)
            )
            found = sorted(there, key=lambda it: min(it.amounts) != hour)
            self._seats_by_hour[hour] = found
        return found

    @cached_property
    def _seats(self) -> Sequence[_Seat]:
        """All that may be given back, by their runs that are known, the youngest first."""
        runs: dict[str, list[PostedRun]] = {task: [] for task in self._board.view.returnable}
        for run in self._board.view.runs:
            if run.task in runs:
                runs[run.task].append(run)
        found: list[_Seat] = []
        for task, some in runs.items():
            whose = self._whose(some[0].campaign) if some else None
            if whose is None:
                continue
            amounts = Counter[int]()
            for run in some:
                time = (run.end - run.start) * len(run.nodes)
                hour = run.start // BUCKET * BUCKET
                amounts[hour] += self._board.weighed(run.scheduling_class, time)
            found.append(_Seat(task, whose, amounts, frozenset(chain(*(it.nodes for it in some)))))
        return found

    def _no(
        self, whose: str, figures: tuple[int, int], hours: tuple[int, int], begins: int
    ) -> PolicyRefusal:
        given = begins - (self._first - self._board.view.now // BUCKET * BUCKET) + BUCKET
        return KEPT.says_no(
            whose=whose,
            held=figures[0] / BUCKET,
            part=figures[1] / BUCKET,
            since=to_the_second(hours[0]),
            to=to_the_second(hours[1] + BUCKET),
            given=to_the_second(given),
            until=given,
        )

    def _held(self, hour: int, whose: str) -> int:
        held = self._board.allocated.get(hour)
        if not held:
            return 0
        if self._groups is None:
            return held.get(whose, 0)
        return sum(held.get(name, 0) for name in self._members[whose])

    def _part(self, hour: int, whose: str) -> int:
        seats = self._board.capacity(hour)
        parts = self._by_capacity.get(seats)
        if parts is None:
            parts = self._by_capacity[seats] = self._parts(seats)
        return parts.get(whose, 0)
