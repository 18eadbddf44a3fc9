"""Early ends of runs and tasks: cancelled by a user, displaced, or withdrawn by a host.

A node that learns of an end tells the others through the outbox, in the same transaction: a
participant tells the lead, and the lead tells all participants. No participant ends anything at a
third node, so whoever is not the lead, nor takes part at its lead, is refused.

Messages may come late, twice, and cross each other. An end is applied only to what is not over yet,
so the first one stands, and a repeated one tells nobody again. Two exceptions have their reasons
beside the code: a run that was displaced at its lead meanwhile, and one that failed here because
the other end had cancelled it.

A run displaced anywhere is freed everywhere, and the lead places its slot again as a further
attempt while its window lasts; if it may have begun somewhere, the slot is missed rather than run
twice. Time that an end frees goes back first to the runs that were set aside for it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import partial
from itertools import chain
from uuid import UUID

from node.model import times
from node.model.changes import require_revision
from node.model.errors import HostError, NotAllowed, NotFound
from node.model.ids import TaskId, run_id
from node.model.readiness import LEAD_SILENT
from node.model.reasons import (
    cancelled_on,
    placed_again,
    pool_task_ended,
    schedule_over,
    task_ended,
    time_had_begun,
    withdrew,
)
from node.model.runstate import OVER, RunState
from node.model.task_terms import TaskTerms
from node.model.taskstate import TaskState
from node.model.wire.participants import RunEnd, TaskEnd
from node.store import bookings, dependencies, gaps, notices, outbox, runs, seats, tasks
from node.store.core import Core
from node.store.database import Connection
from node.store.outbox import OutgoingMessage
from node.store.runs import LockedRun, NextAttempt
from node.store.tasks import StoredTask, TaskOver

_ON_ITS_WAY = 30 * times.SECOND
"""Time after the end of a worker's lease in which a message of that worker may still arrive."""

_AT_ONCE = 200
"""Maximum number of runs or tasks that one transaction ends: others wait for its locks."""

_PROMPT_ATTEMPTS = 3
_AGAIN_FIRST, _AGAIN_MOST = 5 * times.SECOND, 10 * times.MINUTE
"""A run that was displaced so often is placed again after such pauses, each twice the last."""

_NAMED_TASK = re.compile(r"task [0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.ASCII)


@dataclass(frozen=True)
class EndedTasks:
    """The tasks that were ended, and how many of their runs were not over."""

    tasks: tuple[UUID, ...] = ()
    runs: int = 0

    def __add__(self, other: EndedTasks) -> EndedTasks:
        """Return both together."""
        return EndedTasks(self.tasks + other.tasks, self.runs + other.runs)


class TaskTerminator:
    """Ends runs and tasks, here and at the other participants."""

    def __init__(self, core: Core) -> None:
        self._database = core.database
        self._clock = core.clock
        self._identity = core.identity
        self._name = core.settings.name

    async def cancel_run(self, run: UUID) -> None:
        """Cancel a run on every participant; a run that is over stays as it is.

        :raises NotFound: there is no such run here.
        """
        await self._database.settle(lambda connection: self._cancel_run(connection, run))

    async def _cancel_run(self, connection: Connection, run: UUID) -> None:
        locked = await runs.lock(connection, run)
        if locked is None:
            msg = f"there is no run {run} on this node"
            raise NotFound(msg)
        if locked.state not in OVER:
            end = RunEnd(run=run, state=RunState.CANCELLED, reason=cancelled_on(self._name))
            await self._end(connection, locked, end)

    async def apply_run_end(self, sender: str, end: RunEnd) -> None:
        """Apply another node's message that a run is over.

        :raises NotAllowed: the sender has no say in it, see :meth:`_require_authority`.
        :raises HostError: this lead is committing the run at the moment; the sender must retry.
        """
        await self._database.settle(lambda connection: self._apply_run_end(connection, sender, end))

    async def _apply_run_end(self, connection: Connection, sender: str, end: RunEnd) -> None:
        locked = await runs.lock(connection, end.run)
        if locked is None:
            if await bookings.is_being_decided(connection, end.run):
                msg = f"run {end.run} is still being committed; retry"
                raise HostError(msg)
            return
        if locked.state in OVER and not (
            self._is_displaced_here(locked, end) or self._is_cut_short(locked, end)
        ):
            return
        self._require_authority(sender, locked.lead, locked.parties, f"run {end.run}")
        told = await self._without_foreign_winner(connection, locked, end)
        await self._end(connection, locked, told, sender)

    async def _without_foreign_winner(
        self, connection: Connection, run: LockedRun, end: RunEnd
    ) -> RunEnd:
        """Return an end whose reason does not name the task of another user.

        The participant that displaced the run names the winner's task: only the lead knows users.
        """
        if run.lead != self._identity or end.displaced_by is None:
            return end
        own = await tasks.requester(connection, run.task)
        if own is None or own == await tasks.requester_of_run(connection, end.displaced_by):
            return end
        reason = _NAMED_TASK.sub("a task of another user", end.reason)
        return end.model_copy(update={"reason": reason})

    def _require_authority(
        self, sender: str, lead: str, parties: AbstractSet[str], what: str
    ) -> None:
        """Return if the sender may end a run or a task here.

        Its lead may, and at its lead the ``parties``, which take part in it. The lead tells the
        others, so that no participant ends anything at a third node.

        :raises NotAllowed: it may not.
        """
        if sender == lead or (lead == self._identity and sender in parties):
            return
        if sender in parties:
            raise NotAllowed(f"{what} is led by {lead}, which alone can end it here; tell its lead")
        raise NotAllowed(f"{sender} takes no part in {what}")

    def _is_displaced_here(self, run: LockedRun, end: RunEnd) -> bool:
        """Return whether the run was displaced on this node, its lead; the others must know it."""
        return run.lead == self._identity and run.state is RunState.DISPLACED is RunState(end.state)

    def _is_cut_short(self, run: LockedRun, end: RunEnd) -> bool:
        """Return whether the run failed here because it was cancelled at the other end first."""
        led_elsewhere = run.lead != self._identity
        cancelled = RunState(end.state) is RunState.CANCELLED
        still = run.ends_at > self._clock.now()
        return led_elsewhere and cancelled and still and run.state is RunState.FAILED

    async def _end(
        self, connection: Connection, run: LockedRun, end: RunEnd, sender: str | None = None
    ) -> None:
        now = self._clock.now()
        state = RunState(end.state)
        # What took place is not displaced. A lead whose clock was ahead merges before the start.
        took_place = run.state is RunState.MERGING and run.starts_at <= now
        ending = [] if took_place and state is RunState.DISPLACED else [run.id]
        moved = await runs.set_state(connection, ending, state, end.reason, now)
        if not moved and not self._is_displaced_here(run, end):
            if state is not RunState.DISPLACED:
                return
            # It was displaced elsewhere after it had begun here, so it can only be stopped.
            await runs.set_state(connection, [run.id], RunState.CANCELLED, end.reason, now)
        elif end.displaced_by is not None:
            await runs.keep_winner(connection, run.id, end.displaced_by)
        lost = await bookings.restore(connection, [run.id], now)
        await bookings.tell_leads(connection, lost, now)
        await notices.notify(connection, "run", run.id, run.task, end.state)
        others = run.parties - {self._identity, sender}
        receivers = others if run.lead == self._identity else {run.lead} - {self._identity, sender}
        body = _without_winner(end).model_dump(mode="json")
        await outbox.post(connection, sorted(receivers), outbox.MessageKind.RUN_END, body, now)
        if run.lead != self._identity:
            return
        if state is RunState.DISPLACED and now < run.starts_at:
            await self._place_again(connection, [(run, end.reason)], now)
        else:
            if state is RunState.DISPLACED:
                # A participant may have begun to measure: miss the slot rather than run it twice.
                await runs.add_reason(connection, run.id, time_had_begun())
            await dependencies.create_followers(connection, [run.id], now)
            # A cancelled run does not count toward max_runs, so another slot may take its place.
            await tasks.wake_planning(connection, run.task, now, run.slot)
            await notices.notify(connection, "task", run.task, "plan")

    async def _place_again(
        self, connection: Connection, lost: Sequence[tuple[LockedRun, str]], now: int
    ) -> None:
        """Have lost runs placed again as further attempts, each with the reason of its loss.

        One that is displaced again and again waits for longer each time: on each host other tasks
        come first, so that a run which takes the time of another one may lose its own to a third.
        """
        again = [
            NextAttempt(
                run.id,
                run_id(TaskId(run.task), run.slot, run.attempt + 1),
                run.attempt + 1,
                placed_again(reason),
            )
            for run, reason in lost
        ]
        first: dict[UUID, int] = {}
        for task, slot in await runs.create_waiting_attempts(connection, again, now):
            first[task] = min(slot, first.get(task, slot))
        tries: dict[UUID, int] = {}
        for run, _ in lost:
            tries[run.task] = min(run.attempt, tries.get(run.task, run.attempt))
        for task, slot in sorted(first.items()):
            await tasks.wake_planning(connection, task, now + _retry_pause(tries[task]), slot)
            await notices.notify(connection, "task", task, "plan")

    async def cancel_task(self, task: UUID, revision: int | None = None) -> None:
        """End a task and its future runs, and stop running ones; repeating is harmless.

        Tasks that follow it end with it, unless a run of theirs is still to take place.
        On a participant this withdraws the host's acceptance: the lead is told, and ends the task.
        With ``revision``, only in this one.

        :raises NotFound: there is no such task here.
        :raises Conflict: it has another revision.
        """
        await self._database.settle(
            lambda connection: self._cancel_task(connection, task, revision)
        )
        await self.finish_followers()

    async def _cancel_task(self, connection: Connection, task: UUID, revision: int | None) -> None:
        read = tasks.fetch if revision is None else tasks.lock
        found = await read(connection, task)
        if found is None:
            msg = f"there is no task {task} on this node"
            raise NotFound(msg)
        require_revision(f"task {task}", revision, found.terms.revision)
        if found.lead == self._identity:
            await self._end_task(connection, found, TaskState.CANCELLED, cancelled_on(self._name))
        else:
            await self._end_task(connection, found, TaskState.REFUSED, withdrew(self._name))

    async def apply_task_end(self, sender: str, end: TaskEnd) -> bool:
        """Apply another node's message that a task is over; return whether it was open here."""
        return await self._database.settle(
            lambda connection: self._apply_task_end(connection, sender, end)
        )

    async def _apply_task_end(self, connection: Connection, sender: str, end: TaskEnd) -> bool:
        found = await tasks.fetch(connection, end.task)
        if found is None:
            return False
        self._require_authority(sender, found.lead, _identities(found.terms), f"task {end.task}")
        return await self._end_task(connection, found, TaskState(end.state), end.reason, sender)

    async def refuse_task(self, task: UUID, reason: str) -> None:
        """End a task led here because a participant refuses to take part."""
        await self._database.settle(lambda connection: self._refuse_task(connection, task, reason))

    async def _refuse_task(self, connection: Connection, task: UUID, reason: str) -> None:
        found = await tasks.fetch(connection, task)
        if found is not None:
            await self._end_task(connection, found, TaskState.REFUSED, reason)

    async def cancel_led_task(self, task: UUID, reason: str) -> bool:
        """Cancel a task led here, for example because its node has lost the seat.

        Returns whether it was open.
        """
        return await self._database.settle(
            lambda connection: self.cancel_led_task_in(connection, task, reason)
        )

    async def cancel_led_task_in(self, connection: Connection, task: UUID, reason: str) -> bool:
        """Cancel a task led here, as part of a transaction; return whether it was open."""
        found = await tasks.fetch(connection, task)
        return found is not None and await self._end_task(
            connection, found, TaskState.CANCELLED, reason
        )

    async def end_tasks_of(self, lead: str, reason: str) -> int:
        """End the open tasks that another node leads here, and tell it; return how many."""
        count = 0
        while ended := await self._database.settle(
            lambda connection: self._end_some_of(connection, lead, reason, None)
        ):
            count += len(ended.tasks)
        return count

    async def end_all_of(self, connection: Connection, lead: str, reason: str) -> EndedTasks:
        """End the open tasks that a node leads here, as part of the transaction that removes it.

        It is not told by the outbox, which does not reach it any more.
        """
        every = EndedTasks()
        while ended := await self._end_some_of(connection, lead, reason, lead):
            every += ended
        return every

    async def end_all_with(self, connection: Connection, node: str, reason: str) -> EndedTasks:
        """End the open tasks led here that such a node takes part in; the others are told."""
        every = EndedTasks()
        while ids := await tasks.lock_open_with(connection, self._identity, node, _AT_ONCE):
            found = await tasks.fetch_all(connection, ids)
            every += await self._end_tasks(connection, found, TaskState.CANCELLED, reason, node)
        return every

    async def _end_some_of(
        self, connection: Connection, lead: str, reason: str, sender: str | None
    ) -> EndedTasks | None:
        """End some of the open tasks of another lead; None if it has none."""
        ids = await tasks.lock_open_of(connection, lead, _AT_ONCE)
        if not ids:
            return None
        found = await tasks.fetch_all(connection, ids)
        return await self._end_tasks(connection, found, TaskState.REFUSED, reason, sender)

    async def lose_run(self, run: UUID, reason: str) -> None:
        """Free a run led here that has lost its time, on every participant, and place it again."""
        await self.lose_runs({run: reason})

    async def lose_runs(self, reasons: Mapping[UUID, str]) -> None:
        """Free runs and place them again, each for its reason; those that are over stay over."""
        every = sorted(reasons.items())
        for first in range(0, len(every), _AT_ONCE):
            await self._database.settle(partial(self._lose_runs, every[first : first + _AT_ONCE]))

    async def lose_runs_with(self, identity: str, reason: str) -> None:
        """Free the runs to come in which another node takes part or which it leads.

        Those led here are placed again. Of the others their lead is told, so that it can do so.
        """
        async with self._database.connection() as connection:
            coming = await runs.coming_runs_with(connection, identity, self._clock.now())
        await self.lose_runs(dict.fromkeys(coming, reason))

    async def _lose_runs(self, reasons: Sequence[tuple[UUID, str]], connection: Connection) -> None:
        why = dict(reasons)
        now = self._clock.now()
        locked = [
            run for run in await runs.lock_all(connection, list(why)) if run.state not in OVER
        ]
        ahead = {run.id: run for run in locked if now < run.starts_at}
        by_reason: dict[str, list[UUID]] = {}
        for coming in ahead:
            by_reason.setdefault(why[coming], []).append(coming)
        moved: list[LockedRun] = []
        for reason, ids in by_reason.items():
            done = await runs.set_state(connection, ids, RunState.DISPLACED, reason, now)
            moved += [ahead[each.id] for each in done]
        gone = {run.id for run in moved}
        for run in locked:
            if run.id not in gone:
                # It has begun, or begins at this moment; ``_end`` stops it.
                end = RunEnd(run=run.id, state=RunState.DISPLACED, reason=why[run.id])
                await self._end(connection, run, end)
        lost = await bookings.restore(connection, [run.id for run in moved], now)
        await bookings.tell_leads(connection, lost, now)
        told = [("run", run.id, run.task, "displaced") for run in moved]
        await notices.notify_all(connection, told)
        await outbox.post_all(connection, self._displacement_messages(moved, why), now)
        led = [(run, why[run.id]) for run in moved if run.lead == self._identity]
        await self._place_again(connection, led, now)

    def _displacement_messages(
        self, moved: Sequence[LockedRun], why: Mapping[UUID, str]
    ) -> list[OutgoingMessage]:
        """Return the messages about runs displaced here: to the lead, or from it to all others."""
        posts = []
        for run in moved:
            end = RunEnd(run=run.id, state=RunState.DISPLACED, reason=why[run.id]).model_dump(
                mode="json"
            )
            led = run.lead == self._identity
            receivers = (run.parties if led else {run.lead}) - {self._identity}
            posts += [
                OutgoingMessage(node, outbox.MessageKind.RUN_END, end) for node in sorted(receivers)
            ]
        return posts

    async def finish_tasks(self) -> None:
        """Finish the tasks led here whose schedule and runs are over, on all participants."""
        now = self._clock.now()
        async with self._database.transaction() as connection:
            for whole, state in await seats.finish(connection, now):
                await notices.notify(connection, "task", whole, state)
            await self._announce_finished(connection, await tasks.finish(connection, now), now)

    async def finish_followers(self) -> None:
        """End the tasks led here that follow tasks that are over, and those that follow these."""
        now = self._clock.now()
        async with self._database.transaction() as connection:
            while ended := await tasks.finish_followers(connection, now):
                await self._announce_finished(connection, ended, now)

    async def _announce_finished(
        self, connection: Connection, every: Sequence[TaskOver], now: int
    ) -> None:
        for over in every:
            await notices.notify(connection, "task", over.task, over.state)
            others = over.parties - {self._identity}
            reason = over.reason or schedule_over()
            end = TaskEnd(task=over.task, state=over.state, reason=reason[:1000])
            body = end.model_dump(mode="json")
            await outbox.post(connection, sorted(others), outbox.MessageKind.TASK_END, body, now)

    async def _end_task(
        self,
        connection: Connection,
        task: StoredTask,
        state: TaskState,
        reason: str,
        sender: str | None = None,
    ) -> bool:
        """End a task; with a pool task, also the ordinary tasks of its seats, in batches.

        Returns whether it was open.
        """
        if not (await self._end_tasks(connection, [task], state, reason, sender)).tasks:
            return False
        why = pool_task_ended(state, reason)
        every = await seats.lock_seat_tasks(connection, task.id)
        for first in range(0, len(every), _AT_ONCE):
            parts = await tasks.fetch_all(connection, every[first : first + _AT_ONCE])
            await self._end_tasks(connection, parts, TaskState.CANCELLED, why, None)
        return True

    async def _end_tasks(
        self,
        connection: Connection,
        founds: Sequence[StoredTask],
        state: TaskState,
        reason: str,
        sender: str | None,
    ) -> EndedTasks:
        """End tasks, and tell all other nodes but the ``sender``; return those that were open.

        Several tasks must all have the same lead.
        """
        now = self._clock.now()
        ended = await tasks.end(connection, [task.id for task in founds], state, reason, now)
        over = [task for task in founds if task.id in ended]
        if not over:
            return EndedTasks()
        ids = [task.id for task in over]
        if over[0].lead == self._identity and state is not TaskState.FINISHED:
            restored = self._database.was_restored
            await gaps.record_passed_slots(
                connection, over, now, restored=restored, patience=LEAD_SILENT
            )
        if open_runs := await self._runs_to_end(connection, over, state):
            why = task_ended(state, reason)
            await runs.set_state(connection, open_runs, RunState.CANCELLED, why, now)
            lost = await bookings.restore(connection, open_runs, now)
            await bookings.tell_leads(connection, lost, now)
        leases = await tasks.stop_planning(connection, ids)
        wholes = dict.fromkeys(task.parent for task in over if task.parent is not None)
        told: list[tuple[object, ...]] = [("task", task, state) for task in ids]
        await notices.notify_all(connection, [*told, *(("seats", it, "lost") for it in wholes)])
        posts = {task.id: self._end_messages(task, state, reason, sender) for task in over}
        await outbox.post_all(connection, list(chain.from_iterable(posts.values())), now)
        leased = {task: until for task, until in leases.items() if until is not None}
        if leased:
            # A worker may be introducing the task at this moment, to nodes that would then keep it
            # open. Tell them again once no message of that worker can arrive any more.
            again = max(0, max(leased.values()) - now) + _ON_ITS_WAY
            messages = [post for task in leased for post in posts[task]]
            await outbox.post_all(connection, messages, now, again)
        return EndedTasks(tuple(ids), len(open_runs))

    async def _runs_to_end(
        self, connection: Connection, ended: Sequence[StoredTask], state: TaskState
    ) -> list[UUID]:
        """Return the open runs that end with these tasks; of finished tasks the lead ends them."""
        ids = [task.id for task in ended]
        led = ended[0].lead == self._identity
        if state is TaskState.FINISHED:
            # Its lead has ended all of them, and may tell of that after this.
            return [] if led else await runs.booked_runs_of_task(connection, ids[0])
        open_runs = await runs.open_runs_of_tasks(connection, ids)
        if not led:
            open_runs += await runs.cut_runs_of_tasks(connection, ids, self._clock.now())
        return open_runs

    def _end_messages(
        self, task: StoredTask, state: TaskState, reason: str, sender: str | None
    ) -> list[OutgoingMessage]:
        """Return the messages about the end of a task: from its lead to all others, or to it."""
        led = task.lead == self._identity
        receivers = (_identities(task.terms) if led else {task.lead}) - {
            self._identity,
            sender,
        }
        body = TaskEnd(task=task.id, state=state, reason=reason[:1000]).model_dump(mode="json")
        return [
            OutgoingMessage(node, outbox.MessageKind.TASK_END, body) for node in sorted(receivers)
        ]


def _retry_pause(attempts: int) -> int:
    """Return how long (µs) a slot waits whose run was displaced at its ``attempts``-th attempt."""
    further = attempts - _PROMPT_ATTEMPTS
    return 0 if further <= 0 else min(_AGAIN_FIRST << min(further - 1, 20), _AGAIN_MOST)


def _identities(terms: TaskTerms) -> set[str]:
    return {party.node for party in terms.parties}


def _without_winner(end: RunEnd) -> RunEnd:
    """Return the end as other nodes may know it: not which run took the time of a displaced one."""
    if end.displaced_by is None:
        return end
    reason = end.reason.partition(" (")[0]
    return end.model_copy(update={"reason": reason, "displaced_by": None})
