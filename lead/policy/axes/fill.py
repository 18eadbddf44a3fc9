"""Axis 6 in an episode: what is reserved for candidates that found no time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from lead.policy.episode_figures import Board
from lead.policy.fill import reservations
from lead.policy.verdict import PolicyRefusal
from lead.policy.view import Candidate, RememberedState, ReservationView


class Slots:
    """The protected slots of an episode."""

    def __init__(
        self,
        board: Board,
        depth: int,
        passes: int | None,
        *,
        overtaking: bool = True,
        lasting: bool = False,
    ) -> None:
        """Reserve ``depth`` slots, and one for each candidate passed ``passes`` times or more.

        With ``lasting``, slots of earlier episodes remain, and count among the ``depth``.
        """
        self._board = board
        self._depth = depth
        self._passes = passes
        self._overtaking = overtaking
        self._lasting = lasting
        if lasting:
            board.slots += reservations.still_usable_slots(board.view.state.slots, board.view.now)
        self._blocked = ""

    def reserve_slot(self, blocked: Candidate, passes: int) -> ReservationView | None:
        """Reserve the earliest time it can have, if it may have a slot at all."""
        self._blocked = self._blocked or blocked.task
        own_slot = next((it for it in self._board.slots if blocked.task in it.tasks), None)
        if own_slot is not None:
            return own_slot
        due = self._passes is not None and passes >= self._passes
        if len(self._board.slots) >= self._depth and not due:
            return None
        slots = self._board.slots
        slot = reservations.find_slot(blocked, self._board.view, self._board.booked_spans, slots)
        if slot is not None:
            slots.append(slot)
        return slot

    def slot_refusals(
        self, candidate: Candidate, nodes: Sequence[str]
    ) -> Mapping[str, PolicyRefusal]:
        """Return the nodes where every possible start would overlap another task's slot."""
        if self._blocked and not self._overtaking:
            refusal = reservations.NO_OVERTAKING.refuse(task=candidate.task, holder=self._blocked)
            return dict.fromkeys(nodes, refusal)
        slots = self._board.slots
        if not slots:
            return {}
        # Every start overlaps a slot that begins before the first of them would end and ends after
        # the last of them.
        first = max(candidate.next_run_at, self._board.view.now)
        always = candidate.start_by, first + candidate.duration
        refusals = {
            name: reservations.find_overlap_refusal(candidate, [name], always, slots)
            for name in nodes
        }
        return {name: refusal for name, refusal in refusals.items() if refusal is not None}

    def record_start(self, candidate: Candidate) -> None:
        """Drop the candidate's slot: it has a run."""
        slots = self._board.slots
        slots[:] = [slot for slot in slots if candidate.task not in slot.tasks]

    def slots(self) -> Sequence[ReservationView]:
        """Return all reserved slots."""
        return self._board.slots

    def updated_state(self, state: RememberedState) -> RememberedState:
        """Return the state with the slots that outlive the episode."""
        lasting_slots = reservations.slots_to_remember(self._board.slots) if self._lasting else {}
        return replace(state, slots=lasting_slots)


@dataclass(frozen=True, slots=True)
class EarliestGap:
    """A rule that reserves nothing."""

    awaits_outcomes = False

    def for_episode(self, board: Board) -> Slots:
        """Return this rule with the figures of one episode."""
        return Slots(board, 0, None)


@dataclass(frozen=True, slots=True)
class Protected:
    """A slot for the first blocked candidates; shorter runs fill the time before it.

    ``depth`` slots are reserved; beyond that, one for each task that was passed ``passes`` times.
    Without ``overtaking`` nothing else starts once a candidate is blocked. Each episode reserves
    the slots anew, for the first candidates at that time; with ``lasting``, a task keeps its slot
    until it has started, whichever task comes first meanwhile.
    """

    depth: int = reservations.DEPTH
    passes: int | None = None
    overtaking: bool = True
    lasting: bool = False

    @property
    def awaits_outcomes(self) -> bool:
        """Return whether slots depend on which candidates were blocked."""
        return self.depth > 0 or self.passes is not None or not self.overtaking

    def for_episode(self, board: Board) -> Slots:
        """Return this rule with the figures of one episode."""
        return Slots(
            board, self.depth, self.passes, overtaking=self.overtaking, lasting=self.lasting
        )
