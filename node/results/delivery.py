"""Delivers the outbox of results: one worker for each destination that has something to do.

A worker takes what is due in batches until there is no more, so destinations wait for nobody but
themselves. Where not one of a batch was taken the destination is left alone for a minute; as soon
as it takes something again, what was tried in vain before is due. What was delivered but not noted,
because the service was killed in between, is delivered again under the same key.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import orjson
import structlog

from node.clock import Clock, LatchedEvent
from node.execution.jq import TransformResult
from node.model import archiving, times
from node.model.errors import ArchiverFailed, ParleyError
from node.plugins.contracts import (
    ArchivingHost,
    Batches,
    DeliveryItem,
    DeliveryOutcome,
    DeliveryStatus,
    Destination,
    Metric,
)
from node.results import transforms
from node.results.archivers import archivers
from node.store import archives, bookings
from node.store.archives import DeliverySettlement
from node.store.database import Database, Notice, Record

POLL_S = 10.0
"""A look into the table now and then is the safety net of lost notifications."""
WORKERS_MAX = 32
_SETTLED_WITHIN = 30 * times.SECOND
_KEPT_OPEN = times.MINUTE
_REASON_MAX = 500
_NOTHING = Batches(100, 10_000_000, times.MINUTE)
"""Of a destination that takes nothing."""


class MetricsExtractor(Protocol):
    """The figures of a test's result, or of an interval's; none of one that cannot be read."""

    def __call__(self, name: str, result: dict[str, Any], *, interval: bool) -> Sequence[Metric]:
        """By the name of the test."""
        ...


log = structlog.get_logger()


@dataclass
class _Open:
    """A destination that was opened, and how it fares."""

    archiver: str
    limits: Batches
    destination: Destination
    label: str
    ordered: bool
    used_at: int
    failing: bool = False
    rests_until: int = 0


@dataclass(frozen=True)
class _Item:
    """One delivery of a batch; ``made`` is what is delivered, or why nothing is."""

    row: Record
    made: bytes | TransformResult

    @property
    def number(self) -> int:
        """Of the delivery."""
        return int(self.row["number"])

    def delivery(self) -> DeliveryItem:
        """As the archiver is given it."""
        assert isinstance(self.made, bytes)  # noqa: S101 - what is not, is not delivered
        row = self.row
        return DeliveryItem(
            archiving.key_of(row["run_id"], row["archive_id"], row["edition"], row["interval"]),
            str(row["task_id"]),
            row["finished_at"] or row["changed_at"],
            row["state"] == "finished",
            self.made,
        )


class _Unreachable:
    """What a destination is whose archiver is of no use: it takes nothing and says why."""

    def __init__(self, reason: str) -> None:
        """In a sentence, without anything of the spec in it."""
        self._reason = reason

    async def deliver(self, batch: Sequence[DeliveryItem]) -> Sequence[DeliveryOutcome]:
        """All of it is to be tried again: the archiver may come back."""
        return [DeliveryOutcome(DeliveryStatus.AGAIN, self._reason)] * len(batch)

    async def test(self) -> str:
        """Say why not."""
        raise ArchiverFailed(self._reason)

    async def close(self) -> None:
        """Nothing is open."""


class ResultDeliverer:
    """Delivers results."""

    def __init__(
        self, database: Database, clock: Clock, host: ArchivingHost, metrics_of: MetricsExtractor
    ) -> None:
        """Nothing is delivered before :meth:`run`."""
        self._database = database
        self._clock = clock
        self._host = host
        self._metrics_of = metrics_of
        self._woken = LatchedEvent()
        self._working: dict[int, asyncio.Task[None]] = {}
        self._open: dict[int, _Open] = {}
        self._places = asyncio.Semaphore(WORKERS_MAX)
        self.counted: dict[tuple[str, str], int] = defaultdict(int)
        """Deliveries since the start, by archiver and fate."""

    def heard(self, notice: Notice) -> None:
        """A result is to be delivered, or some may be.

        A worker that is there takes what comes meanwhile, and rings when it leaves; one that rests
        is looked after when its rest is over. So many results make few looks into the table. Who
        wants it tried now is not made to wait for that.
        """
        if notice.kind == "retry" and (known := self._open.get(_number(notice.id))):
            known.rests_until = 0
        if notice.kind in {"wake", "retry"} or (
            notice.kind == "result" and self._is_free(_number(notice.id))
        ):
            self._woken.set()

    def _is_free(self, destination: int) -> bool:
        known = self._open.get(destination)
        resting = known is not None and known.rests_until > self._clock.now()
        return destination not in self._working and not resting

    async def run(self) -> None:
        """Deliver until cancelled."""
        try:
            await self._run()
        finally:
            await self.close()

    async def close(self) -> None:
        """Stop the workers and let go of the destinations."""
        for working in list(self._working.values()):
            working.cancel()
        await asyncio.gather(*self._working.values(), return_exceptions=True)
        for one in list(self._open):
            await self._close(one)

    async def _run(self) -> None:
        released = False
        while True:
            pause = POLL_S
            try:
                if not released:
                    async with self._database.connection() as connection:
                        await archives.release(connection, self._clock.now())
                    released = True
                pause = await self.start_due()
            except ParleyError as error:
                log.warning("results not looked for", error=error.detail)
            except Exception:
                log.exception("results not looked for")
            await self._woken.wait(pause)
            self._woken.clear()

    async def run_once(self) -> None:
        """Deliver what is due and wait until that is done."""
        await self.start_due()
        await asyncio.gather(*self._working.values())

    async def start_due(self) -> float:
        """Let a worker go to each destination that has something due; seconds until the next."""
        now = self._clock.now()
        async with self._database.connection() as connection:
            due = await archives.next_due(connection, list(self._working))
        following = []
        for destination, at in due.items():
            known = self._open.get(destination)
            begins = max(at, known.rests_until if known else 0)
            if begins <= now:
                self._begin(destination)
            else:
                following.append(begins)
        await self._close_unused(now)
        return min(POLL_S, max(0.0, (min(following, default=now + times.DAY) - now) / times.SECOND))

    def _begin(self, destination: int) -> None:
        working = asyncio.create_task(self._work(destination), name=f"archiving {destination}")
        self._working[destination] = working
        working.add_done_callback(partial(self._done, destination))

    def _done(self, destination: int, working: asyncio.Task[None]) -> None:
        self._working.pop(destination, None)
        self._woken.set()
        if not working.cancelled() and (error := working.exception()) is not None:
            if (known := self._open.get(destination)) is not None:
                known.rests_until = self._clock.now() + archiving.DESTINATION_PAUSE
            log.warning("results not delivered", destination=destination, error=str(error))

    async def _work(self, destination: int) -> None:
        """Deliver what is due there, batch by batch."""
        async with self._places:
            opened = await self._opened(destination)
            while opened.rests_until <= self._clock.now():
                if not await self._batch(destination, opened):
                    return

    async def _opened(self, destination: int) -> _Open:
        known = self._open.get(destination)
        if known is None:
            async with self._database.connection() as connection:
                name, document, label, ordered = await archives.where(connection, destination)
            limits, opened = self._reached(name, document)
            known = _Open(name, limits, opened, label, ordered, self._clock.now())
            self._open[destination] = known
        known.used_at = self._clock.now()
        return known

    def _reached(self, name: str, document: dict[str, Any]) -> tuple[Batches, Destination]:
        """The destination; one that takes nothing and says why, where the archiver is of no use.

        One that others brought may be gone since, or another version that reads other fields.
        """
        archiver = archivers().get(name)
        if archiver is None:
            return _NOTHING, _Unreachable(f"there is no archiver {name!r} on this host any more")
        try:
            spec = archiver.spec_model.model_validate(document)
            return archiver.batches(spec), archiver.open(spec, self._host)
        except Exception as error:
            log.exception("an archiver failed", archiver=name)
            reason = f"the archiver {name} cannot be opened: {type(error).__name__}"
            return _NOTHING, _Unreachable(reason)

    async def _batch(self, destination: int, opened: _Open) -> bool:
        """One batch; whether there may be more."""
        now = self._clock.now()
        limits = opened.limits
        again_at = now + limits.timeout + _SETTLED_WITHIN
        async with self._database.connection() as connection:
            numbers = await archives.claim(
                connection, destination, now, again_at, limit=limits.items, ordered=opened.ordered
            )
        if not numbers:
            return False
        try:
            items = await self._items(numbers, limits.size)
            outcomes = await self._delivered(opened, items)
        except asyncio.CancelledError:
            async with self._database.connection() as connection:
                await archives.unclaim(connection, numbers, self._clock.now())
            raise
        await self._settle(destination, opened, items, outcomes)
        return True

    async def _items(self, numbers: Sequence[int], size_max: int) -> list[_Item]:
        """What is to be delivered, in order; what is too much for one batch is given back."""
        async with self._database.connection() as connection:
            rows = await archives.documents(connection, numbers)
            parts = await archives.parts(connection, [row["run_id"] for row in rows])
        by_run: dict[Any, list[Record]] = defaultdict(list)
        for part in parts:
            by_run[part["run_id"]].append(part)
        current = [row for row in rows if row["current"]]
        gone = [row["number"] for row in rows if not row["current"]]
        if gone:
            async with self._database.connection() as connection:
                await archives.supersede(connection, gone)
        items = await self._transformed(current, by_run)
        left, fitting = size_max, list[_Item]()
        for item in items:
            left -= len(item.made) if isinstance(item.made, bytes) else 0
            if left < 0 and fitting:
                break
            fitting.append(item)
        if rest := [item.number for item in items[len(fitting) :]]:
            async with self._database.connection() as connection:
                await archives.unclaim(connection, rest, self._clock.now())
        return fitting

    async def _transformed(
        self, rows: Sequence[Record], parts: Mapping[Any, Sequence[Record]]
    ) -> list[_Item]:
        """Each row with what is delivered of it; one call for each transform."""
        groups: dict[bytes, list[Record]] = defaultdict(list)
        for row in rows:
            groups[orjson.dumps(row["transform"])].append(row)
        made: dict[int, bytes | TransformResult] = {}
        for group in groups.values():
            documents = [self._document(row, parts) for row in group]
            answers = await transforms.apply_transform(group[0]["transform"], documents)
            made |= {row["number"]: one for row, one in zip(group, answers, strict=True)}
        return [_Item(row, made[row["number"]]) for row in rows]

    def _document(self, row: Record, parts: Mapping[Any, Sequence[Record]]) -> bytes:
        """Of an interval without the parts: they come when the run is over."""
        figures: Sequence[Metric] = ()
        of_interval = row["interval"] is not None
        if row["state"] == "finished" and row["result"] is not None:
            figures = self._metrics_of(row["test"], row["result"], interval=of_interval)
        metrics = [vars(figure) for figure in figures]
        told = () if of_interval else parts[row["run_id"]]
        return orjson.dumps(archiving.document_of(dict(row), metrics, [dict(p) for p in told]))

    async def _delivered(self, opened: _Open, items: Sequence[_Item]) -> dict[int, DeliveryOutcome]:
        """What the archiver says of each, by number."""
        there = [item for item in items if isinstance(item.made, bytes)]
        if not there:
            return {}
        batch = [item.delivery() for item in there]
        try:
            async with asyncio.timeout(opened.limits.timeout / times.SECOND):
                said = _of_each(await opened.destination.deliver(batch), batch)
        except TimeoutError:
            limit = times.format_duration(opened.limits.timeout)
            said = [DeliveryOutcome(DeliveryStatus.AGAIN, f"did not take it within {limit}")] * len(
                batch
            )
        except Exception as error:
            # A fault of an archiver's: the other destinations go on, and this one is tried again.
            log.exception("an archiver failed", archiver=opened.archiver, label=opened.label)
            said = [DeliveryOutcome(DeliveryStatus.AGAIN, f"the archiver failed: {error!r}")] * len(
                batch
            )
        return {item.number: outcome for item, outcome in zip(there, said, strict=True)}

    async def _settle(
        self,
        destination: int,
        opened: _Open,
        items: Sequence[_Item],
        outcomes: Mapping[int, DeliveryOutcome],
    ) -> None:
        now = self._clock.now()
        settled = [_settled(item, outcomes.get(item.number), now) for item in items]
        accepted = any(one.status is DeliveryStatus.ACCEPTED for one in outcomes.values())
        errors = [one.error for one in settled if one.failed and one.error is not None]
        parked = sum(one.state == "parked" for one in settled)
        async with self._database.transaction() as connection:
            await archives.settle(connection, now, settled)
            if accepted and opened.failing:
                await archives.hasten(connection, destination, now)
            if errors:
                await archives.keep_error(connection, destination, errors[-1], now)
            if parked:
                await bookings.notify(connection, "archive", destination, "parked")
        opened.used_at = now
        for one in outcomes.values():
            self.counted[opened.archiver, one.status] += 1
        self._tell(opened, accepted=accepted, parked=parked, errors=errors)
        if outcomes and all(one.status is DeliveryStatus.AGAIN for one in outcomes.values()):
            opened.failing = True
            asked = max(one.pause for one in outcomes.values())
            opened.rests_until = now + max(
                archiving.DESTINATION_PAUSE, min(asked, archiving.HOURLY)
            )
        elif accepted:
            opened.failing = False

    def _tell(self, opened: _Open, *, accepted: bool, parked: int, errors: Sequence[str]) -> None:
        """Say it once when a destination fails, once when it is well again, and what is parked."""
        said = {"archiver": opened.archiver, "label": opened.label}
        if parked:
            log.warning("results parked", **said, count=parked, error=errors[-1])
        elif errors and not opened.failing:
            log.warning("results wait", **said, error=errors[-1])
        if accepted and opened.failing:
            log.info("results are taken again", **said)

    async def _close_unused(self, now: int) -> None:
        for destination, opened in list(self._open.items()):
            kept_until = max(opened.used_at + _KEPT_OPEN, opened.rests_until + _KEPT_OPEN)
            if destination not in self._working and kept_until < now and not opened.failing:
                await self._close(destination)

    async def _close(self, destination: int) -> None:
        opened = self._open.pop(destination)
        try:
            await opened.destination.close()
        except Exception:
            log.exception("an archiver failed", archiver=opened.archiver, label=opened.label)


def _number(destination: str) -> int:
    """Of a destination as a notice names it; that of none is 0."""
    return int(destination) if destination.isascii() and destination.isdecimal() else 0


def _settled(item: _Item, outcome: DeliveryOutcome | None, now: int) -> DeliverySettlement:
    """What becomes of a delivery."""
    if outcome is None:
        assert isinstance(item.made, TransformResult)  # noqa: S101 - all others have an outcome
        if item.made.error is None:
            return DeliverySettlement(item.number, "delivered", None, "left out by its transform")
        reason = f"the transform failed: {item.made.error}"
        return DeliverySettlement(item.number, "parked", None, _clean(reason))
    if outcome.status is DeliveryStatus.ACCEPTED:
        return DeliverySettlement(item.number, "delivered", None, None)
    reason = _clean(outcome.reason or "no reason was given")
    if outcome.status is DeliveryStatus.REFUSED:
        return DeliverySettlement(item.number, "parked", None, f"refused: {reason}")
    attempts = int(item.row["attempts"]) + 1
    first = item.row["first_tried_at"]
    next_at = archiving.next_try(attempts, now if first is None else first, now, outcome.pause)
    if next_at is None:
        return DeliverySettlement(item.number, "parked", None, f"given up after a day: {reason}")
    return DeliverySettlement(item.number, "waiting", next_at, reason)


def _of_each(
    said: Sequence[DeliveryOutcome], batch: Sequence[DeliveryItem]
) -> Sequence[DeliveryOutcome]:
    if len(said) != len(batch):
        msg = f"it told of {len(said)} documents and was given {len(batch)}"
        raise ValueError(msg)
    return said


def _clean(reason: str) -> str:
    return reason.replace("\0", "")[:_REASON_MAX]
