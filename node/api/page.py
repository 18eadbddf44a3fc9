"""The page: the static files of ``node/web`` at ``/`` and ``/web/{name}``.

It shows what the API returns, and consists of plain ES modules without a build step; ``app.js``
connects the others. Every file in that folder with one of the known suffixes is served under its
own name, with headers that restrict what the page may do.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import PurePath
from types import MappingProxyType
from typing import Final

from aiohttp import ETag, web

CONTENT_SECURITY_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)

_INDEX = "index.html"
_MEDIA_TYPES = {
    ".css": "text/css",
    ".html": "text/html",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
}
_HEADERS: Final = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    # The browser caches but revalidates each time: a new version must show at once.
    "Cache-Control": "no-cache",
}


@dataclass(frozen=True)
class StaticFile:
    """One file of the page; the tag is a hash of its content."""

    media_type: str
    body: bytes
    tag: str


@cache
def static_files() -> Mapping[str, StaticFile]:
    """Return every file of the page by name; they are read once and change with the program."""
    by_name: dict[str, StaticFile] = {}
    for entry in (files("node") / "web").iterdir():
        media_type = _MEDIA_TYPES.get(PurePath(entry.name).suffix)
        if media_type is not None:
            body = entry.read_bytes()
            tag = hashlib.sha256(body).hexdigest()[:32]
            by_name[entry.name] = StaticFile(media_type, body, tag)
    return MappingProxyType(by_name)


def routes() -> list[web.RouteDef]:
    """Return the page's routes, to be added to the node's application."""
    return [web.get("/", _index), web.get("/web/{name}", _file)]


async def _index(request: web.Request) -> web.Response:
    return _answer(request, static_files()[_INDEX])


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
