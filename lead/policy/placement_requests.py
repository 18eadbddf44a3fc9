"""What an episode asks its driver to find time for, and what became of it. Pure values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum

from lead.policy.verdict import PolicyRefusal
from lead.policy.view import Candidate, PostedRun, RememberedState, ReservationView
from node.model.spans import Span


class AllocationRound(IntEnum):
    """First everybody's share and the soft limits; then, with what is left, the hard ones."""

    FIRST = 1
    SECOND = 2


@dataclass(frozen=True, slots=True)
class Displacing:
    """What may be displaced where nothing is free: pass 2 is offered with ``priority``.

    ``runs`` are those that may give way, the first to go first; None is all whose priority is
    lower. Others give way for ``most`` of its seats at most; None is any number.
    """

    priority: int
    runs: tuple[str, ...] | None = None
    most: int | None = None


@dataclass(frozen=True, slots=True)
class Ask:
    """One run to be placed.

    ``nodes`` are to be asked, the best first: any ``wanted`` of them, ``least`` suffice; of a
    candidate with named participants all take part. ``avoid`` is time on some of them that is kept
    for others. One of the ``usual`` nodes is worth waiting for, ``patience`` µs beyond the ideal
    start. Without ``displacing``, nothing may be displaced.
    """

    number: int
    round: AllocationRound
    candidate: Candidate
    nodes: tuple[str, ...]
    wanted: int
    least: int
    avoid: Mapping[str, Sequence[Span]] = field(default_factory=dict)
    usual: frozenset[str] = frozenset()
    patience: int = 0
    displacing: Displacing | None = None


@dataclass(frozen=True, slots=True)
class EpisodeOutcome:
    """What an episode came to.

    ``refused`` says for each task that got nothing why not, the decisive reason first;
    ``unreached`` is how many were not looked at, or not in the second round, because there were no
    workers left.
    ``reservations`` were made for tasks that are blocked. ``state`` is to be remembered until the
    next episode. ``returned`` are tasks of the view whose runs are given back as a whole, and why.
    """

    placed: Sequence[PostedRun]
    refused: Mapping[str, tuple[PolicyRefusal, ...]]
    unreached: int
    reservations: Sequence[ReservationView]
    state: RememberedState
    returned: Mapping[str, PolicyRefusal] = field(default_factory=dict)
