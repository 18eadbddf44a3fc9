"""Previews of tasks that are created together: each beside those that its lead plans before it.

Their runs take time and limits that the others do not have then. Where a task displaces runs of one
that was planned before, the slots of these are planned again, and those of tasks that wait for the
time that becomes free, as their lead will.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from uuid import UUID

from lead.exchange.preview import OF_REQUEST, ConcurrentPlanning, ConsideredTask, TaskPreviewer
from lead.exchange.task_counts import TaskCounts
from lead.planning.tentative_bookings import (
    TentativeBookings,
    TentativeDisplacement,
    TentativeTask,
)
from node.model.classes import SchedulingClass
from node.model.host_limits.rules import User
from node.model.wire.plans import Displaced, Plan, PlanRequest
from node.model.wire.tasks import TaskDocument

_ASKED_AT_ONCE = 8
"""Number of tasks of a list whose participants are asked at the same time."""

Listed = tuple[PlanRequest, User | None]
"""A task of a list, and who would create it."""


async def plan_together(
    previewer: TaskPreviewer, requests: Sequence[Listed]
) -> list[Plan | BaseException]:
    """Return what would happen to tasks that these users create together, in their order.

    Instead of a plan it is why there is none. They are planned in the order of their lead: as many
    as it plans at once by their first runs, and of these the highest levels first. None has
    alternatives.
    """
    tasks = TaskList(previewer, requests)
    failed = await tasks.ask()
    await tasks.plan()
    answers = failed | await tasks.answers()
    return [answers[index] for index in range(len(requests))]


class TaskList:
    """The tasks of a list, by their place in it."""

    def __init__(self, previewer: TaskPreviewer, requests: Sequence[Listed]) -> None:
        """Ask and plan nothing yet."""
        self._previewer = previewer
        self._requests = requests
        self._tentative = TentativeBookings()
        self._tasks: dict[int, ConsideredTask] = {}
        self._lost: set[tuple[str, int, int, SchedulingClass]] = set()
        """Node, span and class of the booked runs that gave way."""
        self._gone: set[tuple[UUID, int]] = set()
        """Task and start of those of them that are led here."""
        self._places = asyncio.Semaphore(_ASKED_AT_ONCE)

    async def ask(self) -> dict[int, Plan | BaseException]:
        """Ask the participants of all tasks; return why some cannot even be drafted."""
        places = range(len(self._requests))
        answers = await asyncio.gather(*map(self._answered, places), return_exceptions=True)
        counts = TaskCounts()
        failed: dict[int, Plan | BaseException] = {}
        for index, each in enumerate(answers):
            if isinstance(each, BaseException):
                failed[index] = each
            else:
                self._tasks[index] = await self._previewer.counted(
                    each, counts, self._beside(index)
                )
        return failed

    async def plan(self) -> None:
        """Plan them in the order in which their lead does, again and again what is due."""
        due = {index for index, each in self._tasks.items() if each.open_slots}
        planned: set[int] = set()
        displacing = False
        while due:
            claimed = sorted(due, key=self._first_run)[: self._previewer.workers]
            for index in sorted(claimed, key=lambda it: -self._tasks[it].level):
                due.discard(index)
                for freed in await self._plan(index, again=index in planned):
                    displacing = True
                    due |= {it for it in planned if self._waits_for(it, freed)}
                planned.add(index)
            if displacing and not due:
                # What found no time is asked for again and again, until nothing gives way to it.
                displacing = False
                due = {index for index in planned if self._tasks[index].open_slots}

    async def _plan(self, index: int, *, again: bool) -> set[int]:
        """Plan a task, or its open slots again; return which others lost runs by it."""
        each, beside = self._tasks[index], self._beside(index)
        if again:
            found = await self._previewer.place_again(each, each.open_slots, beside)
        else:
            found = await self._previewer.place(each, beside)
        found = replace(found, gave_way=None)
        booked = await self._previewer.displaced(found, beside.left_out)
        return self._take(index, found, [it for it in booked if _place_of(it) not in self._lost])

    def _first_run(self, index: int) -> tuple[int, int]:
        return self._tasks[index].open_slots[0].nominal, index

    def _waits_for(self, index: int, freed: int) -> bool:
        """Return whether a task waits for time of a node on which one has lost runs."""
        names, others = (
            {participant.name for participant in self._tasks[it].task.terms.participants}
            for it in (index, freed)
        )
        return bool(self._tasks[index].open_slots) and not names.isdisjoint(others)

    async def answers(self) -> dict[int, Plan | BaseException]:
        """Return the plans of the tasks that were planned."""
        plans = await asyncio.gather(*map(self._answer, self._tasks))
        return dict(zip(self._tasks, plans, strict=True))

    async def _answered(self, index: int) -> ConsideredTask:
        document = self._requests[index][0].model_dump(
            mode="json", exclude_unset=True, exclude=OF_REQUEST
        )
        async with self._places:
            return await self._previewer.draft_with_answers(
                TaskDocument.model_validate(document), self._beside(index)
            )

    async def _answer(self, index: int) -> Plan:
        async with self._places:
            return await self._previewer.answer(self._tasks[index], self._requests[index][0])

    def _beside(self, index: int) -> ConcurrentPlanning:
        """Return what is planned before a task, of it and of others."""
        request, user = self._requests[index]
        before = [
            (each.task.terms, [choice.starts_at for choice in each.plan.choices])
            for each in self._tasks.values()
            if each.plan.choices
        ]
        return ConcurrentPlanning(
            self._tentative, before, self._gone, user=user, left_out=request.instead_of
        )

    def _take(self, index: int, found: ConsideredTask, booked: Sequence[Displaced]) -> set[int]:
        """Take the time of what was planned of a task; return which others lost runs by it.

        ``booked`` are the booked runs that give way to it, and to none that was planned before.
        """
        self._lost.update(map(_place_of, booked))
        self._gone.update((it.task, it.starts_at) for it in booked if it.task is not None)
        known, plan = self._tasks[index], found.plan
        if known.plan.slots:
            choices = [*known.plan.choices, *plan.choices]
            reasons = {**known.plan.reasons, **plan.reasons}
            placed = {choice.slot.nominal for choice in choices}
            plan = replace(
                known.plan,
                choices=sorted(choices, key=lambda choice: choice.slot.start),
                reasons={at: why for at, why in reasons.items() if at not in placed},
            )
        task = self._key(index, found)
        lost = self._tentative.take(task, found.plan.proposals, found.plan.choices)
        gave_way = [*(known.gave_way or ()), *booked, *map(self._displaced, lost)]
        self._tasks[index] = replace(known, plan=plan, gave_way=gave_way)
        losing = {it.key for it in lost}
        for key in losing:
            self._give_back(key, {it.span[0] for it in lost if it.key == key})
        return losing

    def _give_back(self, index: int, starts: set[int]) -> None:
        """Take back the runs of a task with these starts."""
        each = self._tasks[index]
        plan = each.plan
        kept = [choice for choice in plan.choices if choice.starts_at not in starts]
        self._tentative.give_back(self._key(index, each), plan.proposals, starts)
        self._tasks[index] = replace(each, plan=replace(plan, choices=kept))

    @staticmethod
    def _key(index: int, each: ConsideredTask) -> TentativeTask:
        return TentativeTask.of(index, each.task.terms, each.priority)

    def _displaced(self, lost: TentativeDisplacement) -> Displaced:
        terms = self._tasks[lost.key].task.terms
        return Displaced(
            name=lost.name,
            run=None,
            task=None,
            test=terms.test,
            scheduling_class=lost.kind,
            priority=self._tasks[lost.key].priority,
            starts_at=lost.span[0],
            ends_at=lost.span[1],
            by=lost.by,
        )


def _place_of(run: Displaced) -> tuple[str, int, int, SchedulingClass]:
    return run.name, run.starts_at, run.ends_at, run.scheduling_class
