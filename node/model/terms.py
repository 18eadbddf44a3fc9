"""Pool tasks: how their schedule is cut into terms, and how many seats can be taken at all. Pure.

A *pool task* wants ``k`` nodes of a pool and has no runs of its own. Its nodes are chosen for a
*term* at a time: some slots in a row. For each term it has ``k`` *seats*, numbered from 1; who
takes one runs all slots of the term, as an ordinary task.

Instants and durations are microseconds; a *slot* is a nominal start.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from node.model import times
from node.model.predicates import Attributes, Predicate
from node.model.recurrence import Recurrence, next_nominal, nominal_starts, slip_of
from node.model.wire.tasks import Schedule

_SLOTS_MAX = 1_000_000
_SHORTLY = 8
"""Part of the horizon."""
_AN_HOUR_AHEAD = 2 * times.HOUR
"""A horizon from which on whole hours can be given away well before they begin."""


@dataclass(frozen=True)
class Term:
    """Some slots in a row: the first one, and when it is over (half-open)."""

    starts_at: int
    ends_at: int


def next_term(
    recurrence: Recurrence, length: int, after: int, rounds: int | None = None
) -> Term | None:
    """The term that begins with the first slot later than ``after``; none if there is no such slot.

    It lasts ``length`` and has at most ``rounds`` slots, if that is given; a single one where the
    next slot is not nearer than that.
    """
    first = next_nominal(recurrence, after)
    if first is None or rounds == 0:
        return None
    ends_at = first + max(length, 1)
    if recurrence.until is not None:
        ends_at = min(ends_at, recurrence.until)
    if rounds is not None:
        slots = nominal_starts(recurrence, first - 1, ends_at, rounds + 1)
        ends_at = slots[rounds] if len(slots) > rounds else ends_at
    return Term(first, ends_at)


def term_length(choice: str, term: int) -> int:
    """How long the terms of a task are; nodes that take turns change with every slot."""
    return 0 if choice == "rotating" else term


def due_at(term: Term, horizon: int) -> int:
    """When nodes are chosen for a term: once all of it lies within the horizon.

    Before, they could not say when they have time. For a term longer than that they are chosen
    shortly before it begins.

    Pools are shared hour by hour: terms of one length that begin in the same hour are due at the
    same instant, so that who wants a part of the hour is known before any of it is given away. A
    horizon that is too short for that has each due by itself.
    """
    first = last = term.starts_at
    if horizon >= _AN_HOUR_AHEAD:
        first -= first % times.HOUR
        last = first + times.HOUR
    length = term.ends_at - term.starts_at
    return min(last + length - horizon, first - horizon // _SHORTLY)


def slots_in(recurrence: Recurrence, term: Term) -> list[int]:
    """The slots of a term."""
    return nominal_starts(recurrence, term.starts_at - 1, term.ends_at, _SLOTS_MAX)


def open_slots(recurrence: Recurrence, duration: int, term: Term, soonest: int) -> list[int]:
    """The slots of a term in which a run may still start at or after ``soonest``."""
    late = max(term.starts_at, soonest - recurrence.slip)
    return [
        slot
        for slot in nominal_starts(recurrence, late - 1, term.ends_at, _SLOTS_MAX)
        if slot + slip_of(recurrence, duration, slot) >= soonest
    ]


def schedule_for(
    schedule: Schedule, recurrence: Recurrence, duration: int, slots: Sequence[int]
) -> Schedule:
    """The schedule of an ordinary task that has just these slots of a pool task, in a row."""
    first, last = slots[0], slots[-1]
    if len(slots) == 1:
        slip = slip_of(recurrence, duration, first)
        return Schedule(start=first, slip=slip, slip_random=schedule.slip_random)
    return schedule.model_copy(update={"start": first, "until": last + 1, "max_runs": None})


def seats_possible(values: Iterable[Mapping[str, Hashable]], spread: Mapping[str, int]) -> int:
    """How many of these nodes may have a seat at the same time, at most.

    ``values`` are the attributes of each; ``spread`` is how many may be alike in an attribute. A
    node without it is like no other. More than this number can never be had; where several
    attributes are spread over, it may be fewer.
    """
    nodes = list(values)
    most = len(nodes)
    for attribute, alike in spread.items():
        counts = Counter(node[attribute] for node in nodes if attribute in node)
        without = sum(attribute not in node for node in nodes)
        most = min(most, without + sum(min(alike, count) for count in counts.values()))
    return most


@dataclass(frozen=True)
class NodeRequirements:
    """What a node must be to have a seat: in the pool, as the task asks, able, and not in it yet.

    ``taking_part`` are the names of nodes that the task names itself; ``tools`` are those for its
    test, of which a node must have one as far as it says which it has.
    """

    pool: str
    pool_match: Predicate
    match: Predicate
    taking_part: frozenset[str] = frozenset()
    tools: tuple[str, ...] = ()

    def why_not(self, name: str, facts: Attributes) -> str | None:
        """Why this node can have no seat, in one sentence; None if it can."""
        for predicate, whose in (
            (self.pool_match, f"pool {self.pool}"),
            (self.match, "the task"),
        ):
            for failure in predicate.faults(facts):
                return f"{failure.reason}, and {whose} asks for {failure.condition}"
        if name in self.taking_part:
            return "takes part in it already"
        said = [word for word in facts if word.startswith(_TOOL)]
        if said and not any(facts.get(f"{_TOOL}{tool}") is True for tool in self.tools):
            return f"has none of the tools for it: {', '.join(self.tools)}"
        return None


_TOOL = "tool:"
