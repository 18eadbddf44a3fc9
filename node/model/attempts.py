"""Further attempts of a slot whose run came to nothing, for a reason that may pass. Pure.

A slot may start up to its slip after its nominal start. If its run was missed, or failed because a
node was away, restarted, or late, the lead tries it again within that window, as a further attempt:
a run of its own. The run that failed is over on every node that knows of it before the next one is
booked there, so that no slot is measured twice at once (``node/timetable/superseding.py``).

Instants and durations are microseconds.
"""

from __future__ import annotations

from collections.abc import Iterable

from node.model.reason import Reason, ReasonKind
from node.model.reasons import (
    booking_unconfirmed,
    down_at_start,
    no_part_in_time,
    not_begun_before,
    program_not_begun,
    restarted_meanwhile,
    run_gone_since_backup,
    run_not_booked_there,
    server_busy,
    started_too_late,
    stopped_meanwhile,
    track_lost,
)
from node.model.recurrence import Recurrence, slip_of
from node.model.runstate import RunState
from node.model.wire.tasks import RetryTerms, Schedule

MAY_PASS: tuple[ReasonKind[...], ...] = (
    booking_unconfirmed,
    down_at_start,
    no_part_in_time,
    not_begun_before,
    program_not_begun,
    restarted_meanwhile,
    run_gone_since_backup,
    run_not_booked_there,
    server_busy,
    started_too_late,
    stopped_meanwhile,
    track_lost,
)
"""The reasons of parts that may pass: the node was not there, or not in time; or a server that is
no node, and has one client at a time, had another one.

What a tool says of the target or the path is a result, and not in this table. Nor is what a
restored node may have measured and forgotten.
"""

CAME_TO_NOTHING = frozenset({RunState.FAILED, RunState.MISSED})
"""The states of runs whose slots may be tried again."""


def passing_reason(reasons: Iterable[str | None]) -> Reason | str | None:
    """Return the first of these reasons of parts that may pass; None if none of them may."""
    told = (reason for reason in reasons if reason is not None)
    return next((it for it in told if any(kind.wrote(it) for kind in MAY_PASS)), None)


def retry_terms(schedule: Schedule) -> RetryTerms:
    """Return how the slots of a task are tried again; by default within their slip."""
    return schedule.retry or RetryTerms()


def last_start(recurrence: Recurrence, retry: RetryTerms, duration: int, nominal: int) -> int:
    """Return the latest instant at which a further attempt of a slot may start."""
    slip = slip_of(recurrence, duration, nominal)
    return nominal + (slip if retry.within is None else min(slip, retry.within))


def is_tried_again(
    recurrence: Recurrence, retry: RetryTerms, duration: int, slot: tuple[int, int], now: int
) -> bool:
    """Return whether a slot (nominal start, attempt that came to nothing) gets another attempt."""
    nominal, attempt = slot
    return attempt <= retry.times and now + retry.after <= last_start(
        recurrence, retry, duration, nominal
    )
