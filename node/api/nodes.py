"""Routes of known nodes, the clock, tests, and tools."""

from __future__ import annotations

import functools
from typing import Any

from aiohttp import web
from pydantic import BaseModel

from node.api import requests, responses
from node.api.routing import ANSWER_NONCE, NODE, TEXT, THING, Query, Route
from node.model import predicates
from node.model.errors import NotAllowed, NotFound, NotReady
from node.model.nodekinds import NodeKind
from node.model.wire.comparisons import NodeComparison
from node.model.wire.nodes import (
    ClockState,
    NodeAddition,
    NodeCard,
    NodePatch,
    NodeRemoval,
    TestDescription,
    ToolDescription,
)
from node.model.wire.nodes import Node as NodeDocument
from node.model.wire.problems import unknown_to
from node.operation.readiness import missing_lead
from node.operation.status import clock_of
from node.plugins.contracts import StreamingTest, Test
from node.runtime.version import program_version
from node.service import NodeService
from node.store import outbox
from node.store.nodes import KnownNode
from node.trust.signatures import requested_nonce

_NOT_TOLD = {"lineage", "followed_at"}
"""Columns of a known node from which its keys are read, which are told."""


def _node_document(node: NodeService, known: KnownNode, backlog: int = 0) -> NodeDocument:
    """Return a node as a document; the version is known only of this node."""
    return NodeDocument(
        backlog=backlog,
        host=node.host_states.of(known.identity),
        checked=node.host_states.last_check(known.identity),
        version=program_version() if known.is_self else "",
        lease_until=node.leases.ends_at(known) if known.kind is NodeKind.PARLEY else None,
        knows_this=knows_this(known),
        kind=known.kind,
        keys=() if (lineage := node.directory.lineage(known.identity)) is None else lineage.keys,
        **{name: value for name, value in vars(known).items() if name not in _NOT_TOLD},
    )


def knows_this(known: KnownNode) -> bool | None:
    """Return whether a node knows this one, by the last look at it; None if that is not known."""
    if known.is_self or known.seen_at is None or known.kind is not NodeKind.PARLEY:
        return None
    if known.unreachable_since is None:
        return True
    return False if (known.last_error or "").startswith(unknown_to(known.name)) else None


async def show_own_card(request: web.Request) -> web.StreamResponse:
    """This node's card, open to all, because nodes that pin its key read it here."""
    if (nonce := requested_nonce(request.headers)) is not None:
        request[ANSWER_NONCE] = nonce
    return responses.document_response(request.app[NODE].card)


async def list_(request: web.Request) -> web.StreamResponse:
    """Every known node, this one first; with ``match``, those that meet a predicate."""
    node = request.app[NODE]
    requests.refuse_other_parameters(request, "match")
    predicate = predicates.parse(requests.json(request, "match", {}), "?match")
    await node.directory.refresh()
    every = node.directory.all
    matching = [known for known in every if predicate.met_by(known.facts)]
    async with node.database.connection() as connection:
        waiting = await outbox.waiting_by_node(connection)
    return responses.list_response(
        [_node_document(node, known, waiting.get(known.identity, 0)) for known in matching]
    )


async def edit(request: web.Request) -> web.StreamResponse:
    """Set attributes of this node, or remove them (null)."""
    node, name = request.app[NODE], request.match_info["name"]
    patch = requests.document(request, NodePatch)
    if name not in {"self", node.card.name}:
        if node.directory.find(name) is None:
            msg = f"there is no node {name} here"
            raise NotFound(msg)
        msg = f"only {name} itself sets its attributes; use: parley --server URL node set"
        raise NotAllowed(msg)
    await node.own_card.set(patch.attributes)
    await node.directory.refresh()
    return responses.document_response(_node_document(node, node.directory.self))


async def add(request: web.Request) -> web.StreamResponse:
    """Fetch a node's card, pin its key, and look whether it knows this node."""
    node = request.app[NODE]
    known = await node.registration.add(requests.document(request, NodeAddition))
    request[THING] = known.name
    await node.peer_monitor.look_at(known.identity)
    known = node.directory.by_identity(known.identity)
    return responses.document_response(_node_document(node, known), 201, {"Location": "/v1/nodes"})


async def remove(request: web.Request) -> web.StreamResponse:
    """Forget a node; its requests are refused from now on, and tasks with it end."""
    return responses.document_response(
        await request.app[NODE].node_removal.remove(request.match_info["name"])
    )


async def compare(request: web.Request) -> web.StreamResponse:
    """Compare with a node now, in both directions, and repair what differs."""
    node, name = request.app[NODE], request.match_info["name"]
    known = node.directory.find(name)
    if known is None or known.is_self:
        msg = f"no other node named {name} is known here"
        raise NotFound(msg)
    if (fault := await missing_lead(node)) is not None:
        raise NotReady(fault)
    return responses.document_response(await node.comparer.compare(known.identity))


async def pardon(request: web.Request) -> web.StreamResponse:
    """Forget what policies hold against a node: failed runs, and pauses after refusals."""
    node = request.app[NODE]
    return responses.document_response(
        _node_document(node, await node.pools.pardon(request.match_info["name"]))
    )


async def clock(request: web.Request) -> web.StreamResponse:
    """This node's clock, and its synchronisation as the kernel reports it."""
    return responses.document_response(clock_of(request.app[NODE]))


def _test_description(node: NodeService, test: Test) -> TestDescription:
    interval = None
    if isinstance(test, StreamingTest):
        interval = _schema(test.interval_model)
    return TestDescription(
        name=test.name,
        title=test.title,
        spec=_schema(test.spec_model),
        result=_schema(test.result_model),
        interval=interval,
        tools=node.capabilities.offered_tools(test.name),
    )


def schema_of(test: Test) -> dict[str, Any]:
    """Return the JSON Schema of a test's spec."""
    return _schema(test.spec_model)


@functools.cache
def _schema(model: type[BaseModel]) -> dict[str, Any]:
    """Return a model's JSON Schema, which is made once: that of all tests takes half a second."""
    return model.model_json_schema(by_alias=True)


async def tests(request: web.Request) -> web.StreamResponse:
    """The tests, with the JSON Schema of their specs."""
    node = request.app[NODE]
    return responses.list_response(
        [_test_description(node, test) for _, test in sorted(node.capabilities.tests.items())]
    )


async def show_test(request: web.Request) -> web.StreamResponse:
    """One test."""
    node = request.app[NODE]
    name = request.match_info["name"]
    if name not in node.capabilities.tests:
        choices = ", ".join(sorted(node.capabilities.tests))
        msg = f"there is no test {name!r}; choose one of: {choices}"
        raise NotFound(msg)
    return responses.document_response(_test_description(node, node.capabilities.tests[name]))


async def tools(request: web.Request) -> web.StreamResponse:
    """The tools, and what is missing for those that cannot be used."""
    node = request.app[NODE]
    described = [
        ToolDescription(
            name=name,
            tests=tool.tests,
            tried=tool.tried,
            available=node.capabilities.missing_program(tool) is None,
            reason=node.capabilities.missing_program(tool),
        )
        for name, tool in sorted(node.capabilities.tools.items())
    ]
    return responses.list_response(described)


MATCH = Query(
    "match",
    'Only nodes whose attributes meet this predicate, as JSON: {"country": "DE"}.',
    TEXT,
)

ROUTES = (
    Route(
        "GET", "/v1/nodes/self", show_own_card, "This node's card", answer=NodeCard, tells_time=True
    ),
    Route(
        "GET",
        "/v1/nodes",
        list_,
        "List known nodes",
        answer=NodeDocument,
        listed=True,
        query=(MATCH,),
    ),
    Route(
        "POST",
        "/v1/nodes",
        add,
        "Add a node and pin its key",
        NodeAddition,
        NodeDocument,
        status=201,
    ),
    Route(
        "PATCH",
        "/v1/nodes/{name}",
        edit,
        "Set attributes of this node",
        NodePatch,
        NodeDocument,
    ),
    Route(
        "DELETE",
        "/v1/nodes/{name}",
        remove,
        "Remove a node, and end all open tasks between it and this one",
        answer=NodeRemoval,
    ),
    Route(
        "POST",
        "/v1/nodes/{name}/compare",
        compare,
        "Compare with a node, and repair what differs",
        answer=NodeComparison,
    ),
    Route(
        "POST",
        "/v1/nodes/{name}/pardon",
        pardon,
        "Forget the failed runs and the refusals that policies hold against a node",
        answer=NodeDocument,
    ),
    Route("GET", "/v1/clock", clock, "This node's clock", answer=ClockState),
    Route("GET", "/v1/tests", tests, "List tests", answer=TestDescription, listed=True),
    Route("GET", "/v1/tests/{name}", show_test, "Show a test", answer=TestDescription),
    Route("GET", "/v1/tools", tools, "List tools", answer=ToolDescription, listed=True),
)
