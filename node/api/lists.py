"""The lists of the page as HTML, for browsers without JavaScript and for text browsers.

They have what the API's lists have. A browser sends no token without JavaScript, so these pages ask
for it as a password (RFC 7617).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from html import escape
from typing import Any
from urllib.parse import urlencode

import orjson
from aiohttp import web

from node.api import events, nodes, requests, runs, tasks
from node.api.page import CONTENT_SECURITY_POLICY
from node.api.routing import CURSOR_BY_KEY, NODE, PRINCIPAL, Query, Route
from node.model import times
from node.model.errors import NotFound

_EVENTS_SHOWN = 200
_NOTE = "Times are UTC. The page with JavaScript is at /; it shows more, and acts."

Row = Mapping[str, Any]


@dataclass(frozen=True)
class _List:
    """A list: where its items come from, and its columns."""

    read: Callable[[web.Request], Awaitable[tuple[list[Row], str | None]]]
    columns: Mapping[str, Callable[[Row], str]]


def _rows_reader(
    handler: Callable[[web.Request], Awaitable[web.StreamResponse]],
) -> Callable[[web.Request], Awaitable[tuple[list[Row], str | None]]]:
    """Return a handler of the page's list that reads rows and cursor by the API's own handler."""

    async def read(request: web.Request) -> tuple[list[Row], str | None]:
        answer = await handler(request)
        assert isinstance(answer, web.Response)  # noqa: S101 - lists are no streams
        document = orjson.loads(answer.body if isinstance(answer.body, bytes) else b"{}")
        return document["items"], document.get("next")

    return read


async def _latest_events(request: web.Request) -> tuple[list[Row], None]:
    """Return the latest events that are kept, the newest first."""
    node = request.app[NODE]
    requests.refuse_other_parameters(request)
    kept = (node.hub.events_since(node.hub.start_after(0)) or [])[-_EVENTS_SHOWN:]
    await events.describe(node, kept)
    seen = await events.visible_events(node, request[PRINCIPAL], kept)
    return [
        {"kind": event.kind, "at": times.to_the_second(event.at), **event.body}
        for event in reversed(seen)
    ], None


def _text_column(name: str) -> Callable[[Row], str]:
    return lambda row: str(row.get(name) or "")


def _time_column(name: str) -> Callable[[Row], str]:
    return lambda row: (
        str(row.get(name) or "").partition(".")[0].replace("T", " ").removesuffix("Z")
    )


def _outcome(row: Row) -> str:
    return str(row.get("reason") or row.get("summary") or "")


def _schedule(row: Row) -> str:
    schedule = row.get("schedule") or {}
    return str(schedule.get("cron") or schedule.get("repeat") or "once")


def _reach(row: Row) -> str:
    if row.get("is_self"):
        return "this node"
    since = row.get("unreachable_since")
    return f"unreachable since {since}: {row.get('last_error') or ''}" if since else "reachable"


_LISTS = {
    "runs": _List(
        _rows_reader(runs.list_),
        {
            "State": _text_column("state"),
            "Run": _text_column("headline"),
            "Begins": _time_column("starts_at"),
            "Result, or why none": _outcome,
        },
    ),
    "tasks": _List(
        _rows_reader(tasks.list_),
        {
            "State": _text_column("state"),
            "Task": _text_column("headline"),
            "Schedule": _schedule,
            "Next run": _time_column("next_run_at"),
            "Why": lambda row: str(row.get("reason") or row.get("waiting") or ""),
        },
    ),
    "nodes": _List(
        _rows_reader(nodes.list_),
        {
            "Node": _text_column("name"),
            "State": _reach,
            "Address": _text_column("address"),
            "Seen": _time_column("seen_at"),
        },
    ),
    "events": _List(
        _latest_events,
        {
            "When": _time_column("at"),
            "Kind": _text_column("kind"),
            "What": lambda row: str(row.get("headline") or row.get("name") or row.get("id") or ""),
            "State": _text_column("state"),
        },
    ),
}


async def show(request: web.Request) -> web.StreamResponse:
    """Runs, tasks, nodes or events as a table of HTML; queries are those of the API's list."""
    name = request.match_info["name"]
    if name not in _LISTS:
        msg = f"there is no list {name}; there are {', '.join(_LISTS)}"
        raise NotFound(msg)
    chosen = _LISTS[name]
    rows, following = await chosen.read(request)
    node = request.app[NODE].card.name
    links = (
        f"<b>{each}</b>" if each == name else f"<a href=/lists/{each}>{each}</a>" for each in _LISTS
    )
    parts = [
        "<!doctype html><html lang=en><meta charset=utf-8>",
        "<meta name=viewport content='width=device-width, initial-scale=1'>",
        f"<title>{escape(name)} of {escape(node)}</title>",
        "<link rel=stylesheet href=/web/lists.css>",
        f"<h1>{escape(name.capitalize())} of {escape(node)}</h1><nav>{' '.join(links)}</nav>",
        *_table(chosen.columns, rows),
    ]
    if following is not None:
        query = urlencode({**request.query, "cursor": following})
        parts.append(f"<p><a href='/lists/{name}?{escape(query)}'>Further {name}</a></p>")
    parts.append(f"<p>{_NOTE}</p>")
    return web.Response(
        text="".join(parts),
        content_type="text/html",
        headers={"Content-Security-Policy": CONTENT_SECURITY_POLICY, "Cache-Control": "no-store"},
    )


def _table(columns: Mapping[str, Callable[[Row], str]], rows: Iterable[Row]) -> Iterable[str]:
    heads = "".join(f"<th scope=col>{escape(title)}" for title in columns)
    yield f"<table><thead><tr>{heads}<tbody>"
    for row in rows:
        yield "<tr>" + "".join(f"<td>{escape(cell(row))}" for cell in columns.values())
    yield "</table>"


ROUTES = (
    Route(
        "GET",
        "/lists/{name}",
        show,
        "Read a list without JavaScript: runs, tasks, nodes, or events",
        media_type="text/html",
        query=(
            Query("state", "Only in these states, separated by commas.", {"type": "string"}),
            CURSOR_BY_KEY,
        ),
    ),
)
