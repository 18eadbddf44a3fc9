"""Work done for many at once, without waiting for them.

Whoever asks first is served at once; what is asked while that is under way is served together
next. An idle node answers as fast as it can, a busy one in ever larger batches: one transaction, or
one request to another node, then serves dozens.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Sequence
from typing import Generic, TypeVar

from node.model.errors import ParleyError, PeerAnswered, RequestError

BatchItem = TypeVar("BatchItem")
BatchAnswer = TypeVar("BatchAnswer")

BatchCall = Callable[[Sequence[BatchItem]], Awaitable[Sequence[BatchAnswer | ParleyError]]]
"""Serves a batch: an answer, or the error, for each in the same order."""


def _one(_: object) -> int:
    return 1


def _nothing(_: object) -> Sequence[Hashable]:
    return ()


class Batcher(Generic[BatchItem, BatchAnswer]):
    """Gathers what is asked into batches. Small: a node has three for every other one."""

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
        weight: Callable[[BatchItem], int] = _one,
        weight_max: int = 64,
        items_max: int = 64,
        apart: Callable[[BatchItem], Sequence[Hashable]] = _nothing,
        at_once: int = 1,
    ) -> None:
        """No batch of several has more than ``items_max`` or weighs more than ``weight_max``.

        Two that have something of ``apart`` in common do not come into one batch. ``at_once``
        batches may be under way at the same time.
        """
        self._work = work
        self._weight = weight
        self._weight_max = weight_max
        self._items_max = items_max
        self._apart = apart
        self._at_once = at_once
        self._waiting: list[tuple[BatchItem, asyncio.Future[BatchAnswer]]] = []
        self._under_way: list[asyncio.Task[None]] = []

    async def ask(self, asked: BatchItem) -> BatchAnswer:
        """The answer; whatever error the work gives for it is raised here."""
        answered: asyncio.Future[BatchAnswer] = asyncio.get_running_loop().create_future()
        self._waiting.append((asked, answered))
        if len(self._under_way) < self._at_once:
            self._begin()
        return await answered

    def _begin(self) -> None:
        batch = asyncio.create_task(self._serve())
        self._under_way.append(batch)
        batch.add_done_callback(self._done)

    def _done(self, batch: asyncio.Task[None]) -> None:
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
                answered.cancel()  # no-op for those that have their answer

    async def _serve_batch(
        self, batch: list[tuple[BatchItem, asyncio.Future[BatchAnswer]]]
    ) -> None:
        try:
            answers = await self._work([asked for asked, _ in batch])
        except Exception as error:  # noqa: BLE001 - it is raised where it was asked
            if len(batch) > 1 and _is_of_one(error):
                for one in batch:
                    await self._serve_batch([one])
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
        for one in self._waiting:
            if len(batch) == self._items_max:
                break
            taken += 1
            if one[1].done():
                continue  # whoever asked has gone
            keys = set(self._apart(one[0]))
            if keys & seen:
                left.append(one)
                continue
            weight += self._weight(one[0])
            if batch and weight > self._weight_max:
                left.append(one)
                break
            seen |= keys
            batch.append(one)
        self._waiting[:taken] = left
        return batch


def _is_of_one(error: Exception) -> bool:
    """Whether one of the batch may be at fault: the others are not to suffer for it."""
    return isinstance(error, RequestError | PeerAnswered) or not isinstance(error, ParleyError)


def _settle(
    batch: Sequence[tuple[object, asyncio.Future[BatchAnswer]]],
    answers: Sequence[BatchAnswer | Exception],
) -> None:
    for (_, answered), answer in zip(batch, answers, strict=True):
        if answered.done():
            continue  # whoever asked has gone
        if isinstance(answer, Exception):
            answered.set_exception(answer)
        else:
            answered.set_result(answer)
