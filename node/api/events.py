"""The event stream: server-sent events about changes on this node."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from uuid import UUID

from aiohttp import web

from node.api import requests
from node.api.connections import giving_way
from node.api.routing import ID, NODE, PRINCIPAL, TEXT, Query, Route, words_schema
from node.api.tasks import headline_of
from node.journal.events import KINDS, Event
from node.model.errors import DatabaseUnavailable
from node.model.permissions import EVENTS
from node.model.principals import Principal
from node.service import NodeService
from node.store import runs, tasks

_BEAT_S = 15.0
_PAUSE_S = 0.1
"""Pause after some events were written, so that those of a burst are written together."""
_DIGITS = 18  # more than the number of any event has


async def stream(request: web.Request) -> web.StreamResponse:
    """Events as they happen, after those missed since ``Last-Event-ID``.

    If some of those are not kept any more, an event ``gap`` comes first: what a reader knows of
    this node is then to be read again. The stream ends with the validity of the caller's token.
    """
    node, principal = request.app[NODE], request[PRINCIPAL]
    hub = node.hub
    requests.refuse_other_parameters(request, "types", "task")
    kinds, task = requests.choices(request, "types", KINDS), requests.uuid(request, "task")
    last = request.headers.get("Last-Event-ID", "")
    response = web.StreamResponse(
        headers={
            "Content-Type": "text/event-stream",
            "Cache-Control": "no-store",
            "X-Accel-Buffering": "no",
        }
    )
    if request.method == "HEAD":
        return response
    known = last.isascii() and last.isdecimal() and len(last) <= _DIGITS
    # What is no number of an event is older than all: its reader is told that it may miss some.
    after = int(last) if known else 0 if last else None
    place, gap = hub.start_after(after), hub.lost_event(after)
    with contextlib.suppress(ConnectionResetError), hub.reader(), giving_way(request):
        await response.prepare(request)
        await response.write(b"retry: 2000\n\n" + (b"" if gap is None else gap.text))
        # A reader that is too slow loses its stream. It resumes with its Last-Event-ID.
        while not hub.is_closed and (events := hub.events_since(place)) is not None:
            if _has_ended(principal, events, node.clock.now()):
                break
            if events:
                place = events[-1].number
                await describe(node, events)
                seen = await visible_events(node, principal, _matching_events(events, kinds, task))
                await response.write(b"".join(event.text for event in seen))
                await hub.gather(_PAUSE_S)
            elif not await hub.wait_for_change(_BEAT_S):
                await response.write(b": still here\n\n")
    return response


def _matching_events(
    events: Sequence[Event], kinds: Sequence[str] | None, task: UUID | None
) -> list[Event]:
    """Return the events of these kinds that are about a task; None means all."""
    return [
        event
        for event in events
        if (kinds is None or event.kind in kinds) and (task is None or _task_of(event) == task)
    ]


async def describe(node: NodeService, events: Sequence[Event]) -> None:
    """Add to each event that is about a task its headline, and to one of a run its judgement.

    That is done once for all readers. While the database is away, events go without.
    """
    async with node.hub.describing:
        new = [
            (task, event)
            for event in events
            if "headline" not in event.body and (task := _task_of(event)) is not None
        ]
        if not new:
            return
        over = [UUID(event.body["id"]) for _, event in new if event.kind == "run"]
        try:
            async with node.database.connection() as connection:
                rows = await tasks.naming_facts(connection, sorted({task for task, _ in new}))
                judged = await runs.judgements(connection, over) if over else {}
        except DatabaseUnavailable:
            return
        headlines = {row["id"]: headline_of(row) for row in rows}
        for task, event in new:
            event.body["headline"] = headlines.get(task, "")
            if event.kind == "run" and (word := judged.get(UUID(event.body["id"]))) is not None:
                event.body["judgement"] = word


def _has_ended(principal: Principal, events: Sequence[Event], now: int) -> bool:
    """Return whether the caller's token has expired, or one of the events revokes it."""
    expired = principal.until is not None and principal.until <= now
    return expired or any(
        event.kind == "token" and event.body["id"] == principal.key for event in events
    )


async def visible_events(
    node: NodeService, principal: Principal, events: Sequence[Event]
) -> list[Event]:
    """Return the events that the role of the caller lets them see.

    With the role ``run`` those are the events of their own tasks, and those that are of no task.
    """
    permitted = [
        event
        for event in events
        if (needed := EVENTS.get(event.kind)) is None
        or (principal.role is not None and principal.role.includes(needed))
    ]
    if principal.only is None:
        return permitted
    asked = {task for event in permitted if (task := _task_of(event)) is not None}
    async with node.database.connection() as connection:
        own = await tasks.find_requested(connection, sorted(asked), principal.only)
    return [event for event in permitted if (task := _task_of(event)) is None or task in own]


def _task_of(event: Event) -> UUID | None:
    task = event.body["id"] if event.kind == "task" else event.body.get("task")
    return None if task is None else UUID(task)


ROUTES = (
    Route(
        "GET",
        "/v1/events",
        stream,
        "Changes on this node as they happen (server-sent events)",
        media_type="text/event-stream",
        query=(
            Query("types", "Only events of these types, separated by commas.", words_schema(KINDS)),
            Query("task", "Only events about this task, its runs, and their intervals.", ID),
        ),
        headers=(
            Query(
                "Last-Event-ID",
                "Resume after this event; an event gap tells if some are lost.",
                TEXT,
            ),
        ),
    ),
)
