"""Media types of requests and answers, and the compression of answers."""

from __future__ import annotations

from collections.abc import Iterator

from aiohttp import web
from aiohttp.typedefs import Handler

from node.api.conditions import GZIPPED, is_known, tag_of
from node.api.responses import JSON, MERGE_PATCH
from node.api.routing import ANSWER_NONCE, TRIAL, Route
from node.model.errors import NotAcceptable, UnsupportedMedia

_UNNAMED = "application/octet-stream"
_COMPRESSED_FROM = 1024
_READ = frozenset({"GET", "HEAD"})


def received_types(method: str) -> tuple[str, ...]:
    """Return the media types of bodies that a method reads."""
    return (JSON, MERGE_PATCH) if method == "PATCH" else (JSON,)


def require_readable(request: web.Request, route: Route, body: bytes) -> None:
    """Check that the node reads the media type of the body; one that is not named is JSON.

    Libraries call bytes ``application/octet-stream`` if nobody names their type.

    :raises UnsupportedMedia: it does not.
    """
    if not body or "Content-Type" not in request.headers:
        return
    types = received_types(route.method)
    if request.content_type not in (*types, _UNNAMED):
        shown = request.content_type[:100]
        msg = f"a body of the type {shown} is not read here; send {' or '.join(types)}"
        raise UnsupportedMedia(msg, types)


def require_acceptable(request: web.Request, route: Route) -> None:
    """Check that the caller accepts the media type of the answer.

    :raises NotAcceptable: it does not.
    """
    if not _accepts(request.headers.get("Accept", "*/*"), route.media_type):
        msg = f"the answer is {route.media_type}; accept that, or leave the header Accept out"
        raise NotAcceptable(msg)


def _accepts(header: str, media_type: str) -> bool:
    """Return whether a header allows a type; the most specific range that fits decides."""
    kind = media_type.partition("/")[0]
    ranges = dict(_weighted_items(header))
    for fitting in (media_type, f"{kind}/*", "*/*"):
        if fitting in ranges:
            return ranges[fitting] > 0
    return not ranges


def _weighted_items(header: str) -> Iterator[tuple[str, float]]:
    """Yield the items of a header with their weights, 0 to 1; items that make no sense have 1."""
    for item in header.split(","):
        name, *parameters = (part.strip().lower() for part in item.split(";"))
        weight = next((each[2:] for each in parameters if each.startswith("q=")), "1")
        if name:
            yield name, float(weight) if weight.replace(".", "", 1).isdecimal() else 1.0


def takes_gzip(request: web.Request) -> bool:
    """Return whether the caller takes an answer that is compressed."""
    weights = dict(_weighted_items(request.headers.get("Accept-Encoding", "")))
    return weights.get("gzip", weights.get("*", 0.0)) > 0


@web.middleware
async def shorten_answer(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Answer 304 if the caller has this answer already; compress long texts.

    Answers to other nodes stay as they are, because they are signed.
    """
    answer = await handler(request)
    if ANSWER_NONCE in request or not isinstance(answer, web.Response):
        return answer
    body = answer.body if isinstance(answer.body, bytes) else b""
    tag = _add_entity_tag(request, answer, body)
    if tag is not None and request.method in _READ and is_known(request, tag):
        unchanged = web.Response(status=304, headers=_cache_headers(answer))
        unchanged.etag = tag
        return unchanged
    if "Content-Encoding" in answer.headers:  # it is kept compressed
        answer.etag = None if tag is None else tag + GZIPPED
    elif len(body) >= _COMPRESSED_FROM and _is_text(answer):
        answer.headers["Vary"] = "Accept-Encoding"
        if takes_gzip(request):
            answer.enable_compression(web.ContentCoding.gzip)
            if tag is not None:
                answer.etag = tag + GZIPPED
    return answer


def _add_entity_tag(request: web.Request, answer: web.Response, body: bytes) -> str | None:
    """Give an answer its entity tag, and return it; None where no later request may name it."""
    tag = answer.etag
    if request.get(TRIAL, False):
        answer.etag = None
        return None
    if tag is None and request.method in _READ and answer.status == web.HTTPOk.status_code:
        answer.etag = tag_of(body)
        answer.headers.setdefault("Cache-Control", "no-cache")
        return tag_of(body)
    return None if tag is None else tag.value


def _cache_headers(answer: web.Response) -> dict[str, str]:
    return {
        name: answer.headers[name] for name in ("Cache-Control", "Vary") if name in answer.headers
    }


def _is_text(answer: web.Response) -> bool:
    kind = answer.content_type
    return kind.startswith("text/") or kind.endswith(("json", "javascript", "svg+xml"))
