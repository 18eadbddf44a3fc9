"""Request coalescing: combines requests that arrive at the same time, without delaying any.

The first request is served at once. Those that arrive meanwhile are served together next. So an
idle node answers as fast as it can, and a busy one in growing batches: one transaction, or one
request to another node, then serves dozens.

Notifications, for which nobody waits, are collected for a moment instead (:func:`act_when_woken`),
or are answered once for all that come meanwhile (:class:`Rereader`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Sequence
from typing import Any, Generic, TypeVar

import structlog

from node.model.errors import ParleyError, PeerAnswered, RequestError, TooManyRequests

log = structlog.get_logger()

DEBOUNCE_S = 0.1
"""Delay in which notifications are collected: a cancelled task ends many runs at once."""

BatchItem = TypeVar("BatchItem")
BatchAnswer = TypeVar("BatchAnswer")

BatchCall = Callable[[Sequence[BatchItem]], Awaitable[Sequence[BatchAnswer | ParleyError]]]
"""Serves a batch; returns an answer or an error for each item, in the same order."""


async def act_when_woken(
    woken: asyncio.Event,
    sleep: Callable[[float], Awaitable[None]],
    act: Callable[[], Awaitable[None]],
    complaint: str,
) -> None:
    """Call ``act`` a moment after the event has been set, again and again, until cancelled.

    What it raises is logged as ``complaint``; the next notification calls it again. ``sleep`` is
    that of the clock.
    """
    while True:
        await woken.wait()
        await sleep(DEBOUNCE_S)
        woken.clear()
        try:
            await act()
        except ParleyError as error:
            log.warning(complaint, error=error.detail)
        except Exception:
            log.exception(complaint)


class Rereader:
    """Reads things anew in the background, each once at a time.

    However often something is asked for while it is read, reading it once more is enough.
    """

    def __init__(self) -> None:
        self.tasks: set[asyncio.Task[object]] = set()
        """The reading that is under way."""
        self._again: dict[Callable[[], Awaitable[object]], bool] = {}

    def read(self, refresh: Callable[[], Awaitable[object]]) -> None:
        """Call ``refresh`` soon; what it raises is logged."""
        if refresh in self._again:
            self._again[refresh] = True
            return
        self._again[refresh] = False
        self.keep(asyncio.create_task(self._read(refresh)))

    def keep(self, task: asyncio.Task[Any]) -> None:
        """Count something else that was begun as under way."""
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def _read(self, refresh: Callable[[], Awaitable[object]]) -> None:
        try:
            again = True
            while again:
                self._again[refresh] = False
                try:
                    await refresh()
                except ParleyError as error:
                    log.warning("cannot read the directory", error=error.detail)
                again = self._again[refresh]
        finally:
            del self._again[refresh]


def _unit_weight(_: object) -> int:
    return 1


def _no_keys(_: object) -> Sequence[Hashable]:
    return ()


class Batcher(Generic[BatchItem, BatchAnswer]):
    """Combines items into batches. It has slots because a node has three for every other node."""

    __slots__ = (
        "_apart",
        "_at_once",
        "_items_max",
        "_under_way",
        "_waiting",
        "_weight",
        "_weight_max",
        "_work",
    )

    def __init__(
        self,
        work: BatchCall[BatchItem, BatchAnswer],
        *,
        weight: Callable[[BatchItem], int] = _unit_weight,
        weight_max: int = 64,
        items_max: int = 64,
        apart: Callable[[BatchItem], Sequence[Hashable]] = _no_keys,
        at_once: int = 1,
    ) -> None:
        """Serve batches with ``work``.

        A batch of several items has at most ``items_max``, with a total weight of ``weight_max`` at
        most. Two items that share a key of ``apart`` are never in one batch. Up to ``at_once``
        batches are served at the same time.
        """
        self._work = work
        self._weight = weight
        self._weight_max = weight_max
        self._items_max = items_max
        self._apart = apart
        self._at_once = at_once
        self._waiting: list[tuple[BatchItem, asyncio.Future[BatchAnswer]]] = []
        self._under_way: list[asyncio.Task[None]] = []

    async def ask(self, item: BatchItem) -> BatchAnswer:
        """Return the answer to an item, or raise the error that the work returned for it."""
        answered: asyncio.Future[BatchAnswer] = asyncio.get_running_loop().create_future()
        self._waiting.append((item, answered))
        if len(self._under_way) < self._at_once:
            self._begin()
        return await answered

    def _begin(self) -> None:
        batch = asyncio.create_task(self._serve())
        self._under_way.append(batch)
        batch.add_done_callback(self._note_end)

    def _note_end(self, batch: asyncio.Task[None]) -> None:
        self._under_way.remove(batch)
        if self._waiting and len(self._under_way) < self._at_once:
            self._begin()

    async def _serve(self) -> None:
        batch = self._next_batch()
        if not batch:
            return
        try:
            await self._serve_batch(batch)
        finally:
            for _, answered in batch:
                answered.cancel()  # no effect on items that have their answer

    async def _serve_batch(
        self, batch: list[tuple[BatchItem, asyncio.Future[BatchAnswer]]]
    ) -> None:
        try:
            answers = await self._work([item for item, _ in batch])
        except Exception as error:  # noqa: BLE001 - it is raised in ask()
            if len(batch) > 1 and _may_be_due_to_one_item(error):
                for entry in batch:
                    await self._serve_batch([entry])
                return
            _settle(batch, [error] * len(batch))
        else:
            _settle(batch, answers)

    def _next_batch(self) -> list[tuple[BatchItem, asyncio.Future[BatchAnswer]]]:
        batch: list[tuple[BatchItem, asyncio.Future[BatchAnswer]]] = []
        left: list[tuple[BatchItem, asyncio.Future[BatchAnswer]]] = []
        weight = 0
        seen: set[Hashable] = set()
        taken = 0
        for entry in self._waiting:
            if len(batch) == self._items_max:
                break
            taken += 1
            item, answered = entry
            if answered.done():
                continue  # the caller was cancelled
            keys = set(self._apart(item))
            if keys & seen:
                left.append(entry)
                continue
            weight += self._weight(item)
            if batch and weight > self._weight_max:
                left.append(entry)
                break
            seen |= keys
            batch.append(entry)
        self._waiting[:taken] = left
        return batch


def _may_be_due_to_one_item(error: Exception) -> bool:
    """Return whether a single item may be at fault, so that the others should be tried alone."""
    if isinstance(error, TooManyRequests):
        return False  # each alone would be one request more
    return isinstance(error, RequestError | PeerAnswered) or not isinstance(error, ParleyError)


def _settle(
    batch: Sequence[tuple[object, asyncio.Future[BatchAnswer]]],
    answers: Sequence[BatchAnswer | Exception],
) -> None:
    for (_, answered), answer in zip(batch, answers, strict=True):
        if answered.done():
            continue  # the caller was cancelled
        if isinstance(answer, Exception):
            answered.set_exception(answer)
        else:
            answered.set_result(answer)
