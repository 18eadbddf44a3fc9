"""Resolves holds that ran out: their leads are asked for the decision (presumed abort)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from uuid import UUID

import structlog

from node.model.errors import ParleyError
from node.model.exchangestate import NegotiationState
from node.model.wire.participants import CommitRequest, Release
from node.store import bookings, notices
from node.store.bookings import ExpiredHold
from node.store.core import Core
from node.timetable.booking import TimeLine

_EXPIRED_MAX = 200
"""Maximum number of holds resolved at the same time."""

log = structlog.get_logger()


class HoldExpirer:
    """Commits or releases holds that ran out before their lead said which."""

    def __init__(
        self,
        core: Core,
        time_line: TimeLine,
        ask: Callable[[str, UUID], Awaitable[CommitRequest | str | None]],
    ) -> None:
        """``ask(lead, exchange)`` returns the commit, "aborted", "open", or None (unreachable)."""
        self._time_line = time_line
        self._database = core.database
        self._clock = core.clock
        self._ask = ask

    async def run_once(self) -> int:
        """Resolve all expired holds, batch by batch; return how many were resolved.

        A lead that gives no decision is left out of the following batches, so that it delays only
        its own holds.
        """
        resolved, undecided = 0, set[str]()
        while True:
            async with self._database.connection() as connection:
                expired = await bookings.expired_holds(
                    connection, self._clock.now(), sorted(undecided), _EXPIRED_MAX
                )
            outcomes = await asyncio.gather(*(self._resolve(hold) for hold in expired))
            resolved += sum(outcomes)
            undecided |= {
                hold.lead
                for hold, is_resolved in zip(expired, outcomes, strict=True)
                if not is_resolved
            }
            if len(expired) < _EXPIRED_MAX:
                return resolved

    async def _resolve(self, hold: ExpiredHold) -> bool:
        """Apply the lead's decision; return False if there is none yet and the hold stays.

        A hold whose lead gives no decision is released after 7/4 of its life. The remaining quarter
        is the margin within which it is gone before twice its life.
        """
        try:
            decision = await self._ask(hold.lead, hold.exchange)
        except ParleyError as error:
            log.info("no decision on a hold", exchange=str(hold.exchange), error=error.detail)
            decision = None
        life = hold.expires_at - hold.held_at
        if isinstance(decision, CommitRequest):
            await self._time_line.commit(hold.exchange, decision)
        elif (
            decision == NegotiationState.ABORTED
            or self._clock.now() >= hold.expires_at + life * 3 // 4
        ):
            release = Release(task=hold.task, lease_epoch=hold.lease_epoch)
            await self._time_line.release(hold.exchange, release)
        else:
            return False
        await self._wake_waiting_slots(hold.task)
        return True

    async def _wake_waiting_slots(self, task: UUID) -> None:
        """Have the slots of a task led here planned again: the worker that negotiated is gone."""
        async with self._database.transaction() as connection:
            if await bookings.wake_waiting(connection, task, self._clock.now()):
                await notices.notify(connection, "task", task, "plan")
