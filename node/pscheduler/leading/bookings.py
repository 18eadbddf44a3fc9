"""The watch over what hosts that run pScheduler have booked of this node's tasks.

They tell nobody anything. So each booking is looked at: five seconds before its start, whether it
is still there; after its end, until its part is there; and what has to be deleted there is asked
for again until it is. One that a host leads itself is looked at as soon as it has to be placed. A
booking that is held and not decided when its hold would have expired at a node of Parley is decided
like there: by what the lead has stored.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from uuid import UUID

import structlog

from node.client.pscheduler import JsonObject, PschedulerHost
from node.model import times
from node.model.errors import InvalidDocument, NotAllowed, NotFound, ParleyError, PeerError
from node.model.exchangestate import NegotiationState
from node.model.runstate import RunState
from node.model.wire.participants import OUTPUT_LENGTH_MAX, CommitRequest, PartMessage, RunEnd
from node.pscheduler.dialects.registry import DIALECTS
from node.pscheduler.leading import delegation
from node.pscheduler.leading.delegation import DELEGATED
from node.pscheduler.leading.results import part_of_result
from node.store import pscheduler_bookings as store
from node.store.core import Core
from node.store.pscheduler_bookings import BookedThere, BookingState, Membership

LOOKED_AT_BEFORE = 5 * times.SECOND
"""Time before its start at which it is looked whether a run is still booked."""
SCHEDULED_WITHIN = 15 * times.SECOND
"""Time after which a host has placed the run of a task that it leads itself, or found no time."""
_FETCH_WAIT_S = 5
"""Time for which a host is asked to wait until a run has its result."""
_FETCH_PAUSE = times.SECOND
_FETCHED_UNTIL = 10 * times.MINUTE
"""Time after the end of a booking after which its part is given up."""
_REPEATED = 10 * times.SECOND
"""Pause before a deletion, or a look at a host that did not answer, is repeated."""
_SWEPT = times.MINUTE
_STORED_BY = 10 * times.MINUTE
"""Time after which a task that was posted there must be stored here."""
_POLL_S = 1.0
_AT_ONCE = 16
_OVER = frozenset({"missed", "preempted", "canceled", "nonstart"})
"""States of a run there that never has a result."""

log = structlog.get_logger()


@dataclass(frozen=True)
class BookingServices:
    """The parts of the node that the watch uses.

    ``host_of(identity)`` is the client of a host. ``lose(node, end)`` ends a run as its
    participant displaced it. ``receive(node, part)`` takes the part of a participant in.
    ``decided(exchange)`` is what the lead has decided: a commit, a state, or None if unknown.
    ``commit(node, exchange, commit)`` completes bookings there.
    """

    host_of: Callable[[str], PschedulerHost]
    lose: Callable[[str, RunEnd], Awaitable[None]]
    receive: Callable[[str, PartMessage], Awaitable[None]]
    decided: Callable[[UUID], Awaitable[CommitRequest | str | None]]
    commit: Callable[[str, UUID, CommitRequest], Awaitable[object]]


class ForeignBookings:
    """Watches the bookings at hosts that run pScheduler."""

    def __init__(self, core: Core, services: BookingServices) -> None:
        """Nothing is watched before :meth:`run`."""
        self._database = core.database
        self._sealing = core.sealing
        self._clock = core.clock
        self._services = services
        self._busy: dict[UUID, asyncio.Task[None]] = {}
        self._swept_at = 0

    async def run(self) -> None:
        """Watch until cancelled."""
        try:
            while True:
                pause = _POLL_S
                try:
                    pause = await self.start_due()
                except ParleyError as error:
                    log.warning("bookings at pScheduler not read", error=error.detail)
                except Exception:
                    log.exception("bookings at pScheduler not read")
                await self._clock.sleep(pause)
        finally:
            for work in list(self._busy.values()):
                work.cancel()
            await asyncio.gather(*self._busy.values(), return_exceptions=True)

    async def start_due(self) -> float:
        """Begin to tend due bookings, each in its own task; return the seconds to the next look."""
        now = self._clock.now()
        if now >= self._swept_at + _SWEPT or now < self._swept_at:
            self._swept_at = now
            await self.sweep()
        async with self._database.connection() as connection:
            due = await store.due_bookings(connection, self._sealing, now)
        for row in due:
            if row.run_there not in self._busy and len(self._busy) < _AT_ONCE:
                work = asyncio.create_task(self._tend_safely(row), name=f"pscheduler {row.run}")
                self._busy[row.run_there] = work
                work.add_done_callback(partial(self._forget_finished, row.run_there))
        return _POLL_S

    def _forget_finished(self, run_there: UUID, _: asyncio.Task[None]) -> None:
        self._busy.pop(run_there, None)

    async def run_once(self) -> None:
        """Do what is due for all bookings, and wait until it is done."""
        await self.start_due()
        await asyncio.gather(*self._busy.values())

    async def sweep(self) -> None:
        """End the tasks there that are over here, or that nobody here knows."""
        async with self._database.connection() as connection:
            now = self._clock.now()
            await store.end_obsolete(connection, now, now - _STORED_BY)
            ending = await store.memberships_to_delete(connection, self._sealing)
        for there in ending:
            await self._end(there)

    async def clear(self, node: str, task: UUID) -> None:
        """Delete at a host what is to be deleted of a task; what fails is repeated later."""
        async with self._database.connection() as connection:
            rows = await store.bookings_of_task(connection, self._sealing, node, task)
        for row in rows:
            if row.state is BookingState.DROPPING:
                await self.try_to_drop(row)
        async with self._database.connection() as connection:
            ending = await store.memberships_to_delete(connection, self._sealing, node, task)
        for there in ending:
            await self._end(there)

    async def _end(self, there: Membership) -> None:
        """Delete a task there; it is forgotten once it is certain that it does not stand."""
        try:
            if there.participant != DELEGATED:
                await self._services.host_of(there.node).end_task(there.task_there, there.key)
        except NotFound:
            pass
        except NotAllowed as error:
            log.warning("task not ended there", node=there.node, error=error.detail)
        except ParleyError as error:
            log.info("task not ended there yet", node=there.node, error=error.detail)
            return
        async with self._database.connection() as connection:
            await store.forget_membership(connection, there.task_there)

    async def try_to_drop(self, row: BookedThere) -> None:
        """Delete a booking there; what fails is repeated until the booking is over.

        A booking whose request got no answer may still arrive after the deletion. It is deleted
        once more when that is over.
        """
        now = self._clock.now()
        try:
            host = self._services.host_of(row.node)
            if row.participant == DELEGATED:
                await delegation.drop(host, row)
            else:
                await host.drop(row.task_there, row.run_there, row.key)
        except NotFound:
            if row.next_at > now:
                return
        except NotAllowed as error:
            log.warning("run not taken back there", node=row.node, error=error.detail)
        except ParleyError as error:
            if now < row.ends_at:
                log.info("run not taken back there yet", node=row.node, error=error.detail)
                await self._postpone(row, now + _REPEATED)
                return
        await self._forget(row)

    async def _tend_safely(self, row: BookedThere) -> None:
        try:
            await self._tend(row)
        except ParleyError as error:
            log.info("booking not looked at", node=row.node, run=str(row.run), error=error.detail)
            await self._postpone(row, self._clock.now() + _REPEATED)
        except Exception:
            log.exception("booking not looked at", node=row.node, run=str(row.run))
            await self._postpone(row, self._clock.now() + _REPEATED)

    async def _tend(self, row: BookedThere) -> None:
        match row.state:
            case BookingState.BOOKING:
                await self._drop(row)
            case BookingState.HELD:
                await self._decide(row)
            case BookingState.KEPT:
                await self._look(row)
            case BookingState.BEGUN:
                await self._fetch(row)
            case BookingState.LOST:
                await self._lose(row, row.reason or "its time was taken away there")
            case BookingState.DROPPING:
                await self.try_to_drop(row)

    async def _drop(self, row: BookedThere) -> None:
        async with self._database.connection() as connection:
            await store.drop_some(connection, [row.run_there], self._clock.now())
        await self.try_to_drop(row)

    async def _decide(self, row: BookedThere) -> None:
        """Do what the lead has decided about a booking that was held as long as a hold lives."""
        decided, now = await self._services.decided(row.exchange), self._clock.now()
        if isinstance(decided, CommitRequest):
            await self._complete(row, decided)
        elif decided == NegotiationState.ABORTED or row.starts_at <= now:
            await self._drop(row)
        else:
            await self._postpone(row, now + times.SECOND)

    async def _complete(self, row: BookedThere, decided: CommitRequest) -> None:
        """Complete a booking there; shortly before its start, a run that is not told is lost.

        It does not begin there without the data of all, so it is not to begin here either.
        """
        look_at = row.starts_at - LOOKED_AT_BEFORE
        try:
            await self._services.commit(row.node, row.exchange, decided)
        except PeerError as error:
            now = self._clock.now()
            if now < look_at:
                await self._postpone(row, min(now + _REPEATED, look_at))
                return
            await self._displace(row, f"could not be told that the run stands: {error.detail}")
            await self._drop(row)

    async def _look(self, row: BookedThere) -> None:
        """Look whether a run is still booked; shortly before its start, let it begin here.

        Who does not answer may measure all the same, so the run begins here, too.
        """
        try:
            run = await self.run_of(row)
        except NotFound:
            await self._lose(row, "does not have the run any more, and had not told so")
            return
        except ParleyError as error:
            log.info("booking not looked at", node=row.node, run=str(row.run), error=error.detail)
            run = {}
        state = run.get("state")
        if state in _OVER:
            why = f" ({run['errors']})" if run.get("errors") else ""
            await self._lose(row, f"says that the run is {state}{why}, and had not told so")
            return
        look_at = row.starts_at - LOOKED_AT_BEFORE
        if self._clock.now() < look_at:
            await self._postpone(row, look_at)
            return
        # Its part may be there before the booking ends, which is longer than the run.
        fetched_at = max(row.starts_at + times.SECOND, row.ends_at - _FETCH_WAIT_S * times.SECOND)
        async with self._database.connection() as connection:
            await store.note_begun(connection, row.run_there, fetched_at)

    async def run_of(self, row: BookedThere, wait_s: int = 0) -> JsonObject:
        """Return a run as its host has it; with ``wait_s``, once it has its result, or as it is.

        :raises NotFound: the host does not have it.
        """
        host = self._services.host_of(row.node)
        if row.participant == DELEGATED:
            return await delegation.run_of(host, row, wait_s)
        return await host.run(row.task_there, row.run_there, row.key, wait_s)

    async def _lose(self, row: BookedThere, reason: str) -> None:
        """Displace a run that a host has taken away; a task with nothing else in it is ended."""
        await self._displace(row, reason)
        if row.participant == DELEGATED:
            await self._drop(row)
        else:
            await self._forget(row)

    async def _displace(self, row: BookedThere, reason: str) -> None:
        name = self._services.host_of(row.node).name
        end = RunEnd(run=row.run, state=RunState.DISPLACED, reason=f"{name} {reason}"[:1000])
        await self._services.lose(row.node, end)

    async def _fetch(self, row: BookedThere) -> None:
        """Fetch the part of a run that is over; ask again until it is there."""
        now = self._clock.now()
        try:
            run = await self.run_of(row, _FETCH_WAIT_S)
        except NotFound:
            await self._receive(row, None, "it does not have the run any more")
            return
        except ParleyError as error:
            if now < row.ends_at + _FETCHED_UNTIL:
                raise
            await self._receive(row, None, error.detail)
            return
        result = run.get("result-merged" if row.participant == DELEGATED else "result")
        if isinstance(result, dict):
            await self._receive_result(row, result)
        elif run.get("state") in _OVER:
            why = f": {run['errors']}" if run.get("errors") else ""
            await self._receive(row, None, f"the run is {run['state']} there{why}")
        elif now >= row.ends_at + _FETCHED_UNTIL:
            await self._receive(row, None, f"it had no result; the run is {run.get('state')} there")
        else:
            await self._postpone(row, now + _FETCH_PAUSE)

    async def _receive_result(self, row: BookedThere, part: JsonObject) -> None:
        """Read the part of a host as one of our tool, and give it to the lead."""
        if row.participant == DELEGATED:
            heard = part_of_result(row.test, row.spec, part)
        else:
            heard = DIALECTS[row.tool].heard_part(row.participant, row.spec, part)
        reason = heard.reason
        if heard.result is None and reason is None:
            reason = "its result is not understood"
        await self._receive(row, heard.result, reason, str(part.get("diags") or ""))

    async def _receive(
        self,
        row: BookedThere,
        result: JsonObject | None,
        reason: str | None,
        output: str | None = None,
    ) -> None:
        part = PartMessage(
            run=row.run,
            result=result,
            reason=None if reason is None else reason.replace("\x00", "")[:1000],
            started_at=None,
            finished_at=None,
            command=None,
            output=None if output is None else output.replace("\x00", "")[:OUTPUT_LENGTH_MAX],
        )
        try:
            await self._services.receive(row.node, part)
        except InvalidDocument as error:
            log.info("part not kept whole", run=str(row.run), reason=error.detail)
        await self._forget(row)

    async def _postpone(self, row: BookedThere, next_at: int) -> None:
        async with self._database.connection() as connection:
            await store.postpone(connection, row.run_there, next_at)

    async def _forget(self, row: BookedThere) -> None:
        async with self._database.connection() as connection:
            await store.forget(connection, row.run_there)


def whole_second(instant: int) -> int:
    """Return the second in which an instant lies, as pScheduler cuts it."""
    return instant - instant % times.SECOND
