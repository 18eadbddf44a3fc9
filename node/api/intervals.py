"""What runs that last long have measured so far, interval by interval."""

from __future__ import annotations

from aiohttp import web

from node.api import reading, replies
from node.api.routing import CURSOR, INSTANT, LIMIT, NODE, Query, Route, waits
from node.api.runs import fetch
from node.api.waiting import until
from node.model.runstate import OVER
from node.model.wire.runs import MetricView, RunInterval
from node.service import Node
from node.store import intervals
from node.store.database import Record

NUMBER_MAX = 2**31 - 1


async def list_(request: web.Request) -> web.StreamResponse:
    """GET: a page of a run's intervals; with ``wait`` as soon as there are any, or it is over."""
    node = request.app[NODE]
    reading.only(request, *(query.name for query in FILTERS))
    run = reading.identifier(request)
    at = reading.cursor(request)
    beyond = reading.number(request, "after", NUMBER_MAX) if at is None else min(at[0], NUMBER_MAX)
    since = reading.instant(request, "since")
    limit = reading.limit(request)
    descending = reading.choices(request, "order", frozenset({"asc", "desc"})) == ["desc"]

    test = (await fetch(node, run)).test

    async def some() -> tuple[list[Record], bool]:
        over = (await fetch(node, run)).state in OVER
        async with node.database.connection() as connection:
            rows = await intervals.listed(
                connection,
                run,
                beyond=beyond,
                since=since,
                descending=descending,
                limit=limit,
            )
        return rows, bool(rows) or over

    rows = await until(node, some, reading.seconds(request))
    following = reading.cursor_after(rows[-1]["number"], run) if len(rows) == limit else None
    return replies.many([_view(node, test, row) for row in rows], following)


def _view(node: Node, test: str, row: Record) -> RunInterval:
    result = row["result"]
    found = () if result is None else node.capabilities.metrics(test, result, interval=True)
    return RunInterval(**row, metrics=tuple(MetricView(**vars(metric)) for metric in found))


FILTERS = (
    Query(
        "after",
        "Only intervals behind the one of this number.",
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
    waits("there are some or the run is over"),
)

ROUTES = (
    Route(
        "GET",
        "/v1/runs/{id}/intervals",
        list_,
        "What a run that lasts long has measured so far, interval by interval",
        answer=RunInterval,
        listed=True,
        query=FILTERS,
    ),
)
