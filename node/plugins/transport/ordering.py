"""Order within a series, for archivers that get an outcome for each document."""

from __future__ import annotations

from collections.abc import Sequence

from node.plugins.contracts import DeliveryItem, DeliveryOutcome, DeliveryStatus


def in_order(
    batch: Sequence[DeliveryItem], outcomes: Sequence[DeliveryOutcome]
) -> list[DeliveryOutcome]:
    """Return the outcomes; a document accepted after a failed one of its series is retried as well.

    It is delivered again after the other one, under the same key.
    """
    held: dict[str, DeliveryOutcome] = {}
    ordered = []
    for item, outcome in zip(batch, outcomes, strict=True):
        final = outcome
        if item.series in held and outcome.status is DeliveryStatus.ACCEPTED:
            final = DeliveryOutcome(
                DeliveryStatus.AGAIN, "comes after one of its task that was not taken"
            )
        elif outcome.status is DeliveryStatus.AGAIN:
            held.setdefault(item.series, outcome)
        ordered.append(final)
    return ordered
