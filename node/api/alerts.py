"""Routes of alerts: what was raised by what was measured."""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

from aiohttp import web

from node.api import requests, responses
from node.api.routing import CURSOR, ID, LIMIT, NODE, PRINCIPAL, TEXT, Query, Route, words_schema
from node.api.tasks import headline_of
from node.model.errors import NotFound
from node.model.wire.alerts import Alert, AlertChangeDocument
from node.service import NodeService
from node.store import alerts, tasks
from node.store.database import Connection, Record

_STATES = frozenset({"raised", "over"})


async def list_(request: web.Request) -> web.StreamResponse:
    """A page of alerts, the latest first; by default those that are raised and not over."""
    requests.refuse_other_parameters(
        request, "state", "task", "mesh", "requester", "limit", "cursor"
    )
    states = requests.choices(request, "state", _STATES) or ["raised"]
    raised = None if len(states) == len(_STATES) else states == ["raised"]
    task, mesh = requests.uuid(request, "task"), requests.text(request, "mesh")
    limit = requests.limit(request)
    raised_at, last = requests.cursor(request) or (None, None)
    who = requests.requester(request)
    node = request.app[NODE]
    async with node.database.connection() as connection:
        rows = await alerts.find_page(
            connection, raised, task, mesh, who, None, raised_at, last, limit
        )
        found = await _alerts_of(connection, rows, node.clock.now())
    following = requests.next_cursor(found, limit, lambda alert: (alert.raised_at, alert.id))
    return responses.list_response(found, following)


async def show(request: web.Request) -> web.StreamResponse:
    """One alert."""
    requests.refuse_other_parameters(request)
    alert = await _find(request.app[NODE], requests.identifier(request))
    return responses.document_response(alert)


async def change(request: web.Request) -> web.StreamResponse:
    """Acknowledge an alert, or silence it until an instant."""
    node, wanted = request.app[NODE], requests.identifier(request)
    document = requests.document(request, AlertChangeDocument)
    await _find(node, wanted)
    async with node.database.transaction() as connection:
        acknowledged, until = document.acknowledged, document.silent_until
        by, now = request[PRINCIPAL].label or "", node.clock.now()
        await alerts.change(connection, wanted, acknowledged, by, until, now)
    return responses.document_response(await _find(node, wanted))


async def _find(node: NodeService, alert: UUID) -> Alert:
    async with node.database.connection() as connection:
        rows = await alerts.find_page(connection, None, None, None, None, alert, None, None, 1)
        found = await _alerts_of(connection, rows, node.clock.now())
        if not found:
            msg = f"there is no alert {alert} on this node"
            raise NotFound(msg)
    return found[0]


async def _alerts_of(connection: Connection, rows: list[Record], now: int) -> list[Alert]:
    named = sorted({row["task_id"] for row in rows})
    facts = await tasks.naming_facts(connection, named) if named else []
    headlines = {fact["id"]: headline_of(fact) for fact in facts}
    return [_alert_of(row, headlines, now) for row in rows]


def _alert_of(row: Record, headlines: Mapping[UUID, str], now: int) -> Alert:
    silent_until = row["silent_until"]
    return Alert.from_row(
        row,
        silent_until=None if silent_until is None or silent_until <= now else silent_until,
        task=row["task_id"],
        run=row["run_id"],
        headline=headlines.get(row["task_id"], ""),
        state="raised" if row["over_at"] is None else "over",
    )


ROUTES = (
    Route(
        "GET",
        "/v1/alerts",
        list_,
        "List alerts on what is measured, the latest first",
        answer=Alert,
        listed=True,
        query=(
            Query("state", "raised (the default), over, or both.", words_schema(_STATES)),
            Query("task", "Only alerts of this task.", ID),
            Query("mesh", "Only alerts of this mesh.", TEXT),
            Query("requester", "Only alerts of tasks that this user created.", TEXT),
            LIMIT,
            CURSOR,
        ),
    ),
    Route("GET", "/v1/alerts/{id}", show, "One alert", answer=Alert),
    Route(
        "PATCH",
        "/v1/alerts/{id}",
        change,
        "Acknowledge an alert, or silence it",
        AlertChangeDocument,
        Alert,
    ),
)
