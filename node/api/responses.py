"""Build responses: documents, lists, and problems as JSON."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from typing import Any

import orjson
import structlog
from aiohttp import web

from node.api.conditions import tag_of
from node.model.errors import (
    LimitUsedUp,
    MethodNotAllowed,
    Overloaded,
    ParleyError,
    TooFast,
    TooManyRequests,
    UnsupportedMedia,
    fault_of,
)
from node.model.wire.fields import Document
from node.model.wire.problems import MEDIA_TYPE, problem_of

OWN_FAULT = "an internal error occurred; see the log of the node"

WITHOUT_JAVASCRIPT = "/lists/"
"""The begin of the paths that people open in a browser without JavaScript."""
_BY_BROWSERS = 'Basic realm="Parley: any name, and a token as the password", charset="UTF-8"'

MERGE_PATCH = "application/merge-patch+json"
JSON = "application/json"

log = structlog.get_logger()


def document_response(
    answer: Document,
    status: int = 200,
    headers: dict[str, str] | None = None,
    include: dict[str, Any] | None = None,
) -> web.Response:
    """Return a response with one document; with ``include``, only with these fields."""
    body = orjson.dumps(answer.model_dump(mode="json", include=include))
    made = web.Response(body=body, status=status, content_type="application/json", headers=headers)
    revision = getattr(answer, "revision", None)
    if isinstance(revision, int):
        made.etag = tag_of(body, revision)
        made.headers["Cache-Control"] = "no-cache"
    return made


def list_response(
    items: Sequence[Document], following: str | None = None, fields: Collection[str] | None = None
) -> web.Response:
    """Return a response with a page of a list, and the cursor of the next one.

    ``fields`` are the only ones that its items have; None for all.
    """
    include = None if fields is None else set(fields)
    documents = [item.model_dump(mode="json", include=include) for item in items]
    body = orjson.dumps({"items": documents, "next": following})
    return web.Response(body=body, content_type="application/json")


def error_of(error: BaseException) -> ParleyError:
    """Return the error by which one item of a list has failed.

    :raises BaseException: it is none of ours, as when the process ends.
    """
    if isinstance(error, ParleyError):
        return error
    if not isinstance(error, Exception):
        raise error
    if (fault := fault_of(error)) is not None:
        return fault
    log.error("one item of several failed", exc_info=error)
    return ParleyError(OWN_FAULT)


def problem_response(error: ParleyError, path: str) -> web.Response:
    """Return a response with a problem document."""
    document = problem_of(error, path).model_dump(mode="json")
    headers = {}
    if error.status == web.HTTPUnauthorized.status_code:
        asked = path.startswith(WITHOUT_JAVASCRIPT)
        headers["WWW-Authenticate"] = _BY_BROWSERS if asked else "Bearer"
    if isinstance(error, MethodNotAllowed):
        headers["Allow"] = ", ".join(error.allowed)
    if isinstance(error, UnsupportedMedia):
        headers["Accept-Patch" if MERGE_PATCH in error.accepted else "Accept"] = ", ".join(
            error.accepted
        )
    if isinstance(error, Overloaded):
        headers["Retry-After"] = "1"
    if isinstance(error, TooManyRequests):
        headers["Retry-After"] = str(error.retry_after_s)
        if not isinstance(error, TooFast):
            headers["RateLimit"] = f'"limit";r=0;t={error.retry_after_s}'
    if isinstance(error, LimitUsedUp) and error.most is not None:
        headers["RateLimit-Policy"] = f'"limit";q={error.most}'
    # A reason may quote what the caller wrote, which is not always text.
    body = json.dumps(document, ensure_ascii=False).encode(errors="replace")
    return web.Response(body=body, status=error.status, content_type=MEDIA_TYPE, headers=headers)
