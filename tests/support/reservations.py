"""What the tests of reservations have in common."""

from __future__ import annotations

from typing import Any

from node.model.times import format_instant
from node.model.wire.campaigns import DEFAULT, CampaignDocument
from node.model.wire.fields import FROM_OUTSIDE
from node.model.wire.reservations import Reservation, ReservationDocument, ReservationPatch
from tests.support.booking import HOUR
from tests.support.worlds import Site

WORDS = "reserved for demo 'SC26' by alice until"


def document(start: int = HOUR, **fields: Any) -> dict[str, Any]:
    """Half an hour for a demo, once, for nobody."""
    made: dict[str, Any] = {
        "kind": "demo",
        "name": "SC26",
        "owner": "alice",
        "schedule": {"start": format_instant(start)},
        "duration": "PT30M",
    }
    return made | fields


async def reserve(
    site: Site, start: int = HOUR, *, key: str | None = None, **fields: Any
) -> Reservation:
    """Post such a document to a site, where the campaigns are that it names."""
    for name in fields.get("access", {}).get("campaigns", ()):
        if name != DEFAULT:
            await site.node.campaigns.create(CampaignDocument(name=name))
    asked = ReservationDocument.model_validate(document(start, **fields), context=FROM_OUTSIDE)
    return await site.node.reservations.create(asked, key)


async def edit(site: Site, reservation: Reservation, **fields: Any) -> Reservation:
    """Change one there."""
    patch = ReservationPatch.model_validate(fields, context=FROM_OUTSIDE)
    return await site.node.reservations.edit(reservation.id, patch)
