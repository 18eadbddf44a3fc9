"""Reserving parts of the hours ahead for campaigns that have not asked for them yet.

Seats are given a day ahead. If the first campaign to ask got all that is free, another one that
asks seconds later would find a full day. So only the *near* hours, the one in progress and the
next, go to whichever campaign wants them. Of each later hour, a campaign gets no more than its part
among all existing campaigns, whether these want anything or not; the rest is given when that hour
is near, an hour before it begins. No time stays unused because of that, and a campaign that asks
later finds its part of all but two hours.

What a campaign got while fewer campaigns were known, or on more nodes, may exceed its part. It is
given back to campaigns that find no time (``contested.py``).

Runs are not cut: a campaign below its part may get one more run. The excess counts for all hours
ahead together, up to each of them, so that long and wide runs even out as well.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from lead.policy.contracts import EpisodeShare
from lead.policy.episode_figures import Board
from lead.policy.placement_requests import AllocationRound
from lead.policy.throttle.full_time import FullTime
from lead.policy.verdict import Axis, PolicyRefusal, RefusalRule
from lead.policy.view import BUCKET, URGENT, Candidate, RememberedState
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

Parts = Callable[[int, int], Mapping[str, int]]
"""``parts(hour, seats)``: each campaign's part of that many seat-µs; all campaigns count."""


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
        self.contests = sharing.contests
        self._sharing = sharing
        self._board = board
        self._first = (board.view.now // BUCKET + -(-near // BUCKET)) * BUCKET
        self._end = board.view.now + board.view.horizon
        self._parts = parts
        self._groups = groups
        self._known_parts: dict[tuple[object, ...], Mapping[str, int]] = {}
        self._members: dict[str, list[str]] = {}
        for name, group in (groups or {}).items():
            self._members.setdefault(group, []).append(name)

    def find_refusal(self, candidate: Candidate, turn: AllocationRound) -> PolicyRefusal | None:
        """Return a refusal if the part is reached, else the wrapped rule's answer."""
        return self._find_refusal(candidate) or self._sharing.find_refusal(candidate, turn)

    def full_times(self, candidate: Candidate) -> Sequence[FullTime]:
        """Return the time that the wrapped rule closes."""
        return self._sharing.full_times(candidate)

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
        key = seats, self._board.weights_at(hour)
        parts = self._known_parts.get(key)
        if parts is None:
            parts = self._known_parts[key] = self._parts(hour, seats)
        return parts.get(whose, 0)
