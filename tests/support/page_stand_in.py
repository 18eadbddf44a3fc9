"""A stand-in for a node's API, for tests of the page: real wire documents, no database.

Its clock stands still at :data:`NOW`, so that the times on the page are known beforehand.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid5

from aiohttp import web

from node.api.page import routes
from node.model import times
from node.model.classes import SchedulingClass
from node.model.principals import Role
from node.model.wire.nodes import ClockState, Node, NodeCard
from node.model.wire.problems import MEDIA_TYPE, Problem
from node.model.wire.reservations import ReservedSpan
from node.model.wire.runs import Explanation, Run, ScheduleBucket, ScheduleEntry
from node.model.wire.status import (
    Attention,
    BacklogStatus,
    BackupStatus,
    DatabaseStatus,
    DiskStatus,
    LoadStatus,
    NodeStatus,
    PlanningStatus,
    RunsStatus,
)
from node.model.wire.tokens import Caller

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Iterator

    from node.model.wire.alerts import Alert
    from node.model.wire.archives import Backlog
    from node.model.wire.campaigns import Campaign
    from node.model.wire.fields import Document
    from node.model.wire.tasks import Task

NOW = times.parse_instant("2026-12-01T12:00:00Z")
NAMESPACE = UUID(int=0)


def identity_of(name: str) -> str:
    """Return a syntactically valid key for a node of this name."""
    return "ed25519:" + uuid5(NAMESPACE, name).hex[:32].ljust(43, "A")


class StandIn:
    """A node's answers; :meth:`put` changes them and notifies the event stream."""

    def __init__(self) -> None:
        """Start with the node itself only."""
        self.tasks: dict[UUID, Task] = {}
        self.runs: dict[UUID, Run] = {}
        self.explanations: dict[UUID, Explanation] = {}
        self.reserved: list[ReservedSpan] = []
        self.campaigns: list[Campaign] = []
        self.alerts: list[Alert] = []
        self.backlog: list[Backlog] = []
        self.retried: list[Any] = []
        self.nodes = [self.node("a.example", is_self=True)]
        self.token: str | None = None
        self.attention: tuple[Attention, ...] = ()
        self.fault: Problem | None = None
        self.schedule_page = 500
        self.requests: list[str] = []
        self.resumed: list[str] = []
        self.streams: dict[asyncio.Transport, web.StreamResponse] = {}
        self._events = 0
        self.tasks_told = asyncio.Event()
        self.tasks_told.set()
        self._closing = asyncio.Event()
        self._reachable = asyncio.Event()
        self._reachable.set()

    @staticmethod
    def node(name: str, *, is_self: bool = False, error: str | None = None) -> Node:
        """Return a node, reachable unless there is an error."""
        return Node(
            identity=identity_of(name),
            name=name,
            url=f"http://{name}:8642",
            address="192.0.2.1",
            version="0.1.0",
            is_self=is_self,
            added_at=NOW - times.DAY,
            seen_at=NOW - times.MINUTE,
            unreachable_since=NOW - 7 * times.MINUTE if error else None,
            last_error=error,
        )

    def application(self) -> web.Application:
        """Return the application: the page, and the part of the API that it reads."""
        application = web.Application(middlewares=[self._guard])
        application.add_routes(routes())
        application.on_shutdown.append(self._end_streams)
        application.add_routes(
            [
                web.get("/v1/runs", self._list_runs),
                web.get("/v1/runs/{id}", self._one_run),
                web.get("/v1/runs/{id}/explain", self._explain),
                web.get("/v1/schedule", self._schedule),
                web.get("/v1/tasks", self._list_tasks),
                web.get("/v1/tasks/{id}", self._one_task),
                web.get("/v1/campaigns", self._list_campaigns),
                web.get("/v1/archivings/backlog", self._backlog),
                web.post("/v1/archivings/retry", self._retry),
                web.get("/v1/nodes", self._list_nodes),
                web.get("/v1/nodes/self", self._card),
                web.get("/v1/clock", self._clock),
                web.get("/v1/alerts", self._list_alerts),
                web.get("/v1/meshes", self._no_meshes),
                web.get("/v1/tokens/self", self._caller),
                web.get("/v1/status", self._status),
                web.get("/v1/outcomes", self._outcomes),
                web.get("/v1/events", self._stream),
            ]
        )
        return application

    async def _end_streams(self, _application: web.Application) -> None:
        self._closing.set()

    async def put(self, *runs: Run) -> None:
        """Store runs and notify all that follow the stream."""
        for run in runs:
            self.runs[run.id] = run
            await self.tell("run", {"id": str(run.id), "task": str(run.task), "state": run.state})

    async def tell(self, kind: str, data: dict[str, str]) -> None:
        """Send one event."""
        self._events += 1
        text = f"id: {self._events}\nevent: {kind}\ndata: {json.dumps(data)}\n\n"
        for stream in self.streams.values():
            await stream.write(text.encode())

    def cut(self) -> None:
        """Break every event stream, and answer no further one until `come_back`."""
        self._reachable.clear()
        for transport in self.streams:
            transport.abort()

    def come_back(self) -> None:
        """Answer event streams again, those that wait included."""
        self._reachable.set()

    @web.middleware
    async def _guard(
        self,
        request: web.Request,
        handler: Callable[[web.Request], Awaitable[web.StreamResponse]],
    ) -> web.StreamResponse:
        self.requests.append(request.path_qs)
        known = request.headers.get("Authorization") == f"Bearer {self.token}"
        if request.path.startswith("/v1/"):
            if self.token and not known:
                return _problem(401, "Not authenticated", "send a token")
            if self.fault:
                return _problem(self.fault.status, self.fault.title, self.fault.detail)
        return await handler(request)

    async def _list_runs(self, request: web.Request) -> web.Response:
        query = request.query
        if "id" in query:
            named = [self.runs.get(UUID(each)) for each in query["id"].split(",")]
            return _listed(run for run in named if run is not None)
        states = query["state"].split(",") if "state" in query else None
        outcomes = query["outcome"].split(",") if "outcome" in query else None
        until = times.parse_instant(query["to"]) if "to" in query else times.LATEST
        found = [
            run
            for run in self.runs.values()
            if (states is None or run.state in states)
            and (outcomes is None or _judgement(run) in outcomes)
            and run.starts_at < until
            and query.get("task") in {None, str(run.task), str(self._whole_of(run))}
        ]
        found.sort(key=lambda run: run.starts_at, reverse=query.get("order") != "asc")
        return _listed(found[: int(query["limit"])])

    def _whole_of(self, run: Run) -> UUID | None:
        """Return the pool task whose seats a run's task has."""
        return self.tasks[run.task].parent if run.task in self.tasks else None

    async def _one_run(self, request: web.Request) -> web.Response:
        return _found(self.runs.get(UUID(request.match_info["id"])))

    async def _explain(self, request: web.Request) -> web.Response:
        return _found(self.explanations.get(UUID(request.match_info["id"])))

    async def _schedule(self, request: web.Request) -> web.Response:
        since, until = (times.parse_instant(request.query[name]) for name in ("from", "to"))
        found = [run for run in self.runs.values() if run.ends_at > since and run.starts_at < until]
        found.sort(key=lambda run: run.starts_at)
        reserved = [
            span.model_dump(mode="json")
            for span in self.reserved
            if span.ends_at > since and span.starts_at < until
        ]
        lanes = request.query.get("class", ",".join(SchedulingClass)).split(",")
        found = [run for run in found if run.scheduling_class in lanes]
        if "resolution" in request.query:
            length = times.parse_duration(request.query["resolution"])
            pieces = [_piece(found, at, at + length) for at in range(since, until, length)]
            buckets = [bucket for piece in pieces for bucket in piece]
            return web.json_response({"buckets": buckets, "reserved": reserved})
        first = int(request.query.get("cursor", "0"))
        end = first + self.schedule_page
        items = [_entry(run) for run in found[first:end]]
        following = str(end) if end < len(found) else None
        return web.json_response({"items": items, "next": following, "reserved": reserved})

    async def _list_tasks(self, request: web.Request) -> web.Response:
        await self.tasks_told.wait()
        wanted, whole = request.query.get("state"), request.query.get("parent")
        seats = request.query.get("seats") == "true"
        return _listed(
            task
            for task in self.tasks.values()
            if (wanted is None or task.state in wanted.split(","))
            and (seats or (None if task.parent is None else str(task.parent)) == whole)
        )

    async def _one_task(self, request: web.Request) -> web.Response:
        return _found(self.tasks.get(UUID(request.match_info["id"])))

    async def _backlog(self, _request: web.Request) -> web.Response:
        return _listed(self.backlog)

    async def _retry(self, request: web.Request) -> web.Response:
        self.retried.append(await request.json())
        self.backlog = []
        return web.json_response({"retried": 1})

    async def _list_campaigns(self, _request: web.Request) -> web.Response:
        return _listed(self.campaigns)

    async def _list_nodes(self, _request: web.Request) -> web.Response:
        return _listed(self.nodes)

    async def _card(self, _request: web.Request) -> web.Response:
        fields = set(NodeCard.model_fields)
        return _found(NodeCard(**self.nodes[0].model_dump(include=fields)))

    async def _clock(self, _request: web.Request) -> web.Response:
        return _found(ClockState(now=NOW, synchronised=True, error_bound_ms=0.42))

    async def _list_alerts(self, _request: web.Request) -> web.Response:
        return _listed(self.alerts)

    async def _no_meshes(self, _request: web.Request) -> web.Response:
        return _listed(())

    async def _outcomes(self, _request: web.Request) -> web.Response:
        return web.json_response({"judgements": {}, "causes": [], "apart": [], "apart_count": 0})

    async def _status(self, _request: web.Request) -> web.Response:
        return _found(
            NodeStatus(
                name="a.example",
                identity=self.nodes[0].identity,
                url=None,
                version="0.1.0",
                started_at=NOW - times.DAY,
                clock=ClockState(now=NOW, synchronised=True, error_bound_ms=0.42),
                database=DatabaseStatus(
                    place="",
                    server_version="16",
                    size_bytes=36_000_000,
                    answer_ms=0.4,
                    schema_version=7,
                    program_schema_version=7,
                    refused_write=None,
                ),
                leads=(),
                planning=PlanningStatus(
                    due_tasks=0, oldest_due=0, waiting_for_nodes=0, planned_at=NOW, plan_age=0
                ),
                runs=RunsStatus(running=2, next_start=None),
                peers=len(self.nodes) - 1,
                peers_away=(),
                backlog=BacklogStatus(messages=0, results_waiting=0, results_parked=0),
                disk=DiskStatus(directory="/", free_bytes=10**10, total_bytes=10**11),
                load=LoadStatus(processors=2, one_minute=0.1),
                backup=BackupStatus(wanted=False, latest_at=None, fault=None),
                attention=self.attention,
            )
        )

    async def _caller(self, _request: web.Request) -> web.Response:
        return _found(Caller(label="alice" if self.token else None, role=Role.READ))

    async def _stream(self, request: web.Request) -> web.StreamResponse:
        self.resumed.append(request.headers.get("Last-Event-ID", ""))
        await self._reachable.wait()
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        transport = request.transport
        assert transport is not None
        self.streams[transport] = response
        try:
            await self._closing.wait()
        finally:
            del self.streams[transport]
        return response


def _judgement(run: Run) -> str:
    """Return what a node without thresholds thinks of a run that is over."""
    return {"finished": "good", "unplaced": "not-planned"}.get(run.state, run.state)


def _entry(run: Run) -> dict[str, Any]:
    shared = set(ScheduleEntry.model_fields) - {"run"}
    entry = ScheduleEntry(run=run.id, **run.model_dump(include=shared))
    return entry.model_dump(mode="json")


def _piece(runs: list[Run], since: int, until: int) -> Iterator[dict[str, Any]]:
    """Yield the classes that have runs in a piece of the schedule."""
    inside = [run for run in runs if run.ends_at > since and run.starts_at < until]
    for name in sorted({run.scheduling_class for run in inside}):
        states = Counter(run.state for run in inside if run.scheduling_class == name)
        bucket = ScheduleBucket(starts_at=since, scheduling_class=name, runs=states, busy=0.5)
        yield bucket.model_dump(mode="json")


def _listed(documents: Iterable[Document]) -> web.Response:
    items = [document.model_dump(mode="json") for document in documents]
    return web.json_response({"items": items, "next": None})


def _found(document: Document | None) -> web.Response:
    if document is None:
        return _problem(404, "Not found", "no such thing on this node")
    return web.json_response(document.model_dump(mode="json"))


def _problem(status: int, title: str, detail: str) -> web.Response:
    problem = Problem(type="https://parley.invalid/x", title=title, status=status, detail=detail)
    return web.json_response(problem.model_dump(), status=status, content_type=MEDIA_TYPE)
