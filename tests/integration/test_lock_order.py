"""Transactions of holds, releases, and decisions lock in one order."""

from __future__ import annotations

import asyncio

from node.store import bookings
from node.store.bookings import ExchangeRuling, Hold
from tests.support.booking import HOUR, BookingLead
from tests.support.worlds import ON_ONE_LOOP, Site, exchange_of, hold_request

pytestmark = ON_ONE_LOOP


async def _is_blocked(site: Site) -> bool:
    """Return whether a transaction of this database waits for another one."""
    query = (
        "SELECT EXISTS (SELECT FROM pg_stat_activity "
        "WHERE datname = current_database() AND wait_event_type = 'Lock')"
    )
    return bool((await site.rows(query))[0][0])


async def test_a_release_overtakes_its_hold_while_that_is_under_way(booker: BookingLead) -> None:
    """The release is written though the hold has locked the task, and the hold finds it."""
    task = await booker.task()
    request = hold_request(task, [HOUR])
    exchange, site = exchange_of(request), booker.site
    hold = Hold(exchange, booker.lead.identity, request)
    ruling = ExchangeRuling(exchange, task.task, None, booker.lead.identity)

    async def release() -> None:
        async with site.database.transaction() as connection:
            await bookings.refuse(connection, [ruling], HOUR)

    async with site.database.transaction() as connection:
        assert await bookings.accept_epochs(connection, [hold])
        releasing = asyncio.create_task(release())
        while not releasing.done() and not await _is_blocked(site):
            pass
        assert await bookings.open_exchanges(connection, [hold], HOUR) == set()
    await releasing
