"""Routes of directories: signed lists of nodes, and their introduction to this node."""

from __future__ import annotations

from aiohttp import web

from node.api import requests, responses
from node.api.nodes import knows_this
from node.api.routing import NODE, THING, TRIAL, Query, Route
from node.model.wire.directories import (
    DirectoryRequest,
    IntroducedNode,
    IntroductionReport,
    IntroductionState,
    NodeDirectory,
)
from node.service import NodeService

_DRY_RUN = Query(
    "dry_run", "Add nothing, and say what would be added.", {"type": "boolean", "default": False}
)
_LOOKED_AT = frozenset({IntroductionState.ADDED, IntroductionState.CHANGED})


async def make(request: web.Request) -> web.StreamResponse:
    """The directory of these nodes, signed with the key of this node."""
    requests.refuse_other_parameters(request)
    wanted = requests.document(request, DirectoryRequest)
    return responses.document_response(await request.app[NODE].directory_files.make(wanted))


async def introduce(request: web.Request) -> web.StreamResponse:
    """Add the nodes of a signed directory; the report says what came of each."""
    node = request.app[NODE]
    requests.refuse_other_parameters(request, "dry_run")
    dry_run = request[TRIAL] = requests.flag(request, "dry_run")
    directory = requests.document(request, NodeDirectory)
    request[THING] = f"{len(directory.nodes)} nodes, signed by {directory.made.node}"
    report = await node.directory_files.introduce(directory, dry_run=dry_run)
    if not dry_run:
        await node.directory.refresh()
    nodes = tuple(_with_acquaintance(node, each) for each in report.nodes)
    return responses.document_response(report.model_copy(update={"nodes": nodes}))


def _with_acquaintance(node: NodeService, introduced: IntroducedNode) -> IntroducedNode:
    """Return a node with the member that says whether it knows this one, if it was just asked."""
    if introduced.state not in _LOOKED_AT or not node.directory.knows(introduced.identity):
        return introduced
    known = node.directory.by_identity(introduced.identity)
    return introduced.model_copy(update={"knows_this": knows_this(known)})


ROUTES = (
    Route(
        "POST",
        "/v1/directories",
        make,
        "Sign a directory of nodes",
        DirectoryRequest,
        NodeDirectory,
    ),
    Route(
        "POST",
        "/v1/introductions",
        introduce,
        "Add the nodes of a directory that a node has signed",
        NodeDirectory,
        IntroductionReport,
        query=(_DRY_RUN,),
    ),
)
