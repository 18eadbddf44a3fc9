"""Figures of results posted as samples, for archivers of databases of time series."""

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
"""When a result was over (µs), and what was measured."""

_NO_RESULT = DeliveryOutcome(
    DeliveryStatus.REFUSED,
    "no result with figures: a transform must keep succeeded, metrics, test, task, participants",
)


class Receiver(Protocol):
    """Where figures are posted to."""

    @property
    def url(self) -> str:
        """In full."""
        ...

    @property
    def timeout(self) -> int:
        """Of a request, in microseconds."""
        ...


class Exporter(UnrestrictedArchiver):
    """What archivers of figures have in common."""

    ordered = True

    def label(self, spec: Receiver) -> str:
        """The URL without its query."""
        return url_without_query(spec.url)

    def batches(self, spec: Receiver) -> Batches:
        """Five hundred documents; a batch that is taken apart has the time of four requests."""
        return Batches(500, 8_000_000, 4 * spec.timeout)


class ExportDestination(UrlDestination, ABC):
    """A URL that takes figures."""

    held: DeliveryOutcome | None = None
    """What comes of those behind one that is to be tried again, if they must not be sent."""

    async def deliver(self, batch: Sequence[DeliveryItem]) -> list[DeliveryOutcome]:
        """One request for all that have figures."""
        samples = [samples_of(orjson.loads(one.body)) for one in batch]
        usable = [(one.at, found) for one, found in zip(batch, samples, strict=True) if found]
        outcomes = iter(
            await deliver_by_bisection(usable, self.export, self.held) if usable else ()
        )
        return [next(outcomes) if found else _NO_RESULT for found in samples]

    @abstractmethod
    async def export(self, results: Sequence[Figures]) -> tuple[DeliveryOutcome, bool]:
        """Post them; what came of them all, and whether one of them may be to blame."""
