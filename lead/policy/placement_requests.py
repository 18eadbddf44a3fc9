"""The runs that an episode asks its driver to place, and the outcome of an episode. Pure values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum

from lead.policy.throttle.full_time import FullTime
from lead.policy.verdict import PolicyRefusal
from lead.policy.view import Candidate, PostedRun, RememberedState, ReservationView


class AllocationRound(IntEnum):
    """The rounds of an episode.

    In the first, every campaign gets its share within the soft limits; in the second, the remainder
    is given within the soft limits too, and in the third within the hard limits.
    """

    FIRST = 1
    SECOND = 2
    THIRD = 3


@dataclass(frozen=True, slots=True)
class Displacing:
    """The runs that may be displaced if nothing is free; pass 2 is offered with ``priority``.

    ``runs`` are those that may be displaced, in this order; None admits all of lower priority.
    Others may lose at most ``most`` of its seats; None is any number.
    """

    priority: int
    runs: tuple[str, ...] | None = None
    most: int | None = None


@dataclass(frozen=True, slots=True)
class Ask:
    """One run to be placed.

    ``nodes`` are the nodes to ask, the best first: any ``wanted`` of them are to take part,
    ``least`` suffice; named participants all take part. ``avoid`` are the slots
    on some of them that are reserved for others; ``full`` is time in which limits permit no run of
    it on any. Each of the ``usual`` nodes is worth waiting for. ``earliest`` is by node the instant
    from which on it could begin, as far as the lead knows what is booked there. Without
    ``displacing``, nothing may be displaced. ``left_out`` are the nodes that must not be asked, and
    why; ``fewer`` is why it wants fewer nodes than its task does.
    """

    number: int
    round: AllocationRound
    candidate: Candidate
    nodes: tuple[str, ...]
    wanted: int
    least: int
    avoid: Mapping[str, Sequence[ReservationView]] = field(default_factory=dict)
    full: Sequence[FullTime] = ()
    usual: frozenset[str] = frozenset()
    earliest: Mapping[str, int] = field(default_factory=dict)
    displacing: Displacing | None = None
    left_out: Mapping[str, PolicyRefusal] = field(default_factory=dict)
    fewer: PolicyRefusal | None = None


@dataclass(frozen=True, slots=True)
class EpisodeOutcome:
    """The result of an episode.

    ``refused`` has, for each task that got nothing, the reasons, the decisive one first; and for
    each one that got fewer nodes than it wants because of a limit, that limit.
    ``unreached`` counts the candidates that were not tried, or not in their last round, because
    no workers were left. ``reservations`` were made for blocked tasks. ``state`` must be stored
    until the next episode. ``returned`` are tasks of the view whose runs are given back as a whole,
    and why.
    """

    placed: Sequence[PostedRun]
    refused: Mapping[str, tuple[PolicyRefusal, ...]]
    unreached: int
    reservations: Sequence[ReservationView]
    state: RememberedState
    returned: Mapping[str, PolicyRefusal] = field(default_factory=dict)
