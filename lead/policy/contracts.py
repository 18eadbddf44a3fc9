"""What each axis must be able to answer: the sockets into which the algorithms are plugged.

An axis of a named set is a record of its parameters; ``begin`` makes what answers for one episode.
That may hold figures of the episode, but what is to be remembered goes into the state.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from lead.policy.episode_figures import Board
from lead.policy.placement_requests import AllocationRound, Ask, Displacing
from lead.policy.verdict import PolicyRefusal
from lead.policy.view import Candidate, NodeView, PostedRun, RememberedState, ReservationView


class EpisodeOrder(Protocol):
    """Axis 1 in an episode."""

    @property
    def follows(self) -> bool:
        """Whether who is next depends on what becomes of those before."""

    def take(self) -> Candidate | None:
        """Who is considered next, each once; None is the end."""

    def started(self, candidate: Candidate) -> None:
        """It was placed."""

    def stuck(self, candidate: Candidate) -> None:
        """It was not."""

    def held(self) -> Mapping[str, PolicyRefusal]:
        """By task, those that were never considered because they must wait for others."""

    def remember(self, state: RememberedState) -> RememberedState:
        """The state with what this axis adds to it."""


class Order(Protocol):
    """Axis 1: who gets a worker, who is considered first."""

    def begin(self, board: Board, serving: Sequence[str]) -> EpisodeOrder:
        """For one episode; ``serving`` is the order in which the share axis serves campaigns."""


class EpisodeShare(Protocol):
    """Axis 2 in an episode."""

    @property
    def serving(self) -> Sequence[str]:
        """Campaigns in the order in which they are served."""

    def admit(self, candidate: Candidate, turn: AllocationRound) -> PolicyRefusal | None:
        """Whether its campaign has seats left in the candidate's hour."""

    def returned(self, candidates: Sequence[Candidate]) -> Mapping[str, PolicyRefusal]:
        """By task, what is given back for candidates that found no time, and why."""

    def remember(self, state: RememberedState) -> RememberedState:
        """The state with what this axis adds to it."""


class Share(Protocol):
    """Axis 2: how many seats each campaign may add."""

    def begin(self, board: Board) -> EpisodeShare:
        """For one episode."""


class EpisodeSelect(Protocol):
    """Axis 3 in an episode."""

    def rank(self, candidate: Candidate, nodes: Sequence[NodeView]) -> Sequence[NodeView]:
        """Those of these nodes that will do, the best first."""

    def usual(self, candidate: Candidate, nodes: Sequence[NodeView]) -> frozenset[str]:
        """Those that are worth waiting for."""


class Select(Protocol):
    """Axis 3: which k nodes."""

    def begin(self, board: Board) -> EpisodeSelect:
        """For one episode."""


class EpisodePreempt(Protocol):
    """Axis 4 in an episode."""

    def displacing(
        self, candidate: Candidate, nodes: Sequence[str]
    ) -> Displacing | PolicyRefusal | None:
        """What may give way to the candidate on these nodes; None is nothing, as for all."""


class Preempt(Protocol):
    """Axis 4: who may be displaced."""

    def begin(self, board: Board) -> EpisodePreempt:
        """For one episode."""


class EpisodeThrottle(Protocol):
    """Axis 5 in an episode."""

    def considered(self, candidates: Sequence[Candidate]) -> Mapping[str, PolicyRefusal]:
        """By task, those that are not considered at all, of candidates in order of priority."""

    def admit(self, candidate: Candidate, turn: AllocationRound) -> PolicyRefusal | None:
        """Whether it stays within all limits; soft ones count in the first round only."""

    def placed(self, candidate: Candidate, run: PostedRun) -> None:
        """A run of a candidate was posted."""

    def remember(self, state: RememberedState) -> RememberedState:
        """The state with what this axis adds to it."""


class Throttle(Protocol):
    """Axis 5: what is refused though there is room."""

    def begin(self, board: Board) -> EpisodeThrottle:
        """For one episode."""


class EpisodeFill(Protocol):
    """Axis 6 in an episode."""

    def protect(self, blocked: Candidate, passes: int) -> ReservationView | None:
        """What is kept free for one that found no time; it was passed so often."""

    def keeps_from(self, candidate: Candidate, nodes: Sequence[str]) -> Mapping[str, PolicyRefusal]:
        """By node, those that are out of the question: kept for others during all of its window."""

    def started(self, candidate: Candidate) -> None:
        """A run of it was posted."""

    def slots(self) -> Sequence[ReservationView]:
        """All that was kept free so far."""

    def remember(self, state: RememberedState) -> RememberedState:
        """The state with what this axis adds to it."""


class Fill(Protocol):
    """Axis 6: what is kept free, what may slip past."""

    @property
    def follows(self) -> bool:
        """Whether what is kept free depends on what became of those before."""

    def begin(self, board: Board) -> EpisodeFill:
        """For one episode."""


class EpisodeFeasible(Protocol):
    """Axis 7 in an episode."""

    def check(self, candidate: Candidate) -> PolicyRefusal | None:
        """Whether it can be done at all now."""

    def usable(self, candidate: Candidate, nodes: Sequence[NodeView]) -> Sequence[NodeView]:
        """Those of these nodes that are not to be left alone."""

    def why_not(self, candidate: Candidate, node: NodeView) -> PolicyRefusal | None:
        """What speaks against asking a node, if anything does."""

    def answered(
        self, ask: Ask, gave: Collection[str], refused: Collection[str], *, placed: bool
    ) -> None:
        """Which nodes gave time, which had none or said no, and whether a run came of it."""

    def remember(self, state: RememberedState) -> RememberedState:
        """The state with what this axis adds to it."""


class Feasible(Protocol):
    """Axis 7: can it be done at all, whom to leave alone."""

    def begin(self, board: Board, rng: random.Random) -> EpisodeFeasible:
        """For one episode."""
