"""Housekeeping: what a service does at intervals, beside serving, planning and measuring.

The tables below name all of it. APScheduler runs the jobs, on the project's :class:`Clock`: both
the time by which a job is due and the waiting for it come from there, so that a test or a
simulation moves them. The time is the monotonic one, so a step of the host's clock neither holds up
a job nor repeats it. What reacts to an event, and with that every step of booking, is not
housekeeping: it has a loop of its own that is woken.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import structlog
from apscheduler.executors.base import BaseExecutor, MaxInstancesReachedError
from apscheduler.jobstores.memory import MemoryJobStore
from apscheduler.schedulers.base import BaseScheduler
from apscheduler.triggers.interval import IntervalTrigger

from node.model import looks, times
from node.model.errors import ParleyError, reason_of
from node.runtime.clock import Clock

SETTLE_S = 1
END_S = 2
FOLLOWERS_S = 10
PEERS_S = looks.ROUND // times.SECOND
SUMS_S = 5
WATCHDOG_S = 10
CLOCK_S = 1
MARK_S = 60
CERTIFICATES_S = 60
LEAD_S = 10
COMPARE_S = 180
SHARED_S = 30
CONFIRM_S = 180
HEARD_S = 60
AUDIT_S = 60
WEBHOOKS_S = 15
BACKUP_S = 30
SURPLUS_S = 300
SURPLUS_JITTER_S = 60
HOUR_S = 3600
HOUR_JITTER_S = 600
"""Nodes that start together, as on one host, do not all read and delete at one instant."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)

log = structlog.get_logger()

Action = Callable[[], Awaitable[object]]


@dataclass(frozen=True, slots=True)
class PeriodicJob:
    """A job of housekeeping: its name, its interval and the most that is added to it, in seconds.

    The first time is one interval after the start.
    """

    name: str
    interval_s: float
    action: Action
    jitter_s: float = 0


def node_jobs(  # noqa: PLR0913 - one for each job, all by name
    *,
    settle_holds: Action,
    end_overdue: Action,
    end_followers: Action,
    watch_peers: Action,
    tell_revocations: Action,
    refresh_card: Action,
    renew_certificates: Action,
    extend_reservations: Action,
    catch_up_audit: Action,
    check_webhooks: Action,
    back_up: Action,
    sum_up_meshes: Action,
    purge: Action,
) -> tuple[PeriodicJob, ...]:
    """Return the housekeeping of a node."""
    return (
        # Commits or drops holds that have expired, as their lead decided.
        PeriodicJob("settle holds", SETTLE_S, settle_holds),
        # Ends runs whose parts never came, and tasks whose runs are all over.
        PeriodicJob("end what is over", END_S, end_overdue),
        # Ends tasks that follow tasks that are over, once their own runs are.
        PeriodicJob("end following tasks", FOLLOWERS_S, end_followers),
        # Asks the other nodes whether they are there, and for their cards.
        PeriodicJob("watch peers", PEERS_S, watch_peers),
        # Tells the other nodes which keys were revoked, until they have heard.
        PeriodicJob("tell revocations", PEERS_S, tell_revocations),
        # Writes this node's own card anew when the host has changed.
        PeriodicJob("refresh card", PEERS_S, refresh_card),
        # Makes or reads certificates again that expire or have changed.
        PeriodicJob("renew certificates", CERTIFICATES_S, renew_certificates),
        # Writes the spans of recurring reservations further ahead.
        PeriodicJob("extend reservations", HOUR_S, extend_reservations, HOUR_JITTER_S),
        # Writes how many requests were left out of the audit, and what could not be written.
        PeriodicJob("catch up with the audit", AUDIT_S, catch_up_audit),
        # Writes messages for webhooks about what has begun, or is over.
        PeriodicJob("check webhooks", WEBHOOKS_S, check_webhooks),
        # Makes a backup if the latest one has become too old.
        PeriodicJob("back up", BACKUP_S, back_up),
        # Sums up what the tasks of meshes have delivered, where that has changed.
        PeriodicJob("sum up meshes", SUMS_S, sum_up_meshes),
        # Deletes what has been kept long enough, by the table in ``retention.py``.
        PeriodicJob("purge", HOUR_S, purge, HOUR_JITTER_S),
    )


def participant_jobs(
    *, confirm_tasks: Action, keep_heard: Action, end_leases: Action, purge_surplus: Action
) -> tuple[PeriodicJob, ...]:
    """Return the housekeeping of a node for the tasks that others lead."""
    return (
        # Asks their leads which of the tasks that are open here are open there.
        PeriodicJob("confirm tasks", CONFIRM_S, confirm_tasks),
        # Writes which nodes have sent or answered signed requests.
        PeriodicJob("write who was heard", HEARD_S, keep_heard),
        # Ends the tasks of leads that have been silent for a week.
        PeriodicJob("end tasks of silent leads", HOUR_S, end_leases, HOUR_JITTER_S),
        # Deletes ended tasks of a node that has more of them here than it may.
        PeriodicJob("purge surplus tasks", SURPLUS_S, purge_surplus, SURPLUS_JITTER_S),
    )


def api_jobs(*, renew_certificates: Action, catch_up_audit: Action) -> tuple[PeriodicJob, ...]:
    """Return the housekeeping of a process that serves the API beside the node's service."""
    return (
        # Reads certificates again that have changed, or makes them if they expire.
        PeriodicJob("renew certificates", CERTIFICATES_S, renew_certificates),
        # Writes what could not be written.
        PeriodicJob("catch up with the audit", AUDIT_S, catch_up_audit),
    )


def lead_jobs(
    *, compare: Action, learn_uses: Action, every_s: float = COMPARE_S
) -> tuple[PeriodicJob, ...]:
    """Return the housekeeping of a lead."""
    return (
        # Compares the runs to come with those of each participant, and repairs differences.
        PeriodicJob("compare with participants", every_s, compare),
        # Asks other leads what the campaigns that they share have used.
        PeriodicJob("learn what shared campaigns use", SHARED_S, learn_uses),
    )


def process_jobs(
    *,
    ping_watchdog: Action,
    watch_clock: Action,
    mark_database: Action,
    show_lead: Action | None = None,
) -> tuple[PeriodicJob, ...]:
    """Return the housekeeping of a process, whether it has a node, a lead or both."""
    every = (
        # Tells the service manager that the event loop turns.
        PeriodicJob("ping watchdog", WATCHDOG_S, ping_watchdog),
        # Notices that the host's clock was set, and looks at everything that waits for an instant.
        PeriodicJob("watch clock", CLOCK_S, watch_clock),
        # Raises the mark of the database, and notices that its data went back.
        PeriodicJob("mark database", MARK_S, mark_database),
    )
    # Writes that this process plans, for the readiness of its node.
    shown = () if show_lead is None else (PeriodicJob("show lead", LEAD_S, show_lead),)
    return every + shown


class Housekeeper:
    """Runs periodic jobs until it is stopped.

    A job that fails is logged and runs again at its next time. One that takes longer than its
    interval does not run twice at once: the times that it misses are skipped.
    """

    def __init__(self, clock: Clock) -> None:
        """Run nothing before :meth:`start`."""
        self._executor = _TaskExecutor()
        self._scheduler = _ClockScheduler(clock, self._executor)

    def start(self, jobs: Iterable[PeriodicJob]) -> None:
        """Run these jobs from now on; their names must differ."""
        for job in jobs:
            self._scheduler.add_periodic(job)
        self._scheduler.start()

    async def stop(self) -> None:
        """Start no more jobs, cancel those that are running, and wait until they have ended."""
        if self._scheduler.running:
            self._scheduler.shutdown()
        ending = self._executor.cancel()
        await asyncio.gather(*ending, return_exceptions=True)


class _TaskExecutor(BaseExecutor):  # type: ignore[misc] # untyped
    """Runs each job as a task of the event loop, which can be cancelled and awaited."""

    def __init__(self) -> None:
        super().__init__()
        self._running: set[asyncio.Task[None]] = set()

    def _do_submit_job(self, job: Any, _run_times: Sequence[datetime]) -> None:
        task = asyncio.create_task(_run_logged(job.name, job.func), name=job.name)
        self._running.add(task)
        task.add_done_callback(partial(self._note_end, job.id))

    def _note_end(self, job_id: str, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        self._run_job_success(job_id, [])  # counts the instances; failures are logged by then

    def cancel(self) -> list[asyncio.Task[None]]:
        """Cancel the jobs that are running; return them."""
        ending = list(self._running)
        for task in ending:
            task.cancel()
        return ending


async def _run_logged(name: str, action: Action) -> None:
    try:
        await action()
    except ParleyError as error:
        log.warning("housekeeping failed", job=name, error=reason_of(error))
    except Exception as error:
        log.exception("housekeeping failed", job=name, error=reason_of(error))


class _ClockScheduler(BaseScheduler):  # type: ignore[misc] # untyped
    """APScheduler on a :class:`Clock`.

    The library's own schedulers read the host's clock wherever a job is due or added. Its triggers,
    job stores and executors take the time as an argument, so here they get it from the clock: so
    many microseconds of monotonic time, as a date after 1970.
    """

    def __init__(self, clock: Clock, executor: BaseExecutor) -> None:
        self._clock = clock
        self._executor = executor
        self._store = MemoryJobStore()
        self._turning: asyncio.Task[None] | None = None
        self._late: set[str] = set()
        super().__init__(
            timezone=UTC,
            executors={"default": executor},
            jobstores={"default": self._store},
            # None: APScheduler would compare the due time with the host's clock.
            job_defaults={"max_instances": 1, "misfire_grace_time": None},
        )

    def add_periodic(self, job: PeriodicJob) -> None:
        """Add a job that is due first after one interval."""
        now = self._now()
        interval = timedelta(seconds=job.interval_s)
        trigger = IntervalTrigger(
            seconds=job.interval_s,
            start_date=now + interval,
            timezone=UTC,
            jitter=job.jitter_s or None,
        )
        first = trigger.get_next_fire_time(None, now)
        self.add_job(job.action, trigger, id=job.name, name=job.name, next_run_time=first)

    def wakeup(self) -> None:
        """Begin to look for due jobs; called once by :meth:`start`, and needless after that."""
        if self._turning is None:
            self._turning = asyncio.create_task(self._wait_and_begin(), name="housekeeping")

    def shutdown(self, wait: bool = False) -> None:  # noqa: FBT001, FBT002 - the library's signature
        """Start no more jobs."""
        super().shutdown(wait)
        if self._turning is not None:
            self._turning.cancel()

    async def _wait_and_begin(self) -> None:
        while (following := self._store.get_next_run_time()) is not None:
            await self._clock.sleep((following - self._now()).total_seconds())
            self._begin_due()

    def _begin_due(self) -> None:
        now = self._now()
        for job in self._store.get_due_jobs(now):
            try:
                self._executor.submit_job(job, [job.next_run_time])
                self._late.discard(job.id)
            except MaxInstancesReachedError:
                if job.id not in self._late:  # once, however many times it misses
                    log.debug("housekeeping is late", job=job.name)
                self._late.add(job.id)
            # By the grid of its intervals and not by its last time: what was missed is skipped.
            following = job.trigger.get_next_fire_time(None, now + _MICROSECOND)
            self.modify_job(job.id, next_run_time=following)

    def _now(self) -> datetime:
        return _EPOCH + timedelta(microseconds=self._clock.monotonic())
