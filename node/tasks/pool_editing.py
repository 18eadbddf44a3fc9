"""How a pool task is edited: the ordinary tasks of its seats with it, or its seats are given anew.

Other times, or other nodes to choose from, give up all its terms: nodes are chosen for new ones,
those that had the seats before others. Everything else is an edit of each ordinary task; a node
that refuses it loses its seat.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from uuid import UUID

from node.model.errors import FieldFault, InvalidDocument, RequestError, ToolUnavailable
from node.model.recurrence import Recurrence
from node.model.scheduling import first_slot, recurrence_of
from node.model.terms import Term, schedule_for, slots_in
from node.model.wire.participants import Introduction
from node.model.wire.seats import SeatRequest
from node.model.wire.tasks import TaskDocument
from node.peers.directory import Directory
from node.store import seats, tasks
from node.store.database import Connection, Database
from node.store.seats import TermProgress
from node.store.tasks import StoredTask
from node.tasks.acceptance import stored_task
from node.tasks.admission import Admission
from node.tasks.pool_tasks import PoolTaskChecker, PoolTaskRequest
from node.tasks.termination import TaskTerminator

EditParts = Callable[[Connection, Sequence[tuple[int, Introduction]]], Awaitable[None]]
"""``edit(connection, edits)``: ordinary tasks of seats, each of its revision to what was asked."""

_ASKED_AT_ONCE = 20

_CHOSEN_BY = {"pool", "together", "field"}


@dataclass(frozen=True)
class PoolTaskEdit:
    """A pool task as it would be, and what each ordinary task of its seats said to that."""

    task: StoredTask
    sought: PoolTaskRequest
    anew: bool
    parts: Mapping[UUID, tuple[int, Introduction] | str]


class PoolTaskEditor:
    """Edits pool tasks."""

    def __init__(
        self,
        database: Database,
        admission: Admission,
        seating: PoolTaskChecker,
        directory: Directory,
        ending: TaskTerminator,
    ) -> None:
        """Keeps nothing itself."""
        self._database = database
        self._admission = admission
        self._seating = seating
        self._directory = directory
        self._ending = ending

    async def prepare(
        self, found: StoredTask, before: SeatRequest, document: TaskDocument
    ) -> PoolTaskEdit:
        """Check the edited document of a pool task, and ask whoever has a seat; nothing is kept.

        :raises InvalidDocument: a field is wrong.
        """
        request = document.seats
        if request is None:
            said = "cannot be edited into nodes by name; cancel this task and create another one"
            raise InvalidDocument([FieldFault("/participants", said)])
        sought = await self._seating.find_nodes(document, request)
        introduction = self._admission.draft_pool_task(document, sought, found).introduction
        new = replace(stored_task(introduction, found.lead), participant=None)
        anew = _grid(found) != _grid(new) or _chosen_by(before) != _chosen_by(request)
        async with self._database.connection() as connection:
            parts = await tasks.fetch_all(connection, await seats.tasks_of(connection, new.id))
            sitting = await seats.nodes_of(connection, new.id)
        asked: dict[UUID, tuple[int, Introduction] | str] = {}
        # Who ends meanwhile has no seats any more.
        there = [] if anew else [part for part in parts if part.id in sitting]
        for first in range(0, len(there), _ASKED_AT_ONCE):
            batch = there[first : first + _ASKED_AT_ONCE]
            answers = (self._ask(new, request, part, sitting[part.id]) for part in batch)
            for part, answer in zip(batch, await asyncio.gather(*answers), strict=True):
                asked[part.id] = answer
        return PoolTaskEdit(new, sought, anew, asked)

    async def _ask(
        self, new: StoredTask, request: SeatRequest, part: StoredTask, sitting: Mapping[int, str]
    ) -> tuple[int, Introduction] | str:
        """The edit of one ordinary task, or why it cannot go on."""
        if any(number > request.k for number in sitting):
            return f"its pool task wants {request.k} nodes only"
        schedule = part.terms.schedule
        term = Term(schedule.start or 0, schedule.until or (schedule.start or 0) + 1)
        slots = slots_in(recurrence_of(schedule, part.terms.created_at), term)
        whole = new.terms.schedule
        recurrence = recurrence_of(whole, new.terms.created_at)
        try:
            names = [self._directory.by_identity(node).name for _, node in sorted(sitting.items())]
            document = self._seating.document_for(
                new, request, names, schedule_for(whole, recurrence, part.terms.duration, slots)
            )
            return part.terms.revision, await self._admission.ask(document, part)
        except (RequestError, ToolUnavailable) as error:
            return error.detail

    async def apply(
        self, connection: Connection, edited: PoolTaskEdit, now: int, edit_parts: EditParts
    ) -> None:
        """Make it so; in the transaction that keeps the task itself."""
        task, request = edited.task, edited.sought.request
        await self._seating.change(connection, task.id, request, _going_on(edited, now))
        await seats.look_again(connection, task.id, request.k, now, over=edited.anew)
        edits = []
        # Some may have ended since they were asked.
        for part in await seats.lock_tasks_of(connection, task.id):
            answer = edited.parts.get(part, "its pool task was edited: nodes are chosen anew")
            if isinstance(answer, str):
                await self._ending.take_back_in(connection, part, answer)
            else:
                edits.append(answer)
        await edit_parts(connection, edits)
        await seats.lose_ended(connection, task.id, now)


def _going_on(edited: PoolTaskEdit, now: int) -> TermProgress | None:
    """With which slot its terms go on; None: as before."""
    if not edited.anew:
        return None
    schedule = edited.task.terms.schedule
    slot = first_slot(recurrence_of(schedule, edited.task.terms.created_at), now)
    return TermProgress(slot, None if slot is None else now, schedule.max_runs)


def _grid(task: StoredTask) -> tuple[Recurrence, int | None]:
    schedule = task.terms.schedule
    return replace(recurrence_of(schedule, task.terms.created_at), slip=0), schedule.max_runs


def _chosen_by(request: SeatRequest) -> dict[str, object]:
    return request.model_dump(include=_CHOSEN_BY)
