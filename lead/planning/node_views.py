"""The nodes of a pool as policies see them: their own statements and the bookings there. Pure.

Nodes state how much of their time is free, and until when they are busy, every 15 seconds or so.
Between two statements a lead knows of the runs that it leads itself, so the greater of both counts.
The actual free time is found by asking.
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
        """Return the node's name."""

    @property
    def lanes(self) -> int:
        """Return how many normal runs side by side count as one exclusive run."""

    @property
    def unreachable_since(self) -> int | None:
        """Return since when it has not answered (µs), or None."""

    @property
    def busy_until(self) -> int | None:
        """Return the earliest start of an exclusive run, if the node states one (µs)."""

    @property
    def shortfall(self) -> int | None:
        """Return how much time up to its horizon is free, if the node states it (µs)."""

    @property
    def facts(self) -> Attributes:
        """Return the facts that the node states about itself."""


@dataclass(frozen=True)
class NodeLoad:
    """The booked part (0 to 1) of a node's next hour, and when the current run ends (µs).

    Runs of a class that overlaps all others are left out.
    """

    load: Fraction = Fraction(0)
    running_to: int = 0


def slowest_mbps(nodes: Iterable[NodeDescription]) -> int | None:
    """Return the lowest rate that nodes state, in whole Mb/s; None if none of them states one."""
    stated = (node.facts.get("mbps") for node in nodes)
    return min((int(it) for it in stated if isinstance(it, int | float)), default=None)


def node_loads(
    runs: Iterable[PostedRun], lanes: Mapping[str, int], now: int
) -> dict[str, NodeLoad]:
    """Return, by node, the load that these runs cause; ``lanes`` are by node."""
    loads: dict[str, NodeLoad] = {}
    for run in runs:
        overlap = max(0, min(run.end, now + BUCKET) - max(run.start, now))
        for name in run.nodes:
            parts = {SchedulingClass.EXCLUSIVE: 1, SchedulingClass.NORMAL: lanes.get(name, 1)}
            part = parts.get(run.scheduling_class)
            if part is not None:
                before = loads.get(name, NodeLoad())
                until = run.end if run.running else 0
                load = before.load + Fraction(overlap, BUCKET * part)
                loads[name] = NodeLoad(load, max(before.running_to, until))
    return loads


@dataclass(frozen=True)
class NodeViewContext:
    """The instant and the ``horizon`` (µs) of a view, and the resources that are counted.

    Counted resources are those that some test needs or some quota limits: a longitude is a number,
    but no resource. A silent node is awaited for ``patience`` (µs).
    """

    now: int
    horizon: int
    counted: Collection[str]
    patience: int = 0


def node_view_of(
    node: NodeDescription, busy: NodeLoad, used_at: int, context: NodeViewContext
) -> NodeView:
    """Return a node as policies see it, with what this lead has booked there.

    Its load is the part of its time up to the horizon that it reports as booked, or the part that
    this lead has booked of the next hour, if that is more. It is busy until the instant that it
    reports, or until the current run ends, which is never displaced.
    """
    facts = node.facts
    figures = {word: exact_number(it) for word, it in facts.items() if _is_number(it)}
    idle = node.shortfall
    busy_share = Fraction(0) if idle is None else Fraction(context.horizon - idle, context.horizon)
    return NodeView(
        node.name,
        attributes={word: comparable_value(value) for word, value in facts.items()},
        lanes=node.lanes,
        up=node.unreachable_since is None,
        awaited=node.unreachable_since is not None
        and context.now < node.unreachable_since + context.patience,
        resources={word: int(it) for word, it in figures.items() if word in context.counted},
        figures=figures,
        speed=figures.get("speed", 1),
        load=min(1.0, max(0.0, float(busy.load), float(busy_share))),
        used_at=used_at,
        busy_until=max(busy.running_to, node.busy_until or context.now),
    )


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def comparable_value(value: object) -> str:
    """Return the value of an attribute as policies compare it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def exact_number(value: Decimal | float) -> Exact:
    """Return the exact value of a decimal number; an int if it is whole."""
    fraction = Fraction(str(value))
    return fraction.numerator if fraction.denominator == 1 else fraction
