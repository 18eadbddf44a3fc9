"""Changes of tasks led here: pause, resume, edit; and how their participants learn of them.

A change is one transaction at the lead. It increments the task's revision, takes the task from the
worker that is planning it (a new lease epoch, so that an exchange under way is never committed),
frees the future runs that no longer fit, and posts one outbox message to each participant: the task
as it is now, with the runs that were freed. Revision and epoch make it safe for messages,
introductions, and holds to come late, twice, and in any order. A participant that does not know the
newest revision refuses a hold under it, and the planner introduces the task to it again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

from pydantic import ValidationError

from node.model import changes as changed
from node.model import times
from node.model.changes import PlacementTerms, PlanningPosition, require_revision
from node.model.errors import (
    Conflict,
    FieldFault,
    InvalidDocument,
    NotAllowed,
    NotFound,
)
from node.model.host_limits.rules import User
from node.model.host_limits.standing import LimitStanding
from node.model.outcomes import PlanningOutcome
from node.model.readiness import LEAD_SILENT
from node.model.scheduling import default_slip
from node.model.secrets import without_sealed
from node.model.task_terms import Relocate
from node.model.taskstate import OPEN, TaskState
from node.model.wire.archives import ArchiveChoice
from node.model.wire.campaigns import DEFAULT
from node.model.wire.fields import FROM_OUTSIDE
from node.model.wire.participants import FreedRuns, Introduction, IntroductionAnswer
from node.model.wire.seats import SeatRequest
from node.model.wire.tasks import TaskDocument, TaskPatch
from node.model.wire.validation import faults_of
from node.results.archives import Archives
from node.results.archives import ArchivesEdit as Archived
from node.sharing.host_limits import LimitKeeper
from node.store import (
    bookings,
    campaigns,
    changes,
    dependencies,
    gaps,
    notices,
    outbox,
    seats,
    tasks,
)
from node.store.changes import TaskChange
from node.store.core import Core
from node.store.database import Connection
from node.store.outbox import MessageKind, OutgoingMessage
from node.store.tasks import StoredTask
from node.tasks.acceptance import store_task
from node.tasks.admission import Admission
from node.tasks.dependencies import check_followed
from node.tasks.pool_editing import PoolTaskEdit, PoolTaskEditor

CHANGE_ACKNOWLEDGEMENT_TIMEOUT = 2 * times.SECOND
"""Maximum time that planning of a changed task waits for its participants' acknowledgements."""

_AT_ONCE = 500
"""Maximum number of seats' tasks that one statement changes: there may be thousands."""

_SAID_MAX = 900
_PASSED_MAX = 100_000


class TaskEditor:
    """Pauses, resumes, and edits the tasks that this node leads."""

    def __init__(
        self,
        core: Core,
        admission: Admission,
        archives: Archives,
        reseating: PoolTaskEditor,
        limits: LimitKeeper,
        relocate: Relocate,
    ) -> None:
        """No run that starts within the start margin of the settings is freed."""
        self._relocate = relocate
        self._database = core.database
        self._clock = core.clock
        self._admission = admission
        self._archives = archives
        self._reseating = reseating
        self._limits = limits
        self._identity = core.identity
        self._name = core.settings.name
        self._margin = core.settings.start_margin
        self._turn = asyncio.Lock()

    async def _apply_in_turn(self, change: Callable[[Connection], Awaitable[None]]) -> None:
        """Apply changes one at a time, each in a transaction.

        Changes that free thousands of runs write the same sums of campaigns. At the same time they
        would wait for each other in the database, longer than it lets anybody wait.
        """
        async with self._turn:
            await self._database.settle(change)

    async def pause(self, task: UUID, revision: int | None = None) -> None:
        """Free all future runs on every participant, and plan no others; repeating is harmless.

        With ``revision``, only in this one.

        :raises NotFound: there is no such task here.
        :raises NotAllowed: another node leads it.
        :raises Conflict: it has ended, or has another revision.
        """
        await self._apply_in_turn(lambda connection: self._pause_whole(connection, task, revision))

    async def _pause_whole(self, connection: Connection, task: UUID, revision: int | None) -> None:
        found = self._require_changeable(task, await tasks.lock(connection, task))
        _check_revision(found, revision)
        if found.state is TaskState.PAUSED:
            return
        now = self._clock.now()
        await self._pause(connection, [found], now)
        for parts in await self._lock_seat_tasks(connection, task):
            await self._pause(connection, [p for p in parts if p.state is TaskState.ACTIVE], now)

    async def _lock_seat_tasks(self, connection: Connection, whole: UUID) -> list[list[StoredTask]]:
        """Lock and return the open ordinary tasks of a pool task's seats, in batches."""
        every = await seats.lock_seat_tasks(connection, whole)
        return [
            await tasks.fetch_all(connection, every[first : first + _AT_ONCE])
            for first in range(0, len(every), _AT_ONCE)
        ]

    async def _pause(self, connection: Connection, founds: Sequence[StoredTask], now: int) -> None:
        ids = [found.id for found in founds]
        await self._record_passed_slots(connection, founds, now, LEAD_SILENT)
        sentence = f"paused on {self._name}"
        freed = await self._free_runs(connection, ids, changed.EVERY_SLOT, sentence, now)
        await changes.set_standing(
            connection, {found.id: found.terms.revision + 1 for found in founds}, now
        )
        await tasks.stop_planning(connection, ids)
        task_changes = {
            task: TaskChange(
                PlanningOutcome.PAUSED, f"{sentence}; {_runs_text(len(slots))} freed", slots
            )
            for task, slots in freed.items()
        }
        await changes.keep_changes(connection, task_changes, now)
        await self._post_changes(connection, ids, now)
        await notices.notify_all(connection, [("task", task, TaskState.PAUSED) for task in ids])

    async def release(self, task: UUID, revision: int | None = None) -> None:
        """Try now what the task waits for: its waiting runs, or its empty seats.

        A hold or a pause that policies have put on a pool task, because it found no time again and
        again, ends. With ``revision``, only in this one.

        :raises NotFound: there is no such task here.
        :raises NotAllowed: another node leads it.
        :raises Conflict: it has ended, or has another revision.
        """
        await self._apply_in_turn(lambda connection: self._release(connection, task, revision))

    async def _release(self, connection: Connection, task: UUID, revision: int | None) -> None:
        _check_revision(
            self._require_changeable(task, await tasks.lock(connection, task)), revision
        )
        now = self._clock.now()
        await seats.release(connection, task, now)
        await bookings.wake_waiting(connection, task, now)
        for parts in await self._lock_seat_tasks(connection, task):
            for part in parts:
                await bookings.wake_waiting(connection, part.id, now)
        released = TaskChange(PlanningOutcome.RELEASED, f"released on {self._name}", [])
        await changes.keep_changes(connection, {task: released}, now)
        await notices.notify(connection, "seats", task, "wanted")
        await notices.notify(connection, "task", task, "plan")

    async def resume(self, task: UUID, revision: int | None = None) -> None:
        """Plan again from now on; slots that passed during the pause are not run later.

        With ``revision``, only in this one.

        :raises NotFound: there is no such task here.
        :raises NotAllowed: another node leads it.
        :raises Conflict: it has ended, or has another revision.
        """
        await self._apply_in_turn(lambda connection: self._resume_whole(connection, task, revision))

    async def _resume_whole(self, connection: Connection, task: UUID, revision: int | None) -> None:
        found = self._require_changeable(task, await tasks.lock(connection, task))
        _check_revision(found, revision)
        if found.paused_at is None:
            return
        now = self._clock.now()
        await self._resume(connection, [found], now)
        for parts in await self._lock_seat_tasks(connection, task):
            await self._resume(connection, [p for p in parts if p.paused_at is not None], now)

    async def _resume(self, connection: Connection, founds: Sequence[StoredTask], now: int) -> None:
        ids = [found.id for found in founds]
        following = {
            found.id: changed.first_open(
                found.terms.recurrence, found.terms.duration, now + self._margin
            )
            for found in founds
        }
        passed = await self._slots_passed_while_paused(connection, founds, following, now)
        await changes.set_standing(
            connection, {found.id: found.terms.revision + 1 for found in founds}, None
        )
        seated = await seats.resume_terms(connection, following, now)
        for task in seated:
            await notices.notify(connection, "seats", task, "wanted")
        standings = {
            task: PlanningPosition(slot - 1, slot)
            for task, slot in following.items()
            if slot is not None and task not in seated
        }
        await changes.set_planning(connection, standings, now + CHANGE_ACKNOWLEDGEMENT_TIMEOUT)
        task_changes = {task: self._resume_change(passed.get(task, [])) for task in ids}
        await changes.keep_changes(connection, task_changes, now)
        await dependencies.replan_followers(connection, _longest_delays(founds), now)
        await self._post_changes(connection, ids, now)
        await notices.notify_all(connection, [("task", task, TaskState.ACTIVE) for task in ids])

    def _resume_change(self, passed: Sequence[int]) -> TaskChange:
        sentence = f"resumed on {self._name}"
        if passed:
            count = f"{len(passed)} slot{'' if len(passed) == 1 else 's'}"
            sentence += f"; {count} whose time passed meanwhile will not be made up for"
        return TaskChange(PlanningOutcome.RESUMED, sentence, passed)

    async def _slots_passed_while_paused(
        self,
        connection: Connection,
        founds: Sequence[StoredTask],
        following: Mapping[UUID, int | None],
        now: int,
    ) -> dict[UUID, list[int]]:
        """Return by task the slots whose start passed without a run during the pause."""
        passed: dict[UUID, list[int]] = {}
        for found in founds:
            recurrence = found.terms.recurrence
            since = (found.paused_at or now) + self._margin
            first = changed.first_open(recurrence, found.terms.duration, since)
            slots = changed.passed_slots(recurrence, first, following[found.id], now, _PASSED_MAX)
            if slots:
                passed[found.id] = slots
        spans = {task: (slots[0], slots[-1] + 1) for task, slots in passed.items()}
        kept = await changes.count_kept_slots(connection, spans)
        return {task: slots[kept.get(task, 0) :] for task, slots in passed.items()}

    async def edit(
        self, task: UUID, patch: TaskPatch, *, by: User | None = None, dry_run: bool = False
    ) -> StoredTask | None:
        """Edit a task; the result is checked like a new task, and applied as a whole or refused.

        From then on its runs count for the user ``by`` whom it is edited. With ``dry_run``, return
        the task as it would be, and change nothing.

        :raises NotFound: there is no such task here.
        :raises NotAllowed: another node leads it.
        :raises Conflict: it has ended, or was changed since the revision that was read.
        :raises InvalidDocument: a field is wrong, or cannot be edited.
        :raises RefusedByParticipant: a participant refuses the edit; the task stays as it was.
        :raises LimitUsedUp: the user has as many open tasks under the rule as it allows.
        """
        async with self._database.connection() as connection:
            found = self._require_changeable(task, await tasks.fetch(connection, task))
            request = await seats.find_request(connection, task)
        _check_revision(found, patch.revision)
        archived = None
        if "archives" in patch.model_fields_set:
            archived = await self._archives.effect_of_edit(task, patch.archives or ())
        if request is not None:
            before = SeatRequest.model_validate(request)
            document = self._admission.with_restored_secrets(
                _patched_document(found, patch, before), found
            )
            edited = await self._reseating.prepare(found, before, document)
            edited = replace(edited, task=_with_user_of_limits(by, edited.task, found))
            if not dry_run:
                await self._apply_in_turn(
                    lambda connection: self._edit_whole(
                        connection, found.terms.revision, edited, archived
                    )
                )
            return edited.task if dry_run else None
        edit = self._admission.with_restored_secrets(_patched_document(found, patch), found)
        new = await self._admission.ask(edit, found)
        new = _with_user_of_limits(by, new, found)
        if dry_run:
            return new
        if archived or changed.differences(document_of(found), document_of(new)):
            await self._apply_in_turn(
                lambda connection: self._edit(connection, found.terms.revision, new, archived)
            )
        return None

    async def _edit_whole(
        self, connection: Connection, revision: int, edited: PoolTaskEdit, archived: Archived | None
    ) -> None:
        task = edited.task.id
        found = self._require_changeable(task, await tasks.lock(connection, task))
        _check_revision(found, revision)
        now = self._clock.now()
        request = await seats.find_request(connection, task)
        before = document_of(
            found, None if request is None else SeatRequest.model_validate(request)
        )
        after = document_of(edited.task, edited.sought.request)
        differences = _differences(before, after, archived)
        if not differences:
            return
        if edited.anew:
            await self._record_passed_slots(connection, [found], now)
        standing = await self._standing_within_limits(connection, found, edited.task)
        await tasks.keep(connection, edited.task, standing)
        if archived is not None:
            await self._archives.keep_of_task(connection, task, archived.choices)
        await self._move_campaign(connection, found, edited.task, now)
        await self._reseating.apply(connection, edited, now, self._edit_parts)
        await tasks.share_limits(connection, task)
        sentence = f"edited on {self._name}: {'; '.join(differences)[:_SAID_MAX]}"
        trace = _trace(before, after, archived)
        task_changes = {task: TaskChange(PlanningOutcome.EDITED, sentence, [], trace)}
        await changes.keep_changes(connection, task_changes, now)
        await notices.notify(connection, "task", task, "edited")
        await notices.notify(connection, "seats", task, "wanted")

    async def _edit_parts(
        self, connection: Connection, edits: Sequence[tuple[int, StoredTask]]
    ) -> None:
        """Edit the locked ordinary tasks of seats, as far as the edit changes them."""
        for first in range(0, len(edits), _AT_ONCE):
            batch = edits[first : first + _AT_ONCE]
            edited = {new.id: (revision, new) for revision, new in batch}
            differing: list[tuple[StoredTask, StoredTask]] = []
            for found in await tasks.fetch_all(connection, list(edited)):
                revision, new = edited[found.id]
                if changed.differences(document_of(found), document_of(new)):
                    _check_revision(found, revision)
                    differing.append((found, new))
            await self._edit_all(connection, differing)

    async def _edit(
        self,
        connection: Connection,
        revision: int,
        new: StoredTask,
        archived: Archived | None = None,
    ) -> None:
        found = self._require_changeable(new.id, await tasks.lock(connection, new.id))
        _check_revision(found, revision)
        after = new.terms.schedule.after
        if after != found.terms.schedule.after:
            await dependencies.lock(connection)
            await check_followed(connection, after, self._identity, found.id)
        if archived is not None:
            await self._archives.keep_of_task(connection, found.id, archived.choices)
        await self._edit_all(connection, [(found, new)], archived)

    async def _edit_all(
        self,
        connection: Connection,
        edits: Sequence[tuple[StoredTask, StoredTask]],
        archived: Archived | None = None,
    ) -> None:
        """Edit locked tasks, given as pairs of the present and the new version."""
        now = self._clock.now()
        over = [found for found, new in edits if not changed.reopens(found.terms, new.terms, now)]
        await self._record_passed_slots(connection, over, now)
        sentences: dict[UUID, str] = {}
        alike: dict[tuple[int, str], list[UUID]] = {}
        for found, new in edits:
            differences = _differences(document_of(found), document_of(new), archived)
            sentences[found.id] = "; ".join(differences)[:_SAID_MAX]
            slots_from = await self._first_given_up(connection, found, new)
            alike.setdefault((slots_from, sentences[found.id]), []).append(found.id)
        freed: dict[UUID, list[int]] = {}
        given_up: dict[UUID, int] = {}
        for (slots_from, words), ids in alike.items():
            freed |= await self._free_runs(connection, ids, slots_from, f"edited: {words}", now)
            given_up |= dict.fromkeys(ids, slots_from)
        for found, new in edits:
            standing = await self._standing_within_limits(connection, found, new)
            await store_task(connection, new, found, now, standing)
            await self._move_campaign(connection, found, new, now)
        await self._continue_planning(connection, edits, given_up, freed, now)
        task_changes = {}
        for found, new in edits:
            sentence = (
                f"edited on {self._name}: {sentences[found.id]}; {_runs_text(len(freed[found.id]))}"
            )
            trace = _trace(document_of(found), document_of(new), archived)
            task_changes[found.id] = TaskChange(
                PlanningOutcome.EDITED, f"{sentence} freed", freed[found.id], trace
            )
        await changes.keep_changes(connection, task_changes, now)
        open_ones = [new for found, new in edits if found.state is TaskState.ACTIVE]
        await dependencies.replan_followers(connection, _longest_delays(open_ones), now)
        await self._post_changes(connection, list(task_changes), now)
        await notices.notify_all(connection, [("task", task, "edited") for task in task_changes])

    async def _record_passed_slots(
        self, connection: Connection, founds: Sequence[StoredTask], now: int, patience: int = 0
    ) -> None:
        restored = self._database.was_restored
        await gaps.record_passed_slots(
            connection, founds, now, restored=restored, patience=patience
        )

    async def _standing_within_limits(
        self, connection: Connection, found: StoredTask, new: StoredTask
    ) -> LimitStanding:
        """Return how an edited task stands with the limits of its user.

        :raises LimitUsedUp: it comes under a rule under which they have all the tasks they may.
        """
        standing, before = self._limits.standing(new), self._limits.standing(found)
        if found.parent is None and (standing.user, standing.rule) != (before.user, before.rule):
            await self._limits.require_room(connection, new, standing)
        return standing

    async def _move_campaign(
        self, connection: Connection, found: StoredTask, new: StoredTask, now: int
    ) -> None:
        """Move a task to another campaign if it has one, and tell who waits for room in the old."""
        if new.terms.campaign != found.terms.campaign:
            await campaigns.assign(connection, found.id, now)
            await campaigns.notify_of_room(connection, found.terms.campaign or DEFAULT)

    async def _continue_planning(
        self,
        connection: Connection,
        edits: Sequence[tuple[StoredTask, StoredTask]],
        given_up: Mapping[UUID, int],
        freed: Mapping[UUID, list[int]],
        now: int,
    ) -> None:
        """Set where planning continues for those of the edited tasks that are not paused."""
        active = {found.id: new for found, new in edits if found.state is TaskState.ACTIVE}
        standings = await changes.planning_positions(connection, list(active))
        on: dict[UUID, PlanningPosition] = {}
        for task, new in active.items():
            standing = standings.get(task, PlanningPosition(None, None))
            anew = given_up[task] == changed.EVERY_SLOT
            recurrence, duration = new.terms.recurrence, new.terms.duration
            open_from = changed.first_open(recurrence, duration, now)
            then = changed.position_after_edit(
                recurrence,
                standing,
                freed[task],
                now if open_from is None else open_from,
                now,
                anew=anew,
            )
            next_slot = now if then.next_slot is None else then.next_slot
            on[task] = PlanningPosition(then.planned_to, next_slot)
        await changes.set_planning(connection, on, now + CHANGE_ACKNOWLEDGEMENT_TIMEOUT)

    async def _first_given_up(
        self, connection: Connection, old: StoredTask, new: StoredTask
    ) -> int:
        max_runs = new.terms.schedule.max_runs
        surplus = None
        if max_runs is not None:
            surplus = await changes.first_surplus_slot(connection, old.id, max_runs)
        return changed.first_given_up_slot(
            PlacementTerms.of(old.terms), PlacementTerms.of(new.terms), surplus
        )

    async def _free_runs(
        self, connection: Connection, ids: Sequence[UUID], slots_from: int, why: str, now: int
    ) -> dict[UUID, list[int]]:
        """Free the future runs from ``slots_from`` on, and stop planning; return slots by task."""
        epochs = await changes.fence(connection, ids, now)
        freeing = FreedRuns(
            before_epoch=0,
            starting=now + self._margin,
            slots_from=slots_from,
            reason=f"the task was {why}",
        )
        freed = await changes.free_led(connection, freeing, epochs, now)
        lost = await bookings.restore(connection, [each.run for each in freed], now)
        await bookings.tell_leads(connection, lost, now)
        slots: dict[UUID, list[int]] = {task: [] for task in ids}
        for each in freed:
            slots[each.task].append(each.slot)
        return {task: sorted(each) for task, each in slots.items()}

    async def _post_changes(
        self, connection: Connection, ids: Sequence[UUID], now: int, only: str | None = None
    ) -> None:
        """Post the tasks as they are now to each other participant of theirs, or ``only`` one.

        Whatever happened since they were written, with the addresses of today.
        """
        posts = [
            OutgoingMessage(
                node, MessageKind.TASK_CHANGE, found.introduction(place).model_dump(mode="json")
            )
            for stored in await tasks.fetch_all(connection, ids)
            for found in [replace(stored, terms=stored.terms.located(self._relocate))]
            for place, participant in enumerate(found.terms.parties)
            if (node := participant.node) != self._identity and only in (None, node)
        ]
        await outbox.post_all(connection, posts, now)

    async def tell_again(self, task: UUID, node: str, revision: int) -> bool:
        """Tell a task to a participant that has it in this revision, 0 if it does not know it.

        A lead whose database was restored gives it a newer revision than that, so that it is heard,
        and tells it to all. Returns whether anything is told: not if the task is over, or if a
        message about its change is on its way there already.
        """
        now = self._clock.now()
        async with self._database.transaction() as connection:
            found = await tasks.lock(connection, task)
            if found is None or found.state not in OPEN:
                return False
            if revision >= found.terms.revision:
                await changes.set_standing(connection, {task: revision + 1}, found.paused_at)
                await self._post_changes(connection, [task], now)
                return True
            if await changes.has_pending_change(connection, task, node):
                return False
            await self._post_changes(connection, [task], now, only=node)
            return True

    async def note_acknowledged(
        self, message_id: int, node: str, introduction: Introduction, answer: IntroductionAnswer
    ) -> None:
        """Record that a participant knows of a change; plan the task once all of them do.

        One that refuses it has freed what was to be freed, and has the task as it was before.
        """
        task, refusal = introduction.task, None if answer.accepted else answer.reason
        async with self._database.transaction() as connection:
            await changes.note_answer(connection, task, node, introduction.revision, refusal)
            if not await changes.has_other_pending_changes(connection, task, message_id):
                standing = (await changes.planning_positions(connection, [task])).get(task)
                if standing is not None and standing.next_slot is not None:
                    now = self._clock.now()
                    await tasks.wake_planning(connection, task, now, standing.next_slot)
                    await notices.notify(connection, "task", task, "plan")

    def _require_changeable(self, task: UUID, found: StoredTask | None) -> StoredTask:
        if found is None:
            msg = f"there is no task {task} on this node"
            raise NotFound(msg)
        if found.lead != self._identity:
            msg = (
                f"task {task} is led by another node and is paused, resumed and edited there; here "
                "it can only be cancelled, which withdraws this host from it"
            )
            raise NotAllowed(msg)
        if found.parent is not None:
            msg = (
                f"task {task} has seats of pool task {found.parent}; change that one. Cancelled, "
                "its seats are given to other nodes"
            )
            raise Conflict(msg)
        if found.state not in OPEN:
            msg = f"task {task} has ended ({found.state}) and cannot be changed; create a new one"
            raise Conflict(msg)
        return found


def _with_user_of_limits(by: User | None, new: StoredTask, found: StoredTask) -> StoredTask:
    if by is None:
        user, address = found.limit_user, found.limit_address
        return replace(new, limit_user=user, limit_address=address, limit_bound=found.limit_bound)
    # Who changes a priority alone does not answer for the targets.
    kept = found.limit_bound and new.terms.spec == found.terms.spec
    return replace(new, limit_user=by.token, limit_address=by.address, limit_bound=by.bound or kept)


def _check_revision(found: StoredTask, read: int | None) -> None:
    require_revision(f"task {found.id}", read, found.terms.revision)


def document_of(task: StoredTask, request: SeatRequest | None = None) -> dict[str, Any]:
    """Return the document that would create the task; a default slip is left out."""
    schedule = task.terms.schedule
    without = schedule.model_copy(update={"slip": None})
    if schedule.slip == default_slip(without):
        schedule = without
    after = schedule.after
    return {
        "test": {"type": task.terms.test, "spec": task.terms.spec},
        "tools": list(task.terms.tools),
        "schedule": schedule.times.model_dump(mode="json"),
        "after": None if after is None else after.model_dump(mode="json"),
        "priority": task.terms.priority,
        "contexts": {p.name: p.context for p in task.terms.participants if p.context},
        "campaign": task.terms.campaign,
        "takes": list(task.terms.takes),
        "reference": task.terms.reference,
        **({} if request is None else {"participants": request.model_dump(mode="json")}),
    }


def _differences(
    before: dict[str, Any], after: dict[str, Any], archived: Archived | None
) -> list[str]:
    differences = changed.differences(before, after)
    return differences if archived is None else [*differences, "archives changed"]


def _trace(
    before: dict[str, Any], after: dict[str, Any], archived: Archived | None
) -> dict[str, Any]:
    before, after = without_sealed(before), without_sealed(after)
    if archived is None:
        return {"before": before, "after": after}
    return {
        "before": {**before, "archives": _archive_documents(archived.before)},
        "after": {**after, "archives": _archive_documents(archived.after)},
    }


def _archive_documents(archives: Sequence[ArchiveChoice]) -> list[dict[str, Any]]:
    return [archive.model_dump(mode="json") for archive in archives]


def _patched_document(
    task: StoredTask, patch: TaskPatch, request: SeatRequest | None = None
) -> TaskDocument:
    """Return the task's document with a patch applied.

    :raises InvalidDocument: the result is not a valid document, or has another test.
    """
    wanted = patch.changes()
    _check_type(task, wanted)
    try:
        return TaskDocument.model_validate(
            changed.patched_document(without_sealed(document_of(task, request)), wanted),
            context=FROM_OUTSIDE,
        )
    except ValidationError as error:
        raise InvalidDocument(faults_of(error, TaskDocument)) from None


def _check_type(task: StoredTask, wanted: Mapping[str, Any]) -> None:
    test = wanted.get("test", {})
    if test is None or test.get("type", task.terms.test) != task.terms.test:
        reason = (
            f"cannot be changed (currently {task.terms.test}); cancel the task and create a new one"
        )
        raise InvalidDocument([FieldFault("/test/type", reason)])


def _longest_delays(founds: Sequence[StoredTask]) -> dict[UUID, int]:
    """Return, for tasks that follow others, how much later than its slot a run may start (µs)."""
    return {
        found.id: after.within
        for found in founds
        if (after := found.terms.schedule.after) is not None
    }


def _runs_text(count: int) -> str:
    return f"{count} run{'' if count == 1 else 's'}"
