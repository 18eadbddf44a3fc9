"""Send many requests concurrently, report rate and time left, and collect failures by cause."""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID

from node.cli.output import Record, printable_text
from node.cli.retrying import PAUSES_S, RETRYABLE_ERRORS, announce_retry, retry_when_limited
from node.cli.times import duration_in_words
from node.model import times
from node.model.errors import NotAllowed, NotAuthenticated, ParleyError, TooManyRequests
from node.runtime.batching import Batcher

if TYPE_CHECKING:
    from node.cli.progress import Progress
    from node.client.users import UserClient
    from node.runtime.clock import Clock

LIST = 64
"""Number of tasks in one request at most: as many as a node stores in one transaction."""

_LIST_BYTES = 500_000

_NewTask = tuple[Mapping[str, Any], str]
"""The document of a task, and its Idempotency-Key."""


def task_poster(client: UserClient, at_once: int) -> Batcher[_NewTask, UUID]:
    """Return what posts tasks: those that come while others are posted go in the next list.

    It answers with the id of each task, or raises why it was not created. Up to ``at_once``
    requests are under way at the same time, so ``at_once * LIST`` callers keep it busy.
    """

    async def post(tasks: Sequence[_NewTask]) -> Sequence[UUID | ParleyError]:
        try:
            return await client.create_tasks(tasks)
        except TooManyRequests as error:  # of the whole list: each task comes again
            return [error] * len(tasks)

    return Batcher(post, weight=_length, weight_max=_LIST_BYTES, items_max=LIST, at_once=at_once)


def _length(new: _NewTask) -> int:
    """Return about how many bytes a task takes in a request."""
    return len(json.dumps(new[0]))


T = TypeVar("T")

_HOPELESS = (NotAuthenticated, NotAllowed)
"""Errors that every further request would get, too."""

_REPORT_INTERVAL = times.SECOND // 2
_TENTHS = 10


@dataclass
class MeshWorker:
    """Applies actions to items concurrently, and counts their outcomes by verb."""

    progress: Progress
    clock: Clock
    at_once: int
    done: Counter[str] = field(default_factory=Counter)
    failed: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    """(verb, code, detail) → count."""
    examples: dict[tuple[str, str, str], str] = field(default_factory=dict)
    exit_codes: Counter[int] = field(default_factory=Counter)
    left: int = 0
    stopped: bool = False
    _answers: int = 0
    _rng: random.Random = field(default_factory=random.Random)

    async def each(
        self,
        verb: str,
        items: Sequence[T],
        name: Callable[[T], str],
        act: Callable[[T], Awaitable[Any]],
        at_once: int | None = None,
    ) -> None:
        """Apply ``act`` to all items; count failures by cause, and stop only at hopeless ones.

        ``at_once`` is how many are acted on at the same time, if that is not as usual.

        ``act`` is repeated after growing pauses while the node does not answer, so it must be
        idempotent. All work stops when the node did not answer one item after the last pause, and
        answered no other item meanwhile.
        """
        waiting = iter(items)
        meter = _Meter(self.progress, self.clock, verb, len(items))

        async def worker() -> None:
            for item in waiting:
                if self.stopped:
                    self.left += 1
                    continue
                try:
                    await self._retry(act, item)
                    self.done[verb] += 1
                except ParleyError as error:
                    self._count_failure(verb, name(item), error)
                meter.tick()

        await asyncio.gather(*(worker() for _ in range(at_once or self.at_once)))
        self.progress.clear()

    async def _retry(self, act: Callable[[T], Awaitable[Any]], item: T) -> None:
        """Apply ``act`` to an item, again after growing pauses while the node does not answer."""
        answers, pauses = self._answers, iter(PAUSES_S)
        while True:
            try:
                return await self._count_answer(
                    retry_when_limited(self.clock, self._rng, partial(act, item))
                )
            except RETRYABLE_ERRORS as error:
                pause_s = next(pauses, None)
                if pause_s is None:
                    self.stopped = self.stopped or self._answers == answers
                elif not self.stopped:
                    await announce_retry(self.progress, self.clock, error, pause_s)
                if pause_s is None or self.stopped:
                    raise

    async def _count_answer(self, request: Awaitable[Any]) -> None:
        """Await a request, and count it as answered even if the answer is a refusal."""
        try:
            await request
        except RETRYABLE_ERRORS:
            raise
        except ParleyError:
            self._answers += 1
            raise
        self._answers += 1

    def _count_failure(self, verb: str, name: str, error: ParleyError) -> None:
        cause = (verb, error.code, error.detail)
        self.failed[cause] += 1
        self.examples.setdefault(cause, name)
        self.exit_codes[error.exit_code] += 1
        self.stopped = self.stopped or isinstance(error, _HOPELESS)

    @property
    def exit_code(self) -> int:
        """Return the exit code of the most frequent failure; 0 if there is none."""
        return self.exit_codes.most_common(1)[0][0] if self.exit_codes else 0

    def failures(self) -> list[dict[str, Any]]:
        """Return the failures by cause, the most frequent first."""
        return [
            {"verb": cause[0], "code": cause[1], "detail": cause[2], "count": count,
             "example": self.examples[cause]}
            for cause, count in self.failed.most_common()
        ]  # fmt: skip


def unfinished_lines(done: Record, in_words: Callable[[Record], str], again: str) -> Iterator[str]:
    """Yield lines on the failures by cause, on what was not attempted, and how to continue.

    ``in_words`` says what has failed, ``again`` is the verb of the command.
    """
    for failure in done["failed"]:
        count = f"{failure['count']} {in_words(failure)}, {failure['example']} for example"
        yield printable_text(f"✗ {count}: {failure['detail']}")
    if done["left"]:
        yield f"✗ {done['left']} were not attempted"
    if done["failed"]:
        yield f"  To continue, {again} it again: only what is left is done"


class _Meter:
    """Reports progress, rate, and remaining time."""

    def __init__(self, progress: Progress, clock: Clock, verb: str, total: int) -> None:
        self._progress, self._clock, self._verb, self._total = progress, clock, verb, total
        self._began = self._reported_at = clock.now()
        self._count = 0

    def tick(self) -> None:
        """Count one more item, and report rate and time left now and then."""
        self._count += 1
        now = self._clock.now()
        if now - self._reported_at >= _REPORT_INTERVAL:
            self._reported_at = now
            rate = self._count * times.SECOND / max(1, now - self._began)
            left = round((self._total - self._count) * times.SECOND / rate)
            self._progress.status(
                f"{self._verb}: {self._count} of {self._total}, {rate:.1f}/s, "
                f"{duration_in_words(left)} left",
                f"{self._verb} {self._count * _TENTHS // self._total}",
            )
