"""The instants in all tables that a clock which was ahead has chosen, and their repair."""

from __future__ import annotations

from node.model import archiving, times
from node.store.database import Connection
from node.store.queries import Queries

_SQL = Queries("node.store", "clock_steps")

MESSAGE_PAUSE_MAX = 5 * times.MINUTE
"""Longest pause after which a message of the outbox is sent again."""


async def note(connection: Connection, now: int) -> int | None:
    """Write that the clock says ``now``; return what it said when it was written last."""
    before: int | None = await connection.fetchval(_SQL["note_clock"], now)
    return before


async def repair(connection: Connection, now: int, lease: int) -> None:
    """Bring all instants that are too far in the future to where they belong by ``now``.

    ``lease`` is the longest lease of a task that is being planned; both are in microseconds.
    """
    # Negotiations before the agenda, as decisions lock them: otherwise one waits for the other.
    await connection.execute(_SQL["begin_negotiations_now"], now)
    await connection.execute(_SQL["plan_gaps_again"], now)
    await connection.execute(_SQL["plan_now"], now)
    await connection.execute(_SQL["shorten_leases"], now, now + lease)
    await connection.execute(_SQL["open_terms_now"], now)
    await connection.execute(_SQL["begin_holds_now"], now)
    await connection.execute(_SQL["send_now"], now, now + MESSAGE_PAUSE_MAX)
    await connection.execute(_SQL["wait_for_start"], now)
    await connection.execute(_SQL["deliver_now"], now, now + archiving.HOURLY)
    await connection.execute(_SQL["see_nodes_now"], now)
    await connection.execute(_SQL["see_leads_now"], now)
