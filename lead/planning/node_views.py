"""The nodes of a pool as policies see them: what they say, what is booked there. Pure.

A node that fetches its work says itself how much of its time is free, and until when it is busy.
Of any other one its lead knows the runs that it leads: others may book there, too, so that is the
least; what remains is found out by asking.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Protocol, TypeGuard

from lead.policy.view import BUCKET, Exact, NodeView, PostedRun
from node.model.classes import SchedulingClass
from node.model.predicates import Attributes


class NodeDescription(Protocol):
    """A node as far as it is known here."""

    @property
    def name(self) -> str:
        """What it is called."""

    @property
    def lanes(self) -> int:
        """So many normal runs side by side count like an exclusive one."""

    @property
    def unreachable_since(self) -> int | None:
        """Since when it does not answer, if it does not."""

    @property
    def busy_until(self) -> int | None:
        """Before this no exclusive run can start, as it says itself, if it does."""

    @property
    def shortfall(self) -> int | None:
        """How much of the time up to its horizon is free, as it says itself (µs), if it does."""

    @property
    def facts(self) -> Attributes:
        """What it says of itself."""


@dataclass(frozen=True)
class NodeLoad:
    """How much of the next hour is booked on a node (0 to 1), and until when what runs there does.

    Runs beside which any other may go are left out.
    """

    load: Fraction = Fraction(0)
    running_to: int = 0


def node_loads(
    runs: Iterable[PostedRun], lanes: Mapping[str, int], now: int
) -> dict[str, NodeLoad]:
    """By name, what these runs say of nodes with so many ``lanes``."""
    found: dict[str, NodeLoad] = {}
    for run in runs:
        seconds = max(0, min(run.end, now + BUCKET) - max(run.start, now))
        for name in run.nodes:
            parts = {SchedulingClass.EXCLUSIVE: 1, SchedulingClass.NORMAL: lanes.get(name, 1)}
            part = parts.get(run.scheduling_class)
            if part is not None:
                before = found.get(name, NodeLoad())
                until = run.end if run.running else 0
                load = before.load + Fraction(seconds, BUCKET * part)
                found[name] = NodeLoad(load, max(before.running_to, until))
    return found


@dataclass(frozen=True)
class NodeViewContext:
    """When nodes are looked at, up to which ``horizon`` (µs), and which resources are counted.

    Those are what some test may need or some quota is of: a longitude is a number, and no resource.
    """

    now: int
    horizon: int
    counted: Collection[str]


def node_view_of(
    known: NodeDescription, busy: NodeLoad, used_at: int, seen: NodeViewContext
) -> NodeView:
    """A node as policies see it, with what this lead has booked there.

    Its load is the part of its time up to the horizon that it says is booked, or what this lead
    has booked of the next hour. It is busy as long as it says, or as what runs there now, which
    never gives way.
    """
    facts = known.facts
    figures = {word: exact_number(it) for word, it in facts.items() if _is_number(it)}
    idle = known.shortfall
    load = busy.load if idle is None else Fraction(seen.horizon - idle, seen.horizon)
    return NodeView(
        known.name,
        attributes={word: comparable_value(value) for word, value in facts.items()},
        lanes=known.lanes,
        up=known.unreachable_since is None,
        resources={word: int(it) for word, it in figures.items() if word in seen.counted},
        figures=figures,
        speed=figures.get("speed", 1),
        load=min(1.0, max(0.0, float(load))),
        used_at=used_at,
        busy_until=max(busy.running_to, known.busy_until or seen.now),
    )


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def comparable_value(value: object) -> str:
    """The value of an attribute as policies compare it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def exact_number(value: Decimal | float) -> Exact:
    """A decimal number taken literally; whole ones are ints."""
    found = Fraction(str(value))
    return found.numerator if found.denominator == 1 else found
