"""Routes of the status of this node, and of what fails of its tasks."""

from __future__ import annotations

from aiohttp import web

from node.api import requests, responses
from node.api.routing import ID, NODE, Query, Route
from node.journal.troubles import read_troubles
from node.model.wire.outcomes import OutcomesStatus
from node.model.wire.status import NodeStatus
from node.operation.status import status_of

TASKS_MAX = 100
"""Maximum number of tasks that are asked about at once."""


async def status(request: web.Request) -> web.StreamResponse:
    """Return how this node is, and what needs attention."""
    requests.refuse_other_parameters(request)
    return responses.document_response(await status_of(request.app[NODE]))


async def outcomes(request: web.Request) -> web.StreamResponse:
    """Return what fails of the tasks led here, or of some of them, and what is common to it."""
    node = request.app[NODE]
    requests.refuse_other_parameters(request, "task")
    only = requests.uuids(request, "task", TASKS_MAX)
    async with node.database.connection() as connection:
        troubles = await read_troubles(connection, node.card.name, node.clock.now(), only)
    return responses.document_response(troubles.status)


ROUTES = (
    Route(
        "GET",
        "/v1/outcomes",
        outcomes,
        "What fails of the tasks that this node leads, and what is common to it",
        answer=OutcomesStatus,
        query=(
            Query(
                "task",
                "Only what concerns one of these tasks, separated by commas. What is common is "
                "that of all tasks.",
                {"type": "array", "items": ID, "minItems": 1, "maxItems": TASKS_MAX},
            ),
        ),
    ),
    Route(
        "GET", "/v1/status", status, "How this node is, and what needs attention", answer=NodeStatus
    ),
)
