"""Delivers the outbox: retries each message until it is acknowledged, with growing pauses.

Messages to this node itself take the same path, without HTTP. A message that its receiver refuses
(a 4xx answer) would be refused again: it is dropped and logged. "Later" (429) is no refusal, nor is
an unknown key (401), which its owner may add.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from uuid import UUID

import structlog

from node.model import times
from node.model.errors import (
    NotAuthenticated,
    ParleyError,
    RequestError,
    TooManyRequests,
    reason_of,
)
from node.runtime import tracing
from node.runtime.clock import Clock, LatchedEvent
from node.runtime.instruments import Instruments
from node.store import outbox
from node.store.clock_steps import MESSAGE_PAUSE_MAX
from node.store.database import Database, Notice
from node.store.outbox import Message, MessageKind

_TAKEN_FOR = 30 * times.SECOND
POLL_S = 5.0
"""Period of reading the table in case a notification was lost."""
SHUTDOWN_DELIVERY_S = 2.0
_PAUSE_FIRST = 1 * times.SECOND
_PAUSE_IF_REACHABLE = 30 * times.SECOND
"""Maximum pause (µs) before a message is sent again to a node that answers others."""

Deliver = Callable[[Message], Awaitable[None]]

log = structlog.get_logger()


class Outbox:
    """Delivers the messages of some kinds through ``deliver``."""

    def __init__(
        self,
        database: Database,
        clock: Clock,
        kinds: Sequence[MessageKind],
        deliver: Deliver,
        instruments: Instruments,
        *,
        poll_s: float = POLL_S,
    ) -> None:
        """``deliver`` returns when the message is acknowledged, and raises otherwise."""
        self._database = database
        self._clock = clock
        self._kinds = kinds
        self._deliver = deliver
        self._instruments = instruments
        self._poll_s = poll_s
        self._woken = LatchedEvent()
        self._busy: dict[str, asyncio.Task[None]] = {}

    def on_notice(self, notice: Notice) -> None:
        """Wake up for a new message, or for a node that answers again."""
        is_message = notice.kind == "message" and notice.id in self._kinds
        if is_message or notice.kind in {"wake", "node"}:
            self._woken.set()

    async def run(self) -> None:
        """Deliver until cancelled."""
        try:
            await self._run()
        finally:
            for delivering in list(self._busy.values()):
                delivering.cancel()
            await asyncio.gather(*self._busy.values(), return_exceptions=True)

    async def _run(self) -> None:
        while True:
            try:
                pause = await self.start_due()
            except ParleyError as error:
                log.warning("outbox not read", error=error.detail)
                pause = self._poll_s
            except Exception:
                log.exception("outbox not read")
                pause = self._poll_s
            await self._woken.wait(pause)
            self._woken.clear()

    async def run_once(self) -> None:
        """Deliver the due messages and wait until all are delivered or have failed."""
        await self.start_due()
        await asyncio.gather(*self._busy.values())

    async def deliver_before_shutdown(self) -> None:
        """Deliver the due messages for up to two seconds while this node stops.

        Other nodes may be stopping too, so it does not wait longer. The rest is delivered after the
        next start.
        """
        with contextlib.suppress(ParleyError, TimeoutError):
            async with asyncio.timeout(SHUTDOWN_DELIVERY_S):
                await self.run_once()

    async def start_due(self) -> float:
        """Start delivering the due messages: to all nodes at once, in order for each node.

        A slow node delays no other; it gets more messages when it has acknowledged these. Returns
        the seconds until the next message for a node that is not busy.
        """
        now = self._clock.now()
        busy = list(self._busy)
        async with self._database.connection() as connection:
            messages = await outbox.take_due(connection, now, now + _TAKEN_FOR, self._kinds, busy)
        by_node: dict[str, list[Message]] = defaultdict(list)
        for message in messages:
            by_node[message.node].append(message)
        for node, queue in by_node.items():
            self._busy[node] = asyncio.create_task(self._deliver_in_order(queue))
            self._busy[node].add_done_callback(partial(self._forget_delivery, node))
        async with self._database.connection() as connection:
            following = await outbox.next_due_at(connection, self._kinds, list(self._busy))
        if following is None:
            return self._poll_s
        return min(self._poll_s, max(0.0, (following - self._clock.now()) / times.SECOND))

    def _forget_delivery(self, node: str, delivering: asyncio.Task[None]) -> None:
        self._busy.pop(node, None)
        self._woken.set()
        if not delivering.cancelled() and (error := delivering.exception()) is not None:
            log.warning("outbox not written", error=reason_of(error))

    async def _deliver_in_order(self, queue: list[Message]) -> None:
        done = []
        for number, message in enumerate(queue):
            try:
                with tracing.span("deliver", trace=_trace_of(message), message=message.kind):
                    await self._deliver(message)
                age = self._clock.now() - message.created_at
                self._instruments.message(message.kind, age)
            except (NotAuthenticated, TooManyRequests) as error:
                await self._note_failure(queue[number:], error)
                break
            except RequestError as error:
                log.warning("message refused, dropped", kind=message.kind, error=error.detail)
            except ParleyError as error:
                await self._note_failure(queue[number:], error)
                break
            except Exception as error:
                # A bug of ours must delay neither the other messages nor the other nodes.
                log.exception("message not delivered", kind=message.kind, node=message.node)
                await self._note_failure([message], ParleyError(f"cannot be delivered: {error!r}"))
                continue
            done.append(message.id)
        if done:
            async with self._database.connection() as connection:
                await outbox.delete_delivered(connection, done)

    async def _note_failure(self, messages: Sequence[Message], error: ParleyError) -> None:
        """Store that the first message failed; those behind it wait as long, and were not sent."""
        pause = min(MESSAGE_PAUSE_MAX, _PAUSE_FIRST * 2 ** min(messages[0].attempts, 12))
        shorter = min(pause, _PAUSE_IF_REACHABLE)
        if isinstance(error, TooManyRequests):
            asked = min(MESSAGE_PAUSE_MAX, error.retry_after_s * times.SECOND)
            pause, shorter = max(pause, asked), max(shorter, asked)
        ids, now = [message.id for message in messages], self._clock.now()
        async with self._database.connection() as connection:
            detail = error.detail[:500]
            await outbox.note_failure(connection, ids, now + pause, detail, now + shorter)


def _trace_of(message: Message) -> tracing.Trace | None:
    try:
        return tracing.run_trace(UUID(str(message.body["run"])))
    except (KeyError, ValueError):
        return None
