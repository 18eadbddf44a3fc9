"""The interface of each policy axis, into which the algorithms are plugged.

An axis of a named set is a record of its parameters. Its ``begin`` returns an object that answers
for one episode. That object may hold figures of the episode, but whatever must survive the episode
belongs in the state.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from lead.policy.contested import Contests
from lead.policy.episode_figures import Board
from lead.policy.placement_requests import AllocationRound, Ask, Displacing
from lead.policy.throttle.full_time import FullTime
from lead.policy.verdict import PolicyRefusal
from lead.policy.view import Candidate, NodeView, PostedRun, RememberedState, ReservationView


class EpisodeOrder(Protocol):
    """Axis 1 during one episode."""

    @property
    def awaits_outcomes(self) -> bool:
        """Return whether the next candidate depends on the outcome of earlier ones."""

    def take(self) -> Candidate | None:
        """Return the next candidate to consider, each once; None at the end."""

    def record_start(self, candidate: Candidate) -> None:
        """Record that the candidate was placed."""

    def record_stuck(self, candidate: Candidate) -> None:
        """Record that the candidate was not placed."""

    def reasons_to_wait(self) -> Mapping[str, PolicyRefusal]:
        """Return, by task, why it was never considered: it has to wait for others."""

    def updated_state(self, state: RememberedState) -> RememberedState:
        """Return the state with what this axis remembers until the next episode."""


class Order(Protocol):
    """Axis 1: the order in which candidates are considered and get a worker."""

    def for_episode(self, board: Board, serving: Sequence[str]) -> EpisodeOrder:
        """Return the order for one episode; ``serving`` are the campaigns as they are served."""


class EpisodeShare(Protocol):
    """Axis 2 during one episode."""

    @property
    def serving(self) -> Sequence[str]:
        """Return the campaigns in the order in which they are served."""

    def find_refusal(self, candidate: Candidate, turn: AllocationRound) -> PolicyRefusal | None:
        """Return a refusal if its campaign has no seats left in the candidate's hour."""

    def full_times(self, candidate: Candidate) -> Sequence[FullTime]:
        """Return the time in which no run of the candidate may be, whatever it slips."""

    @property
    def contests(self) -> Contests:
        """Return who contends for which time, and by what weights."""

    def updated_state(self, state: RememberedState) -> RememberedState:
        """Return the state with what this axis remembers until the next episode."""


class Share(Protocol):
    """Axis 2: how many seats each campaign may add."""

    def for_episode(self, board: Board) -> EpisodeShare:
        """Return this rule with the figures of one episode."""


class EpisodeSelect(Protocol):
    """Axis 3 during one episode."""

    def ranking(self, candidate: Candidate, nodes: Sequence[NodeView]) -> Sequence[NodeView]:
        """Return the suitable ones of these nodes, the best first."""

    def nodes_worth_waiting_for(
        self, candidate: Candidate, nodes: Sequence[NodeView]
    ) -> frozenset[str]:
        """Return the nodes that are worth waiting for."""


class Select(Protocol):
    """Axis 3: which k nodes take part."""

    def for_episode(self, board: Board) -> EpisodeSelect:
        """Return this rule with the figures of one episode."""


class EpisodePreempt(Protocol):
    """Axis 4 during one episode."""

    def find_displaceable(
        self, candidate: Candidate, nodes: Sequence[str]
    ) -> Displacing | PolicyRefusal | None:
        """Return what the candidate may displace on these nodes; None if nothing, as by default."""


class Preempt(Protocol):
    """Axis 4: which runs may be displaced."""

    def for_episode(self, board: Board) -> EpisodePreempt:
        """Return this rule with the figures of one episode."""


class EpisodeThrottle(Protocol):
    """Axis 5 during one episode."""

    def find_excluded(self, candidates: Sequence[Candidate]) -> Mapping[str, PolicyRefusal]:
        """Return, by task, why it is not considered; candidates come in order of priority."""

    def find_refusal(self, candidate: Candidate, turn: AllocationRound) -> PolicyRefusal | None:
        """Return a refusal if it exceeds a limit; the last round heeds the hard ones only."""

    def full_times(self, candidate: Candidate, turn: AllocationRound) -> Sequence[FullTime]:
        """Return the time in which no run of it may take place because of limits."""

    def record_run(self, candidate: Candidate, run: PostedRun) -> None:
        """Record that a run of the candidate was posted."""

    def updated_state(self, state: RememberedState) -> RememberedState:
        """Return the state with what this axis remembers until the next episode."""


class Throttle(Protocol):
    """Axis 5: what is refused although there is room."""

    def for_episode(self, board: Board) -> EpisodeThrottle:
        """Return this rule with the figures of one episode."""


class EpisodeFill(Protocol):
    """Axis 6 during one episode."""

    def reserve_slot(self, blocked: Candidate, passes: int) -> ReservationView | None:
        """Reserve time for a blocked candidate, which others passed ``passes`` times."""

    def slot_refusals(
        self, candidate: Candidate, nodes: Sequence[str]
    ) -> Mapping[str, PolicyRefusal]:
        """Return, by node, why it is reserved for others throughout the candidate's window."""

    def record_start(self, candidate: Candidate) -> None:
        """Record that a run of the candidate was posted."""

    def slots(self) -> Sequence[ReservationView]:
        """Return all reservations made so far."""

    def updated_state(self, state: RememberedState) -> RememberedState:
        """Return the state with what this axis remembers until the next episode."""


class Fill(Protocol):
    """Axis 6: what is reserved for blocked tasks, and what may run before them."""

    @property
    def awaits_outcomes(self) -> bool:
        """Return whether reservations depend on the outcome of earlier candidates."""

    def for_episode(self, board: Board) -> EpisodeFill:
        """Return this rule with the figures of one episode."""


class EpisodeFeasible(Protocol):
    """Axis 7 during one episode."""

    def find_refusal(self, candidate: Candidate) -> PolicyRefusal | None:
        """Return a refusal if the candidate cannot run at all now."""

    def nodes_to_ask(self, candidate: Candidate, nodes: Sequence[NodeView]) -> Sequence[NodeView]:
        """Return the ones of these nodes that may be asked."""

    def find_node_refusal(self, candidate: Candidate, node: NodeView) -> PolicyRefusal | None:
        """Return a refusal if the node must not be asked, else None."""

    def record_answers(
        self, ask: Ask, gave: Collection[str], refused: Collection[str], *, placed: bool
    ) -> None:
        """Record which nodes offered time or refused, and whether a run was placed."""

    def updated_state(self, state: RememberedState) -> RememberedState:
        """Return the state with what this axis remembers until the next episode."""


class Feasible(Protocol):
    """Axis 7: whether a candidate can run at all, and which nodes not to ask."""

    def for_episode(self, board: Board, rng: random.Random) -> EpisodeFeasible:
        """Return this rule with the figures of one episode."""
