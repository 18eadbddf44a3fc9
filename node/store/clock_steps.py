"""The instants in all tables that a clock which was ahead has chosen, and their repair."""

from __future__ import annotations

from node.model import archiving, times
from node.model.runstate import RunState
from node.runtime.clock import Uptime
from node.store import notices
from node.store.database import Connection
from node.store.statements import Query, Statements

_SQL = Statements("node.store", "clock_steps")

MESSAGE_PAUSE_MAX = 5 * times.MINUTE
"""Longest pause after which a message of the outbox is sent again."""


async def note_reading(
    connection: Connection, now: int, uptime: Uptime | None, *, in_doubt: bool
) -> int | None:
    """Write that the clock says ``now``; return what it said when it was written last."""
    boot, elapsed = _words_of(uptime)
    before: int | None = await connection.fetchval(_SQL["note_clock"], now, in_doubt, boot, elapsed)
    return before


believed_at: Query[[], int | None] = _SQL.value("believed_clock")
"""The last reading of the clock that was believed, by whatever process of this node."""


async def latest_known_reading(connection: Connection, uptime: Uptime | None) -> int | None:
    """Return the last believed reading, later by the time since then if the host did not reboot."""
    boot, elapsed = _words_of(uptime)
    instant: int | None = await connection.fetchval(_SQL["latest_known_clock"], boot, elapsed)
    return instant


def _words_of(uptime: Uptime | None) -> tuple[str | None, int | None]:
    return (None, None) if uptime is None else (uptime.boot, uptime.elapsed)


age_judged_at: Query[[int], int] = _SQL.value("aged_clock")
"""The instant by which age is judged: at most ``now``, and a day after the last one.

However far a clock is ahead, it makes nothing more than a day older than it is.
"""

judge_age: Query[[int], int] = _SQL.value("age_clock")
"""Store the instant of :data:`age_judged_at`, and return it: the next one may be a day later."""


async def repair(connection: Connection, now: int, lease: int) -> int:
    """Bring all instants that are too far in the future to where they belong by ``now``.

    And what is over by the clock alone back. ``lease`` is the longest lease of a task that is being
    planned; both are in microseconds. Return how many runs are booked again.
    """
    # Negotiations before the agenda, as decisions lock them: otherwise one waits for the other.
    await connection.execute(_SQL["begin_negotiations_now"], now)
    await connection.execute(_SQL["open_again"], now)
    back = await connection.fetch(_SQL["book_again"], now)
    await connection.execute(_SQL["plan_again"], now)
    await connection.execute(_SQL["plan_now"], now)
    await connection.execute(_SQL["shorten_leases"], now, now + lease)
    await connection.execute(_SQL["open_terms_now"], now)
    await connection.execute(_SQL["begin_holds_now"], now)
    await connection.execute(_SQL["send_now"], now, now + MESSAGE_PAUSE_MAX)
    await connection.execute(_SQL["wait_for_start"], now)
    await connection.execute(_SQL["deliver_now"], now, now + archiving.HOURLY)
    await connection.execute(_SQL["see_nodes_now"], now)
    await connection.execute(_SQL["see_leads_now"], now)
    await connection.execute(_SQL["learn_now"], now)
    await connection.execute(_SQL["forget_outcomes"], now)
    over = await connection.fetch(_SQL["end_alerts"], now)
    await connection.execute(_SQL["date_alerts_now"], now)
    await notices.notify_all(
        connection, [("run", row["id"], row["task_id"], RunState.BOOKED) for row in back]
    )
    await notices.notify_all(
        connection, [("alert", row["id"], row["task_id"], "over") for row in over]
    )
    return len(back)
