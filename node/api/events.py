"""The event stream: server-sent events about changes on this node."""

from __future__ import annotations

import contextlib

from aiohttp import web

from node.api import requests
from node.api.connections import giving_way
from node.api.routing import NODE, TEXT, Query, Route

_BEAT_S = 15.0
_PAUSE_S = 0.1
"""Pause after some events were written, so that those of a burst are written together."""
_DIGITS = 18  # more than the number of any event has


async def stream(request: web.Request) -> web.StreamResponse:
    """GET: events as they happen, after those missed since ``Last-Event-ID``."""
    hub = request.app[NODE].hub
    requests.only(request)
    last = request.headers.get("Last-Event-ID", "")
    response = web.StreamResponse(
        headers={
            "Content-Type": "text/event-stream",
            "Cache-Control": "no-store",
            "X-Accel-Buffering": "no",
        }
    )
    known = last.isascii() and last.isdecimal() and len(last) <= _DIGITS
    place = hub.place(int(last) if known else None)
    with contextlib.suppress(ConnectionResetError), hub.listening(), giving_way(request):
        await response.prepare(request)
        await response.write(b"retry: 2000\n\n")
        # A reader that is too slow loses its stream. It resumes with its Last-Event-ID.
        while not hub.closed and (events := hub.since(place)) is not None:
            if events:
                place = events[-1].number
                await response.write(b"".join(event.text for event in events))
                await hub.pause(_PAUSE_S)
            elif not await hub.change(_BEAT_S):
                await response.write(b": still here\n\n")
    return response


ROUTES = (
    Route(
        "GET",
        "/v1/events",
        stream,
        "Changes on this node as they happen (server-sent events)",
        media_type="text/event-stream",
        headers=(Query("Last-Event-ID", "Resume after this event.", TEXT),),
    ),
)
