"""Protected slots for blocked tasks. Pure.

A task that finds no time may get a *protected slot*: the earliest time it can have on nodes that
suit it. Later tasks may still start if they overlap no other task's slot.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from lead.model.reasons import kept_for_blocked
from lead.policy.timetable import Booked, PlacementRequest, earliest_placement, timetable_for
from lead.policy.verdict import Axis, PolicyRefusal, RefusalRule
from lead.policy.view import Candidate, KeptSlot, ReservationView, View
from node.model.reason import Reason
from node.model.spans import Span
from node.model.times import to_the_second

PROTECTED = RefusalRule(
    Axis.FILL,
    "protected slot",
    "{node} is reserved for task {holder} from {start} to {free}, and the run would not end before "
    "{end}",
)
NO_OVERTAKING = RefusalRule(
    Axis.FILL, "no-overtaking", "{task} waits until {holder}, which is blocked, has started"
)
DEPTH: Final = 1
PREFIX: Final = "slot of "


def find_slot(
    blocked: Candidate, view: View, taken: Booked, slots: Sequence[ReservationView]
) -> ReservationView | None:
    """Return the slot to reserve for a blocked candidate, beside the existing ``slots``.

    ``taken`` is what the runs of the view occupy. Return None if a slot is of no use: there are too
    few nodes, or it would start too late.
    """
    busy = timetable_for(blocked, taken, [*view.reservations, *slots])
    request = PlacementRequest(blocked.task, blocked.k, blocked.duration, blocked.nodes)
    place = earliest_placement(busy, request, max(view.now, blocked.next_run_at))
    if place is None or place.start > blocked.start_by:
        return None
    return slot_of(blocked.task, place.nodes, place.start, place.start + blocked.duration)


def slot_of(task: str, nodes: Sequence[str], start: int, end: int) -> ReservationView:
    """Return the slot of a task as a reservation."""
    return ReservationView(f"{PREFIX}{task}", nodes, start, end, tasks=frozenset({task}))


def kept_reason(slot: ReservationView) -> Reason:
    """Return why a node has no time during a slot of another task, and when it is over."""
    return kept_for_blocked(slot.start, slot.end, _holder(slot))


def _holder(slot: ReservationView) -> str:
    """Return the task for which a slot is reserved, without the term."""
    return slot.name.removeprefix(PREFIX).partition(" ")[0]


def still_usable_slots(slots_by_task: Mapping[str, KeptSlot], now: int) -> list[ReservationView]:
    """Return the slots of earlier episodes that can still be used as they are, by start.

    A slot that did not begin in time was of no use: its task gets another one if it is blocked
    again.
    """
    slots = [slot_of(task, it.nodes, it.start, it.end) for task, it in slots_by_task.items()]
    return sorted((it for it in slots if it.start >= now), key=lambda it: (it.start, it.name))


def slots_to_remember(slots: Iterable[ReservationView]) -> dict[str, KeptSlot]:
    """Return the inverse of :func:`lasting`."""
    return {
        task: KeptSlot(tuple(slot.nodes), slot.start, slot.end)
        for slot in slots
        for task in slot.tasks
    }


def find_overlap_refusal(
    candidate: Candidate, nodes: Iterable[str], span: Span, slots: Iterable[ReservationView]
) -> PolicyRefusal | None:
    """Return a refusal if a run on these nodes would overlap another task's slot."""
    wanted = set(nodes)
    for slot in slots:
        if slot.start < span[1] and span[0] < slot.end and not slot.admits(candidate):
            for name in slot.nodes:
                if name in wanted:
                    return PROTECTED.refuse(
                        until=slot.end,
                        node=name,
                        holder=_holder(slot),
                        start=to_the_second(slot.start),
                        free=to_the_second(slot.end),
                        end=to_the_second(span[1]),
                    )
    return None
