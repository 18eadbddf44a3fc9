"""Who takes the seats of a pool task in one term: out of nodes in an order, by the time they have.

A policy has put the nodes in order; they were asked for the slots of the term. Pure: names and
counts come in, names go out. Nodes are known by their names, seats by their numbers from 1.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from node.model.outcomes import PlanningOutcome
from node.model.times import to_the_second

Attributes = Mapping[str, Hashable]


@dataclass(frozen=True)
class SpreadLimit:
    """At most so many nodes that are alike in an attribute; one without it is like no other."""

    alike: Mapping[str, int]
    attributes: Mapping[str, Attributes]

    def crowded(self, node: str, beside: Iterable[str]) -> str | None:
        """The attribute in which too many of these are like this node already, if there is one."""
        own, others = self.attributes[node], list(beside)
        for attribute, most in self.alike.items():
            if attribute in own:
                counted = Counter(self.attributes[other].get(attribute) for other in others)
                if counted[own[attribute]] >= most:
                    return attribute
        return None

    def kept(self, order: Iterable[str], beside: Collection[str], most: int) -> list[str]:
        """The first so many nodes, in their order, that may all be taken beside these."""
        taken: list[str] = []
        for node in order:
            if len(taken) == most:
                break
            if self.crowded(node, (*beside, *taken)) is None:
                taken.append(node)
        return taken


def rank_by_free_time(
    order: Sequence[str], covered: Mapping[str, int], slots: int, usual: Collection[str]
) -> list[str]:
    """The nodes that have time at all, those first that have it for all slots, then for most.

    ``covered`` is for how many of the ``slots`` each has time; of equals the ``order`` counts. Who
    is ``usual`` counts as having it for all if it has it for half.
    """

    def missing(node: str) -> int:
        if node in usual and 2 * covered[node] >= slots:
            return 0
        return slots - covered[node]

    return sorted((node for node in order if covered.get(node)), key=missing)


def choose_simultaneous(
    order: Sequence[str],
    common: Callable[[Sequence[str]], int],
    slots: int,
    wanted: int,
    spread: SpreadLimit,
) -> list[str]:
    """The ``wanted`` nodes that have time together; none if there are not so many.

    ``common(nodes)`` is in how many of the ``slots`` all of these have time at once. Nodes that
    leave time in all slots are preferred; then those that leave it in some.
    """
    for least in (slots, 1):
        taken: list[str] = []
        for node in order:
            if spread.crowded(node, taken) is None and common([*taken, node]) >= least:
                taken.append(node)
            if len(taken) == wanted:
                return taken
    return []


def assign_seat_numbers(
    nodes: Sequence[str], empty: Sequence[int], before: Mapping[int, str]
) -> dict[int, str]:
    """Which of the ``empty`` seats each node takes: if possible the one it had ``before``."""
    seats: dict[int, str] = {}
    for number in empty:
        node = before.get(number)
        if node in nodes and node not in seats.values():
            seats[number] = str(node)
    left = [node for node in nodes if node not in seats.values()]
    free = [number for number in empty if number not in seats]
    return dict(sorted((seats | dict(zip(free, left, strict=False))).items()))


@dataclass(frozen=True)
class SeatSearchAccount:
    """What came of looking for nodes for the empty seats of one term, for people and its trace.

    ``taken`` are the nodes by seat, beside those that were ``held`` before; ``refused`` is what
    speaks against others; ``verdicts`` are what policies say, the decisive one first. ``yielding``
    are the runs that give way.
    """

    pool: str
    policies: str
    slots: Sequence[int]
    wanted: int
    taken: Mapping[int, str]
    refused: Mapping[str, str] = field(default_factory=dict)
    verdicts: Sequence[Mapping[str, Any]] = ()
    yielding: Sequence[str] = ()
    held: int = 0

    @property
    def outcome(self) -> PlanningOutcome:
        """``seated``, ``partly seated`` or ``not seated``."""
        if not self.taken:
            return PlanningOutcome.NOT_SEATED
        if len(self.taken) == self.wanted:
            return PlanningOutcome.SEATED
        return PlanningOutcome.PARTLY_SEATED

    def sentence(self) -> str:
        """``2 of 3 seats, 2026-…Z to 2026-…Z: a, b; 1 is empty: c: has no time``."""
        first, last = to_the_second(self.slots[0]), to_the_second(self.slots[-1])
        when = first if first == last else f"{first} to {last}"
        filled, all_ = self.held + len(self.taken), self.held + self.wanted
        said = f"{filled} of {all_} seat{'' if all_ == 1 else 's'}, {when}"
        if self.taken:
            said += f": {_some(list(self.taken.values()))}"
        if self.yielding:
            many = len(self.yielding) > 1
            said += f"; {len(self.yielding)} run{'s' if many else ''} may have to give way"
        empty = self.wanted - len(self.taken)
        if empty and filled:
            said += f"; {empty} {'is' if empty == 1 else 'are'} empty: {self.why_not()}"
        elif empty:
            said += f"; {self.why_not()}"
        return said

    def why_not(self) -> str:
        """Why seats are empty: what the policies say, and what the nodes do."""
        sentences = [str(verdict["sentence"]) for verdict in self.verdicts]
        sentences += [f"{name}: {why}" for name, why in self.refused.items()]
        if not sentences:
            return f"pool {self.pool} has no other node for it"
        return _some(list(dict.fromkeys(sentences)), "; ")

    def trace(self) -> dict[str, Any]:
        """All that it was made of; instants in microseconds."""
        return {
            "pool": self.pool,
            "policies": self.policies,
            "slots": [self.slots[0], self.slots[-1], len(self.slots)],
            "seats": {str(number): name for number, name in self.taken.items()},
            "refusals": dict(self.refused),
            "verdicts": list(self.verdicts),
            "yielding": list(self.yielding),
        }


_SHOWN = 5


def _some(words: Sequence[str], between: str = ", ") -> str:
    more = len(words) - _SHOWN
    return between.join(words[:_SHOWN]) + (f" and {more} more" if more > 0 else "")
