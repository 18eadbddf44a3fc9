"""Helpers for the tests of reservations."""

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
    """Return half an hour for a demo, once, with an empty access list."""
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
    """Post such a document to a site, with the campaigns that it names."""
    for name in fields.get("access", {}).get("campaigns", ()):
        if name != DEFAULT:
            await site.node.campaigns.create(CampaignDocument(name=name))
    asked = ReservationDocument.model_validate(document(start, **fields), context=FROM_OUTSIDE)
    return await site.node.reservations.create(asked, key)


async def edit(site: Site, reservation: Reservation, **fields: Any) -> Reservation:
    """Change a reservation there."""
    patch = ReservationPatch.model_validate(fields, context=FROM_OUTSIDE)
    return await site.node.reservations.edit(reservation.id, patch)
