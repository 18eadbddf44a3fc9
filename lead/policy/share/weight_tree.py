"""A tree of weights: what each campaign is due of an amount, and whose turn it is. Pure.

Campaigns that count as one are a branch: they divide what it gets. Tiers are served one after the
other: what is left of the amount after one tier goes to the next.

Turns are taken run by run, on the way from the root branch by branch. A branch may have the turn
once it has no more of its weight than all have of theirs; of these, whoever completes its part with
its next run first has it. So after any number of turns each campaign is within a run of what it is
due, and nobody needs to know beforehand how many runs find time. Whoever used less than its part
before begins a little behind, and who used more a little ahead. The next run of the former counts
as almost done, or a campaign that is due 1.3 runs each time would never have the odd one.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from lead.policy.division import divide
from lead.policy.view import Candidate, Exact


@dataclass(frozen=True, slots=True)
class Branch:
    """A campaign, or campaigns that count as one (``below``), with the weight among siblings."""

    name: str
    weight: Exact
    below: tuple[Branch, ...] = ()

    def campaigns(self) -> Iterator[str]:
        """Yield the campaigns of this branch."""
        if not self.below:
            yield self.name
        for branch in self.below:
            yield from branch.campaigns()


Tiers = Sequence[Sequence[Branch]]
"""The branches of each tier, the first one to be served first."""


def dues(tiers: Tiers, amount: Exact, demand: Mapping[str, int]) -> dict[str, Fraction]:
    """Return what each campaign is due of an amount, no more than its demand."""
    due: dict[str, Fraction] = {}
    left = Fraction(amount)
    for branches in tiers:
        given = _divide(branches, left, demand)
        left -= sum(given.values())
        due |= given
    return due


def _divide(
    branches: Sequence[Branch], amount: Exact, demand: Mapping[str, int]
) -> dict[str, Fraction]:
    wanted = {it.name: sum(demand.get(name, 0) for name in it.campaigns()) for it in branches}
    parts = divide(amount, {it.name: it.weight for it in branches}, wanted).exact_shares()
    due: dict[str, Fraction] = {}
    for it in branches:
        due |= _divide(it.below, parts[it.name], demand) if it.below else {it.name: parts[it.name]}
    return due


Size = Callable[[Candidate], int]
"""The amount that a candidate takes, in the unit of what campaigns hold."""


_EVENED_OUT = 0.4
"""The part of a run by which a campaign may begin ahead or behind: less than half of one."""
_ALMOST_DONE = 0.5
"""The part by which the next run of one that lacks as much completes its part earlier."""


@dataclass(frozen=True, slots=True)
class Standing:
    """The amounts that campaigns hold, and lack from before, and who comes first of equals."""

    held: Mapping[str, int]
    lacks: Mapping[str, float]
    place: Mapping[str, int]


class _Turns:
    """The campaigns below one branch that still have candidates."""

    def __init__(
        self,
        branch: Branch,
        queues: Mapping[str, deque[Candidate]],
        standing: Standing,
        size: Size,
    ) -> None:
        """Begin with what is held."""
        names = list(branch.campaigns())
        last = len(standing.place)
        self.place = min((standing.place.get(name, last) for name in names), default=last)
        self.weight = float(branch.weight)
        self.held: float = sum(standing.held.get(name, 0) for name in names)
        self._size = size
        self._queue = deque[Candidate]() if branch.below else queues.get(branch.name, deque())
        below = (_Turns(it, queues, standing, size) for it in branch.below)
        self._below = [it for it in below if it]
        self._ahead: float = 0
        self._almost: float = 0
        self.lack = sum(standing.lacks.get(name, 0) for name in names)
        self._even_out()
        self._early = [(it.begins, number) for number, it in enumerate(self._below)]
        heapq.heapify(self._early)
        self._due: list[tuple[float, int, int]] = []
        self._held_below = sum(it.held for it in self._below)
        self._weight_below = sum(it.weight for it in self._below)
        self.next_size = self._look()

    def _even_out(self) -> None:
        """Let those that used less begin behind, and others ahead, each by a part of a run."""
        weights = sum(it.weight for it in self._below) or 1
        common = sum(it.lack for it in self._below) / weights
        for it in self._below:
            lack = it.lack - common * it.weight
            most = _EVENED_OUT * it.next_size
            it._ahead = max(-most, min(most, -lack))  # noqa: SLF001 - of the same class
            it._almost = max(0, min(lack, _ALMOST_DONE * it.next_size) - most)  # noqa: SLF001

    def __bool__(self) -> bool:
        return bool(self._queue or self._early or self._due)

    @property
    def begins(self) -> float:
        """Return how much of its weight it has; without a weight it is last."""
        return (self.held + self._ahead) / self.weight if self.weight else math.inf

    @property
    def completes(self) -> float:
        """Return how much of its weight it has after its next run."""
        if not self.weight:
            return math.inf
        return (self.held + self._ahead + self.next_size - self._almost) / self.weight

    def _look(self) -> int:
        """Return the size of the next run, after finding out which branches may have a turn."""
        if self._queue:
            return self._size(self._queue[0])
        level = self._held_below / self._weight_below if self._weight_below else math.inf
        while self._early and (not self._due or self._early[0][0] <= level):
            _, number = heapq.heappop(self._early)
            turns = self._below[number]
            heapq.heappush(self._due, (turns.completes, turns.place, number))
        return self._below[self._due[0][2]].next_size if self._due else 0

    def take(self) -> Candidate:
        """Return the next candidate, and count it as held."""
        if self._queue:
            candidate = self._queue.popleft()
            size = self._size(candidate)
        else:
            _, _, number = heapq.heappop(self._due)
            turns = self._below[number]
            before = turns.held
            candidate = turns.take()
            size = self._size(candidate)
            self._held_below += size
            if turns:
                heapq.heappush(self._early, (turns.begins, number))
            else:
                self._held_below -= before + size
                self._weight_below -= turns.weight
        self.held += size
        self.next_size = self._look()
        return candidate


def in_turn(
    tiers: Tiers,
    candidates: Iterable[Candidate],
    standing: Standing,
    size: Size,
) -> Iterator[Candidate]:
    """Yield candidates in turn; those of one campaign in the order in which they are given.

    Candidates of campaigns that are in no tier come last.
    """
    queues: dict[str, deque[Candidate]] = {}
    for it in candidates:
        queues.setdefault(it.campaign, deque()).append(it)
    for branches in tiers:
        turns = _Turns(Branch("", 1, tuple(branches)), queues, standing, size)
        while turns:
            yield turns.take()
    for queue in queues.values():
        yield from queue
