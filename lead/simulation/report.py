"""The report of a simulated world: a table for people, a document for programs.

The same seed gives the same report, byte for byte: nothing in it depends on the host, the time of
day or the order of a set.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from uuid import UUID

from lead.simulation import invariants
from lead.simulation.fleet.report import FleetTrial
from lead.simulation.history import normalised_reason
from lead.simulation.node import SimulatedWorld
from lead.simulation.series import (
    NodeShare,
    OccupancySeries,
    PairDeliveries,
    PeriodSeries,
    WaitingTimes,
    by_node,
    occupancy,
    over_time,
    pairs,
    waiting_times,
)
from lead.simulation.shares import promised_and_delivered, shares_of_leads
from node.model.wire.fields import Document

_FULLEST = 5
_REASONS_MAX = 30


class Reason(Document):
    """The number of slots without a result for one reason."""

    state: str
    reason: str
    slots: int


class BusiestNode(Document):
    """A node among the busiest; a second in which two runs were measured counts twice."""

    node: str
    share: float


class Report(Document):
    """The outcome of a simulated world."""

    title: str
    seed: int
    days: float
    nodes: int
    tasks: int
    refused_tasks: int
    promised: int
    delivered: int
    not_delivered: tuple[Reason, ...]
    displaced: int
    displaced_and_delivered: int
    occupancy: tuple[OccupancySeries, ...]
    fullest: tuple[BusiestNode, ...]
    waiting: WaitingTimes | None
    pairs: PairDeliveries | None
    over_time: PeriodSeries
    by_node: tuple[NodeShare, ...]
    shares: FleetTrial | None = None
    messages: dict[str, int]
    messages_lost: int
    messages_per_run: float
    faults: dict[str, int]
    repaired_differences: int
    invariants: tuple[str, ...]
    violations: tuple[str, ...]


def report_of(world: SimulatedWorld) -> Report:
    """Build the report from the history and the tables of a world."""
    history = world.history
    reasons: Counter[tuple[str, str]] = Counter()
    promised = delivered = 0
    for slots in history.slots.values():
        for outcome in slots.values():
            promised += 1
            if isinstance(outcome, int):
                delivered += 1
            else:
                reasons[outcome[1], normalised_reason(outcome[2])] += 1
    sent = world.network.sent
    shared = shares_of_leads(world.scenario, history.measured_by_lead) or (
        promised_and_delivered(world.scenario, history.measured)
    )
    nodes = by_node(history, [host.name for host in world.hosts], world.scenario.duration)
    return Report(
        title=world.scenario.title,
        seed=world.scenario.seed,
        days=world.scenario.days,
        nodes=len(world.hosts),
        tasks=world.created,
        refused_tasks=world.refused,
        promised=promised,
        delivered=delivered,
        not_delivered=_reasons(reasons),
        displaced=len(history.displaced),
        displaced_and_delivered=sum(
            isinstance(history.slots[task].get(slot), int)
            for task, slot in history.displaced.values()
        ),
        occupancy=_occupancy(nodes),
        fullest=_fullest(nodes),
        waiting=waiting_times(history.waits),
        pairs=pairs([host.name for host in world.hosts], _parties(world), history.slots),
        over_time=over_time(history, [host.name for host in world.hosts], world.scenario.duration),
        by_node=nodes,
        shares=shared,
        messages={what: sent[what] for what in sorted(sent)},
        messages_lost=world.network.lost,
        messages_per_run=round(sum(sent.values()) / max(1, delivered), 3),
        faults={kind: history.faults[kind] for kind in sorted(history.faults)},
        repaired_differences=history.repaired,
        invariants=invariants.NAMES,
        violations=(*history.violations, *(shared.broken_checks if shared else ())),
    )


def _reasons(counts: Counter[tuple[str, str]]) -> tuple[Reason, ...]:
    ordered = sorted(counts.items(), key=lambda entry: (-entry[1], entry[0]))
    shown = [Reason(state=s, reason=r, slots=n) for (s, r), n in ordered[:_REASONS_MAX]]
    if rest := ordered[_REASONS_MAX:]:
        slots = sum(number for _, number in rest)
        shown.append(Reason(state="", reason=f"{len(rest)} other reasons", slots=slots))
    return tuple(shown)


def _occupancy(nodes: Sequence[NodeShare]) -> tuple[OccupancySeries, ...]:
    kinds = sorted({kind for node in nodes for kind in node.shares})
    return tuple(occupancy(kind, [node.shares.get(kind, 0.0) for node in nodes]) for kind in kinds)


def _fullest(nodes: Sequence[NodeShare]) -> tuple[BusiestNode, ...]:
    shares = [(sum(n.shares.values()), number, n.node) for number, n in enumerate(nodes)]
    shares.sort(key=lambda entry: (-entry[0], entry[1]))
    return tuple(BusiestNode(node=name, share=round(s, 4)) for s, _, name in shares[:_FULLEST])


def _parties(world: SimulatedWorld) -> Iterator[tuple[UUID, list[int]]]:
    """Return the participants of each task as indexes of hosts, as its lead knows them."""
    places = {host.identity: place for place, host in enumerate(world.hosts)}
    led = {
        task["id"]: task["nodes"]
        for host in world.hosts
        for task in host.store.read(invariants.SQL["parties"])
    }
    for task, nodes in (world.history.parties | led).items():
        yield task, [places[identity] for identity in nodes]
