"""Build responses: documents, lists, and problems as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence

import orjson
from aiohttp import web

from node.model.errors import LimitUsedUp, Overloaded, ParleyError, TooManyRequests
from node.model.wire.fields import Document
from node.model.wire.problems import MEDIA_TYPE, problem_of


def one(answer: Document, status: int = 200, headers: dict[str, str] | None = None) -> web.Response:
    """Return a response with one document."""
    body = orjson.dumps(answer.model_dump(mode="json"))
    return web.Response(body=body, status=status, content_type="application/json", headers=headers)


def many(items: Sequence[Document], following: str | None = None) -> web.Response:
    """Return a response with a page of a list, and the cursor of the next one."""
    documents = [item.model_dump(mode="json") for item in items]
    body = orjson.dumps({"items": documents, "next": following})
    return web.Response(body=body, content_type="application/json")


def problem(error: ParleyError, path: str) -> web.Response:
    """Return a response with a problem document."""
    document = problem_of(error, path).model_dump(mode="json")
    headers = {}
    if error.status == web.HTTPUnauthorized.status_code:
        headers["WWW-Authenticate"] = "Bearer"
    if isinstance(error, Overloaded):
        headers["Retry-After"] = "1"
    if isinstance(error, TooManyRequests):
        headers["Retry-After"] = str(error.retry_after_s)
        headers["RateLimit"] = f'"limit";r=0;t={error.retry_after_s}'
    if isinstance(error, LimitUsedUp) and error.most is not None:
        headers["RateLimit-Policy"] = f'"limit";q={error.most}'
    # A reason may quote what the caller wrote, which is not always text.
    body = json.dumps(document, ensure_ascii=False).encode(errors="replace")
    return web.Response(body=body, status=error.status, content_type=MEDIA_TYPE, headers=headers)
