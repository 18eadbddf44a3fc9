"""Figures of results posted as samples, for archivers of time series databases."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import orjson

from node.model.samples import Sample, samples_of
from node.plugins.contracts import DeliveryItem, DeliveryOutcome
from node.plugins.transport.batches import OwnArchiver, deliver_by_bisection, deliver_possible
from node.plugins.transport.posting import UrlDestination, url_without_query

Figures = tuple[int, list[Sample]]
"""The instant when a result was over (µs), and its samples."""

_NO_RESULT = (
    "no result with figures: a transform must keep succeeded, metrics, test, task, participants"
)


class Exporter(OwnArchiver):
    """The common parts of archivers of figures."""

    ordered = True
    items = 500

    def label(self, spec: Any) -> str:
        """Return the URL without its query."""
        return url_without_query(spec.url)


class ExportDestination(UrlDestination, ABC):
    """A URL that accepts figures."""

    held: DeliveryOutcome | None = None
    """The outcome of items after one that has to be retried, if they must not be sent."""

    async def deliver(self, batch: Sequence[DeliveryItem]) -> list[DeliveryOutcome]:
        """Post one request for all items that have figures."""
        figures = [(item.at, samples_of(orjson.loads(item.body))) for item in batch]
        return await deliver_possible(
            figures, lambda each: None if each[1] else _NO_RESULT, self._export_all
        )

    async def _export_all(self, results: Sequence[Figures]) -> list[DeliveryOutcome]:
        return await deliver_by_bisection(results, self.export, self.held)

    @abstractmethod
    async def export(self, results: Sequence[Figures]) -> tuple[DeliveryOutcome, bool]:
        """Post the results; return their outcome, and whether one of them may have caused it."""
