"""The worker pool: claims tasks by next-run time, one for each idle worker, and plans them.

A notification wakes it, and so does the clock when a task comes due. It also reads the database
every few seconds, so that a lost notification costs time and nothing else.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter, defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import groupby

import structlog

from lead.exchange.planner import Planner
from lead.exchange.reachability import ReachabilityTracker
from lead.model.reasons import planning_took_long
from lead.model.records import Claim
from lead.store import planning
from lead.store.failures import describe_failure
from lead.store.planning import LeaseRequest
from node.model import times
from node.model.errors import ParleyError
from node.runtime.clock import Clock, LatchedEvent, StepWatcher
from node.store.database import Database, Notice

POLL_S = 5.0
_STOP_S = 10.0
_PAUSE_MAX_S = 60.0
"""Longest pause of a pool that the database answers with one error again and again."""
_PRECEDENCE_S = 2.0
"""Longest time for which a task waits for others of a higher level, which may ask a slow node."""
_EXTRA_WORKERS_FACTOR = 3
"""Limit on extra workers (as a multiple of the pool) while workers wait for slow participants."""

log = structlog.get_logger()


@dataclass(frozen=True)
class WorkerSettings:
    """The bounds of a worker pool.

    ``owner`` names this process in the leases. ``size`` is the number of workers. ``lease`` and
    ``horizon`` are in microseconds.
    """

    owner: str
    size: int
    lease: int
    horizon: int
    poll_s: float = POLL_S


class Repeated:
    """An error that comes again and again; it is told once."""

    def __init__(self) -> None:
        self.count = 0
        """The number of times that it came again."""
        self._last: str | None = None

    def is_new(self, sentence: str) -> bool:
        """Count an error; return whether it is another one than before."""
        new = sentence != self._last
        self.count = 0 if new else self.count + 1
        self._last = sentence
        return new


class Workers:
    """Claims and plans the tasks that are due."""

    def __init__(
        self,
        database: Database,
        clock: Clock,
        planner: Planner,
        reach: ReachabilityTracker,
        settings: WorkerSettings,
        steps: StepWatcher,
    ) -> None:
        """``reach`` says who may be asked now, ``steps`` how far to trust the clock."""
        self._database = database
        self._clock = clock
        self._steps = steps
        self._planner = planner
        self._reachability = reach
        self._owner = settings.owner
        self._size = settings.size
        self._lease = settings.lease
        self._horizon = settings.horizon
        self._poll_s = settings.poll_s
        self._busy: dict[asyncio.Task[None], Claim] = {}
        self._woken = LatchedEvent()
        self._failures = Repeated()
        self._abort_at = 0

    def on_notice(self, notice: Notice) -> None:
        """Wake up for a changed task or campaign, a node that answers again, or lost notices."""
        if notice.kind in {"wake", "campaign"} or (
            notice.kind == "task" and notice.words[-1] in {"active", "plan", "edited"}
        ):
            self._woken.set()
        if notice.kind == "node" and notice.words == ("reached",):
            self._reachability.probe_by_name(notice.id)
            self._woken.set()

    async def run(self) -> None:
        """Plan until cancelled; then give back the claims that could not be finished."""
        try:
            while True:
                try:
                    # By a clock set forward, slots seem to be over that may be yet to come.
                    doubt = self._steps.doubt / times.SECOND
                    pause = min(doubt, self._poll_s) or await self.run_once()
                    self._failures = Repeated()
                except ParleyError as error:
                    if self._failures.is_new(error.detail):
                        log.warning("cannot plan", error=error.detail)
                    pause = min(self._poll_s * 2**self._failures.count, _PAUSE_MAX_S)
                except Exception:
                    log.exception("cannot plan")
                    pause = self._poll_s
                await self._woken.wait(pause)
                self._woken.clear()
        finally:
            await self._stop()

    async def run_once(self) -> float:
        """Claim as many tasks as there are idle workers; return the seconds until the next call."""
        now = self._clock.now()
        idle = self._count_idle()
        if idle <= 0:
            return self._seconds_until(self._reachability.next_slow_task_at())
        before = now + self._horizon + 1
        if unanswered := self._reachability.unanswered_since():
            async with self._database.connection() as connection:
                self._reachability.probe_now(await planning.seen_since(connection, unanswered))
        await self._planner.apply_reachability_changes()
        claims = await self._claim(now, before, idle)
        self._start_all(claims)
        if len(claims) == idle:
            return self._seconds_until(self._reachability.next_slow_task_at())
        async with self._database.connection() as connection:
            due, beyond = await planning.next_due_and_slot(
                connection, before, self._reachability.blocked()
            )
        # A task whose slots lie beyond the horizon is due when the first of them comes within it.
        near_at = None if beyond is None else beyond - self._horizon
        return self._seconds_until(due, near_at, self._reachability.next_probe_at())

    def _count_idle(self) -> int:
        """Return how many more tasks may be planned.

        Each worker that waits long for an answer is replaced by an extra one.
        """
        extra = min(self._reachability.slow_task_count(), _EXTRA_WORKERS_FACTOR * self._size)
        return self._size + extra - len(self._busy)

    def _seconds_until(self, *instants: int | None) -> float:
        """Return the seconds until the first of these instants, at most the polling period."""
        soonest = min((at for at in instants if at is not None), default=None)
        if soonest is None:
            return self._poll_s
        return min(self._poll_s, max(0.0, (soonest - self._clock.now()) / times.SECOND))

    async def _claim(self, now: int, before: int, idle: int) -> list[Claim]:
        """Claim due tasks: first those that may ask a silent or slow participant, then others."""
        lease = LeaseRequest(self._owner, now, now + self._lease)
        claims: list[Claim] = []
        async with self._database.transaction() as connection:
            if self._clock.monotonic() >= self._abort_at:
                await planning.abort_stale(connection, now)
                self._abort_at = self._clock.monotonic() + times.SECOND
            for participant, places in self._reachability.free_places():
                count = min(places, idle - len(claims))
                some = await planning.claim(connection, lease, before, count, only=participant)
                self._reachability.note_claimed(participant, count, len(some))
                claims += some
            restricted = self._reachability.restricted_participants()
            left = idle - len(claims)
            claims += await planning.claim(connection, lease, before, left, restricted=restricted)
            taken = Counter(c.taken_from for c in claims if c.taken_from not in {None, self._owner})
            if taken:
                await planning.count_takeovers(connection, self._owner, now, taken.total())
        for owner, count in taken.items():
            log.warning("took tasks over, whose lease had run out", lead=owner, tasks=count)
        return claims

    def _start_all(self, claims: Sequence[Claim]) -> None:
        """Plan all of them at once; of those that share a node, the higher levels first."""
        higher: defaultdict[str, set[asyncio.Task[None]]] = defaultdict(set)
        ranked = sorted(claims, key=lambda claimed: -claimed.level)
        for _, group in groupby(ranked, key=lambda claimed: claimed.level):
            started = []
            for claimed in group:
                nodes = [party.node for party in claimed.terms.parties]
                ahead = set[asyncio.Task[None]]().union(*(higher[node] for node in nodes))
                started.append((nodes, self._start(claimed, ahead)))
            for nodes, task in started:
                for node in nodes:
                    higher[node].add(task)

    def _start(self, claimed: Claim, ahead: Collection[asyncio.Task[None]]) -> asyncio.Task[None]:
        task = asyncio.create_task(self._plan(claimed, ahead), name=f"plan {claimed.task}")
        self._busy[task] = claimed
        task.add_done_callback(self._note_finished)
        return task

    def _note_finished(self, task: asyncio.Task[None]) -> None:
        self._busy.pop(task, None)
        self._woken.set()

    async def _plan(self, claimed: Claim, ahead: Collection[asyncio.Task[None]]) -> None:
        """Plan a task; an error is stored with the task, which is planned again later."""
        if ahead:
            await asyncio.wait(ahead, timeout=_PRECEDENCE_S)
        patience = self._lease * 9 // 10
        try:
            async with asyncio.timeout(patience / times.SECOND):
                await self._planner.plan(claimed)
        except TimeoutError:
            why = planning_took_long(patience)
        except Exception as error:  # noqa: BLE001 - it is stored, and logged
            why = describe_failure(error, "planning failed", task=str(claimed.task))
        else:
            return
        log.warning("planning broke off", task=str(claimed.task), error=why)
        try:
            await self._planner.handle_unexpected_failure(claimed, why)
        except ParleyError as error:
            # The lease will expire and the task be planned again; the holds will expire, too.
            log.warning("not stored", task=str(claimed.task), error=error.detail)

    async def _stop(self) -> None:
        if self._busy:
            await asyncio.wait(list(self._busy), timeout=_STOP_S)
        left = list(self._busy.items())
        for task, _ in left:
            task.cancel()
        for _, claimed in left:
            with contextlib.suppress(ParleyError):
                async with self._database.connection() as connection:
                    await planning.release_claim(connection, claimed, self._clock.now())
