"""Reconciliation: compares future runs between the lead and its participants, and repairs.

The protocol leaves no differences; lost and restored databases and bugs do. A run that only the
lead has, or that both have at different times, is taken back everywhere and placed again. A run
that only the participant has is ended there.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol
from uuid import UUID

import structlog

from lead.store import planning
from lead.store.planning import TaskPage
from node.clock import Clock
from node.model import times
from node.model.digests import differences, fingerprint
from node.model.errors import ParleyError
from node.model.taskstate import UNKNOWN
from node.model.wire.participants import DIGESTS_MAX, Differences, Digest, DigestRequest
from node.store.database import Database

RECONCILIATION_MIN_AGE = 2 * times.MINUTE
"""Runs that start sooner and decisions younger than this are skipped: messages may be under way."""

log = structlog.get_logger()


class Comparable(Protocol):
    """Another node whose runs can be compared."""

    identity: str
    name: str

    async def compare(self, request: DigestRequest) -> Differences:
        """Return the differences to these digests."""
        ...


@dataclass(frozen=True)
class ReconciliationDependencies:
    """The functions of the node that reconciliation uses.

    ``others()`` lists the nodes to compare with. ``lose_run(run, reason)`` takes a run back on all
    its participants. ``drop_run(node, run, reason)`` ends a run that no lead has on one node.
    ``end_task(task, reason)`` cancels a task.
    """

    others: Callable[[], list[Comparable]]
    lose_run: Callable[[UUID, str], Awaitable[None]]
    drop_run: Callable[[str, UUID, str], Awaitable[None]]
    end_task: Callable[[UUID, str], Awaitable[None]]


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
        self._drop_run = dependencies.drop_run
        self._end_task = dependencies.end_task

    async def compare_all(self) -> None:
        """Compare with each other node in turn; a failure with one does not affect the others."""
        for other in self._others():
            await self._try(other)

    async def compare_with(self, identity: str) -> None:
        """Compare with one node, if it is known; a failure is logged."""
        for other in self._others():
            if other.identity == identity:
                await self._try(other)

    async def _try(self, other: Comparable) -> None:
        try:
            await self.run_once(other)
        except ParleyError as error:
            log.info("not compared", node=other.name, error=error.detail)
        except Exception:
            log.exception("not compared", node=other.name)

    async def run_once(self, other: Comparable, together: int = DIGESTS_MAX) -> int:
        """Compare with a node, ``together`` tasks per message; return the count of repairs."""
        repaired, after = 0, UUID(int=0)
        while True:
            compared, done = await self._compare(other, TaskPage(after, together))
            repaired += done
            if len(compared) < together:
                break
            after = compared[-1]
        if repaired:
            log.warning("repaired differences", node=other.name, runs=repaired)
        return repaired

    async def _compare(self, other: Comparable, page: TaskPage) -> tuple[list[UUID], int]:
        """Compare a page of tasks; return them, and how many runs were repaired."""
        now = self._clock.now()
        since = now + RECONCILIATION_MIN_AGE
        until = since + self._horizon
        async with self._database.connection() as connection:
            ours = await planning.digests(
                connection, other.identity, since, until, now - RECONCILIATION_MIN_AGE, page
            )
        if not ours:
            return [], 0
        digests = tuple(
            Digest(task=task, state=state, count=len(runs), fingerprint=fingerprint(runs))
            for task, state, runs in ours
        )
        answered = await other.compare(DigestRequest(now=since, until=until, tasks=digests))
        repaired = await self._repair(other, {task: runs for task, _, runs in ours}, answered)
        return [task for task, _, _ in ours], repaired

    async def _repair(
        self, other: Comparable, ours: dict[UUID, dict[UUID, int]], answered: Differences
    ) -> int:
        """Repair the tasks of ``ours`` that the other node has otherwise; return the count."""
        repaired = 0
        theirs = {**answered.tasks, **{task: dict[UUID, int]() for task in answered.ended}}
        for task, runs in theirs.items():
            if task not in ours:
                continue
            if (state := answered.ended.get(task)) not in (None, UNKNOWN):
                # Only this lead ends tasks: it did, since its runs were read above, or before its
                # database was restored. It is no repair, because the first is ordinary.
                await self._end_task(task, f"it is {state} on {other.name}, which heard so before")
                continue
            differing = differences(ours[task], runs)
            for run in differing.missing:
                await self._lose_run(run, f"{other.name} does not have it any more")
            for run in differing.moved:
                when = times.to_the_second(runs[run])
                await self._lose_run(run, f"{other.name} has it at another time, {when}")
            for run in differing.surplus:
                await self._drop_run(other.identity, run, "its lead does not have it any more")
            repaired += len(differing.missing) + len(differing.moved) + len(differing.surplus)
        return repaired
