"""``bitbucket``: results are counted, and forgotten.

It shows that results are delivered at all: deliveries have their state, and
``parley_archive_deliveries_total`` counts them. Nothing is kept.
"""

from __future__ import annotations

from collections.abc import Sequence

from node.model import times
from node.model.wire.fields import Document
from node.plugins.contracts import (
    ArchivingHost,
    Batches,
    DeliveryItem,
    DeliveryOutcome,
    DeliveryStatus,
)
from node.plugins.transport.unrestricted import UnrestrictedArchiver


class BitbucketSpec(Document):
    """Nothing: there is nowhere to go."""


class BitbucketArchiver(UnrestrictedArchiver):
    """Accepts results, and forgets them."""

    name = "bitbucket"
    title = "Count results and forget them"
    ordered = False
    spec_model: type[Document] = BitbucketSpec

    def label(self, spec: BitbucketSpec) -> str:
        """Return the label that lists show for results that go nowhere."""
        return "nowhere"

    def batches(self, spec: BitbucketSpec) -> Batches:
        """Return a thousand documents."""
        return Batches(1000, 8_000_000, times.SECOND)

    def open(self, spec: BitbucketSpec, host: ArchivingHost) -> BitbucketDestination:
        """Return the destination, which needs no connection."""
        return BitbucketDestination()


class BitbucketDestination:
    """The destination that keeps nothing."""

    async def deliver(self, batch: Sequence[DeliveryItem]) -> list[DeliveryOutcome]:
        """Accept everything."""
        return [DeliveryOutcome(DeliveryStatus.ACCEPTED)] * len(batch)

    async def test(self) -> str:
        """Return a sentence which says that results are forgotten; this never fails."""
        return "results are counted and forgotten here"

    async def close(self) -> None:
        """Do nothing: nothing is open."""


ARCHIVER = BitbucketArchiver()
