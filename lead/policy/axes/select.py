"""Axis 3 in an episode: which of the suitable nodes to ask, the best first."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from fractions import Fraction

from lead.policy.episode_figures import Board
from lead.policy.feasible import work_fetch
from lead.policy.select import affinity, linear_function, placement, rankings
from lead.policy.timetable import first_gap, free_times, timetable_for
from lead.policy.view import Candidate, NodeView
from node.model import times
from node.model.spans import Span, normalise
from node.model.spare_capacity import SpareCapacity

Ranking = Callable[[Candidate, Sequence[NodeView]], Sequence[NodeView]]


class Ranked:
    """Nodes by one criterion; none is worth waiting for."""

    def __init__(self, ranking: Ranking) -> None:
        self.ranking = ranking

    def nodes_worth_waiting_for(
        self, candidate: Candidate, nodes: Sequence[NodeView]
    ) -> frozenset[str]:
        """Return no node."""
        del candidate, nodes
        return frozenset()


@dataclass(frozen=True, slots=True)
class LeastLoaded:
    """The node with the least booked time in the hour of the run."""

    def for_episode(self, board: Board) -> Ranked:
        """Return this rule with the figures of one episode."""

        def ranking(candidate: Candidate, nodes: Sequence[NodeView]) -> Sequence[NodeView]:
            return rankings.by_load(nodes, _booked_by_node(board, candidate))

        return Ranked(ranking)


def _booked_by_node(board: Board, candidate: Candidate) -> Mapping[str, int]:
    return board.booked_time.get(board.hour_of(candidate), {})


@dataclass(frozen=True, slots=True)
class Affinity:
    """Nodes that measured the same before, then the least recently used, or the least loaded."""

    least_loaded: bool = False

    def for_episode(self, board: Board) -> Affine:
        """Return this rule with the figures of one episode."""
        return Affine(board, least_loaded=self.least_loaded)


class Affine:
    """Nodes by affinity; those that measured the series before are worth waiting for."""

    def __init__(self, board: Board, *, least_loaded: bool) -> None:
        """Begin with what is remembered of earlier measurements."""
        self._board = board
        self._least_loaded = least_loaded

    def ranking(self, candidate: Candidate, nodes: Sequence[NodeView]) -> Sequence[NodeView]:
        """Return the nodes, the highest affinity first."""
        state = self._board.view.state
        booked = _booked_by_node(self._board, candidate) if self._least_loaded else {}
        score: Callable[[NodeView], int] = lambda node: affinity.affinity(candidate, node, state)  # noqa: E731
        return affinity.ranking(nodes, score, booked)

    def nodes_worth_waiting_for(
        self, candidate: Candidate, nodes: Sequence[NodeView]
    ) -> frozenset[str]:
        """Return the nodes that measured the series before."""
        state = self._board.view.state
        return frozenset(it.name for it in nodes if affinity.has_measured(candidate, it, state))


@dataclass(frozen=True, slots=True)
class LastAvailable:
    """The node whose free time the run fills best; last, those not free at its ideal start."""

    def for_episode(self, board: Board) -> Ranked:
        """Return this rule with the figures of one episode."""

        def ranking(candidate: Candidate, nodes: Sequence[NodeView]) -> Sequence[NodeView]:
            by_name = {node.name: node for node in nodes}
            reserved = [*board.view.reservations, *board.slots]
            busy = timetable_for(candidate, board.booked_spans, reserved)
            free = free_times(
                {name: busy[name] for name in by_name}, max(board.view.now, candidate.next_run_at)
            )
            fitting = rankings.by_time_left(free, candidate.duration)
            return [by_name.pop(name) for name in fitting] + list(by_name.values())

        return Ranked(ranking)


@dataclass(frozen=True, slots=True)
class Poorest:
    """The node with the least resources that suffice."""

    def for_episode(self, board: Board) -> Ranked:
        """Return this rule with the figures of one episode."""
        del board

        def ranking(candidate: Candidate, nodes: Sequence[NodeView]) -> Sequence[NodeView]:
            by_name = {node.name: node for node in nodes}
            needs = {name: amount or 0 for name, amount in candidate.needs.items()}
            # A node that does not state its amount of a resource counts as having what is needed.
            configured = {node.name: {**needs, **node.resources} for node in nodes}
            return [by_name[name] for name in rankings.by_wealth(configured, needs)]

        return Ranked(ranking)


def _clean() -> linear_function.Linear:
    return linear_function.parse("speed - load - 0.1*booked")


@dataclass(frozen=True, slots=True)
class ByFunction:
    """Nodes by a linear function of their figures.

    ``speed`` (1 if not stated), ``load``, ``lanes``, ``booked`` (minutes in the hour of the run),
    ``affinity``, and each numeric attribute by its name.
    """

    function: linear_function.Linear = field(default_factory=_clean)

    def for_episode(self, board: Board) -> Ranked:
        """Return this rule with the figures of one episode."""

        def ranking(candidate: Candidate, nodes: Sequence[NodeView]) -> Sequence[NodeView]:
            by_name = {node.name: node for node in nodes}
            booked = _booked_by_node(board, candidate)
            figures: dict[str, Mapping[str, Fraction | float]] = {
                node.name: {
                    **node.resources,
                    **node.figures,
                    "speed": Fraction(node.speed),
                    "load": node.load,
                    "lanes": node.lanes,
                    "booked": Fraction(booked.get(node.name, 0), 60_000_000),
                    "affinity": affinity.affinity(candidate, node, board.view.state),
                }
                for node in nodes
            }
            return [by_name[name] for name, _ in linear_function.ranking(self.function, figures)]

        return Ranked(ranking)


@dataclass(frozen=True, slots=True)
class NeediestNodes:
    """The nodes that need work first, by how much they need; then those that could take some.

    A node needs work if it is busy for less than ``low`` µs from now, and takes some if it is busy
    for less than ``low + more`` µs. Ties go to the least booked.
    """

    low: int = times.DAY // 10
    more: int = times.DAY // 2

    def for_episode(self, board: Board) -> Ranked:
        """Return this rule with the figures of one episode."""
        now, horizon = board.view.now, board.view.horizon
        buffer = work_fetch.buffer_of(self.low, self.more)

        given: dict[str, list[Span]] = {}
        counted = 0

        def need(node: NodeView) -> tuple[float, float]:
            runs = normalise(given.get(node.name, ()))
            busy_to = first_gap(runs, max(now, node.busy_until), 1)
            busy = busy_to - now
            missing = (1 - node.load) * horizon - sum(end - start for start, end in runs)
            ahead = SpareCapacity(max(0, missing), busy, 0 if busy else 1)
            return (
                -work_fetch.amount_to_ask(ahead, buffer),
                -work_fetch.amount_to_ask(ahead, buffer, on_contact=True),
            )

        def count_placed() -> None:
            """Count what was placed since the last call: nodes have told nothing of it yet."""
            nonlocal counted
            for run in board.placed[counted:]:
                for name in run.nodes:
                    given.setdefault(name, []).append((run.start, run.end))
            counted = len(board.placed)

        def ranking(candidate: Candidate, nodes: Sequence[NodeView]) -> Sequence[NodeView]:
            count_placed()
            return sorted(rankings.by_load(nodes, _booked_by_node(board, candidate)), key=need)

        return Ranked(ranking)


class LayoutKind(StrEnum):
    """The ways to lay the seats of one run over nodes."""

    ROUND_ROBIN = "round-robin"
    SPREAD = "spread"
    PACK = "pack"


_WAYS = {
    LayoutKind.ROUND_ROBIN: placement.round_robin,
    LayoutKind.SPREAD: placement.spread,
    LayoutKind.PACK: placement.pack,
}


@dataclass(frozen=True, slots=True)
class NodeLayout:
    """Nodes in turn from the least recently used, spread as listed, or the fullest first.

    A node takes part in a run once, so each has room for one.
    """

    way: LayoutKind = LayoutKind.ROUND_ROBIN

    def for_episode(self, board: Board) -> Ranked:
        """Return this rule with the figures of one episode."""
        used: dict[str, int] = {}

        def ranking(candidate: Candidate, nodes: Sequence[NodeView]) -> Sequence[NodeView]:
            booked = _booked_by_node(board, candidate)
            if self.way is LayoutKind.ROUND_ROBIN:
                nodes = sorted(nodes, key=lambda it: (used.get(it.name, 0), it.used_at))
            elif self.way is LayoutKind.PACK:
                nodes = sorted(nodes, key=lambda it: -booked.get(it.name, 0))
            wanted = min(candidate.k, len(nodes))
            layout = _WAYS[self.way]({node.name: 1 for node in nodes}, wanted) or {}
            chosen = [node for node in nodes if layout.get(node.name)]
            for node in chosen:
                used[node.name] = used.get(node.name, 0) + 1
            return chosen + [node for node in nodes if not layout.get(node.name)]

        return Ranked(ranking)
