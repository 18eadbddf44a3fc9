"""Reconciliation: compares open tasks and future runs with their participants, and repairs.

The protocol leaves no differences; lost and restored databases and bugs do. A task that a
participant does not know, or knows in another revision or with other terms, is told again. A run
that only the lead has, or that both have at different times or for different terms, is taken back
everywhere and placed again; so is one that the lead took for over before its start. A run that only
the participant has is ended there. A part that did not come, or that a restored database forgot, is
sent again by the participant that measured it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol
from uuid import UUID

import structlog

from lead.model.reasons import (
    booked_for_other_terms,
    ended_there,
    given_up_too_early,
    revision_differs_there,
    run_missing_there,
    run_moved_there,
    run_not_led,
    run_only_there,
    state_differs_there,
    task_unknown_there,
    terms_differ_there,
)
from lead.store import planning
from lead.store.planning import LedTask, TaskPage
from node.model import times
from node.model.digests import differences, fingerprint, terms_fingerprint
from node.model.errors import ParleyError
from node.model.reason import Reason
from node.model.runstate import RunState
from node.model.taskstate import UNKNOWN
from node.model.wire.comparisons import Difference, TaskComparison, task_comparison
from node.model.wire.participants import (
    DIGESTS_MAX,
    LACKING_MAX,
    Differences,
    Digest,
    DigestRequest,
    RunEnd,
)
from node.runtime.clock import Clock
from node.runtime.gathering import NODES_AT_ONCE, gather_some
from node.store import tasks
from node.store.database import Connection, Database

RECONCILIATION_MIN_AGE = 2 * times.MINUTE
"""Runs of tasks with commits younger than this that are still on their way are skipped, and parts
of runs that ended more recently: they may come yet. The tasks themselves are compared."""

STARTS_SOON = 10 * times.SECOND
"""Runs that start sooner are skipped: they begin before the repair could be told to all nodes."""

LACKING_AGE_MAX = 7 * times.DAY
"""Runs that began earlier are not asked for their missing parts any more."""

_PLACED_AGAIN = "taken back on all nodes, to be placed again"

log = structlog.get_logger()


class Comparable(Protocol):
    """Another node whose runs can be compared."""

    identity: str
    name: str

    async def compare(self, request: DigestRequest) -> Differences:
        """Return the differences to these digests."""
        ...

    async def end_run(self, end: RunEnd) -> None:
        """End a run there."""
        ...


@dataclass(frozen=True)
class ReconciliationDependencies:
    """The functions of the node that reconciliation uses.

    ``others()`` lists the nodes to compare with. ``lose_run(run, reason)`` takes a run back on all
    its participants.
    ``end_task(task, reason)`` cancels a task, and returns whether it was open.
    ``tell_again(task, node, revision)`` tells a task to a node that has it in that revision, 0 if
    it does not know it, and returns false if it is being told anyway.
    """

    others: Callable[[], list[Comparable]]
    lose_run: Callable[[UUID, str], Awaitable[None]]
    end_task: Callable[[UUID, str], Awaitable[bool]]
    tell_again: Callable[[UUID, str, int], Awaitable[bool]]


class Reconciler:
    """Repairs differences between this lead and its participants."""

    def __init__(
        self,
        database: Database,
        clock: Clock,
        dependencies: ReconciliationDependencies,
        horizon: int,
    ) -> None:
        """Compare runs up to ``horizon`` (microseconds from now)."""
        self._database = database
        self._clock = clock
        self._horizon = horizon
        self._others = dependencies.others
        self._lose_run = dependencies.lose_run
        self._end_task = dependencies.end_task
        self._tell_again = dependencies.tell_again

    async def compare_all(self) -> None:
        """Compare with all other nodes, some at a time; a failure affects none of the others."""
        await gather_some(self._compare_with, self._others(), NODES_AT_ONCE)

    async def _compare_with(self, other: Comparable) -> None:
        try:
            await self.run_once(other)
        except ParleyError as error:
            log.info("not compared", node=other.name, error=error.detail)
        except Exception:
            log.exception("not compared", node=other.name)

    async def run_once(self, other: Comparable, together: int = DIGESTS_MAX) -> TaskComparison:
        """Compare with a node, ``together`` tasks per message; return what differed."""
        count, runs, after = 0, 0, UUID(int=0)
        found: list[Difference] = []
        while True:
            page, differing = await self._compare(other, TaskPage(after, together))
            found += differing
            count += len(page)
            runs += sum(len(each.runs or ()) for each in page)
            if len(page) < together:
                break
            after = page[-1].id
        if found:
            log.warning("repaired differences", node=other.name, differences=len(found))
        return task_comparison(count, runs, found)

    async def _compare(
        self, other: Comparable, page: TaskPage
    ) -> tuple[list[LedTask], list[Difference]]:
        """Compare a page of tasks; return them, and what differed."""
        now = self._clock.now()
        since = now + STARTS_SOON
        until = since + self._horizon
        async with self._database.connection() as connection:
            ours = await planning.led_tasks(
                connection, other.identity, since, until, now - RECONCILIATION_MIN_AGE, page
            )
            lacking = await self._runs_lacking_parts(connection, other, page, now)
            if not ours and not lacking:
                return [], []
            stored = await tasks.fetch_all(connection, [task.id for task in ours])
        terms = {task.id: terms_fingerprint(task.terms) for task in stored}
        digests = tuple(
            Digest(
                task=task.id,
                state=task.state,
                revision=task.revision,
                terms=terms[task.id],
                fingerprint=None if task.runs is None else fingerprint(task.runs),
            )
            for task in ours
        )
        answered = await other.compare(
            DigestRequest(now=since, until=until, tasks=digests, lacking=tuple(lacking))
        )
        found = []
        for task in ours:
            found += await self._repair(other, task, answered)
        return ours, found

    @staticmethod
    async def _runs_lacking_parts(
        connection: Connection, other: Comparable, page: TaskPage, now: int
    ) -> list[UUID]:
        """Return the runs whose parts are to be sent again, with the first page only."""
        if page.after.int:
            return []
        until = now - RECONCILIATION_MIN_AGE
        since = now - LACKING_AGE_MAX
        return await planning.runs_lacking_part(
            connection, other.identity, since, until, LACKING_MAX
        )

    async def _repair(
        self, other: Comparable, ours: LedTask, answered: Differences
    ) -> list[Difference]:
        """Repair a task that the other node may have otherwise; return what differed."""
        state = answered.ended.get(ours.id)
        if state not in (None, UNKNOWN):
            return await self._end(other, ours.id, state)
        if state == UNKNOWN and not ours.accepted:
            return []  # it is about to be introduced
        found = await self._repair_task(other, ours, answered)
        if ours.runs is None:
            return found
        theirs = answered.tasks.get(ours.id, ours.runs) if state is None else {}
        why = dict.fromkeys(ours.given_up, given_up_too_early())
        if ours.id in answered.terms:
            why |= dict.fromkeys(ours.runs, booked_for_other_terms())
        return found + await self._repair_runs(other, ours.id, why, ours.runs, theirs)

    async def _repair_task(
        self, other: Comparable, ours: LedTask, answered: Differences
    ) -> list[Difference]:
        """Tell a task again that the other node does not know, or has otherwise."""
        if ours.id in answered.ended:
            revision, what = 0, task_unknown_there(other.name)
        elif ours.id in answered.terms:
            revision, what = ours.revision, terms_differ_there(other.name)
        elif (known := answered.revisions.get(ours.id)) is not None:
            revision = known
            what = (
                state_differs_there(other.name)
                if known == ours.revision
                else revision_differs_there(other.name, known, ours.revision)
            )
        else:
            return []
        if not await self._tell_again(ours.id, other.identity, revision):
            return []
        return [Difference(task=ours.id, difference=what, repair="told again")]

    async def _end(self, other: Comparable, task: UUID, state: str) -> list[Difference]:
        """End a task that the other node heard to be over.

        Only this lead ends tasks: it did, since its runs were read, or before its database was
        restored. The first is ordinary, and no difference.
        """
        what = ended_there(state, other.name)
        if not await self._end_task(task, what):
            return []
        return [Difference(task=task, difference=what, repair="cancelled")]

    async def _repair_runs(
        self,
        other: Comparable,
        task: UUID,
        lost: dict[UUID, Reason],
        ours: dict[UUID, int],
        theirs: dict[UUID, int],
    ) -> list[Difference]:
        """Repair the runs of a task; ``lost`` has some to take back anyway, with the reasons."""
        differing = differences(ours, theirs)
        lost |= dict.fromkeys(differing.missing, run_missing_there(other.name))
        for run in differing.moved:
            lost[run] = run_moved_there(other.name, theirs[run])
        for run, why in lost.items():
            await self._lose_run(run, why)
        dropped = [run for run in differing.surplus if await self._drop(other, run)]
        return [
            *(_difference(task, run, why, _PLACED_AGAIN) for run, why in lost.items()),
            *(_difference(task, run, run_only_there(other.name), "ended there") for run in dropped),
        ]

    async def _drop(self, other: Comparable, run: UUID) -> bool:
        """End a run there that this lead does not have; return whether it still has not.

        It may be booked here under the same id at any moment. So the other node is told at once: a
        message of the outbox could come after that and end the new booking.
        """
        async with self._database.connection() as connection:
            if await planning.is_wanted(connection, run):
                return False
        await other.end_run(RunEnd(run=run, state=RunState.DISPLACED, reason=run_not_led()))
        return True


def _difference(task: UUID, run: UUID, what: str, repair: str) -> Difference:
    return Difference(task=task, run=run, difference=what, repair=repair)
