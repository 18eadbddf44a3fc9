"""Order within a series, for archivers that are told of each document on its own."""

from __future__ import annotations

from collections.abc import Sequence

from node.plugins.contracts import DeliveryItem, DeliveryOutcome, DeliveryStatus


def in_order(
    batch: Sequence[DeliveryItem], outcomes: Sequence[DeliveryOutcome]
) -> list[DeliveryOutcome]:
    """The outcomes, with none accepted behind one of its series that is to be tried again.

    What was taken out of order comes again, behind the one that was not; its key is the same.
    """
    held: dict[str, DeliveryOutcome] = {}
    kept = []
    for one, outcome in zip(batch, outcomes, strict=True):
        said = outcome
        if one.series in held and outcome.status is DeliveryStatus.ACCEPTED:
            said = DeliveryOutcome(
                DeliveryStatus.AGAIN, "comes after one of its task that was not taken"
            )
        elif outcome.status is DeliveryStatus.AGAIN:
            held.setdefault(one.series, outcome)
        kept.append(said)
    return kept
