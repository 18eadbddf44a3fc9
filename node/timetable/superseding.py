"""Superseding: handles the earlier attempts of a slot, so that no slot is run twice.

A lead asks for another attempt of a slot only after it has given up the earlier ones, because they
were displaced elsewhere or freed by a change of the task. The message about that may be delayed or
lost. So the participant cancels an earlier attempt that has not begun, and refuses the new attempt
if an earlier one has begun.

A lead whose database was restored from a backup does not remember the runs that it booked after the
backup. It counts the attempts of their slots anew, so that what it asks for may have the id of a
run that is booked here, at another time. Such a run is forgotten, and refused if it has begun. Nor
does it remember that a run was cancelled; the slot of such a run is refused.

A slot whose run was missed, or failed for a reason that may pass, is tried again on purpose: the
request says so (``again``). Then an earlier attempt that is over here is no obstacle; one that is
still under way is, so that no slot is measured twice at once. Nobody but the lead knows what came
to nothing: so no more attempts begin here than the introduction said (``retry``).

Beside another attempt that is booked or has begun here, none is booked, whatever its number: the
statement that books holds that (``book`` in ``bookings.sql``).
"""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from node.model.reason import Reason
from node.model.reasons import (
    attempt_is_booked,
    slot_cancelled_already,
    slot_planned_anew,
    slot_run_already,
)
from node.model.wire.participants import RunRequest
from node.store import bookings, notices
from node.store.bookings import EarlierAttempt, HeldTask, Wanted
from node.store.database import Connection


async def supersede(
    connection: Connection, wanted: Wanted, now: int
) -> tuple[Wanted, dict[UUID, Reason]]:
    """Cancel earlier attempts of these runs, in the transaction of the hold.

    Returns what is left to book, and by run why the others must not be booked. ``now`` is in
    microseconds.
    """
    earlier = await bookings.earlier_attempts(connection, wanted)
    if not earlier:
        return wanted, {}
    refused = _refusal_reasons(earlier)
    given_up = [each for each in earlier if each.wanted not in refused and each.began_at is None]
    if known := [attempt for attempt in given_up if not attempt.unknown]:
        why = {it.run: slot_planned_anew(it.wanted) for it in known}
        await bookings.give_up(connection, why, now)
        told = [("run", it.run, it.task, "cancelled") for it in known]
        await notices.notify_all(connection, told)
    lost = await bookings.restore(connection, [attempt.run for attempt in given_up], now)
    await bookings.tell_leads(connection, lost, now)
    if unknown := [attempt.run for attempt in given_up if attempt.unknown]:
        await bookings.forget(connection, unknown)
    return [
        (hold, task, [run for run in requested if run.run not in refused])
        for hold, task, requested in wanted
    ], refused


async def other_attempt_reasons(
    connection: Connection, task: HeldTask, refused: Sequence[RunRequest]
) -> dict[UUID, Reason]:
    """Return why runs were not booked of whose slots other attempts are booked or have begun."""
    if not refused:
        return {}
    others = await bookings.other_attempts(connection, task.task, refused)
    return {run: attempt_is_booked(attempt, other) for run, (other, attempt) in others.items()}


def _refusal_reasons(earlier: Sequence[EarlierAttempt]) -> dict[UUID, Reason]:
    """Return why runs must not be booked whose slots have been run, or were cancelled."""
    refused: dict[UUID, Reason] = {}
    for attempt in earlier:
        if attempt.began_at is not None:
            refused[attempt.wanted] = slot_run_already(attempt.run, attempt.began_at)
        elif attempt.cancelled is not None:
            refused.setdefault(attempt.wanted, slot_cancelled_already(attempt.cancelled))
    return refused
