"""No slot is run twice: what a node does with the earlier attempts of a slot it is asked for again.

A lead asks for another attempt of a slot only when it has given up the ones before: displaced
elsewhere, or freed by a change of the task. Word of that may still be under way, or lost with a cut
wire. So whoever is asked gives up an earlier attempt that has not begun, and refuses the new one if
an earlier one has.
"""

from __future__ import annotations

from uuid import UUID

from node.model.runstate import RunState
from node.model.times import to_the_second
from node.store import bookings, runs
from node.store.bookings import Wanted
from node.store.database import Connection


async def supersede(
    connection: Connection, wanted: Wanted, now: int
) -> tuple[Wanted, dict[UUID, str]]:
    """Give up earlier attempts; what is left to book, and why the rest of it must not be, by run.

    Runs in the transaction of the hold. Instants in microseconds.
    """
    earlier = await bookings.earlier_attempts(connection, wanted)
    if not earlier:
        return wanted, {}
    begun: dict[UUID, str] = {}
    for attempt in earlier:
        if attempt.began_at is not None:
            began = to_the_second(attempt.began_at)
            begun[attempt.wanted] = (
                f"this slot has been run here already: run {attempt.run} began at {began}, before "
                "this node heard that it was given up"
            )
    given_up = [each for each in earlier if each.wanted not in begun and each.began_at is None]
    for attempt in given_up:
        why = f"its lead plans this slot anew, as run {attempt.wanted}"
        await runs.move(connection, [attempt.run], RunState.CANCELLED, why, now)
        await bookings.notify(connection, "run", attempt.run, attempt.task, "cancelled")
    lost = await bookings.restore(connection, [attempt.run for attempt in given_up], now)
    await bookings.tell_leads(connection, lost, now)
    return [
        (hold, task, [run for run in requested if run.run not in begun])
        for hold, task, requested in wanted
    ], begun
