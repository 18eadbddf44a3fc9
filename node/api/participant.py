"""What other nodes ask of this one; every request is signed by a node that is known here."""

from __future__ import annotations

from aiohttp import web

from node.api import reading, replies
from node.api.routing import NODE, SENDER, Access, Handler, Route
from node.model.errors import NotAllowed
from node.model.wire.fields import Document
from node.model.wire.outlooks import Outlook, OutlookRequest
from node.model.wire.participants import (
    CommitAnswer,
    CommitRequest,
    DecisionAnswer,
    Differences,
    DigestRequest,
    HoldAnswer,
    HoldRequest,
    Introduction,
    IntroductionAnswer,
    PartMessage,
    Proposal,
    ProposalRequest,
    RunEnd,
    TaskEnd,
)


async def introduce(request: web.Request) -> web.StreamResponse:
    """PUT: a task is made known; this host accepts it or says why not."""
    introduction = reading.document(request, Introduction)
    if introduction.task != reading.identifier(request):
        msg = "path and body name different tasks"
        raise NotAllowed(msg)
    consent = request.app[NODE].consent
    return replies.one(await consent.consider(request[SENDER], introduction))


async def consider(request: web.Request) -> web.StreamResponse:
    """POST: whether this host would accept a task; nothing is kept."""
    introduction = reading.document(request, Introduction)
    return replies.one(request.app[NODE].consent.judge(introduction))


async def outlook(request: web.Request) -> web.StreamResponse:
    """POST: what runs would displace here, and how full the node would be; nothing is booked."""
    asked = reading.document(request, OutlookRequest)
    return replies.one(await request.app[NODE].prospect.outlook(asked))


async def propose(request: web.Request) -> web.StreamResponse:
    """POST: free ranges in the windows."""
    asked = reading.document(request, ProposalRequest)
    return replies.one(await request.app[NODE].time_line.propose(asked))


async def hold(request: web.Request) -> web.StreamResponse:
    """PUT: book for now."""
    asked = reading.document(request, HoldRequest)
    exchange = reading.identifier(request)
    return replies.one(await request.app[NODE].time_line.hold(exchange, request[SENDER], asked))


async def commit(request: web.Request) -> web.StreamResponse:
    """POST: the lead has decided; keep these runs."""
    node, exchange = request.app[NODE], reading.identifier(request)
    asked = reading.document(request, CommitRequest)
    await node.time_line.check_lead(exchange, request[SENDER])
    return replies.one(await node.time_line.commit(exchange, asked))


async def release(request: web.Request) -> web.StreamResponse:
    """DELETE: the lead drops the hold."""
    node, exchange = request.app[NODE], reading.identifier(request)
    task = reading.identifier(request, "task")
    await node.time_line.check_lead(exchange, request[SENDER], task)
    await node.time_line.release(exchange, task)
    return web.Response(status=204)


async def decision(request: web.Request) -> web.StreamResponse:
    """GET: as lead, what became of an exchange."""
    return replies.one(await request.app[NODE].time_line.decision(reading.identifier(request)))


async def run_end(request: web.Request) -> web.StreamResponse:
    """POST: a run is over."""
    await request.app[NODE].ending.heard(request[SENDER], reading.document(request, RunEnd))
    return web.Response(status=204)


async def task_end(request: web.Request) -> web.StreamResponse:
    """POST: a task is over."""
    end = reading.document(request, TaskEnd)
    await request.app[NODE].ending.heard_task(request[SENDER], end)
    return web.Response(status=204)


async def part(request: web.Request) -> web.StreamResponse:
    """POST: as lead, a participant's part of a run."""
    message = reading.document(request, PartMessage)
    await request.app[NODE].collector.receive(request[SENDER], message)
    return web.Response(status=204)


async def compare(request: web.Request) -> web.StreamResponse:
    """POST: what this node has of the sender's tasks, where it differs."""
    asked = reading.document(request, DigestRequest)
    return replies.one(await request.app[NODE].time_line.compare(request[SENDER], asked))


def _route(
    method: str,
    path: str,
    handler: Handler,
    summary: str,
    body: type[Document] | None = None,
    answer: type[Document] | None = None,
) -> Route:
    status = 204 if answer is None else 200
    return Route(
        method,
        f"/v1/participant/{path}",
        handler,
        summary,
        Access.PEER,
        body,
        answer,
        status=status,
    )


ROUTES = (
    _route("PUT", "tasks/{id}", introduce, "Make a task known", Introduction, IntroductionAnswer),
    _route("POST", "considerations", consider, "Consider a task", Introduction, IntroductionAnswer),
    _route("POST", "outlooks", outlook, "What runs would mean", OutlookRequest, Outlook),
    _route("POST", "proposals", propose, "Ask for free ranges", ProposalRequest, Proposal),
    _route("PUT", "exchanges/{id}", hold, "Hold runs", HoldRequest, HoldAnswer),
    _route("POST", "exchanges/{id}/commit", commit, "Commit runs", CommitRequest, CommitAnswer),
    _route("DELETE", "exchanges/{id}/{task}", release, "Release a hold"),
    _route("GET", "exchanges/{id}", decision, "Ask for the decision", answer=DecisionAnswer),
    _route("POST", "runs/ends", run_end, "A run is over", RunEnd),
    _route("POST", "tasks/ends", task_end, "A task is over", TaskEnd),
    _route("POST", "parts", part, "A participant's part", PartMessage),
    _route("POST", "digests", compare, "Compare runs to come", DigestRequest, Differences),
)
