"""The outline of Parley's own archivers, and the outcomes of their batches."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, ClassVar, TypeVar

from node.model import times
from node.model.errors import ArchiverFailed
from node.model.wire.fields import Document
from node.plugins.contracts import (
    ArchivingHost,
    Batches,
    DeliveryItem,
    DeliveryOutcome,
    DeliveryStatus,
    Destination,
)
from node.plugins.fields import duration_field

Sent = TypeVar("Sent")

ACCEPTED = DeliveryOutcome(DeliveryStatus.ACCEPTED)


def again(reason: str | None) -> DeliveryOutcome:
    """Return the outcome of a document that is to be delivered again."""
    return DeliveryOutcome(DeliveryStatus.AGAIN, reason)


def refused_outcome(reason: str) -> DeliveryOutcome:
    """Return the outcome of a document that never will be taken."""
    return DeliveryOutcome(DeliveryStatus.REFUSED, reason)


def timeout_field(what: str, seconds: int = 30) -> Any:
    """Return the field of an archiver's spec for how long ``what`` may take."""
    return duration_field(seconds * times.SECOND, f"The timeout of {what}; PT1S to PT2M.")


class OwnArchiver:
    """The half of an :class:`~node.plugins.contracts.Archiver` that most archivers share.

    A batch has at most ``items`` documents and ``octets`` bytes, and gets the time of ``attempts``
    requests (some in case it is bisected) and ``closing`` µs. ``destination`` makes the destination
    of a spec, from the spec, the host, and the spec's label.
    """

    ordered = False
    modules: tuple[str, ...] = ()
    spec_model: type[Document]
    items: ClassVar[int] = 1000
    octets: ClassVar[int] = 8_000_000
    attempts: ClassVar[int] = 4
    closing: ClassVar[int] = 0
    destination: ClassVar[type[Any]]

    def label(self, spec: Any) -> str:
        """Return the address of the spec."""
        return f"{spec.host} port {spec.port}"

    def batches(self, spec: Any) -> Batches:
        """Return the limits of the archiver."""
        return Batches(self.items, self.octets, self.attempts * spec.timeout + self.closing)

    def refusal(self, spec: Any, host: ArchivingHost) -> tuple[str, str] | None:
        """Return None: nothing is refused, as only holders of the operator's token set it."""
        return None

    def open(self, spec: Any, host: ArchivingHost) -> Destination:
        """Return the destination; it connects on first use.

        Libraries are imported now: the time of the first delivery is for the peer alone.
        """
        for module in self.modules:
            with contextlib.suppress(ImportError):  # which the delivery tells in words
                importlib.import_module(module)
        destination: Destination = self.destination(spec, host, self.label(spec))
        return destination


class ConfirmingDestination(ABC):
    """A destination whose client confirms each document, and stays connected.

    What goes wrong closes the connection. ``impatience`` is the reason where a confirmation takes
    too long.
    """

    impatience: ClassVar[str]

    def __init__(self, spec: Any, host: ArchivingHost, where: str) -> None:
        self._spec = spec
        self._where = where

    async def deliver(self, batch: Sequence[DeliveryItem]) -> list[DeliveryOutcome]:
        """Send all, and wait until each is confirmed."""
        try:
            async with asyncio.timeout(self._spec.timeout / times.SECOND):
                confirmed = await self.send(batch)
        except Exception as error:  # noqa: BLE001 - the libraries raise many kinds
            await self.close()
            return [again(self._reason(error))] * len(batch)
        outcomes = [
            again(self._reason(each)) if isinstance(each, BaseException) else ACCEPTED
            for each in confirmed
        ]
        if any(outcome is not ACCEPTED for outcome in outcomes):
            await self.close()
        return in_order(batch, outcomes)

    async def test(self) -> str:
        """Log in and look, without sending anything.

        :raises ArchiverFailed: that is not possible.
        """
        try:
            async with asyncio.timeout(self._spec.timeout / times.SECOND):
                return f"{self._where} {await self.look()}"
        except Exception as error:  # noqa: BLE001 - the libraries raise many kinds
            await self.close()
            raise ArchiverFailed(f"{self._where}: {self._reason(error)}") from None

    def _reason(self, error: BaseException) -> str:
        if isinstance(error, TimeoutError) and not str(error):
            return self.impatience
        return self.reason(error)

    @abstractmethod
    async def send(self, batch: Sequence[DeliveryItem]) -> Sequence[object]:
        """Send documents; return for each the error because of which it was not confirmed."""

    @abstractmethod
    async def look(self) -> str:
        """Log in, and look for where to send; return what was found, as the rest of a sentence."""

    @abstractmethod
    def reason(self, error: BaseException) -> str:
        """Return what went wrong, in a few words."""

    @abstractmethod
    async def close(self) -> None:
        """Close the connection."""


async def deliver_possible(
    batch: Sequence[Sent],
    objection: Callable[[Sent], str | None],
    send: Callable[[Sequence[Sent]], Awaitable[Sequence[DeliveryOutcome]]],
) -> list[DeliveryOutcome]:
    """Return each outcome; what there is an ``objection`` to is refused, the rest is sent."""
    reasons = [objection(each) for each in batch]
    possible = [each for each, reason in zip(batch, reasons, strict=True) if reason is None]
    outcomes = iter(await send(possible) if possible else ())
    return [next(outcomes) if reason is None else refused_outcome(reason) for reason in reasons]


async def deliver_by_bisection(
    batch: Sequence[Sent],
    send: Callable[[Sequence[Sent]], Awaitable[tuple[DeliveryOutcome, bool]]],
    held: DeliveryOutcome | None = None,
) -> list[DeliveryOutcome]:
    """Return each outcome; if one item may have caused a rejection, send halves, older ones first.

    ``send`` returns the outcome of all items that it gets, and whether one of them may have caused
    it. With ``held``, nothing is sent after an item that has to be retried: later ones get
    ``held`` as their outcome.
    """
    outcome, one_is_bad = await send(batch)
    if not one_is_bad or len(batch) == 1:
        return [outcome] * len(batch)
    half = len(batch) // 2
    first = await deliver_by_bisection(batch[:half], send, held)
    if held is not None and any(outcome.status is DeliveryStatus.AGAIN for outcome in first):
        return [*first, *[held] * (len(batch) - half)]
    return [*first, *await deliver_by_bisection(batch[half:], send, held)]


def in_order(
    batch: Sequence[DeliveryItem], outcomes: Sequence[DeliveryOutcome]
) -> list[DeliveryOutcome]:
    """Return the outcomes; a document accepted after a failed one of its series is retried as well.

    It is delivered again after the other one, under the same key.
    """
    held: set[str] = set()
    ordered = []
    for item, outcome in zip(batch, outcomes, strict=True):
        final = outcome
        if item.series in held and outcome.status is DeliveryStatus.ACCEPTED:
            final = again("comes after one of its task that was not taken")
        elif outcome.status is DeliveryStatus.AGAIN:
            held.add(item.series)
        ordered.append(final)
    return ordered
