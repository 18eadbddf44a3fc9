"""Axis 1 in an episode, once all slots are given: what fills the time before them goes first."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from lead.policy.axes.order import Weighted
from lead.policy.board import Board
from lead.policy.contracts import Order, Ordering
from lead.policy.fill import backfill, reservations
from lead.policy.timetable import Request, free_for
from lead.policy.verdict import No
from lead.policy.view import Candidate, State
from node.model.classes import SchedulingClass
from node.model.spans import normalise


@dataclass(frozen=True, slots=True)
class Backfilled:
    """In the order of ``others`` until ``depth`` slots are given; then what is chosen to fill.

    Before that, whoever is filled in might delay one that has no slot yet. ``choice`` says which of
    the runs that fit, ``worth`` what each is worth, and of those that still wait the first
    ``considered`` are looked at (0 is all).
    """

    choice: backfill.Choice = backfill.Choice.FIRST
    worth: backfill.Worth = backfill.Worth.SEATS
    considered: int = 0
    depth: int = reservations.DEPTH
    others: Order = field(default_factory=Weighted)

    def begin(self, board: Board, serving: Sequence[str]) -> Filler:
        """For one episode."""
        return Filler(self, board, self.others.begin(board, serving))


class Filler:
    """A list that is put in another order when the slots are given."""

    follows = True

    def __init__(self, rules: Backfilled, board: Board, others: Ordering) -> None:
        """The list as the other order has it."""
        self._rules = rules
        self._board = board
        self._others = others
        self._left = deque(iter(others.take, None))
        # What may be considered at all is counted in this order.
        board.candidates = list(self._left)
        self._filled = False

    def take(self) -> Candidate | None:
        """The next of the list."""
        if not self._filled and len(self._board.slots) >= self._rules.depth > 0:
            self._filled = True
            self._left = deque(self._fillers_first())
        return self._left.popleft() if self._left else None

    def _fillers_first(self) -> list[Candidate]:
        now = self._board.view.now
        requests = [
            Request(it.task, it.k, it.duration, it.nodes)
            for it in self._left
            if it.next_run_at <= now
        ]
        rules = self._rules
        chosen = backfill.fill(requests, self._free(), rules.choice, rules.worth, rules.considered)
        known = {it.task: it for it in self._left}
        return [*(known.pop(task) for task in chosen), *known.values()]

    def _free(self) -> dict[str, int | None]:
        """How long each node stays free from now on: of runs, reservations and slots."""
        view = self._board.view
        taken = self._board.booked[SchedulingClass.EXCLUSIVE]
        busy = {
            node.name: list(taken.get(node.name, ()))
            for node in self._board.usable(view.pool.nodes)
        }
        for kept in (*view.reservations, *self._board.slots):
            for name in kept.nodes:
                if name in busy:
                    busy[name].append((kept.start, kept.end))
        return free_for({name: normalise(spans) for name, spans in busy.items()}, view.now)

    def started(self, candidate: Candidate) -> None:
        """Told on."""
        self._others.started(candidate)

    def stuck(self, candidate: Candidate) -> None:
        """Told on."""
        self._others.stuck(candidate)

    def held(self) -> Mapping[str, No]:
        """Those that the other order holds."""
        return self._others.held()

    def remember(self, state: State) -> State:
        """What the other order remembers."""
        return self._others.remember(state)
