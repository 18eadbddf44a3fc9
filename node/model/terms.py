"""Pool tasks: division of their schedule into terms, and how many seats are possible. Pure.

A *pool task* wants ``k`` nodes of a pool and has no runs of its own. Its nodes are chosen for one
*term* at a time: some consecutive slots. Each term has ``k`` *seats*, numbered from 1; the node
that takes a seat runs all slots of the term, as an ordinary task.

Instants and durations are microseconds; a *slot* is a nominal start.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from node.model import times
from node.model.predicates import Attributes, Predicate
from node.model.reason import Reason
from node.model.reasons import attribute_unfit, lacks_tools, takes_part_already
from node.model.recurrence import Recurrence, next_nominal, nominal_starts, slip_of
from node.model.wire.tasks import Schedule

_SLOTS_MAX = 1_000_000
_SHORTLY = 8
"""Nodes are chosen for a long term when it begins within this fraction (1/8) of the horizon."""
_AN_HOUR_AHEAD = 2 * times.HOUR
"""Minimum horizon for giving whole hours away well before they begin."""


@dataclass(frozen=True)
class Term:
    """Some consecutive slots: the first one, and the (excluded) end."""

    starts_at: int
    ends_at: int


def next_term(
    recurrence: Recurrence, length: int, after: int, rounds: int | None = None
) -> Term | None:
    """Return the term that begins with the first slot after ``after``; None if there is no slot.

    It lasts ``length`` (µs) and has at most ``rounds`` slots, if given. It has a single slot if the
    next one is further away than ``length``.
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
    """Return the length of a task's terms (µs); with rotating nodes each slot is a term."""
    return 0 if choice == "rotating" else term


def due_at(term: Term, horizon: int) -> int:
    """Return when nodes are chosen for a term: once all of it lies within the horizon.

    Earlier, nodes could not say when they have time. For a term longer than the horizon, nodes are
    chosen shortly before it begins.

    Pools are shared hour by hour: terms of one length that begin in the same hour are due at the
    same instant, so that all who want a part of the hour are known before any of it is given away.
    If the horizon is too short for that, each term is due by itself.
    """
    first = last = term.starts_at
    if horizon >= _AN_HOUR_AHEAD:
        first -= first % times.HOUR
        last = first + times.HOUR
    length = term.ends_at - term.starts_at
    return min(last + length - horizon, first - horizon // _SHORTLY)


def slots_in(recurrence: Recurrence, term: Term) -> list[int]:
    """Return the nominal starts (µs) of the slots in a term, the earliest first."""
    return nominal_starts(recurrence, term.starts_at - 1, term.ends_at, _SLOTS_MAX)


def open_slots(recurrence: Recurrence, duration: int, term: Term, soonest: int) -> list[int]:
    """Return the slots of a term in which a run may still start at or after ``soonest``."""
    late = max(term.starts_at, soonest - recurrence.slip)
    return [
        slot
        for slot in nominal_starts(recurrence, late - 1, term.ends_at, _SLOTS_MAX)
        if slot + slip_of(recurrence, duration, slot) >= soonest
    ]


def schedule_for(
    schedule: Schedule, recurrence: Recurrence, duration: int, slots: Sequence[int]
) -> Schedule:
    """Return the schedule of an ordinary task with just these consecutive slots of a pool task."""
    first, last = slots[0], slots[-1]
    if len(slots) == 1:
        slip = slip_of(recurrence, duration, first)
        return Schedule(start=first, slip=slip, slip_random=schedule.slip_random)
    return schedule.model_copy(update={"start": first, "until": last + 1, "max_runs": None})


def seats_possible(values: Iterable[Mapping[str, Hashable]], spread: Mapping[str, int]) -> int:
    """Return an upper bound on how many of these nodes can have a seat at the same time.

    ``values`` are the attributes of each node; ``spread`` is how many nodes may be alike in an
    attribute. A node without the attribute is like no other. If several attributes are spread over,
    fewer may be possible.
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
    """The conditions for a seat: in the pool, matching the task, able, and not in it already.

    ``taking_part`` are the names of nodes that the task itself names; ``tools`` are those for its
    test, of which a node must have one, unless its attributes list no tools at all.
    """

    pool: str
    pool_match: Predicate
    match: Predicate
    taking_part: frozenset[str] = frozenset()
    tools: tuple[str, ...] = ()

    def why_not(self, name: str, facts: Attributes) -> Reason | None:
        """Return why this node cannot have a seat; None if it can."""
        for predicate, whose in (
            (self.pool_match, f"pool {self.pool}"),
            (self.match, "the task"),
        ):
            for failure in predicate.faults(facts):
                return attribute_unfit(failure.reason, whose, failure.condition)
        if name in self.taking_part:
            return takes_part_already()
        tool_attributes = [name for name in facts if name.startswith(_TOOL)]
        if tool_attributes and not any(facts.get(f"{_TOOL}{t}") is True for t in self.tools):
            return lacks_tools(self.tools)
        return None


_TOOL = "tool:"
