"""Delivery of the outbox of results: one worker for each destination that has something due.

A worker takes what is due in batches until there is no more, so that destinations do not delay each
other. If a whole batch fails with a retriable error, the destination rests for a minute; as soon as
it accepts something again, all failed deliveries become due, and so do those that were given up
after a day. Where nothing else is delivered, one of them is tried each hour, as long as their runs
are kept. A delivery that was accepted but not recorded, because the service was killed in between,
is repeated under the same key.
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

from node.execution.transforming import TransformResult
from node.model import archiving, times
from node.model.errors import ArchiverFailed, HostError, ParleyError, reason_of
from node.plugins.contracts import (
    ArchivingHost,
    Batches,
    DeliveryItem,
    DeliveryOutcome,
    DeliveryStatus,
    Destination,
    Metric,
)
from node.results.archivers import archivers
from node.results.sealing import opened_spec
from node.results.transforms import Transforms
from node.runtime.clock import LatchedEvent
from node.store import archives, notices
from node.store.archives import DeliverySettlement
from node.store.core import Core
from node.store.database import Notice, Record

POLL_S = 10.0
"""Interval of polling the table, in case a notification is lost."""
WORKERS_MAX = 32
_SETTLED_WITHIN = 30 * times.SECOND
_KEPT_OPEN = times.MINUTE
_REASON_MAX = 500
_JSON = (b"{", b"[")
_NOTHING = Batches(100, 10_000_000, times.MINUTE)
"""The limits of a destination that accepts nothing."""


class MetricsExtractor(Protocol):
    """Returns the figures of a test's result, or of an interval's; empty if it is unreadable."""

    def __call__(self, name: str, result: dict[str, Any], *, interval: bool) -> Sequence[Metric]:
        """Return the figures of a result of the test ``name``."""
        ...


@dataclass(frozen=True)
class NoDocument:
    """The reason that there is no document to deliver."""

    reason: str


class DocumentForm(Protocol):
    """A form of documents other than our own, as the archives of the node may ask for it."""

    async def documents(self, rows: Sequence[Record]) -> Sequence[bytes | NoDocument]:
        """Return the document of each row of the query ``documents``, or why there is none."""
        ...


log = structlog.get_logger()


@dataclass
class _Open:
    archiver: str
    limits: Batches
    destination: Destination
    label: str
    ordered: bool
    used_at: int
    """Monotonic time (µs) of its last use; so is the end of its rest."""
    failing: bool = False
    rests_until: int = 0


@dataclass(frozen=True)
class _Item:
    """One delivery of a batch; ``made`` is the document, or the reason that there is none."""

    row: Record
    made: bytes | TransformResult | NoDocument

    @property
    def number(self) -> int:
        """The number of the delivery."""
        return int(self.row["number"])

    def delivery(self) -> DeliveryItem:
        """Return the delivery as the archiver gets it."""
        assert isinstance(self.made, bytes)  # noqa: S101 - others are never delivered
        row = self.row
        return DeliveryItem(
            archiving.key_of(row["run_id"], row["archive_id"], row["edition"], row["interval"]),
            str(row["task_id"]),
            archiving.ended_at(dict(row)),
            row["state"] == "finished",
            self.made,
            raw=bool((row["transform"] or {}).get("raw")) and not self.made.startswith(_JSON),
        )


class _Unreachable:
    """The destination of an unusable archiver: it accepts nothing and says why."""

    def __init__(self, reason: str) -> None:
        """Store the reason, a sentence without anything from the spec."""
        self._reason = reason

    async def deliver(self, batch: Sequence[DeliveryItem]) -> Sequence[DeliveryOutcome]:
        """Return that all of it has to be retried: the archiver may come back."""
        return [DeliveryOutcome(DeliveryStatus.AGAIN, self._reason)] * len(batch)

    async def test(self) -> str:
        """Raise the reason."""
        raise ArchiverFailed(self._reason)

    async def close(self) -> None:
        """Do nothing: nothing is open."""


class ResultDeliverer:
    """Delivers results to their destinations."""

    def __init__(
        self,
        core: Core,
        host: ArchivingHost,
        metrics_of: MetricsExtractor,
        transforms: Transforms,
    ) -> None:
        """Store the dependencies; nothing is delivered before :meth:`run`."""
        self._forms: dict[str, DocumentForm] = {}
        self._database = core.database
        self._clock = core.clock
        self._steps = core.steps
        self._instruments = core.instruments
        self._host = host
        self._sealing = core.sealing
        self._metrics_of = metrics_of
        self._transforms = transforms
        self._woken = LatchedEvent()
        self._workers: dict[int, asyncio.Task[None]] = {}
        self._open: dict[int, _Open] = {}
        self._places = asyncio.Semaphore(WORKERS_MAX)
        self._probed_at: int | None = None

    def on_notice(self, notice: Notice) -> None:
        """Wake up if a notice says that results can be delivered.

        A worker that is running takes new results by itself, and wakes us when it ends; a resting
        destination is checked when its rest is over. So many results cause few queries. A manual
        retry ends the rest.
        """
        if notice.kind == "retry" and (opened := self._open.get(_number(notice.id))):
            opened.rests_until = 0
        if notice.kind in {"wake", "retry"} or (
            notice.kind == "result" and self._is_free(_number(notice.id))
        ):
            self._woken.set()

    def _is_free(self, destination: int) -> bool:
        opened = self._open.get(destination)
        resting = opened is not None and opened.rests_until > self._clock.monotonic()
        return destination not in self._workers and not resting

    async def run(self) -> None:
        """Deliver until cancelled."""
        try:
            await self._run()
        finally:
            await self.close()

    async def close(self) -> None:
        """Stop the workers and close the destinations."""
        for worker in list(self._workers.values()):
            worker.cancel()
        await asyncio.gather(*self._workers.values(), return_exceptions=True)
        for destination in list(self._open):
            await self._close(destination)

    async def _run(self) -> None:
        released = False
        while True:
            pause = POLL_S
            try:
                if not released:
                    async with self._database.connection() as connection:
                        await archives.release_claims(connection, self._clock.now())
                    released = True
                pause = await self.start_due()
            except ParleyError as error:
                log.warning("cannot look for due results", error=error.detail)
            except Exception:
                log.exception("cannot look for due results")
            await self._woken.wait(pause)
            self._woken.clear()

    async def run_once(self) -> None:
        """Deliver what is due, and return when that is complete."""
        await self.start_due()
        await asyncio.gather(*self._workers.values())

    async def start_due(self) -> float:
        """Start a worker for each destination with something due; return seconds until the next."""
        now, elapsed = self._clock.now(), self._clock.monotonic()
        async with self._database.connection() as connection:
            if self._probed_at is None or elapsed - self._probed_at >= archiving.HOURLY:
                await archives.probe(connection, now)
                self._probed_at = elapsed
            due = await archives.next_due_by_destination(connection, list(self._workers))
        pauses = []
        for destination, at in due.items():
            opened = self._open.get(destination)
            pause = max(at - now, opened.rests_until - elapsed if opened else 0)
            if pause <= 0:
                self._start_worker(destination)
            else:
                pauses.append(pause)
        await self._close_unused(elapsed)
        return min([POLL_S, *(pause / times.SECOND for pause in pauses)])

    def _start_worker(self, destination: int) -> None:
        worker = asyncio.create_task(
            self._deliver_all(destination), name=f"archiving {destination}"
        )
        self._workers[destination] = worker
        worker.add_done_callback(partial(self._note_worker_end, destination))

    def _note_worker_end(self, destination: int, worker: asyncio.Task[None]) -> None:
        self._workers.pop(destination, None)
        self._woken.set()
        if not worker.cancelled() and (error := worker.exception()) is not None:
            if (opened := self._open.get(destination)) is not None:
                opened.rests_until = self._clock.monotonic() + archiving.DESTINATION_PAUSE
            log.warning("results not delivered", destination=destination, error=reason_of(error))

    async def _deliver_all(self, destination: int) -> None:
        """Deliver what is due at one destination, batch by batch."""
        async with self._places:
            opened = await self._find_or_open(destination)
            while opened.rests_until <= self._clock.monotonic():
                if not await self._deliver_batch(destination, opened):
                    return

    async def _find_or_open(self, destination: int) -> _Open:
        opened = self._open.get(destination)
        if opened is None:
            async with self._database.connection() as connection:
                name, document, label, ordered = await archives.find_destination(
                    connection, destination
                )
            limits, target = self._connect(name, document)
            opened = _Open(name, limits, target, label, ordered, self._clock.monotonic())
            self._open[destination] = opened
        opened.used_at = self._clock.monotonic()
        return opened

    def _connect(self, name: str, document: dict[str, Any]) -> tuple[Batches, Destination]:
        """Open the destination; if the archiver is unusable, return one that says so.

        A third-party archiver may have been removed, or replaced by a version with other fields.
        """
        archiver = archivers().get(name)
        if archiver is None:
            return _NOTHING, _Unreachable(f"the archiver {name!r} is no longer installed here")
        try:
            spec = archiver.spec_model.model_validate(opened_spec(self._sealing, name, document))
            return archiver.batches(spec), archiver.open(spec, self._host)
        except HostError as error:
            return _NOTHING, _Unreachable(error.detail)
        except Exception as error:
            log.exception("an archiver failed", archiver=name)
            reason = f"the archiver {name} cannot be opened: {type(error).__name__}"
            return _NOTHING, _Unreachable(reason)

    async def _deliver_batch(self, destination: int, opened: _Open) -> bool:
        """Deliver one batch; return whether there may be more."""
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
            items = await self._load_items(numbers, limits.size)
            outcomes = await self._deliver(opened, items)
        except asyncio.CancelledError:
            async with self._database.connection() as connection:
                await archives.unclaim(connection, numbers, self._clock.now())
            raise
        await self._settle(destination, opened, items, outcomes)
        return True

    async def _load_items(self, numbers: Sequence[int], size_max: int) -> list[_Item]:
        """Return what to deliver, in order; release what exceeds the size of a batch."""
        async with self._database.connection() as connection:
            rows = await archives.rows_of_deliveries(connection, numbers)
            parts = await archives.parts(connection, [row["run_id"] for row in rows])
        by_run: dict[Any, list[Record]] = defaultdict(list)
        for part in parts:
            by_run[part["run_id"]].append(part)
        current = [row for row in rows if row["current"]]
        outdated = [row["number"] for row in rows if not row["current"]]
        if outdated:
            async with self._database.connection() as connection:
                await archives.supersede(connection, outdated)
        items = await self._transform(current, by_run)
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

    async def _transform(
        self, rows: Sequence[Record], parts: Mapping[Any, Sequence[Record]]
    ) -> list[_Item]:
        """Return each row with its transformed document; one call for each transform."""
        results: dict[int, bytes | TransformResult | NoDocument] = {}
        groups: dict[bytes, list[tuple[Record, bytes]]] = defaultdict(list)
        for row, document in zip(rows, await self._documents(rows, parts), strict=True):
            if isinstance(document, bytes):
                groups[orjson.dumps(row["transform"])].append((row, document))
            else:
                results[row["number"]] = document
        for group in groups.values():
            documents = [document for _, document in group]
            answers = await self._transforms.apply(group[0][0]["transform"], documents)
            results |= {row["number"]: it for (row, _), it in zip(group, answers, strict=True)}
        return [_Item(row, results[row["number"]]) for row in rows]

    async def _documents(
        self, rows: Sequence[Record], parts: Mapping[Any, Sequence[Record]]
    ) -> list[bytes | NoDocument]:
        """Return the document of each row in the form that its archive asks for."""
        now = self._clock.now()
        results: dict[int, bytes | NoDocument] = {}
        others: dict[str, list[Record]] = defaultdict(list)
        for row in rows:
            expires_at = archiving.expiry_of(dict(row))
            if expires_at is not None and expires_at <= now:
                reason = f"its ttl, {times.duration_text(row['form']['ttl'])}, is over"
                results[row["number"]] = NoDocument(reason)
            elif (form := row["form"].get("format")) is None:
                results[row["number"]] = self._document(row, parts)
            else:
                others[form].append(row)
        for form, group in others.items():
            results |= await self._documents_in_form(form, group)
        return [results[row["number"]] for row in rows]

    def add_form(self, name: str, form: DocumentForm) -> None:
        """Let archives ask for another form of documents."""
        self._forms[name] = form

    async def _documents_in_form(
        self, name: str, rows: Sequence[Record]
    ) -> dict[int, bytes | NoDocument]:
        form = self._forms.get(name)
        if form is None:
            lacking = NoDocument(f"this node has no documents of the form {name}")
            return {row["number"]: lacking for row in rows}
        made = await form.documents(rows)
        return {row["number"]: it for row, it in zip(rows, made, strict=True)}

    def _document(self, row: Record, parts: Mapping[Any, Sequence[Record]]) -> bytes:
        """Return the document of a row; an interval has no parts: the run's document has them."""
        figures: Sequence[Metric] = ()
        of_interval = row["interval"] is not None
        if row["state"] == "finished" and row["result"] is not None:
            figures = self._metrics_of(row["test"], row["result"], interval=of_interval)
        metrics = [vars(figure) for figure in figures]
        run_parts = () if of_interval else parts[row["run_id"]]
        part_documents = [dict(part) for part in run_parts]
        return orjson.dumps(archiving.document_of(dict(row), metrics, part_documents))

    async def _deliver(self, opened: _Open, items: Sequence[_Item]) -> dict[int, DeliveryOutcome]:
        """Deliver the items that have a document; return the outcomes by number."""
        with_document = [item for item in items if isinstance(item.made, bytes)]
        if not with_document:
            return {}
        batch = [item.delivery() for item in with_document]
        try:
            async with asyncio.timeout(opened.limits.timeout / times.SECOND):
                outcomes = _check_outcomes(await opened.destination.deliver(batch), batch)
        except TimeoutError:
            reason = f"did not take it within {times.duration_text(opened.limits.timeout)}"
            outcomes = [DeliveryOutcome(DeliveryStatus.AGAIN, reason)] * len(batch)
        except Exception as error:
            # A bug in an archiver must not stop the other destinations; the batch is retried.
            log.exception("an archiver failed", archiver=opened.archiver, label=opened.label)
            reason = f"the archiver failed: {error!r}"
            outcomes = [DeliveryOutcome(DeliveryStatus.AGAIN, reason)] * len(batch)
        return {item.number: it for item, it in zip(with_document, outcomes, strict=True)}

    async def _settle(
        self,
        destination: int,
        opened: _Open,
        items: Sequence[_Item],
        outcomes: Mapping[int, DeliveryOutcome],
    ) -> None:
        now, ahead = self._clock.now(), self._steps.ahead
        settled = [_settlement(item, outcomes.get(item.number), now, ahead) for item in items]
        accepted = any(each.status is DeliveryStatus.ACCEPTED for each in outcomes.values())
        # A process that began since does not know that the destination has failed.
        failed_before = opened.failing or any(item.row["attempts"] for item in items)
        errors = [each.error for each in settled if each.failed and each.error is not None]
        parked = sum(each.state == "parked" for each in settled)
        async with self._database.transaction() as connection:
            await archives.settle(connection, now, settled)
            if accepted and failed_before:
                await archives.hasten(connection, destination, now)
            if errors:
                await archives.keep_error(connection, destination, errors[-1], now)
            if parked:
                await notices.notify(connection, "archive", destination, "parked")
        opened.used_at = self._clock.monotonic()
        self._count(opened.archiver, items, outcomes, now)
        self._log(opened, accepted=accepted, parked=parked, errors=errors)
        if outcomes and all(each.status is DeliveryStatus.AGAIN for each in outcomes.values()):
            opened.failing = True
            pause = max(each.pause for each in outcomes.values())
            opened.rests_until = opened.used_at + max(
                archiving.DESTINATION_PAUSE, min(pause, archiving.HOURLY)
            )
        elif accepted:
            opened.failing = False

    def _count(
        self,
        archiver: str,
        items: Sequence[_Item],
        outcomes: Mapping[int, DeliveryOutcome],
        now: int,
    ) -> None:
        for item in items:
            if (outcome := outcomes.get(item.number)) is not None:
                self._instruments.count_delivery_attempt(archiver, outcome.status)
                if outcome.status is DeliveryStatus.ACCEPTED:
                    self._instruments.note_delivery_age(archiver, now - item.delivery().at)

    def _log(self, opened: _Open, *, accepted: bool, parked: int, errors: Sequence[str]) -> None:
        """Log once that a destination fails, once that it works again, and what is parked."""
        fields = {"archiver": opened.archiver, "label": opened.label}
        if parked:
            log.warning("results parked", **fields, count=parked, error=errors[-1])
        elif errors and not opened.failing:
            log.warning("results wait", **fields, error=errors[-1])
        if accepted and opened.failing:
            log.info("results are accepted again", **fields)

    async def _close_unused(self, elapsed: int) -> None:
        for destination, opened in list(self._open.items()):
            kept_until = max(opened.used_at + _KEPT_OPEN, opened.rests_until + _KEPT_OPEN)
            if destination not in self._workers and kept_until < elapsed and not opened.failing:
                await self._close(destination)

    async def _close(self, destination: int) -> None:
        opened = self._open.pop(destination)
        try:
            await opened.destination.close()
        except Exception:
            log.exception("an archiver failed", archiver=opened.archiver, label=opened.label)


def _number(destination: str) -> int:
    """Return the number of a destination in a notice; 0 if there is none."""
    return int(destination) if destination.isascii() and destination.isdecimal() else 0


def _settlement(
    item: _Item, outcome: DeliveryOutcome | None, now: int, ahead: int
) -> DeliverySettlement:
    """Return the new state of a delivery; the clock may be ``ahead`` by microseconds."""
    if outcome is None:
        return _unsent_settlement(item)
    if outcome.status is DeliveryStatus.ACCEPTED:
        return DeliverySettlement(item.number, "delivered", None, None)
    reason = _clean_text(outcome.reason or "no reason was given")
    if outcome.status is DeliveryStatus.REFUSED:
        return DeliverySettlement(item.number, "parked", None, f"refused: {reason}")
    attempts = int(item.row["attempts"]) + 1
    first = item.row["first_tried_at"]
    expires_at = archiving.expiry_of(dict(item.row))
    next_at = archiving.next_try(
        attempts,
        now if first is None else first + ahead,
        now,
        outcome.pause,
        None if expires_at is None else expires_at + ahead,
    )
    if next_at is None:
        ttl = None if expires_at is None else times.duration_text(item.row["form"]["ttl"])
        after = "a day" if ttl is None else f"its ttl, {ttl}"
        error = f"given up after {after}: {reason}"
        return DeliverySettlement(item.number, "parked", None, error, given_up=ttl is None)
    return DeliverySettlement(item.number, "waiting", next_at, reason)


def _unsent_settlement(item: _Item) -> DeliverySettlement:
    """Return the new state of a delivery without a document."""
    if isinstance(item.made, NoDocument):
        return DeliverySettlement(item.number, "parked", None, _clean_text(item.made.reason))
    assert isinstance(item.made, TransformResult)  # noqa: S101 - all others have an outcome
    if item.made.error is None:
        return DeliverySettlement(item.number, "delivered", None, "left out by its transform")
    reason = f"the transform failed: {item.made.error}"
    return DeliverySettlement(item.number, "parked", None, _clean_text(reason))


def _check_outcomes(
    outcomes: Sequence[DeliveryOutcome], batch: Sequence[DeliveryItem]
) -> Sequence[DeliveryOutcome]:
    if len(outcomes) != len(batch):
        msg = f"it returned {len(outcomes)} outcomes for {len(batch)} documents"
        raise ValueError(msg)
    return outcomes


def _clean_text(reason: str) -> str:
    return reason.replace("\0", "")[:_REASON_MAX]
