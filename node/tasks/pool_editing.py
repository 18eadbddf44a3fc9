"""Edits of pool tasks.

An edit of the schedule, or of what nodes can be chosen from, gives up all terms of the pool task;
nodes are then chosen for new terms, and those that had seats before come first. Every other edit
changes the ordinary task of each seat; a node that refuses the change loses its seat.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from uuid import UUID

from node.model.errors import FieldFault, InvalidDocument, RequestError, ToolUnavailable
from node.model.recurrence import Recurrence
from node.model.scheduling import first_slot
from node.model.terms import Term, schedule_for, slots_in
from node.model.wire.seats import SeatRequest
from node.model.wire.tasks import TaskDocument
from node.peers.directory import Directory
from node.store import seats, tasks
from node.store.database import Connection, Database
from node.store.seats import TermProgress
from node.store.tasks import StoredTask
from node.tasks.admission import Admission
from node.tasks.drafting import TaskDrafter
from node.tasks.pool_tasks import PoolTaskChecker, PoolTaskRequest
from node.tasks.termination import TaskTerminator

EditParts = Callable[[Connection, Sequence[tuple[int, StoredTask]]], Awaitable[None]]
"""``edit(connection, edits)`` edits tasks of seats: the revision read, and the new task."""

_ASKED_AT_ONCE = 20

_CHOSEN_BY = {"pool", "together", "field"}


@dataclass(frozen=True)
class PoolTaskEdit:
    """An edited pool task, and what becomes of the ordinary task of each seat.

    ``anew`` is True if nodes are chosen anew. A part is the revision read and the edited task, or
    the reason why it cannot go on.
    """

    task: StoredTask
    sought: PoolTaskRequest
    anew: bool
    parts: Mapping[UUID, tuple[int, StoredTask] | str]


class PoolTaskEditor:
    """Edits pool tasks, and the ordinary tasks of their seats with them."""

    def __init__(
        self,
        database: Database,
        admission: Admission,
        drafter: TaskDrafter,
        seating: PoolTaskChecker,
        directory: Directory,
        ending: TaskTerminator,
    ) -> None:
        self._database = database
        self._admission = admission
        self._drafter = drafter
        self._seating = seating
        self._directory = directory
        self._ending = ending

    async def prepare(
        self, found: StoredTask, before: SeatRequest, document: TaskDocument
    ) -> PoolTaskEdit:
        """Check the edited document of a pool task, and ask the nodes that have seats.

        Nothing is stored.

        :raises InvalidDocument: a field is wrong.
        """
        request = document.seats
        if request is None:
            reason = "cannot be changed to nodes by name; cancel the task and create a new one"
            raise InvalidDocument([FieldFault("/participants", reason)])
        sought = await self._seating.find_nodes(document, request)
        new = self._drafter.draft_pool_task(document, sought, found).task
        anew = _slot_rule(found) != _slot_rule(new) or _choice_fields(before) != _choice_fields(
            request
        )
        async with self._database.connection() as connection:
            parts = await tasks.fetch_all(connection, await seats.seat_tasks(connection, new.id))
            sitting = await seats.seats_by_task(connection, new.id)
        answers: dict[UUID, tuple[int, StoredTask] | str] = {}
        # A part that ended between the two queries has no seats any more.
        seated = [] if anew else [part for part in parts if part.id in sitting]
        for first in range(0, len(seated), _ASKED_AT_ONCE):
            batch = seated[first : first + _ASKED_AT_ONCE]
            asking = (self._ask_seat(new, request, part, sitting[part.id]) for part in batch)
            for part, answer in zip(batch, await asyncio.gather(*asking), strict=True):
                answers[part.id] = answer
        return PoolTaskEdit(new, sought, anew, answers)

    async def _ask_seat(
        self, new: StoredTask, request: SeatRequest, part: StoredTask, sitting: Mapping[int, str]
    ) -> tuple[int, StoredTask] | str:
        """Return the edit of one ordinary task, or the reason why it cannot go on."""
        if any(number > request.k for number in sitting):
            return f"its pool task wants {request.k} nodes only"
        schedule = part.terms.schedule
        term = Term(schedule.start or 0, schedule.until or (schedule.start or 0) + 1)
        slots = slots_in(part.terms.recurrence, term)
        own = schedule_for(new.terms.schedule, new.terms.recurrence, part.terms.duration, slots)
        try:
            names = [self._directory.by_identity(node).name for _, node in sorted(sitting.items())]
            document = self._seating.document_for(new, request, names, own)
            return part.terms.revision, await self._admission.ask(document, part)
        except (RequestError, ToolUnavailable) as error:
            return error.detail

    async def apply(
        self, connection: Connection, edited: PoolTaskEdit, now: int, edit_parts: EditParts
    ) -> None:
        """Apply the edit, in the transaction that stores the pool task itself."""
        task, request = edited.task, edited.sought.request
        await self._seating.change(connection, task.id, request, _continued_terms(edited, now))
        await seats.reset_seats(connection, task.id, request.k, now, over=edited.anew)
        edits = []
        # Only tasks that are still open: some may have ended since their nodes were asked.
        for part in await seats.lock_seat_tasks(connection, task.id):
            answer = edited.parts.get(part, "its pool task was edited: nodes are chosen anew")
            if isinstance(answer, str):
                await self._ending.cancel_led_task_in(connection, part, answer)
            else:
                edits.append(answer)
        await edit_parts(connection, edits)
        await seats.empty_ended_seats(connection, task.id, now)


def _continued_terms(edited: PoolTaskEdit, now: int) -> TermProgress | None:
    """Return the slot at which new terms begin, or None if the terms stay as they are."""
    if not edited.anew:
        return None
    terms = edited.task.terms
    slot = first_slot(terms.recurrence, now)
    return TermProgress(slot, None if slot is None else now, terms.schedule.max_runs)


def _slot_rule(task: StoredTask) -> tuple[Recurrence, int | None]:
    """Return recurrence and runs, on which the slots depend; the slip is not among them."""
    return replace(task.terms.recurrence, slip=0), task.terms.schedule.max_runs


def _choice_fields(request: SeatRequest) -> dict[str, object]:
    return request.model_dump(include=_CHOSEN_BY)
