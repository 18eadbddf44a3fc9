"""Routes of reservations."""

from __future__ import annotations

from aiohttp import web

from node.api import requests, responses
from node.api.conditions import matched_revision
from node.api.routing import CURSOR, LIMIT, NODE, PREFIX, Route
from node.api.tasks import KEY, idempotency_key
from node.model.wire.reservations import Reservation, ReservationDocument, ReservationPatch
from node.store.reservations import ReservationFilter


async def create(request: web.Request) -> web.StreamResponse:
    """Answer 201 with the reservation; a repeated Idempotency-Key gives the existing one."""
    document = requests.document(request, ReservationDocument)
    created = await request.app[NODE].reservations.create(document, idempotency_key(request))
    return responses.document_response(created, 201, {"Location": f"/v1/reservations/{created.id}"})


async def list_(request: web.Request) -> web.StreamResponse:
    """A page of reservations, newest first."""
    requests.refuse_other_parameters(request, "prefix", "limit", "cursor")
    at = requests.cursor(request)
    wanted = ReservationFilter(
        prefix=requests.word(request, "prefix"),
        before_created=at[0] if at else None,
        before_id=at[1] if at else None,
        limit=requests.limit(request),
    )
    items = await request.app[NODE].reservations.page(wanted)
    following = requests.next_cursor(items, wanted.limit, lambda item: (item.created_at, item.id))
    return responses.list_response(items, following)


async def show(request: web.Request) -> web.StreamResponse:
    """One reservation, with the runs that were booked in its time before."""
    requests.refuse_other_parameters(request)
    return responses.document_response(
        await request.app[NODE].reservations.find(requests.identifier(request))
    )


async def edit(request: web.Request) -> web.StreamResponse:
    """The changed reservation."""
    patch = requests.patch(request, ReservationPatch)
    reservation = requests.identifier(request)
    return responses.document_response(
        await request.app[NODE].reservations.edit(reservation, patch)
    )


async def remove(request: web.Request) -> web.StreamResponse:
    """Remove the reservation; its time is free at once."""
    reservations, reservation = request.app[NODE].reservations, requests.identifier(request)
    await reservations.remove(reservation, matched_revision(request))
    return web.Response(status=204)


ROUTES = (
    Route(
        "POST",
        "/v1/reservations",
        create,
        "Reserve time of this node",
        ReservationDocument,
        Reservation,
        status=201,
        headers=(KEY,),
    ),
    Route(
        "GET",
        "/v1/reservations",
        list_,
        "List reservations, newest first",
        answer=Reservation,
        listed=True,
        query=(PREFIX, LIMIT, CURSOR),
    ),
    Route(
        "GET",
        "/v1/reservations/{id}",
        show,
        "Show a reservation, and the runs booked in its time before",
        answer=Reservation,
    ),
    Route(
        "PATCH",
        "/v1/reservations/{id}",
        edit,
        "Edit a reservation",
        ReservationPatch,
        Reservation,
    ),
    Route(
        "DELETE",
        "/v1/reservations/{id}",
        remove,
        "Remove a reservation; its time is free at once",
        status=204,
    ),
)
