"""The problem types: a page for each, at the path that ``type`` of a problem document names."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from html import escape

from aiohttp import web

from node.api import requests
from node.api.routing import Route
from node.model.errors import NotFound, ParleyError
from node.model.wire.problems import type_of

_REMEDIES = {
    "server-fault": "Look into the log of the node, which has the whole error, and report it.",
    "bad-request": "Read detail, correct the request, and send it again.",
    "malformed": "Send one JSON document, uncompressed, with nothing after it.",
    "invalid-document": "Each item of errors has a pointer to a wrong field, and says what to "
    "write instead. A pointer that begins with ? names a parameter of the query.",
    "not-authenticated": "Send Authorization: Bearer and a token of this node. The owner's is in "
    "the file token of the state directory; parley token add makes others.",
    "unknown-peer": "Add the node on this one: parley node add URL.",
    "not-allowed": "Ask the owner of the node for a token with the role that detail names.",
    "not-found": "Look at the list of what there is; ids are whole UUIDs, and lists can be "
    "searched with prefix=.",
    "method-not-allowed": "Use one of the methods in the header Allow.",
    "not-acceptable": "Accept the media type that detail names, or leave the header Accept out.",
    "search-too-wide": "Search in a shorter span (since, before), or in the runs of one task.",
    "unsupported-media-type": "Send the document with Content-Type: application/json.",
    "conflict": "Read the current state, and send a request that fits to it.",
    "changed-since": "Read the resource again, apply your change to what it is now, and send it "
    "with the new revision.",
    "too-fast": "Wait for the seconds of Retry-After, then ask again; the owner of the node sets "
    "PARLEY_REQUESTS_PER_MINUTE.",
    "precondition-failed": "Read the resource again, apply your change to what it is now, and send "
    "it with the new ETag.",
    "no-time": "Take one of offers, which would find time, or allow a longer slip.",
    "too-slow": "Send the request again over a connection that can carry it.",
    "too-large": "Send less at once, or read the list in smaller pages.",
    "too-many-requests": "Wait for the seconds of Retry-After, then ask again.",
    "limit-reached": "Wait for the seconds of Retry-After; the limit has room again then.",
    "refused-by-participant": "Read why the participant refuses, and change the task, or ask the "
    "owner of that node.",
    "limit-refused": "Each item of limits says what its host would allow.",
    "peer-fault": "Look at the log of the node that detail names.",
    "peer-unreachable": "Look whether the node runs, and whether its URL can be reached from "
    "here: parley node list.",
    "answer-lost": "Send the request again with the same Idempotency-Key; nothing is done twice.",
    "unknown-to-peer": "Ask the owner of the other node to add this one.",
    "peer-answer": "Look whether both nodes run the same version: parley node list.",
    "peer-failed": "Look at the node that detail names; its host cannot do its part.",
    "host-fault": "Read detail, and repair what it names on this host.",
    "overloaded": "Wait for the seconds of Retry-After, then ask again.",
    "database-unavailable": "Start the database of the node, or repair its address.",
    "cluster-in-use": "End the other process that uses the state directory, or choose another one.",
    "database-in-use": "Stop the services that detail names, then repeat the command.",
    "database-damaged": "Look at detail: the owner of the node repairs the database as it says, or "
    "restores a backup; then send the request again.",
    "no-room": "Make room on the disk that detail names, then send the request again.",
    "not-ready": "Read detail, which says what the node lacks.",
    "wrong-key": "Bring back the key files that belong to the database, or restore a backup that "
    "has them, as detail says.",
    "moved-away": "Ask the host that detail names, or type parley admin reclaim on this one.",
    "copy-of-node": "Ask the host that detail names, or stop it and type parley admin take-over "
    "on this one.",
    "schema-mismatch": "Run parley admin migrate, or install the version that detail names.",
    "tool-unavailable": "Install the package that detail names, or choose another tool.",
    "tool-output": "Look at the output of the tool in the part of the run, and report it.",
    "webhook-failed": "Repair the receiver, then try it: parley webhook test NAME.",
    "archiver-failed": "Repair the destination, then try it: parley archive test NAME.",
}
"""By code, what to do."""


_MEANINGS = {
    "server-fault": "The node met a fault that it did not foresee.",
    "peer-fault": "Another node answered with an error that this one does not know.",
    "host-fault": "The host of the node cannot do what was requested.",
}
"""By code, the meaning of classes that stand for all below them."""


@dataclass(frozen=True)
class ProblemType:
    """A kind of problem that the API answers with."""

    code: str
    status: int
    title: str
    meaning: str
    remedy: str

    @property
    def type(self) -> str:
        """The member ``type`` of its documents: the path of its page."""
        return type_of(self.code)


def _errors(kind: type[ParleyError]) -> Iterator[type[ParleyError]]:
    yield kind
    for child in kind.__subclasses__():
        yield from _errors(child)


def _problem_type(error: type[ParleyError]) -> ProblemType:
    meaning = _MEANINGS.get(error.code) or " ".join(inspect.cleandoc(error.__doc__ or "").split())
    return ProblemType(error.code, error.status, error.title, meaning, _REMEDIES[error.code])


PROBLEM_TYPES = {
    error.code: _problem_type(error)
    for error in _errors(ParleyError)
    if error.__module__ == ParleyError.__module__
}
"""All problem types by code, in the order of the tree of errors."""


async def list_(request: web.Request) -> web.StreamResponse:
    """All problem types, as a page for people."""
    requests.refuse_other_parameters(request)
    rows = "".join(
        f"<tr><td>{each.status}<td><a href={each.type}>{each.code}</a><td>{escape(each.title)}"
        for each in PROBLEM_TYPES.values()
    )
    return _page("Problems", f"<table>{rows}</table>")


async def show(request: web.Request) -> web.StreamResponse:
    """Return what a problem type means and what to do, as a page for people."""
    requests.refuse_other_parameters(request)
    problem = PROBLEM_TYPES.get(request.match_info["name"])
    if problem is None:
        msg = "there is no such type of problem; see /problems"
        raise NotFound(msg)
    return _page(
        problem.title,
        f"<p><code>{problem.type}</code>, status {problem.status}</p>"
        f"<p>{escape(problem.meaning)}</p><h2>What to do</h2><p>{escape(problem.remedy)}</p>"
        "<p><a href=/problems>All problems</a></p>",
    )


def _page(title: str, body: str) -> web.Response:
    head = f"<!doctype html><html lang=en><meta charset=utf-8><title>{escape(title)} - Parley"
    return web.Response(
        text=f"{head}</title><h1>{escape(title)}</h1>{body}</html>\n",
        content_type="text/html",
        headers={"Content-Security-Policy": "default-src 'none'"},
    )


ROUTES = (
    Route("GET", "/problems", list_, "List the types of problems", media_type="text/html"),
    Route("GET", "/problems/{name}", show, "Explain a type of problem", media_type="text/html"),
)
