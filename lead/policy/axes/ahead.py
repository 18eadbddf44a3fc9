"""What of the hours ahead is kept for campaigns that do not ask for it yet.

Seats are given a day ahead. If whoever asks had all that is free, who comes seconds later would
find a day that is full. So only the *near* hours, the one in progress and the next, go to whoever
wants them. Of each hour beyond, a campaign gets no more than its part among all campaigns there
are, whether these want anything or not; the rest is given when that hour is near, an hour before
it begins. Nothing is lost by that, and who comes later finds its part of all but two hours.

A run is not cut: who holds less than its part may have one more. What is too much of it counts for
all hours ahead together, up to each of them, so that long and wide runs come out even as well.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from lead.policy.asking import Round
from lead.policy.board import Board
from lead.policy.contracts import Sharing
from lead.policy.verdict import Axis, No, Rule
from lead.policy.view import BUCKET, URGENT, Candidate, State
from node.model.times import to_the_second

NEAR = 2 * BUCKET
"""How much of the time ahead goes to whoever wants it, from the hour in progress on."""

KEPT = Rule(
    Axis.SHARE,
    "kept",
    "{whose} has {held} of the {part} seat-hours that are its part from {since} to {to}; what is "
    "left is kept for campaigns that may still come, and given from {given} on",
)

Parts = Callable[[int], Mapping[str, int]]
"""``parts(seats)``: what each is entitled to of so many seat-µs, all campaigns counted."""


class Kept:
    """Another rule of sharing, and before it: nobody has more than its part of the hours ahead."""

    def __init__(
        self,
        sharing: Sharing,
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
        self._members: dict[str, list[str]] = {}
        for name, group in (groups or {}).items():
            self._members.setdefault(group, []).append(name)

    def admit(self, candidate: Candidate, turn: Round) -> No | None:
        """Whether it is to be given as far ahead; then, what the other rule says."""
        return self._keeps(candidate) or self._sharing.admit(candidate, turn)

    def remember(self, state: State) -> State:
        """What the other rule remembers."""
        return self._sharing.remember(state)

    def _keeps(self, candidate: Candidate) -> No | None:
        """All hours in which it has runs count, but only if the first of them is not near."""
        begins = self._board.bucket(candidate)
        if begins < self._first or not self._board.seats_taken(candidate, candidate.k):
            return None
        if self._board.view.campaigns[candidate.campaign].level >= URGENT:
            return None
        groups = self._groups
        whose = candidate.campaign if groups is None else groups.get(candidate.campaign)
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

    def _no(self, whose: str, figures: tuple[int, int], hours: tuple[int, int], begins: int) -> No:
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
