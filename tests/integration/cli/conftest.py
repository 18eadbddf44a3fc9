"""A stand-in for a node that serves documents, a real node, and the command as a process.

The stand-in is for parsing and printing; what nodes really do is tested in tests/acceptance.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from aiohttp import web

from node.model.changes import patched_document
from node.model.errors import Conflict, NotAuthenticated, NotFound, ParleyError
from node.model.wire.problems import MEDIA_TYPE, problem_of
from tests.conftest import NewDatabase
from tests.support.clocks import ManualClock
from tests.support.command_line import CommandResult, run_command
from tests.support.loopback import serving
from tests.support.served_nodes import Asker, asker

ROOT = Path(__file__).parents[3]
Document = dict[str, Any]
START = "2026-12-01T10:00:00Z"
USER = "ada"
"""The user who asks, and who requested what names nobody else."""


def a_task(identifier: str, **changes: Any) -> Document:
    """Return a task as the API returns it."""
    participant = {"node": "ed25519:a", "url": "http://a:1", "address": "192.0.2.1"}
    return {
        "id": identifier,
        "headline": "rtt  a → b",
        "state": "active",
        "reason": None,
        "test": {"type": "rtt", "spec": {"dest": "b"}},
        "tool": "ping",
        "tools": [],
        "schedule": {"repeat": "PT5M"},
        "priority": 0,
        "scheduling_class": "background",
        "duration": "PT3S",
        "participants": [{**participant, "name": "a", "accepted": True}],
        "lead": "a",
        "led_here": True,
        "campaign": None,
        "reference": None,
        "created_at": START,
        "ended_at": None,
        "next_run_at": START,
        "planned": True,
        "runs": {"scheduled": 2},
        **changes,
    }


def a_run(identifier: str, task: str, **changes: Any) -> Document:
    """Return a run as the API returns it."""
    return {
        "id": identifier,
        "task": task,
        "headline": "rtt  a → b",
        "test": "rtt",
        "tool": "ping",
        "state": "finished",
        "reason": None,
        "scheduling_class": "background",
        "priority": 0,
        "starts_at": START,
        "ends_at": "2026-12-01T10:00:03Z",
        "slot": START,
        "attempt": 1,
        "participants": ["a", "b"],
        "participant": 0,
        "lead": "a",
        "started_at": START,
        "finished_at": "2026-12-01T10:00:02Z",
        "start_error_ms": 0.4,
        "displaced_by": None,
        "summary": "20.41 ms, loss 0 %",
        "result": {"sent": 5, "loss": 0.0, "rtt_ms": {"median": 20.41, "max": 21.0}},
        **changes,
    }


@dataclass
class StandIn:
    """The documents that the stand-in serves, and the requests it has received."""

    url: str = ""
    token: str = "secret"
    tasks: list[Document] = field(default_factory=list)
    runs: list[Document] = field(default_factory=list)
    documents: dict[str, Any] = field(default_factory=dict)
    """Path → the answer to a GET."""
    stories: dict[str, list[Document]] = field(default_factory=dict)
    """Run → changes that each further GET applies."""
    created: Document | ParleyError | None = None
    """The answer to a POST of a task."""
    drop_posts: int = 0
    """Number of POSTs whose connection is closed after they have arrived."""
    asked: list[tuple[str, str, dict[str, str]]] = field(default_factory=list)
    posted: list[tuple[Document, str]] = field(default_factory=list)
    patched: list[tuple[Document, str]] = field(default_factory=list)
    """Merge patches of tasks, and whether each was a dry run."""
    waited: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when a client waits for a run that will not end."""
    was_asked: asyncio.Event = field(default_factory=asyncio.Event)
    """Set by every request."""

    def add_task(self, identifier: str, **changes: Any) -> Document:
        """Add a task to serve."""
        self.tasks.append(a_task(identifier, **changes))
        return self.tasks[-1]

    def add_run(self, identifier: str, task: str, **changes: Any) -> Document:
        """Add a run to serve."""
        self.runs.append(a_run(identifier, task, **changes))
        return self.runs[-1]


STAND_IN = web.AppKey("stand_in", StandIn)
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@web.middleware
async def _problems(request: web.Request, handler: Handler) -> web.StreamResponse:
    node = request.app[STAND_IN]
    node.asked.append((request.method, request.raw_path, dict(request.query)))
    node.was_asked.set()
    try:
        if request.method != "GET":
            given = request.headers.get("Authorization")
            if given != f"Bearer {node.token}":
                raise NotAuthenticated("this needs an access token")
        return await handler(request)
    except ParleyError as error:
        problem = problem_of(error)
        return web.Response(
            text=problem.model_dump_json(), status=problem.status, content_type=MEDIA_TYPE
        )


def _listed(items: list[Document], request: web.Request) -> web.Response:
    """Return one page of a list; the cursor is the number of the first item."""
    query = request.query
    prefix = query.get("prefix", "")
    states = query.get("state", "").split(",") if query.get("state") else None
    items = [
        item
        for item in items
        if item["id"].startswith(prefix)
        and (states is None or item["state"] in states)
        and query.get("task", item.get("task")) == item.get("task")
        and query.get("requester", USER) == item.get("requester", USER)
    ]
    first, size = int(query.get("cursor", 0)), int(query.get("limit", 50))
    after = first + size
    page = items[first:after]
    return web.json_response({"items": page, "next": str(after) if after < len(items) else None})


def _by_id(items: list[Document], request: web.Request) -> Document:
    for item in items:
        if item["id"] == str(UUID(request.match_info["id"])):
            return item
    raise NotFound(f"there is no {request.path}")


async def _list_tasks(request: web.Request) -> web.Response:
    # Like a node: a list does not have these.
    omitted = {"archives": None, "tool_reason": None}
    return _listed([task | omitted for task in request.app[STAND_IN].tasks], request)


JUDGEMENTS = {
    "finished": "good",
    "failed": "failed",
    "missed": "missed",
    "cancelled": "not-planned",
    "displaced": "not-planned",
    "unplaced": "not-planned",
}


def _judged(run: Document) -> Document:
    """Return a run with the outcome that a node tells of its state, unless it has one."""
    judgement = JUDGEMENTS.get(run["state"])
    outcome = {"judgement": judgement, "code": run["state"], "reason": run["reason"]}
    return {"outcome": outcome if judgement else None, **run}


async def _list_runs(request: web.Request) -> web.Response:
    return _listed([_judged(run) for run in request.app[STAND_IN].runs], request)


async def _task(request: web.Request) -> web.Response:
    return web.json_response(_by_id(request.app[STAND_IN].tasks, request))


async def _run(request: web.Request) -> web.Response:
    node = request.app[STAND_IN]
    run = _by_id(node.runs, request)
    story = node.stories.get(run["id"])
    if story:
        run.update(story.pop(0))
    elif "wait" in request.query and story is not None:
        node.waited.set()
        await asyncio.Event().wait()
    return web.json_response({"parts": [], **_judged(run)})


async def _create(request: web.Request) -> web.Response:
    node, body = request.app[STAND_IN], await request.json()
    several = body if isinstance(body, list) else []
    for task in several:
        key = task.pop("idempotency_key")
        node.posted.append((task, key))
    if not several:
        node.posted.append((body, request.headers["Idempotency-Key"]))
    if node.drop_posts:
        node.drop_posts -= 1
        assert request.transport is not None
        request.transport.close()
        return web.Response()
    if several:
        return web.json_response({"items": [_creation(node.created) for _ in several]})
    if isinstance(node.created, ParleyError):
        raise node.created
    return web.json_response(node.created, status=201)


def _creation(created: Document | ParleyError | None) -> Document:
    """Return the answer for one task of a list."""
    if isinstance(created, ParleyError):
        return {"problem": problem_of(created).model_dump(mode="json")}
    assert created is not None
    return {"task": created["id"]}


async def _campaign(request: web.Request) -> web.Response:
    nothing = dict.fromkeys(("promised", "delivered", "booked"))
    kinds = ("seat_seconds", "bytes")
    sums = {f"{when}_{kind}": 0 for when in ("delivered", "booked") for kind in kinds}
    campaign = {
        **await request.json(),
        "revision": 1,
        "created_at": START,
        "changed_at": START,
        "tasks": {},
        "waiting": {"runs": 0, "seats": 0, "tasks": 0, "reason": None},
        "used": {**nothing, **sums},
    }
    return web.json_response(campaign, status=201)


async def _plan(request: web.Request) -> web.Response:
    node, body = request.app[STAND_IN], await request.json()
    answer = node.documents[request.path]
    if isinstance(body, list):
        node.posted += [(each, "") for each in body]
        return web.json_response({"items": [{"plan": answer} for _ in body]})
    node.posted.append((body, request.headers["Idempotency-Key"]))
    return web.json_response(answer)


async def _cancel(request: web.Request) -> web.Response:
    node = request.app[STAND_IN]
    item = _by_id(node.tasks if "/tasks/" in request.path else node.runs, request)
    item.update(state="cancelled", reason="cancelled by its owner")
    return web.json_response(item)


async def _pause(request: web.Request) -> web.Response:
    task = _by_id(request.app[STAND_IN].tasks, request)
    task.update(state="paused", paused_at=START, next_run_at=None, runs={"cancelled": 2})
    return web.json_response(task)


async def _resume(request: web.Request) -> web.Response:
    task = _by_id(request.app[STAND_IN].tasks, request)
    task.update(state="active", paused_at=None)
    return web.json_response(task)


async def _edit(request: web.Request) -> web.Response:
    node = request.app[STAND_IN]
    patch = await request.json()
    node.patched.append((patch, request.query.get("dry_run", "")))
    task = _by_id(node.tasks, request)
    if patch.get("revision", 1) != task.get("revision", 1):
        raise Conflict("the task has been changed since")
    schedule = patched_document(task["schedule"], patch.get("schedule", {}))
    return web.json_response({**task, "schedule": schedule, "revision": 5})


async def _document(request: web.Request) -> web.Response:
    documents = request.app[STAND_IN].documents
    if request.path not in documents:
        raise NotFound(f"there is no {request.path}")
    return web.json_response(documents[request.path])


@pytest.fixture
async def node() -> AsyncIterator[StandIn]:
    """Serve the stand-in."""
    stand_in = StandIn()
    app = web.Application(middlewares=[_problems])
    app[STAND_IN] = stand_in
    app.router.add_get("/v1/tasks", _list_tasks)
    app.router.add_post("/v1/tasks", _create)
    app.router.add_post("/v1/plans", _plan)
    app.router.add_post("/v1/campaigns", _campaign)
    app.router.add_get("/v1/runs", _list_runs)
    app.router.add_get("/v1/tasks/{id}", _task)
    app.router.add_get("/v1/runs/{id}", _run)
    app.router.add_post("/v1/tasks/{id}/pause", _pause)
    app.router.add_post("/v1/tasks/{id}/resume", _resume)
    app.router.add_patch("/v1/tasks/{id}", _edit)
    app.router.add_delete("/v1/{kind:tasks|runs}/{id}", _cancel)
    app.router.add_get("/{path:.*}", _document)
    stand_in.documents["/v1/tokens/self"] = {"label": USER, "role": "own"}
    stand_in.documents["/v1/clock"] = {
        "now": "2026-12-01T09:59:58Z",
        "synchronised": True,
        "error_bound_ms": 1.0,
    }
    async with serving(app, handler_cancellation=True) as stand_in.url:
        yield stand_in


class Parley:
    """Runs the command as a process, without any settings of this user."""

    def __init__(self, home: Path) -> None:
        self._environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(home),
            "PYTHONPATH": str(ROOT),
            "TZ": "UTC",
        }

    async def start(
        self,
        *arguments: str,
        program: str = "node.cli.main",
        stdin: int = asyncio.subprocess.PIPE,
        stdout: int = asyncio.subprocess.PIPE,
        stderr: int = asyncio.subprocess.PIPE,
        **more: str,
    ) -> asyncio.subprocess.Process:
        """Start a command; ``more`` goes into its environment."""
        return await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            program,
            *arguments,
            env=self._environment | more,
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
        )

    async def __call__(self, *arguments: str, stdin: str = "", **more: str) -> CommandResult:
        """Run a command to its end."""
        return await run_command(arguments, self._environment | more, stdin)


@pytest.fixture
def bare(tmp_path: Path) -> Parley:
    """Return the command without a server or a token."""
    return Parley(tmp_path)


@pytest.fixture
def parley(bare: Parley, node: StandIn) -> Callable[..., Awaitable[CommandResult]]:
    """Return the command with the stand-in as its node."""

    async def run(*arguments: str, stdin: str = "", **more: str) -> CommandResult:
        settings = {"PARLEY_SERVER": node.url, "PARLEY_TOKEN": node.token} | more
        return await bare(*arguments, stdin=stdin, **settings)

    return run


@pytest.fixture
async def a(new_database: NewDatabase, clock: ManualClock, tmp_path: Path) -> AsyncIterator[Asker]:
    """Serve a real node, with a token."""
    async with asker("a", await new_database(), clock, tmp_path) as made:
        yield made


@pytest.fixture
def ask(bare: Parley, a: Asker) -> Callable[..., Awaitable[CommandResult]]:
    """Return the command with that node; starts must be instants, because their clocks differ."""

    async def run(*arguments: str) -> CommandResult:
        assert a.node.card.url is not None
        settings = {"PARLEY_SERVER": a.node.card.url, "PARLEY_TOKEN": "secret"}
        return await bare(*arguments, stdin="", **settings)

    return run
