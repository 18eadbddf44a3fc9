"""Forwarding of intervals: from the records of a long-running program to the collector."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence

import structlog

from node.execution.process import RunningProcess
from node.model.errors import DatabaseUnavailable, ToolOutputError
from node.model.intervals import Interval
from node.model.reasons import result_not_kept
from node.runtime.clock import Clock, LatchedEvent

BATCH_MAX = 16
PAUSE_S = 5.0
"""Pause between two batches, so that records which arrive meanwhile are sent together."""
RETRY_S = 1.0

_REASON_KEPT = 500

log = structlog.get_logger()


class IntervalForwarder:
    """Forwards the intervals that one program reports.

    A record that cannot be parsed, or that is not of the next interval, becomes a gap there.
    """

    def __init__(
        self,
        read: Callable[[bytes], Interval],
        keep: Callable[[Sequence[Interval]], Awaitable[None]],
        count: int,
        clock: Clock,
        *,
        pause_s: float = PAUSE_S,
    ) -> None:
        """``read`` parses a record; ``keep`` stores intervals, the first ``count`` of them."""
        self._read = read
        self._keep = keep
        self._count = count
        self._clock = clock
        self._pause_s = pause_s
        self._next = 0
        self._waiting: deque[Interval] = deque()
        self._grew = LatchedEvent()
        self._ended = LatchedEvent()

    async def run(self, running: RunningProcess) -> None:
        """Forward until the program has ended and all is stored; if cancelled, drop the rest."""
        reading = asyncio.create_task(self._collect(running))
        try:
            while not self._ended.is_set or self._waiting:
                await self._grew.wait(self._pause_s)
                self._grew.clear()
                await self._store_waiting()
                await self._ended.wait(self._pause_s)
        finally:
            reading.cancel()

    async def _collect(self, running: RunningProcess) -> None:
        try:
            async for record in running.records():
                if self._next == self._count:
                    continue  # surplus records: read them, so that the program does not block
                self._waiting.append(self._interval(record))
                self._next += 1
                self._grew.set()
        finally:
            self._ended.set()
            self._grew.set()

    def _interval(self, record: bytes) -> Interval:
        try:
            interval = self._read(record)
        except ToolOutputError as error:
            return Interval(self._next, None, error.detail[:_REASON_KEPT])
        except Exception as error:
            log.exception("a plugin failed")
            return Interval(self._next, None, f"the plugin failed: {error!r}"[:_REASON_KEPT])
        if interval.number != self._next:
            reason = f"the program reported interval {interval.number} instead of {self._next}"
            return Interval(self._next, None, reason)
        return interval

    async def _store_waiting(self) -> None:
        while self._waiting:
            batch = [self._waiting[at] for at in range(min(BATCH_MAX, len(self._waiting)))]
            try:
                await self._keep(batch)
            except DatabaseUnavailable as error:
                # Measured intervals are not thrown away because Postgres restarts.
                log.warning("intervals not kept yet", error=error.detail)
                await self._clock.sleep(RETRY_S)
                continue
            except Exception:
                log.exception("intervals cannot be kept")
                await self._keep_gaps(batch)
            for _ in batch:
                self._waiting.popleft()

    async def _keep_gaps(self, batch: Sequence[Interval]) -> None:
        reason = result_not_kept()
        try:
            await self._keep([Interval(each.number, None, reason) for each in batch])
        except Exception:
            log.exception("intervals cannot be kept")
