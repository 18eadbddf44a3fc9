"""Figures of results posted as samples, for archivers of time series databases."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Protocol

import orjson

from node.model.samples import Sample, samples_of
from node.plugins.contracts import Batches, DeliveryItem, DeliveryOutcome, DeliveryStatus
from node.plugins.transport.bisection import deliver_by_bisection
from node.plugins.transport.posting import UrlDestination, url_without_query
from node.plugins.transport.unrestricted import UnrestrictedArchiver

Figures = tuple[int, list[Sample]]
"""The instant when a result was over (µs), and its samples."""

_NO_RESULT = DeliveryOutcome(
    DeliveryStatus.REFUSED,
    "no result with figures: a transform must keep succeeded, metrics, test, task, participants",
)


class Receiver(Protocol):
    """The specification of a receiver of figures."""

    @property
    def url(self) -> str:
        """The URL to post to, in full."""
        ...

    @property
    def timeout(self) -> int:
        """The timeout of a request, in microseconds."""
        ...


class Exporter(UnrestrictedArchiver):
    """The common parts of archivers of figures."""

    ordered = True

    def label(self, spec: Receiver) -> str:
        """Return the URL without its query."""
        return url_without_query(spec.url)

    def batches(self, spec: Receiver) -> Batches:
        """Return 500 documents, and time for four requests in case the batch is bisected."""
        return Batches(500, 8_000_000, 4 * spec.timeout)


class ExportDestination(UrlDestination, ABC):
    """A URL that accepts figures."""

    held: DeliveryOutcome | None = None
    """The outcome of items after one that has to be retried, if they must not be sent."""

    async def deliver(self, batch: Sequence[DeliveryItem]) -> list[DeliveryOutcome]:
        """Post one request for all items that have figures."""
        samples = [samples_of(orjson.loads(item.body)) for item in batch]
        usable = [(item.at, each) for item, each in zip(batch, samples, strict=True) if each]
        outcomes = iter(
            await deliver_by_bisection(usable, self.export, self.held) if usable else ()
        )
        return [next(outcomes) if each else _NO_RESULT for each in samples]

    @abstractmethod
    async def export(self, results: Sequence[Figures]) -> tuple[DeliveryOutcome, bool]:
        """Post the results; return their outcome, and whether one of them may have caused it."""
