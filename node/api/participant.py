"""What other nodes ask of this one; every request is signed by a node that is known here."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable

import orjson
import structlog
from aiohttp import web

from node.api import requests, responses
from node.api.middleware import OWN_FAULT
from node.api.routing import NODE, SENDER, Access, Handler, Route
from node.model.errors import NotAllowed, ParleyError
from node.model.wire.fields import Document
from node.model.wire.impacts import Impact, ImpactRequest
from node.model.wire.participants import (
    Batch,
    BatchReplies,
    CommitAnswer,
    DecisionAnswer,
    Differences,
    DigestRequest,
    ExchangeHold,
    FreedTime,
    HoldAnswer,
    IntervalsMessage,
    Introduction,
    IntroductionAnswer,
    PartMessage,
    Proposal,
    ProposalRequest,
    Ruling,
    RunEnd,
    TaskEnd,
)
from node.model.wire.problems import problem_of
from node.model.wire.work import ForwardedQuestion, Reply, WorkRequest, WorkResponse
from node.timetable.booking import TimeLine

log = structlog.get_logger()


async def introduce(request: web.Request) -> web.StreamResponse:
    """PUT: a task is made known; this host accepts it or says why not."""
    introduction = requests.document(request, Introduction)
    if introduction.task != requests.identifier(request):
        msg = "path and body name different tasks"
        raise NotAllowed(msg)
    consent = request.app[NODE].acceptance
    return responses.one(await consent.consider(request[SENDER], introduction))


async def consider(request: web.Request) -> web.StreamResponse:
    """POST: whether this host would accept a task; nothing is kept."""
    introduction = requests.document(request, Introduction)
    return responses.one(await request.app[NODE].acceptance.judge(request[SENDER], introduction))


async def outlook(request: web.Request) -> web.StreamResponse:
    """POST: what runs would displace here, and how full the node would be; nothing is booked."""
    asked = requests.document(request, ImpactRequest)
    return responses.one(await request.app[NODE].impacts.outlook(asked))


async def propose(request: web.Request) -> web.StreamResponse:
    """POST: free ranges in the windows of each question."""
    asked = requests.quick(request, Batch[ProposalRequest])
    interest, sender = request.app[NODE].freed_time, request[SENDER]
    return await _each(interest.propose(sender, item) for item in asked.items)


async def hold(request: web.Request) -> web.StreamResponse:
    """POST: book for now, exchange by exchange."""
    asked = requests.quick(request, Batch[ExchangeHold])
    time_line, sender = request.app[NODE].time_line, request[SENDER]
    return await _each(time_line.hold(item.exchange, sender, item.hold) for item in asked.items)


async def rule(request: web.Request) -> web.StreamResponse:
    """POST: the lead has decided: keep these runs of an exchange, or drop it."""
    asked = requests.document(request, Batch[Ruling])
    time_line, sender = request.app[NODE].time_line, request[SENDER]
    return await _each(_ruled(time_line, item, sender) for item in asked.items)


async def _ruled(time_line: TimeLine, ruling: Ruling, sender: str) -> CommitAnswer:
    if ruling.release is not None:
        return await time_line.release(ruling.exchange, ruling.release, sender)
    if ruling.commit is None:
        msg = "a ruling is either a commit or a release"
        raise NotAllowed(msg)
    return await time_line.commit(ruling.exchange, ruling.commit, sender)


async def _each(answers: Iterable[Awaitable[Document]]) -> web.Response:
    """What became of each, the errors included; a fault of ours with one spoils no other."""
    told = await asyncio.gather(*answers, return_exceptions=True)
    replied = []
    for answer in told:
        if isinstance(answer, Exception):
            replied.append({"problem": problem_of(_explained(answer)).model_dump(mode="json")})
        elif isinstance(answer, BaseException):
            raise answer
        else:
            replied.append({"answer": answer.model_dump(mode="json")})
    return web.Response(body=orjson.dumps({"items": replied}), content_type="application/json")


def _explained(error: Exception) -> ParleyError:
    if isinstance(error, ParleyError):
        return error
    log.error("one of several questions failed", exc_info=error)
    return ParleyError(OWN_FAULT)


async def decision(request: web.Request) -> web.StreamResponse:
    """GET: as lead, what became of an exchange."""
    return responses.one(await request.app[NODE].time_line.decision(requests.identifier(request)))


async def run_end(request: web.Request) -> web.StreamResponse:
    """POST: a run is over."""
    await request.app[NODE].termination.heard(request[SENDER], requests.document(request, RunEnd))
    return web.Response(status=204)


async def task_end(request: web.Request) -> web.StreamResponse:
    """POST: a task is over."""
    end = requests.document(request, TaskEnd)
    await request.app[NODE].termination.heard_task(request[SENDER], end)
    return web.Response(status=204)


async def freed(request: web.Request) -> web.StreamResponse:
    """POST: as lead, time that was refused has become free."""
    message = requests.document(request, FreedTime)
    await request.app[NODE].freed_time.freed(request[SENDER], message)
    return web.Response(status=204)


async def part(request: web.Request) -> web.StreamResponse:
    """POST: as lead, a participant's part of a run."""
    message = requests.document(request, PartMessage)
    await request.app[NODE].collector.receive(request[SENDER], message)
    return web.Response(status=204)


async def intervals(request: web.Request) -> web.StreamResponse:
    """POST: as lead, a participant's share of some intervals of a run that goes on."""
    message = requests.document(request, IntervalsMessage)
    await request.app[NODE].collector.receive_intervals(request[SENDER], message)
    return web.Response(status=204)


async def compare(request: web.Request) -> web.StreamResponse:
    """POST: what this node has of the sender's tasks, where it differs."""
    asked = requests.document(request, DigestRequest)
    return responses.one(await request.app[NODE].time_line.compare(request[SENDER], asked))


async def work(request: web.Request) -> web.StreamResponse:
    """POST: what waits here for a node that nobody reaches; it answers what it had before."""
    asked = requests.document(request, WorkRequest)
    node, sender = request.app[NODE], request[SENDER]
    await node.peer_monitor.came(sender, asked.card)
    given = await node.mailboxes.of(sender).take(asked)
    body = b'{"questions":[' + b",".join(given) + b"]}"
    return web.Response(body=body, content_type="application/json")


async def errand(request: web.Request) -> web.StreamResponse:
    """POST: this node's own lead, in a process beside this one, asks a node that nobody reaches."""
    node = request.app[NODE]
    if request[SENDER] != node.card.identity:
        msg = "a node runs errands for its own lead only"
        raise NotAllowed(msg)
    asked = requests.document(request, ForwardedQuestion)
    return responses.one(await node.mailboxes.of(asked.node).ask(asked.name, asked.question))


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
    _route("POST", "outlooks", outlook, "What runs would mean", ImpactRequest, Impact),
    _route(
        "POST",
        "proposals",
        propose,
        "Ask for free ranges",
        Batch[ProposalRequest],
        BatchReplies[Proposal],
    ),
    _route("POST", "holds", hold, "Hold runs", Batch[ExchangeHold], BatchReplies[HoldAnswer]),
    _route("POST", "rulings", rule, "Commit or release", Batch[Ruling], BatchReplies[CommitAnswer]),
    _route("GET", "exchanges/{id}", decision, "Ask for the decision", answer=DecisionAnswer),
    _route("POST", "runs/ends", run_end, "A run is over", RunEnd),
    _route("POST", "tasks/ends", task_end, "A task is over", TaskEnd),
    _route("POST", "tasks/freed", freed, "Refused time became free", FreedTime),
    _route("POST", "intervals", intervals, "Some intervals of a part", IntervalsMessage),
    _route("POST", "parts", part, "A participant's part", PartMessage),
    _route("POST", "digests", compare, "Compare runs to come", DigestRequest, Differences),
    _route("POST", "work", work, "Fetch what is asked of the sender", WorkRequest, WorkResponse),
    _route("POST", "errands", errand, "Ask a node that fetches its work", ForwardedQuestion, Reply),
)
