"""How tasks led here change: paused, resumed, edited; and how their participants learn of it.

A change is one transaction at the lead. It counts the task's revision up, takes the task from
whoever is planning it (a new lease epoch: an exchange under way is never committed), gives up the
runs to come that do not fit any more, and leaves one letter for each participant: the task as it
is now, with what was given up. Revision and epoch make it safe for letters, introductions and holds
to come late, twice and in any order. Whoever has not heard of the newest revision refuses a hold
under it, and is introduced to the task again by the planner.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from pydantic import ValidationError

from node.admission import Admission
from node.archives import Archives
from node.archives import Edited as Archived
from node.clock import Clock
from node.consent import introduced, keep, stored
from node.model import changes as changed
from node.model import times
from node.model.changes import Standing, Terms
from node.model.errors import Conflict, FieldFault, InvalidDocument, NotAllowed, NotFound
from node.model.recurrence import Recurrence
from node.model.scheduling import default_slip, recurrence_of
from node.model.wire.archives import ArchiveChoice
from node.model.wire.fields import FROM_OUTSIDE
from node.model.wire.participants import Freeing, Introduction
from node.model.wire.seats import SeatRequest
from node.model.wire.tasks import Schedule, TaskDocument, TaskPatch
from node.model.wire.validation import faults_of
from node.reseating import Edited, Reseating
from node.store import bookings, campaigns, changes, outbox, seats, tasks
from node.store.changes import Change
from node.store.database import Connection, Database
from node.store.outbox import Kind
from node.store.tasks import StoredTask

HEAR_FIRST = 2 * times.SECOND
"""A changed task is planned once its participants have heard of it, or after so long."""

_SAID_MAX = 900
_PASSED_MAX = 100_000


class Changing:
    """Changes the tasks that this node leads."""

    def __init__(  # noqa: PLR0913, PLR0917 - what a change touches
        self,
        database: Database,
        clock: Clock,
        admission: Admission,
        archives: Archives,
        reseating: Reseating,
        identity: str,
        name: str,
        margin: int,
    ) -> None:
        """``identity`` and ``name`` are this node's; no run starting within ``margin`` is freed."""
        self._database = database
        self._clock = clock
        self._admission = admission
        self._archives = archives
        self._reseating = reseating
        self._identity = identity
        self._name = name
        self._margin = margin

    async def pause(self, task: UUID) -> None:
        """Give up all runs to come, on every participant, and plan no others. Again is harmless.

        :raises NotFound: there is no such task here.
        :raises NotAllowed: another node leads it.
        :raises Conflict: it is over.
        """
        await self._database.settle(lambda connection: self._pause(connection, task))

    async def _pause(self, connection: Connection, task: UUID, whole: UUID | None = None) -> None:
        found = self._changeable(task, await tasks.lock(connection, task), whole)
        if found.state == "paused":
            return
        now = self._clock.now()
        sentence = f"paused on {self._name}"
        freed = await self._free(connection, found, changed.EVERY_SLOT, sentence, now)
        await changes.stand(connection, task, found.revision + 1, now)
        await tasks.stop_planning(connection, task)
        sentence = f"{sentence}; {_runs(len(freed))} freed"
        await changes.keep_change(connection, task, Change("paused", sentence, freed), now)
        await self._tell(connection, task, now)
        await bookings.notify(connection, "task", task, "paused")
        for part in await seats.tasks_of(connection, task):
            await self._pause(connection, part, task)

    async def resume(self, task: UUID) -> None:
        """Plan again, from now on; what passed during the pause is not made up for.

        :raises NotFound: there is no such task here.
        :raises NotAllowed: another node leads it.
        :raises Conflict: it is over.
        """
        await self._database.settle(lambda connection: self._resume(connection, task))

    async def _resume(self, connection: Connection, task: UUID, whole: UUID | None = None) -> None:
        found = self._changeable(task, await tasks.lock(connection, task), whole)
        if found.paused_at is None:
            return
        now = self._clock.now()
        recurrence = _recurrence(found)
        following = changed.first_open(recurrence, found.duration, now + self._margin)
        passed = await self._passed(connection, found, recurrence, following, now)
        await changes.stand(connection, task, found.revision + 1, None)
        if await seats.go_on(connection, task, following, now):
            await bookings.notify(connection, "seats", task, "wanted")
        elif following is not None:
            standing = Standing(following - 1, following)
            await changes.plan_on(connection, task, standing, now + HEAR_FIRST)
        sentence = f"resumed on {self._name}"
        if passed:
            count = f"{len(passed)} slot{'' if len(passed) == 1 else 's'}"
            sentence += f"; {count} whose time passed meanwhile will not be made up for"
        await changes.keep_change(connection, task, Change("resumed", sentence, passed), now)
        await self._tell(connection, task, now)
        await bookings.notify(connection, "task", task, "active")
        for part in await seats.tasks_of(connection, task):
            await self._resume(connection, part, task)

    async def _passed(
        self,
        connection: Connection,
        task: StoredTask,
        recurrence: Recurrence,
        following: int | None,
        now: int,
    ) -> list[int]:
        """The slots that had no run because the task was paused."""
        since = (task.paused_at or now) + self._margin
        first = changed.first_open(recurrence, task.duration, since)
        passed = changed.passed_between(recurrence, first, following, now, _PASSED_MAX)
        if passed:
            kept = await changes.kept_between(connection, task.id, passed[0], passed[-1] + 1)
            passed = passed[kept:]
        return passed

    async def edit(
        self, task: UUID, patch: TaskPatch, *, dry_run: bool = False
    ) -> StoredTask | None:
        """Change what the task asks for; checked like a new task, refused as a whole or taken.

        Returns the task as it would be for a ``dry_run``, which changes nothing.

        :raises NotFound: there is no such task here.
        :raises NotAllowed: another node leads it.
        :raises Conflict: it is over, or was changed since the revision that was read.
        :raises InvalidDocument: a field is wrong, or cannot be edited.
        :raises RefusedByParticipant: somebody would not take part; the task stays as it was.
        """
        async with self._database.connection() as connection:
            found = self._changeable(task, await tasks.fetch(connection, task))
            request = await seats.request_of(connection, task)
        _check_revision(found, patch.revision)
        archived = None
        if "archives" in patch.model_fields_set:
            archived = await self._archives.edited(task, patch.archives or ())
        if request is not None:
            before = SeatRequest.model_validate(request)
            document = _edited(found, patch, before)
            edited = await self._reseating.prepare(found, before, document)
            if not dry_run:
                await self._database.settle(
                    lambda connection: self._edit_whole(
                        connection, found.revision, edited, archived
                    )
                )
            return edited.task if dry_run else None
        asked = await self._admission.ask(_edited(found, patch), found)
        new = stored(asked, self._identity)
        if dry_run:
            return new
        if archived or changed.differences(document_of(found), document_of(new)):
            await self._database.settle(
                lambda connection: self._edit(connection, found.revision, asked, archived=archived)
            )
        return None

    async def _edit_whole(
        self, connection: Connection, revision: int, edited: Edited, archived: Archived | None
    ) -> None:
        task = edited.task.id
        found = self._changeable(task, await tasks.lock(connection, task))
        _check_revision(found, revision)
        now = self._clock.now()
        request = await seats.request_of(connection, task)
        before = document_of(
            found, None if request is None else SeatRequest.model_validate(request)
        )
        after = document_of(edited.task, edited.sought.request)
        differences = _differences(before, after, archived)
        if not differences:
            return
        await tasks.keep(connection, edited.task)
        if archived is not None:
            await self._archives.keep_of_task(connection, task, archived.choices)
        if edited.task.campaign != found.campaign:
            await campaigns.assign(connection, task, now)
        await self._reseating.apply(connection, edited, now, self._edit_part)
        sentence = f"edited on {self._name}: {'; '.join(differences)[:_SAID_MAX]}"
        trace = _trace(before, after, archived)
        await changes.keep_change(connection, task, Change("edited", sentence, [], trace), now)
        await bookings.notify(connection, "task", task, "edited")
        await bookings.notify(connection, "seats", task, "wanted")

    async def _edit_part(
        self, connection: Connection, revision: int, asked: Introduction, whole: UUID
    ) -> None:
        """Edit the ordinary task of some seats, if that changes anything."""
        found = await tasks.fetch(connection, asked.task)
        new = document_of(stored(asked, self._identity))
        if found is not None and changed.differences(document_of(found), new):
            await self._edit(connection, revision, asked, whole)

    async def _edit(
        self,
        connection: Connection,
        revision: int,
        asked: Introduction,
        whole: UUID | None = None,
        *,
        archived: Archived | None = None,
    ) -> None:
        found = self._changeable(asked.task, await tasks.lock(connection, asked.task), whole)
        _check_revision(found, revision)
        now = self._clock.now()
        new = stored(asked, self._identity)
        slots_from = await self._given_up_from(connection, found, new)
        differences = _differences(document_of(found), document_of(new), archived)
        said = "; ".join(differences)[:_SAID_MAX]
        freed = await self._free(connection, found, slots_from, f"edited: {said}", now)
        await keep(connection, new, found, now)
        if archived is not None:
            await self._archives.keep_of_task(connection, found.id, archived.choices)
        if new.campaign != found.campaign:
            await campaigns.assign(connection, found.id, now)
        if found.state == "active":
            standing = await changes.standing(connection, found.id)
            anew = slots_from == changed.EVERY_SLOT
            on = changed.go_on(_recurrence(new), standing, freed, now, anew=anew)
            next_slot = now if on.next_slot is None else on.next_slot
            on = Standing(on.planned_to, next_slot)
            await changes.plan_on(connection, found.id, on, now + HEAR_FIRST)
        sentence = f"edited on {self._name}: {said}; {_runs(len(freed))} freed"
        trace = _trace(document_of(found), document_of(new), archived)
        change = Change("edited", sentence, freed, trace)
        await changes.keep_change(connection, found.id, change, now)
        await self._tell(connection, found.id, now)
        await bookings.notify(connection, "task", found.id, "edited")

    async def _given_up_from(self, connection: Connection, old: StoredTask, new: StoredTask) -> int:
        max_runs = new.schedule.get("max_runs")
        surplus = None
        if max_runs is not None:
            surplus = await changes.surplus(connection, old.id, int(max_runs))
        return changed.given_up_from(_terms(old), _terms(new), surplus)

    async def _free(
        self, connection: Connection, task: StoredTask, slots_from: int, why: str, now: int
    ) -> list[int]:
        """Give up the runs to come of these slots, and all planning under way; their slots."""
        freeing = Freeing(
            before_epoch=await changes.fence(connection, task.id, now),
            starting=now + self._margin,
            slots_from=slots_from,
            reason=f"the task was {why}",
        )
        freed = await changes.free_led(connection, task.id, freeing, now)
        lost = await bookings.restore(connection, list(freed), now)
        await bookings.tell_leads(connection, lost, now)
        return sorted(freed.values())

    async def _tell(self, connection: Connection, task: UUID, now: int) -> None:
        """One letter to each other participant: the task as it is from now on."""
        found = await tasks.fetch(connection, task)
        if found is None:
            return
        for place, participant in enumerate(found.participants):
            node = str(participant["node"])
            if node != self._identity:
                body = introduced(found, place).model_dump(mode="json")
                await outbox.post(connection, [node], Kind.TASK_CHANGE, body, now)

    async def acknowledged(self, letter: int, task: UUID) -> None:
        """A participant has heard of a change; once all have, the task is planned."""
        async with self._database.transaction() as connection:
            if not await changes.others_to_hear(connection, task, letter):
                standing = await changes.standing(connection, task)
                if standing.next_slot is not None:
                    now = self._clock.now()
                    await tasks.wake_planning(connection, task, now, standing.next_slot)
                    await bookings.notify(connection, "task", task, "plan")

    def _changeable(
        self, task: UUID, found: StoredTask | None, whole: UUID | None = None
    ) -> StoredTask:
        if found is None:
            msg = f"there is no task {task} on this node"
            raise NotFound(msg)
        if found.lead != self._identity:
            msg = (
                f"task {task} is led by another node and is paused, resumed and edited there; here "
                "it can only be cancelled, which withdraws this host from it"
            )
            raise NotAllowed(msg)
        if found.parent != whole:
            msg = (
                f"task {task} has seats of pool task {found.parent}; change that one. Cancelled, "
                "its seats are given to others"
            )
            raise Conflict(msg)
        if found.state not in {"active", "paused"}:
            msg = f"task {task} is {found.state} and cannot be changed any more; create another one"
            raise Conflict(msg)
        return found


def _check_revision(found: StoredTask, read: int | None) -> None:
    if read is not None and read != found.revision:
        msg = (
            f"task {found.id} has been changed since revision {read} was read: it is at revision "
            f"{found.revision}; read it again"
        )
        raise Conflict(msg)


def document_of(task: StoredTask, request: SeatRequest | None = None) -> dict[str, Any]:
    """A task as it would be posted; a slip that it has by default only is left to the default."""
    schedule = Schedule.model_validate(task.schedule)
    without = schedule.model_copy(update={"slip": None})
    if schedule.slip == default_slip(without):
        schedule = without
    return {
        "test": {"type": task.test, "spec": task.spec},
        "tools": list(task.tools),
        "schedule": schedule.model_dump(mode="json"),
        "priority": task.priority,
        "contexts": {p["name"]: p["context"] for p in task.participants if p.get("context")},
        "campaign": task.campaign,
        "reference": task.reference,
        **({} if request is None else {"participants": request.model_dump(mode="json")}),
    }


def _differences(
    before: dict[str, Any], after: dict[str, Any], archived: Archived | None
) -> list[str]:
    said = changed.differences(before, after)
    return said if archived is None else [*said, "archives changed"]


def _trace(
    before: dict[str, Any], after: dict[str, Any], archived: Archived | None
) -> dict[str, Any]:
    if archived is None:
        return {"before": before, "after": after}
    return {
        "before": {**before, "archives": _written(archived.before)},
        "after": {**after, "archives": _written(archived.after)},
    }


def _written(archives: Sequence[ArchiveChoice]) -> list[dict[str, Any]]:
    return [archive.model_dump(mode="json") for archive in archives]


def _edited(task: StoredTask, patch: TaskPatch, request: SeatRequest | None = None) -> TaskDocument:
    """The task's document with a patch applied.

    :raises InvalidDocument: it is none any more, or would measure something else.
    """
    wanted = patch.changes()
    _check_type(task, wanted)
    try:
        return TaskDocument.model_validate(
            changed.merged(document_of(task, request), wanted), context=FROM_OUTSIDE
        )
    except ValidationError as error:
        raise InvalidDocument(faults_of(error, TaskDocument)) from None


def _check_type(task: StoredTask, wanted: Mapping[str, Any]) -> None:
    test = wanted.get("test", {})
    if test is None or test.get("type", task.test) != task.test:
        sentence = f"cannot be edited ({task.test}); cancel this task and create another one"
        raise InvalidDocument([FieldFault("/test/type", sentence)])


def _terms(task: StoredTask) -> Terms:
    return Terms(
        measured=(task.spec, task.tool, task.scheduling_class, task.duration),
        recurrence=_recurrence(task),
        slip_random=bool(task.schedule.get("slip_random")),
    )


def _recurrence(task: StoredTask) -> Recurrence:
    return recurrence_of(Schedule.model_validate(task.schedule), task.created_at)


def _runs(count: int) -> str:
    return f"{count} run{'' if count == 1 else 's'}"
