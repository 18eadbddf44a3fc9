"""Serve the page: ``/`` and ``/web/{name}``, with headers that restrict what it may do."""

from __future__ import annotations

from typing import Final

from aiohttp import ETag, web

from node.web import INDEX, StaticFile, static_files

CONTENT_SECURITY_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)

_HEADERS: Final = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    # The browser caches but revalidates each time: a new version must show at once.
    "Cache-Control": "no-cache",
}


def routes() -> list[web.RouteDef]:
    """Return the page's routes, to be added to the node's application."""
    return [web.get("/", _index), web.get("/web/{name}", _file)]


async def _index(request: web.Request) -> web.Response:
    return _answer(request, static_files()[INDEX])


async def _file(request: web.Request) -> web.Response:
    file = static_files().get(request.match_info["name"])
    if file is None:
        raise web.HTTPNotFound
    return _answer(request, file)


def _answer(request: web.Request, file: StaticFile) -> web.Response:
    known = {tag.value for tag in request.if_none_match or ()}
    if file.tag in known or "*" in known:
        response = web.Response(status=web.HTTPNotModified.status_code, headers=_HEADERS)
    else:
        response = web.Response(
            body=file.body, content_type=file.media_type, charset="utf-8", headers=_HEADERS
        )
    response.etag = ETag(value=file.tag)
    return response
