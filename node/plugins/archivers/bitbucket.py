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
)
from node.plugins.transport.batches import ACCEPTED, OwnArchiver


class BitbucketSpec(Document):
    """Nothing: there is nowhere to go."""


class BitbucketDestination:
    """The destination that keeps nothing."""

    def __init__(self, spec: BitbucketSpec, host: ArchivingHost, where: str) -> None:
        """Keep nothing of the arguments: there is no connection."""

    async def deliver(self, batch: Sequence[DeliveryItem]) -> list[DeliveryOutcome]:
        """Accept everything."""
        return [ACCEPTED] * len(batch)

    async def test(self) -> str:
        """Return a sentence which says that results are forgotten; this never fails."""
        return "results are counted and forgotten here"

    async def close(self) -> None:
        """Do nothing: nothing is open."""


class BitbucketArchiver(OwnArchiver):
    """Accepts results, and forgets them."""

    name = "bitbucket"
    title = "Count results and forget them"
    spec_model: type[Document] = BitbucketSpec
    destination = BitbucketDestination

    def label(self, spec: BitbucketSpec) -> str:
        """Return the label that lists show for results that go nowhere."""
        return "nowhere"

    def batches(self, spec: BitbucketSpec) -> Batches:
        """Return a thousand documents."""
        return Batches(1000, 8_000_000, times.SECOND)


ARCHIVER = BitbucketArchiver()
