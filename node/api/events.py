"""The event stream: server-sent events about changes on this node."""

from __future__ import annotations

import asyncio

import orjson
from aiohttp import web

from node.api import requests
from node.api.routing import NODE, TEXT, Query, Route

_BEAT_S = 15.0
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
    queue = hub.subscribe(int(last) if known else None)
    try:
        await response.prepare(request)
        await response.write(b"retry: 2000\n\n")
        while True:
            try:
                event = await asyncio.wait_for(queue.get(), _BEAT_S)
            except TimeoutError:
                await response.write(b": still here\n\n")
                continue
            if event is None:
                break
            body = orjson.dumps(event.body).decode()
            text = f"id: {event.number}\nevent: {event.kind}\ndata: {body}\n\n"
            await response.write(text.encode())
    except ConnectionResetError:
        pass
    finally:
        hub.unsubscribe(queue)
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
