"""Strictly by priority, and what that keeps free: the pass before anything is filled in. Pure.

The list is gone down in order. What fits now starts; what does not gets a *protected slot* at the
earliest time that it can have, up to ``depth`` of them. With ``overtaking`` what comes later may
start all the same if it fits beside all slots; without it, nothing starts once somebody waits.
When there are no slots left to give, the rest of the list is left to backfill.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from lead.policy.select.last_available import rank
from lead.policy.timetable import (
    Booked,
    Place,
    Request,
    Timetable,
    earliest,
    free_for,
    timetable_for,
)
from lead.policy.verdict import Axis, No, Rule
from lead.policy.view import Candidate, Reservation, View
from node.model.spans import Span

PROTECTED = Rule(
    Axis.FILL,
    "protected slot",
    "{node} is kept for {holder} from {start} on, and the run would end at {end}",
)
DEPTH: Final = 1
PREFIX: Final = "slot of "


@dataclass(frozen=True, slots=True)
class Pass:
    """What started where, who has a slot, who has neither, and when nodes are busy after that."""

    started: dict[str, tuple[str, ...]]
    slots: dict[str, Place]
    rest: list[Request]
    timetable: dict[str, list[Span]]


def in_priority_order(
    queue: Sequence[Request],
    timetable: Timetable,
    now: int,
    depth: int = DEPTH,
    *,
    overtaking: bool = True,
    kept: Mapping[str, Place] | None = None,
) -> Pass:
    """One pass over a list in the order of priority.

    ``kept`` are the slots of earlier passes that their holders keep whoever is on top now; without
    it, slots are given anew each time.
    """
    done = Pass({}, {}, [], {name: list(spans) for name, spans in timetable.items()})
    own = _still_theirs(queue, done, kept or {})
    for request in queue:
        mine = own.get(request.task)
        if mine is not None:
            _unbook(done, mine, request.duration)
        elif done.rest:
            done.rest.append(request)
            continue
        since = now if overtaking else max((it.start for it in done.slots.values()), default=now)
        nodes = _now(request, done.timetable, now) if since == now else None
        if nodes is not None:
            done.started[request.task] = nodes
            _book(done, Place(now, nodes), request.duration)
            continue
        place = earliest(done.timetable, request, since)
        if place is not None and (mine is not None or len(done.slots) < depth):
            done.slots[request.task] = place
            _book(done, place, request.duration)
        else:
            done.rest.append(request)
    return done


def _still_theirs(
    queue: Sequence[Request], done: Pass, kept: Mapping[str, Place]
) -> dict[str, Place]:
    """The kept slots whose nodes are still free then; all of them are put into the timetable."""
    own: dict[str, Place] = {}
    for request in queue:
        place = kept.get(request.task)
        if place is not None:
            free = free_for(
                {name: done.timetable.get(name, ()) for name in place.nodes}, place.start
            )
            fitting = rank(free, request.duration)
            if len(fitting) == len(place.nodes):
                own[request.task] = place
                _book(done, place, request.duration)
    return own


def _now(request: Request, timetable: Timetable, now: int) -> tuple[str, ...] | None:
    """The nodes on which it can start at once, the best filled first."""
    free = free_for({name: timetable.get(name, ()) for name in request.nodes}, now)
    fitting = rank(free, request.duration)
    return tuple(fitting[: request.k]) if len(fitting) >= request.k else None


def _book(done: Pass, place: Place, duration: int) -> None:
    for name in place.nodes:
        insort(done.timetable.setdefault(name, []), (place.start, place.start + duration))


def _unbook(done: Pass, place: Place, duration: int) -> None:
    for name in place.nodes:
        done.timetable[name].remove((place.start, place.start + duration))


def protect(
    blocked: Candidate, view: View, taken: Booked, slots: Sequence[Reservation]
) -> Reservation | None:
    """The slot that is kept for a blocked candidate, beside those given already.

    ``taken`` is what the runs of the view occupy.

    None where it is of no use: there are too few nodes, or it would start too late.
    """
    busy = timetable_for(blocked, taken, [*view.reservations, *slots])
    request = Request(blocked.task, blocked.k, blocked.duration, blocked.nodes)
    place = earliest(busy, request, max(view.now, blocked.next_run_at))
    if place is None or place.start > blocked.start_by:
        return None
    return Reservation(
        name=f"{PREFIX}{blocked.task}",
        nodes=place.nodes,
        start=place.start,
        end=place.start + blocked.duration,
        tasks=frozenset({blocked.task}),
    )


def may_fill(
    candidate: Candidate, nodes: Iterable[str], span: Span, slots: Iterable[Reservation]
) -> No | None:
    """No if a run on these nodes would reach into a slot that is kept for somebody else."""
    asked = set(nodes)
    for slot in slots:
        if slot.start < span[1] and span[0] < slot.end and not slot.admits(candidate):
            for name in slot.nodes:
                if name in asked:
                    return PROTECTED.says_no(
                        until=slot.end,
                        node=name,
                        holder=slot.name.removeprefix(PREFIX),
                        start=slot.start,
                        end=span[1],
                    )
    return None
