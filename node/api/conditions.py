"""Entity tags and preconditions: ``ETag``, ``If-None-Match``, and ``If-Match``.

A tag is made of the whole answer, so that it changes with everything that is shown. That of a
resource with a revision begins with it: ``"7-…"``. ``If-Match`` compares the revision only, because
a state that has changed meanwhile is no edit by somebody else.
"""

from __future__ import annotations

import re
from hashlib import blake2b

from aiohttp import web

from node.model.errors import FieldFault, InvalidDocument, PreconditionFailed

GZIPPED = "-gzip"
"""The end of the tag of a compressed answer, which has other bytes."""

CONDITIONAL = frozenset(
    {
        "PATCH /v1/tasks/{id}",
        "DELETE /v1/tasks/{id}",
        "POST /v1/tasks/{id}/pause",
        "POST /v1/tasks/{id}/resume",
        "POST /v1/tasks/{id}/release",
        "PATCH /v1/reservations/{id}",
        "DELETE /v1/reservations/{id}",
        "PATCH /v1/campaigns/{name}",
        "DELETE /v1/campaigns/{name}",
        "PATCH /v1/pools/{name}",
        "DELETE /v1/pools/{name}",
        "PATCH /v1/archives/{name}",
        "DELETE /v1/archives/{name}",
    }
)
"""The changes of what has a revision, with which they compare If-Match."""

_REVISION = re.compile(r"(?P<revision>[1-9][0-9]{0,8})(?:-[0-9a-z-]+)?")


def tag_of(body: bytes, revision: int | None = None) -> str:
    """Return the entity tag of an answer, without quotation marks."""
    digest = blake2b(body, digest_size=8).hexdigest()
    return digest if revision is None else f"{revision}-{digest}"


def matched_revision(request: web.Request) -> int | None:
    """Return the revision that the header If-Match demands; None if it demands none.

    :raises PreconditionFailed: no revision can have this tag.
    :raises InvalidDocument: it has several tags.
    """
    tags = request.if_match
    if "If-Match" not in request.headers or (tags and tags[0].value == "*" and len(tags) == 1):
        return None
    if tags and len(tags) > 1:
        raise InvalidDocument([FieldFault("If-Match", "has several tags; send one")])
    match = _REVISION.fullmatch(tags[0].value) if tags and not tags[0].is_weak else None
    if match is None:
        msg = "If-Match has no ETag of an answer of this node; read the resource again"
        raise PreconditionFailed(msg)
    return int(match["revision"])


def is_known(request: web.Request, tag: str) -> bool:
    """Return whether the caller has the answer with this tag already (If-None-Match)."""
    known = {each.value.removesuffix(GZIPPED) for each in request.if_none_match or ()}
    return tag in known or "*" in known
