"""Routes for other nodes; every request is signed by a node that is known here.

A lead introduces a task, proposes windows, holds runs, and commits or releases them; a participant
asks the lead for the decision on an exchange, and sends parts and intervals of runs. Both compare
what they have of each other's tasks. Questions of many tasks travel in one message (``Batch``),
where each is answered for itself, errors included. Each message is idempotent by the ids in it, so
that a lost answer is had by asking again. A node in pull mode, which nobody can reach, fetches its
requests here (``work``). What a question costs is counted per node by the middleware.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable
from collections.abc import Set as AbstractSet

import orjson
from aiohttp import web

from node.api import requests, responses
from node.api.routing import NODE, PROBLEM, SENDER, THING, Handler, Route
from node.model.errors import (
    LimitRefused,
    NotAllowed,
    RefusedByParticipant,
    TooLarge,
)
from node.model.features import Feature, has_feature
from node.model.wire.comparisons import NodeComparison
from node.model.wire.fields import Document
from node.model.wire.host_limits import GrantedLimits
from node.model.wire.impacts import Impact, ImpactRequest
from node.model.wire.keys import RevokedKeys
from node.model.wire.participants import (
    INTRODUCTION_BYTES_MAX,
    MESSAGE_WEIGHT_MAX,
    Batch,
    BatchReplies,
    BookedRun,
    CommitAnswer,
    ConfirmationAnswer,
    ConfirmationRequest,
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
from node.model.wire.shared_campaigns import CampaignUse, CampaignUseRequest
from node.model.wire.work import ForwardedQuestion, Reply, WorkRequest, WorkResponse
from node.sharing.shared_campaigns import tell_use
from node.timetable.booking import TimeLine


async def introduce(request: web.Request) -> web.StreamResponse:
    """Introduce a task; this host accepts it or refuses it with a reason."""
    introduction = requests.document(request, Introduction)
    if introduction.task != requests.identifier(request):
        msg = "path and body name different tasks"
        raise NotAllowed(msg)
    answer = await request.app[NODE].acceptance.consider(request[SENDER], introduction)
    if not answer.accepted:
        request[PROBLEM] = (LimitRefused if answer.limit else RefusedByParticipant).code
    return responses.document_response(answer)


async def introduce_several(request: web.Request) -> web.StreamResponse:
    """Introduce several tasks; each is accepted or refused as if it came alone."""
    batch = requests.document(request, Batch[Introduction])
    acceptance, sender = request.app[NODE].acceptance, request[SENDER]
    request[THING] = f"{len(batch.items)} tasks"
    return await _batch_response(acceptance.consider(sender, item) for item in batch.items)


async def limits(request: web.Request) -> web.StreamResponse:
    """Return what the limits of this host allow the node that asks, and what it has left."""
    return responses.document_response(await request.app[NODE].limits.granted(request[SENDER]))


async def consider(request: web.Request) -> web.StreamResponse:
    """Return whether this host would accept a task; nothing is stored."""
    introduction = requests.document(request, Introduction)
    return responses.document_response(
        await request.app[NODE].acceptance.judge(request[SENDER], introduction)
    )


async def campaign_use(request: web.Request) -> web.StreamResponse:
    """Return, as lead, what campaigns that are shared with the sender have used here."""
    wanted = requests.document(request, CampaignUseRequest)
    database = request.app[NODE].database
    return responses.document_response(await tell_use(database, request[SENDER], wanted))


async def impact(request: web.Request) -> web.StreamResponse:
    """Return what runs would displace here, and how full the node would be; nothing is booked."""
    impact_request = requests.document(request, ImpactRequest)
    impacts = request.app[NODE].impacts
    return responses.document_response(await impacts.impact(impact_request, request[SENDER]))


async def propose(request: web.Request) -> web.StreamResponse:
    """Free ranges in the windows of each request."""
    batch = requests.quick_document(request, Batch[ProposalRequest])
    _refuse_heavy("windows", sum(len(item.windows) for item in batch.items))
    freed_time, sender = request.app[NODE].freed_time, request[SENDER]
    return await _batch_response(freed_time.propose(sender, item) for item in batch.items)


async def hold(request: web.Request) -> web.StreamResponse:
    """Hold runs, exchange by exchange."""
    batch = requests.quick_document(request, Batch[ExchangeHold])
    _refuse_heavy("runs", sum(len(item.hold.runs) for item in batch.items))
    node, sender = request.app[NODE], request[SENDER]
    tells = has_feature(node.directory.by_identity(sender).attributes, Feature.EPOCHS)
    holds = (node.time_line.hold(item.exchange, sender, item.hold) for item in batch.items)
    return await _batch_response(holds, leaving_out=set() if tells else {"epoch"})


async def apply_decision(request: web.Request) -> web.StreamResponse:
    """The lead's decision: commit these runs of an exchange, or release it."""
    batch = requests.document(request, Batch[Ruling])
    _refuse_heavy("runs", sum(len(item.commit.runs) for item in batch.items if item.commit))
    time_line, sender = request.app[NODE].time_line, request[SENDER]
    return await _batch_response(_apply_ruling(time_line, item, sender) for item in batch.items)


def _refuse_heavy(what: str, count: int) -> None:
    """Refuse a message with more windows or runs than a node sends in one.

    :raises TooLarge: it has.
    """
    if count > MESSAGE_WEIGHT_MAX:
        msg = f"the message has {count} {what}; send at most {MESSAGE_WEIGHT_MAX} in one"
        raise TooLarge(msg)


async def _apply_ruling(time_line: TimeLine, ruling: Ruling, sender: str) -> CommitAnswer:
    if ruling.release is not None:
        return await time_line.release(ruling.exchange, ruling.release, sender)
    if ruling.commit is None:
        msg = "a ruling is either a commit or a release"
        raise NotAllowed(msg)
    return await time_line.commit(ruling.exchange, ruling.commit, sender)


async def _batch_response(
    answers: Iterable[Awaitable[Document]], leaving_out: AbstractSet[str] = frozenset()
) -> web.Response:
    """Answer each item of a batch, errors included; an internal error of one affects no other.

    ``leaving_out`` are the fields of a problem that the program of the sender does not know.
    """
    outcomes = await asyncio.gather(*answers, return_exceptions=True)
    replies = []
    for outcome in outcomes:
        if isinstance(outcome, Exception):
            problem = problem_of(responses.error_of(outcome))
            replies.append({"problem": problem.model_dump(mode="json", exclude=set(leaving_out))})
        elif isinstance(outcome, BaseException):
            raise outcome
        else:
            replies.append({"answer": outcome.model_dump(mode="json")})
    return web.Response(body=orjson.dumps({"items": replies}), content_type="application/json")


async def decision(request: web.Request) -> web.StreamResponse:
    """Return, as lead, the decision on an exchange, for its participants."""
    time_line, exchange = request.app[NODE].time_line, requests.identifier(request)
    return responses.document_response(await time_line.decision(exchange, request[SENDER]))


async def booked_run(request: web.Request) -> web.StreamResponse:
    """A run that is booked here, for another participant of its task."""
    agreement, run = request.app[NODE].agreement, requests.identifier(request)
    return responses.document_response(await agreement.answer(request[SENDER], run))


async def end_run(request: web.Request) -> web.StreamResponse:
    """A run is over."""
    await request.app[NODE].termination.apply_run_end(
        request[SENDER], requests.document(request, RunEnd)
    )
    return web.Response(status=204)


async def end_task(request: web.Request) -> web.StreamResponse:
    """A task is over."""
    end = requests.document(request, TaskEnd)
    request[THING] = str(end.task)
    await request.app[NODE].termination.apply_task_end(request[SENDER], end)
    return web.Response(status=204)


async def confirm(request: web.Request) -> web.StreamResponse:
    """Return, as lead, which of the sender's tasks are still open."""
    asked = requests.document(request, ConfirmationRequest)
    return responses.document_response(
        await request.app[NODE].confirmer.answer(request[SENDER], asked)
    )


async def hear_freed_time(request: web.Request) -> web.StreamResponse:
    """Hear, as lead, that time which was refused has become free."""
    message = requests.document(request, FreedTime)
    await request.app[NODE].freed_time.plan_waiting_slots(request[SENDER], message)
    return web.Response(status=204)


async def receive_part(request: web.Request) -> web.StreamResponse:
    """Take, as lead, a participant's part of a run."""
    message = requests.document(request, PartMessage)
    await request.app[NODE].collector.receive(request[SENDER], message)
    return web.Response(status=204)


async def receive_intervals(request: web.Request) -> web.StreamResponse:
    """Take, as lead, a participant's share of some intervals of a run in progress."""
    message = requests.document(request, IntervalsMessage)
    await request.app[NODE].collector.receive_intervals(request[SENDER], message)
    return web.Response(status=204)


async def compare(request: web.Request) -> web.StreamResponse:
    """This node's view of the sender's tasks and their runs, where it differs."""
    digest = requests.document(request, DigestRequest)
    return responses.document_response(
        await request.app[NODE].compare_digests(request[SENDER], digest)
    )


async def compare_with_sender(request: web.Request) -> web.StreamResponse:
    """Compare with the sender, as its lead and as its participant; return what differed."""
    return responses.document_response(await request.app[NODE].compare_for(request[SENDER]))


async def exchange_work(request: web.Request) -> web.StreamResponse:
    """Pass on the answers of a node in pull mode, and return the requests for it."""
    work_request = requests.document(request, WorkRequest)
    node, sender = request.app[NODE], request[SENDER]
    await node.peer_monitor.record_poll(sender, work_request.card)
    questions = await node.mailboxes.mailbox_of(sender).take(work_request)
    body = b'{"questions":[' + b",".join(questions) + b"]}"
    return web.Response(body=body, content_type="application/json")


async def forward_errand(request: web.Request) -> web.StreamResponse:
    """Forward a question of this node's lead, another process, to a node in pull mode."""
    node = request.app[NODE]
    if request[SENDER] != node.card.identity:
        msg = "a node forwards questions for its own lead only"
        raise NotAllowed(msg)
    forwarded = requests.document(request, ForwardedQuestion)
    return responses.document_response(
        await node.mailboxes.mailbox_of(forwarded.node).ask(forwarded.name, forwarded.question)
    )


async def hear_revocations(request: web.Request) -> web.StreamResponse:
    """End what revoked keys have here, and pass on what is new."""
    await request.app[NODE].revocations.take_in_all(
        requests.document(request, RevokedKeys).statements
    )
    return web.Response(status=204)


def _route(  # noqa: PLR0913, PLR0917 - the columns of the table below
    method: str,
    path: str,
    handler: Handler,
    summary: str,
    body: type[Document] | None = None,
    answer: type[Document] | None = None,
    body_max: int | None = None,
    cost: int = 0,
) -> Route:
    status = 204 if answer is None else 200
    return Route(
        method,
        f"/v1/participant/{path}",
        handler,
        summary,
        body,
        answer,
        status=status,
        body_max=body_max,
        cost=cost,
    )


ROUTES = (
    _route(
        "PUT",
        "tasks/{id}",
        introduce,
        "Introduce a task",
        Introduction,
        IntroductionAnswer,
        INTRODUCTION_BYTES_MAX,
    ),
    _route(
        "POST",
        "introductions",
        introduce_several,
        "Introduce several tasks",
        Batch[Introduction],
        BatchReplies[IntroductionAnswer],
    ),
    _route(
        "GET",
        "limits",
        limits,
        "What the limits of this host allow the node that asks",
        answer=GrantedLimits,
        cost=2,
    ),
    _route(
        "POST",
        "considerations",
        consider,
        "Ask whether a task would be accepted",
        Introduction,
        IntroductionAnswer,
        INTRODUCTION_BYTES_MAX,
        cost=2,
    ),
    _route("POST", "revocations", hear_revocations, "Tell which keys are revoked", RevokedKeys),
    _route(
        "POST",
        "campaigns/uses",
        campaign_use,
        "Ask what shared campaigns have used",
        CampaignUseRequest,
        CampaignUse,
        cost=2,
    ),
    _route("POST", "outlooks", impact, "Ask for the impact of runs", ImpactRequest, Impact, cost=4),
    _route(
        "POST",
        "proposals",
        propose,
        "Ask for free ranges",
        Batch[ProposalRequest],
        BatchReplies[Proposal],
        cost=1,
    ),
    _route(
        "POST", "holds", hold, "Hold runs", Batch[ExchangeHold], BatchReplies[HoldAnswer], cost=1
    ),
    _route(
        "POST",
        "rulings",
        apply_decision,
        "Commit or release",
        Batch[Ruling],
        BatchReplies[CommitAnswer],
    ),
    _route("GET", "exchanges/{id}", decision, "Ask for the decision", answer=DecisionAnswer),
    _route("GET", "runs/{id}", booked_run, "Ask whether a run is booked", answer=BookedRun),
    _route("POST", "runs/ends", end_run, "Report the end of a run", RunEnd),
    _route("POST", "tasks/ends", end_task, "Report the end of a task", TaskEnd),
    _route(
        "POST",
        "tasks/confirmations",
        confirm,
        "Ask which tasks are still open",
        ConfirmationRequest,
        ConfirmationAnswer,
    ),
    _route("POST", "tasks/freed", hear_freed_time, "Report that refused time is free", FreedTime),
    _route("POST", "intervals", receive_intervals, "Report intervals of a part", IntervalsMessage),
    _route("POST", "parts", receive_part, "Report a participant's part", PartMessage),
    _route(
        "POST", "digests", compare, "Compare tasks and runs", DigestRequest, Differences, cost=4
    ),
    _route(
        "POST",
        "comparisons",
        compare_with_sender,
        "Compare with the sender",
        answer=NodeComparison,
        cost=8,
    ),
    _route(
        "POST",
        "work",
        exchange_work,
        "Fetch the requests for the sender",
        WorkRequest,
        WorkResponse,
    ),
    _route("POST", "errands", forward_errand, "Ask a node in pull mode", ForwardedQuestion, Reply),
)
