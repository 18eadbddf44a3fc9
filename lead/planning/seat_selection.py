"""The assignment of a term's seats to nodes, by policy order and available time. Pure.

A policy has ordered the nodes, and they were asked for the slots of the term. Nodes are identified
by name, seats by number from 1.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from lead.model.reasons import no_other_node, seats_empty
from lead.planning.placement import ChosenStart
from node.model.outcomes import PlanningOutcome
from node.model.reason import Reason
from node.model.reasons import seats_given, seats_left
from node.model.spans import Span

Attributes = Mapping[str, Hashable]
StartRanges = Mapping[str, Sequence[Span]]
"""By node, in the order in which they are to be taken, the closed ranges of possible starts."""


@dataclass(frozen=True)
class SpreadLimit:
    """The maximum number of nodes that share an attribute value; without it, none is shared.

    Nothing is known of a node that has just been renamed and answers by its new name: it shares no
    attribute.
    """

    alike: Mapping[str, int]
    attributes: Mapping[str, Attributes]

    def crowded_attribute(self, node: str, beside: Iterable[str]) -> str | None:
        """Return an attribute in which too many of these nodes equal this one, or None."""
        values = self.attributes.get(node, {})
        others = [self.attributes.get(other, {}) for other in beside]
        for attribute, most in self.alike.items():
            if attribute in values:
                counts = Counter(other.get(attribute) for other in others)
                if counts[values[attribute]] >= most:
                    return attribute
        return None

    def kept(self, order: Iterable[str], beside: Collection[str], most: int) -> list[str]:
        """Return the first ``most`` nodes, in order, that may all join the nodes in ``beside``."""
        chosen: list[str] = []
        for node in order:
            if len(chosen) == most:
                break
            if self.crowded_attribute(node, (*beside, *chosen)) is None:
                chosen.append(node)
        return chosen


@dataclass(frozen=True, slots=True)
class TimeFound:
    """The time that nodes have for the slots of a term.

    They have time for ``slots`` of them. In ``displacing`` of these others would have to give way,
    and the runs would begin later than their slots, by ``late`` µs together.
    """

    slots: int
    displacing: int = 0
    late: int = 0

    def lack(self, slots: int, *, usual: bool = False) -> Lack:
        """Return what is missing to be ideal for so many slots, as a key: the least is the best.

        A ``usual`` node is waited for, and counts as having time for all slots if it has time for
        half of them.
        """
        if usual and 2 * self.slots >= slots:
            return 0, self.displacing, 0
        return slots - self.slots, self.displacing, 0 if usual else self.late


Lack = tuple[int, int, int]
IDEAL: Final[Lack] = (0, 0, 0)
NO_TIME: Final = TimeFound(0)


def time_found(choices: Iterable[ChosenStart], beyond: int = 0) -> TimeFound:
    """Return the time in which starts were chosen; ``beyond`` more slots are taken for free."""
    chosen = list(choices)
    late = sum(it.starts_at - it.slot.start for it in chosen)
    return TimeFound(len(chosen) + beyond, sum(it.displacing for it in chosen), late)


def rank_by_time(
    order: Sequence[str], found: Mapping[str, TimeFound], slots: int, usual: Collection[str]
) -> list[str]:
    """Return the nodes with any time, those first that leave the least to be desired.

    That is time for most of the ``slots``, then nobody displaced, then the earliest start. Ties
    keep the ``order``. The ``usual`` nodes are waited for.
    """
    able = (node for node in order if found.get(node, NO_TIME).slots)
    return sorted(able, key=lambda node: found[node].lack(slots, usual=node in usual))


def choose_simultaneous(
    order: Sequence[str],
    common: Callable[[Sequence[str]], TimeFound],
    slots: int,
    wanted: int,
    spread: SpreadLimit,
    starts: Callable[[], Iterable[StartRanges]],
) -> list[str]:
    """Return the ``wanted`` nodes that have time together, or none if there are too few.

    ``common(nodes)`` is the time that all of these have at once. The first ones of the ``order``
    are taken if they leave nothing to be desired. Else they are compared with the nodes that can
    start together the earliest, which are looked up in what ``starts()`` yields for each slot:
    taking nodes in order misses nodes that have time together when the first of the order has not.
    """
    groups = []
    for least in (slots, 1):
        chosen: list[str] = []
        for node in order:
            if len(chosen) == wanted:
                break
            if (
                spread.crowded_attribute(node, chosen) is None
                and common([*chosen, node]).slots >= least
            ):
                chosen.append(node)
        if len(chosen) == wanted:
            groups.append(chosen)
            break
    if groups and common(groups[0]).lack(slots) == IDEAL:
        return groups[0]
    groups += filter(None, (_starting_together(each, wanted, spread) for each in starts()))
    return min(groups, key=lambda group: common(group).lack(slots), default=[])


def _starting_together(ranges: StartRanges, wanted: int, spread: SpreadLimit) -> list[str]:
    """Return the ``wanted`` nodes that can start together the earliest, or none if too few can.

    Of those that can start at that instant, the first ones that the ``spread`` allows are taken.
    """
    groups = (spread.kept(able, (), wanted) for _, able in _common_starts(ranges, wanted))
    return next((group for group in groups if len(group) == wanted), [])


def _common_starts(ranges: StartRanges, wanted: int) -> Iterator[tuple[int, list[str]]]:
    """Yield the instants at which one more of at least ``wanted`` nodes can start, with all these.

    ``ranges`` are the closed ranges of possible starts by node, in the order in which they are
    wanted. Any set of so many nodes that can start together can do so at one of these instants.
    """
    changes = sorted(
        change
        for spans in ranges.values()
        for begin, end in spans
        for change in ((begin, 0), (end, 1))
    )
    # At equal instants openings (0) sort before closings (1), since the ranges are closed.
    count = 0
    for at, closes in changes:
        count += -1 if closes else 1
        if count >= wanted and not closes:
            yield (
                at,
                [
                    name
                    for name, spans in ranges.items()
                    if any(begin <= at <= end for begin, end in spans)
                ],
            )


def assign_seat_numbers(
    nodes: Sequence[str], empty: Sequence[int], before: Mapping[int, str]
) -> dict[int, str]:
    """Assign each node one of the ``empty`` seats, if possible the one it had ``before``."""
    seats: dict[int, str] = {}
    for number in empty:
        node = before.get(number)
        if node in nodes and node not in seats.values():
            seats[number] = str(node)
    remaining = [node for node in nodes if node not in seats.values()]
    free = [number for number in empty if number not in seats]
    return dict(sorted((seats | dict(zip(free, remaining, strict=False))).items()))


@dataclass(frozen=True)
class SeatSearchAccount:
    """The outcome of the search for nodes for a term's empty seats, as a sentence and a trace.

    ``taken`` are the nodes by seat, beside those ``held`` before; ``refused`` are the reasons
    against other nodes; ``verdicts`` are those of the policies, the decisive one first.
    ``yielding`` are the runs to be displaced.
    """

    pool: str
    policies: str
    slots: Sequence[int]
    wanted: int
    taken: Mapping[int, str]
    refused: Mapping[str, Reason] = field(default_factory=dict)
    verdicts: Sequence[Mapping[str, Any]] = ()
    yielding: Sequence[str] = ()
    held: int = 0

    @property
    def outcome(self) -> PlanningOutcome:
        """Return ``seated``, ``partly seated`` or ``not seated``."""
        if not self.taken:
            return PlanningOutcome.NOT_SEATED
        if len(self.taken) == self.wanted:
            return PlanningOutcome.SEATED
        return PlanningOutcome.PARTLY_SEATED

    def summary(self) -> Reason:
        """Describe the outcome in a sentence.

        For example ``2 of 3 seats, 2026-…Z to 2026-…Z: a, b; 1 is empty: c: has no time``.
        """
        filled, empty = self.held + len(self.taken), self.wanted - len(self.taken)
        given = seats_given(
            filled,
            self.held + self.wanted,
            (self.slots[0], self.slots[-1]),
            list(self.taken.values()),
            len(self.yielding),
        )
        if not empty:
            return given
        return given.beside(seats_left(empty, self.why_not()) if filled else self.why_not())

    def why_not(self) -> Reason:
        """Return why seats are empty: the verdicts of the policies, then the nodes' reasons."""
        reasons = [it["sentence"] for it in self.verdicts]
        reasons += (why.at(name) for name, why in self.refused.items())
        return seats_empty(reasons) if reasons else no_other_node(self.pool)

    def trace(self) -> dict[str, Any]:
        """Return everything that led to the outcome; instants in microseconds."""
        return {
            "pool": self.pool,
            "policies": self.policies,
            "slots": [self.slots[0], self.slots[-1], len(self.slots)],
            "seats": {str(number): name for number, name in self.taken.items()},
            "refusals": dict(self.refused),
            "verdicts": list(self.verdicts),
            "yielding": list(self.yielding),
        }
