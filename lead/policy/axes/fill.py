"""Axis 6 in an episode: what is kept free for those that found no time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from lead.policy.episode_figures import Board
from lead.policy.fill import reservations
from lead.policy.verdict import PolicyRefusal
from lead.policy.view import Candidate, RememberedState, ReservationView


class Slots:
    """Protected slots, as they are given."""

    def __init__(
        self,
        board: Board,
        depth: int,
        passes: int | None,
        *,
        overtaking: bool = True,
        lasting: bool = False,
    ) -> None:
        """``depth`` of them, and one for each that was passed ``passes`` times or more.

        Those that last were given by earlier episodes, too, and count among the ``depth``.
        """
        self._board = board
        self._depth = depth
        self._passes = passes
        self._overtaking = overtaking
        self._lasting = lasting
        if lasting:
            board.slots += reservations.lasting(board.view.state.slots, board.view.now)
        self._blocked = ""

    def protect(self, blocked: Candidate, passes: int) -> ReservationView | None:
        """The earliest time it can have, if it may have a slot at all."""
        self._blocked = self._blocked or blocked.task
        own = next((it for it in self._board.slots if blocked.task in it.tasks), None)
        if own is not None:
            return own
        due = self._passes is not None and passes >= self._passes
        if len(self._board.slots) >= self._depth and not due:
            return None
        slots = self._board.slots
        slot = reservations.protect(blocked, self._board.view, self._board.booked, slots)
        if slot is not None:
            slots.append(slot)
        return slot

    def keeps_from(self, candidate: Candidate, nodes: Sequence[str]) -> Mapping[str, PolicyRefusal]:
        """The nodes on which whatever start there is would reach into somebody else's slot."""
        if self._blocked and not self._overtaking:
            no = reservations.NO_OVERTAKING.says_no(task=candidate.task, holder=self._blocked)
            return dict.fromkeys(nodes, no)
        slots = self._board.slots
        if not slots:
            return {}
        # Every start reaches into a slot that begins before the first of them would end and ends
        # after the last of them.
        always = candidate.start_by, candidate.next_run_at + candidate.duration
        found = {name: reservations.may_fill(candidate, [name], always, slots) for name in nodes}
        return {name: no for name, no in found.items() if no is not None}

    def started(self, candidate: Candidate) -> None:
        """Who has a run needs no slot."""
        slots = self._board.slots
        slots[:] = [slot for slot in slots if candidate.task not in slot.tasks]

    def slots(self) -> Sequence[ReservationView]:
        """All that were given."""
        return self._board.slots

    def remember(self, state: RememberedState) -> RememberedState:
        """The slots that last."""
        kept = reservations.remembered(self._board.slots) if self._lasting else {}
        return replace(state, slots=kept)


@dataclass(frozen=True, slots=True)
class EarliestGap:
    """Nothing is kept free."""

    follows = False

    def begin(self, board: Board) -> Slots:
        """For one episode."""
        return Slots(board, 0, None)


@dataclass(frozen=True, slots=True)
class Protected:
    """A slot for the first that are blocked; what is shorter fills the time before it.

    ``depth`` slots are given; beyond that, one to each task that was passed ``passes`` times.
    Without ``overtaking`` nothing starts any more once somebody is blocked. Each episode gives the
    slots anew, to whoever is first then; where they are ``lasting``, who was given one keeps it
    until it has started, whoever comes first meanwhile.
    """

    depth: int = reservations.DEPTH
    passes: int | None = None
    overtaking: bool = True
    lasting: bool = False

    @property
    def follows(self) -> bool:
        """Slots depend on who was blocked."""
        return self.depth > 0 or self.passes is not None or not self.overtaking

    def begin(self, board: Board) -> Slots:
        """For one episode."""
        return Slots(
            board, self.depth, self.passes, overtaking=self.overtaking, lasting=self.lasting
        )
