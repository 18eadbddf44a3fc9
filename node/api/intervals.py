"""The route of the intervals that long runs have measured so far."""

from __future__ import annotations

from aiohttp import web

from node.api import requests, responses
from node.api.long_polling import await_ready
from node.api.routing import CURSOR, INSTANT, LIMIT, NODE, PRINCIPAL, Query, Route, wait_query
from node.api.runs import fetch
from node.model.runstate import OVER
from node.model.wire.runs import MetricView, RunInterval
from node.service import NodeService
from node.store import intervals
from node.store.database import Record

NUMBER_MAX = 2**31 - 1


async def list_(request: web.Request) -> web.StreamResponse:
    """A page of a run's intervals; with ``wait``, when there are some or the run is over."""
    node, user = request.app[NODE], request[PRINCIPAL]
    requests.refuse_other_parameters(request, *(query.name for query in FILTERS))
    run = requests.identifier(request)
    at = requests.cursor(request)
    after = requests.number(request, "after", NUMBER_MAX) if at is None else min(at[0], NUMBER_MAX)
    since = requests.instant(request, "since")
    limit = requests.limit(request)
    descending = requests.choices(request, "order", frozenset({"asc", "desc"})) == ["desc"]
    find = intervals.find_last if descending else intervals.find_first

    test = (await fetch(node, run, user)).test

    async def fetch_intervals() -> tuple[list[Record], bool]:
        over = (await fetch(node, run, user)).state in OVER
        async with node.database.connection() as connection:
            rows = await find(connection, run, after, since, limit)
        return rows, bool(rows) or over

    rows = await await_ready(node, fetch_intervals, requests.seconds(request))
    following = requests.next_cursor(rows, limit, lambda row: (row["number"], run))
    return responses.list_response([_interval_document(node, test, row) for row in rows], following)


def _interval_document(node: NodeService, test: str, row: Record) -> RunInterval:
    result = row["result"]
    metrics = () if result is None else node.capabilities.metrics(test, result, interval=True)
    return RunInterval(**row, metrics=tuple(MetricView(**vars(metric)) for metric in metrics))


FILTERS = (
    Query(
        "after",
        "Only intervals after the one with this number.",
        {"type": "integer", "minimum": 0},
    ),
    Query(
        "since",
        "Only intervals that end after this instant.",
        INSTANT,
    ),
    Query(
        "order", "By number: asc (default) or desc.", {"type": "string", "enum": ["asc", "desc"]}
    ),
    LIMIT,
    CURSOR,
    wait_query("there are some or the run is over"),
)

ROUTES = (
    Route(
        "GET",
        "/v1/runs/{id}/intervals",
        list_,
        "List the intervals that a long run has measured so far",
        answer=RunInterval,
        listed=True,
        query=FILTERS,
    ),
)
