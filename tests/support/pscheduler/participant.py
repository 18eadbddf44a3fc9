"""A small host that runs pScheduler, as far as the leads of others need it as a participant.

It is written from the description of the protocol: real TLS with a certificate that nobody signed,
whole seconds, errors as text, bookings at once and for good. It really measures: ``iperf3 -s`` for
throughput, a listening socket for simplestream, a question for dns, a request for http. Faults can
be switched on, one at a time.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import secrets
import socket
import ssl
import weakref
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from enum import Enum, auto
from pathlib import Path
from typing import Any, Self
from uuid import UUID, uuid4

import aiohttp
import dns.asyncresolver
import dns.exception
from aiohttp import web

from node.api.connections import ConnectionLimits, CountedConnection
from node.model import times
from node.runtime.clock import Clock, SystemClock
from node.trust.certificates import OwnCertificate

JsonObject = dict[str, Any]

CLASSES = {
    "dns": "background",
    "http": "background",
    "throughput": "exclusive",
    "idleex": "exclusive",
    "idle": "background",
    "simplestream": "background",
}
TOOLS = {
    "dns": "dnspy",
    "http": "curl",
    "throughput": "iperf3",
    "idle": "sleep",
    "idleex": "sleep",
    "simplestream": "simplestreamer",
}
OVER = frozenset({"finished", "failed", "missed", "preempted", "canceled", "nonstart"})
TIMEOUTS = {"dns": ("PT10S", 1), "http": ("PT5S", 2)}
"""The timeout of those that ask once, if none is said, and the seconds that are booked besides."""
IPERF3_MORE_S = 9
"""The time that pScheduler books for iperf3 beyond the duration: for both ends to come and go."""


class Fault(Enum):
    """Faults of the host."""

    DIES_AFTER_BOOKING = auto()
    """It stores a booking, and is gone before it answers."""
    DIES_BEFORE_DATA = auto()
    """Being gone before it hears the data of all."""
    TAKES_NOTHING = auto()
    """It answers 409 to every booking."""
    LIES = auto()
    """It offers time that is taken."""
    FORGETS_DATA = auto()
    """It knows no run any more when it is told the data of all."""
    KNOWS_NO_TASK = auto()
    """It answers 404 to every question about a task."""
    FORBIDS = auto()
    """Its limits forbid every task that it would lead."""
    IS_SLOW = auto()
    """It answers a booking only once :attr:`StandIn.go_on` is set."""


@dataclass
class Run:
    """A run as it is booked here."""

    id: UUID
    starts_at: int
    ends_at: int
    state: str = "pending"
    data: JsonObject = field(default_factory=dict)
    data_full: list[Any] | None = None
    result: JsonObject | None = None
    merged: JsonObject | None = None
    work: asyncio.Task[None] | None = None


@dataclass
class Task:
    """A task as it was posted by its lead."""

    id: UUID
    document: JsonObject
    participant: int
    key: str | None
    enabled: bool = True
    runs: dict[UUID, Run] = field(default_factory=dict)

    @property
    def test(self) -> str:
        """The type of its test."""
        return str(self.document["test"]["type"])

    @property
    def spec(self) -> JsonObject:
        """The spec of its test."""
        spec: JsonObject = self.document["test"]["spec"]
        return spec

    @property
    def duration(self) -> int:
        """The booked time of its runs, in microseconds, by pScheduler's formulae."""
        spec = self.spec
        if self.test == "throughput":
            omit = _duration(spec.get("omit", "PT0S"))
            return omit + _duration(spec.get("duration", "PT10S")) + IPERF3_MORE_S * times.SECOND
        if self.test in TIMEOUTS:
            timeout, more_s = TIMEOUTS[self.test]
            return _duration(spec.get("timeout", timeout)) + more_s * times.SECOND
        if self.test == "rtt":
            return (
                _duration(spec.get("interval", "PT1S")) * int(spec.get("count", 5)) + times.SECOND
            )
        if self.test == "simplestream":
            wanted = spec.get("timeout")
            return _duration(wanted) if wanted else 5 * times.SECOND
        return _duration(spec["duration"]) + times.SECOND


class StandIn:
    """The host; :meth:`start` serves it, :meth:`kill` ends it, and a start brings it back."""

    def __init__(self, name: str, directory: Path, port: int, clock: Clock | None = None) -> None:
        """``directory`` is for its certificate; ``port`` is where it is served on loopback."""
        self.name = name
        self.greeting = f"This is the pScheduler API server on {name}."
        self.clock = clock or SystemClock()
        self.tasks: dict[UUID, Task] = {}
        self.faults: set[Fault] = set()
        self.calls: list[str] = []
        self.go_on = asyncio.Event()
        self.waiting = asyncio.Event()
        """Set once a booking waits for :attr:`go_on`."""
        self.odd: str | None = None
        """A text that it answers to everything, if set."""
        self._called = asyncio.Event()
        self._dying: asyncio.Task[None] | None = None
        self.iperf3_port = port + 1
        self.dns_port = 53
        """The port at which it asks name servers."""
        self._port = port
        self._directory = directory
        self._runner: web.AppRunner | None = None
        self._server: asyncio.Server
        self._connections: weakref.WeakSet[CountedConnection] = weakref.WeakSet()

    @property
    def url(self) -> str:
        """The URL of its API."""
        return f"https://127.0.0.1:{self._port}/pscheduler"

    @property
    def runs(self) -> list[Run]:
        """All runs, whatever their state, by start."""
        runs = [run for task in self.tasks.values() for run in task.runs.values()]
        return sorted(runs, key=lambda run: run.starts_at)

    @property
    def booked(self) -> list[Run]:
        """The runs that occupy its time, now or later."""
        now = self.clock.now()
        return [run for run in self.runs if run.state not in OVER and run.ends_at > now]

    @property
    def open_tasks(self) -> list[Task]:
        """The tasks that were not deleted."""
        return [task for task in self.tasks.values() if task.enabled]

    def occupy(self, starts_at: int, ends_at: int) -> None:
        """Book an exclusive run of somebody else."""
        document = {"test": {"type": "idleex", "spec": {"duration": "PT1S"}}}
        number = UUID(int=len(self.tasks) + 1)
        run = Run(number, starts_at, ends_at)
        self.tasks[number] = Task(number, document, 0, None, runs={number: run})

    def preempt(self, run: Run) -> None:
        """Take a run's time away, as pScheduler does, without telling anybody."""
        run.state = "preempted"

    def forget(self, run: Run) -> None:
        """Lose a run, as with its database."""
        for task in self.tasks.values():
            task.runs.pop(run.id, None)

    async def next_call(self) -> None:
        """Wait until somebody has asked for something, and was answered."""
        self._called.clear()
        await self._called.wait()

    async def start(self) -> None:
        """Serve its API, if it does not."""
        if self._dying is not None:
            await self._dying
        if self._runner is not None:
            return
        self._runner = web.AppRunner(self._application(), access_log=None)
        await self._runner.setup()
        context, serving = self._tls(), self._runner.server
        assert serving is not None
        limits = ConnectionLimits(serving, 1000, 1000, lambda: context)

        def connect() -> CountedConnection:
            self._connections.add(connection := limits())
            return connection

        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            connect, "127.0.0.1", self._port, reuse_address=True
        )

    async def kill(self) -> None:
        """Be gone: nothing is served, no run goes on; what was booked stays booked."""
        for run in self.runs:
            if run.work is not None:
                run.work.cancel()
        if self._runner is not None:
            runner, self._runner = self._runner, None
            self._server.close()
            await runner.cleanup()
            for connection in self._connections:  # in its handshake it is unknown to the runner
                connection.abort()
            self._connections.clear()

    async def __aenter__(self) -> Self:
        """Serve it."""
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        """End it."""
        self.go_on.set()
        await self.kill()

    def _tls(self) -> ssl.SSLContext:
        self._directory.mkdir(parents=True, exist_ok=True)
        path = self._directory / "pscheduler.pem"
        if not path.exists():
            own = OwnCertificate.make(None, ["pscheduler.invalid"], self.clock.now())
            path.write_bytes(own.pem)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(path)
        return context

    def _application(self) -> web.Application:
        application = web.Application(middlewares=[self._as_pscheduler])
        base = "/pscheduler"
        task, run = f"{base}/tasks/{{task}}", f"{base}/tasks/{{task}}/runs/{{run}}"
        application.add_routes(
            [
                web.get(f"{base}/", self._root),
                web.get(f"{base}/api", self._api),
                web.get(f"{base}/hostname", self._hostname),
                web.get(f"{base}/clock", self._clock),
                web.get(f"{base}/schedule-horizon", self._horizon),
                web.get(f"{base}/tools", self._tools),
                web.get(f"{base}/limits", self._limits),
                web.get(f"{base}/schedule", self._schedule),
                web.get(f"{base}/tasks", self._listed),
                web.post(f"{base}/tasks", self._post),
                web.get(f"{task}/runs/first", self._first),
                web.get(task, self._task),
                web.post(task, self._join),
                web.delete(task, self._end),
                web.get(f"{task}/runtimes", self._runtimes),
                web.get(run, self._run),
                web.put(run, self._put),
                web.delete(run, self._drop),
            ]
        )
        return application

    @web.middleware
    async def _as_pscheduler(
        self, request: web.Request, handler: Callable[[web.Request], Any]
    ) -> web.StreamResponse:
        """Record the call, answer errors as text, and close the connection."""
        if self.odd is not None:
            return web.Response(text=self.odd, content_type="application/json")
        self.calls.append(f"{request.method} {request.path.removeprefix('/pscheduler')}")
        try:
            response: web.StreamResponse = await handler(request)
        except web.HTTPException as error:
            response = web.Response(status=error.status, text=error.text, content_type="text/plain")
        response.headers["Connection"] = "close"
        self._called.set()
        return response

    async def _root(self, _: web.Request) -> web.Response:
        return _json(self.greeting)

    async def _api(self, _: web.Request) -> web.Response:
        return _json(6)

    async def _hostname(self, _: web.Request) -> web.Response:
        return _json(self.name)

    async def _clock(self, _: web.Request) -> web.Response:
        moment = times.to_datetime(self.clock.now()).isoformat(timespec="microseconds")
        return _json({"time": moment, "synchronized": True})

    async def _horizon(self, _: web.Request) -> web.Response:
        return _json("P1D")

    async def _tools(self, request: web.Request) -> web.Response:
        test = json.loads(request.query["test"])["type"]
        listed = []
        if test in TOOLS:
            tool = {"name": TOOLS[test], "tests": [test], "preference": 0}
            other = {"name": "nuttcp", "tests": [test], "preference": -1}
            listed = [
                {"can-run": {"can-run": True}, "tool": tool},
                {"can-run": {"can-run": False, "reasons": ["No such thing"]}, "tool": other},
            ]
        return _json(listed)

    async def _limits(self, request: web.Request) -> web.Response:
        proposal = json.loads(request.query["proposal"])
        if not {"test", "schedule"} <= set(proposal):
            raise web.HTTPBadRequest(text="Invalid proposal\n")
        forbids = Fault.FORBIDS in self.faults
        diags = f"Hints:\n  requester: 127.0.0.1\n{'Failed' if forbids else 'Passed'} limit 'few'"
        return _json({"passed": not forbids, "diags": diags})

    async def _schedule(self, request: web.Request) -> web.Response:
        wanted = UUID(request.query["task"])
        since, until = _span(request)
        listed = [
            {
                "start-time": _instant(run.starts_at),
                "end-time": _instant(run.ends_at),
                "href": f"{self.url}/tasks/{wanted}/runs/{run.id}",
                "state": run.state,
            }
            for run in (self.tasks[wanted].runs.values() if wanted in self.tasks else ())
            if run.ends_at > since and run.starts_at < until
        ]
        return _json(listed)

    async def _task(self, request: web.Request) -> web.Response:
        task = self._known(request)
        document = {name: value for name, value in task.document.items() if name[0] != "_"}
        detail = {
            "duration": times.format_duration(task.duration),
            "enabled": task.enabled,
            "exclusive": CLASSES[task.test] == "exclusive",
            "participant": task.participant,
        }
        return _json({**document, "_key": None, "detail": detail})

    async def _join(self, request: web.Request) -> web.Response:
        number = UUID(request.match_info["task"])
        if Fault.KNOWS_NO_TASK in self.faults:
            raise web.HTTPNotFound(text="No such task\n")
        if number in self.tasks:
            text = "Task error: All participants must be on separate systems\n"
            raise web.HTTPBadRequest(text=text)
        document = await request.json()
        place = int(request.query["participant"])
        if place < 1 or "participants" not in document or "tool" not in document:
            raise web.HTTPBadRequest(text="Task error: it lacks something\n")
        if document.get("schedule") is None:
            raise web.HTTPBadRequest(text="Task error: no schedule\n")
        self.tasks[number] = Task(number, document, place, document.get("_key"))
        return web.Response(text=str(request.url.with_query(None)))

    async def _post(self, request: web.Request) -> web.Response:
        """Take a task that it leads itself, and schedule its run at once."""
        document = await request.json()
        if Fault.FORBIDS in self.faults:
            raise web.HTTPForbidden(text="Task forbidden by limits:\nFailed limit 'few'\n")
        task = Task(uuid4(), document, 0, document.get("_key"))
        starts_at = times.parse_instant(document["schedule"]["start"])
        run = Run(uuid4(), starts_at, starts_at + task.duration)
        if Fault.TAKES_NOTHING in self.faults or self._conflicts(task, run):
            run.state = "nonstart"
        self.tasks[task.id] = task
        task.runs[run.id] = run
        run.work = asyncio.create_task(self._measure(task, run))
        if Fault.DIES_AFTER_BOOKING in self.faults:
            self._die(request, Fault.DIES_AFTER_BOOKING)
        return _json(f"{self.url}/tasks/{task.id}")

    async def _listed(self, request: web.Request) -> web.Response:
        wanted = json.loads(request.query["json"])["reference"]
        found = [each for each in self.open_tasks if each.document.get("reference") == wanted]
        return _json([f"{self.url}/tasks/{task.id}" for task in found])

    async def _first(self, request: web.Request) -> web.Response:
        task = self._known(request)
        if not task.runs:
            raise web.HTTPNotFound(text="Not found\n")
        return await self._told(request, task, next(iter(task.runs.values())), "wait-merged")

    async def _end(self, request: web.Request) -> web.Response:
        task = self._known(request, writes=True)
        task.enabled = False
        now = self.clock.now()
        for run in list(task.runs.values()):
            if run.starts_at > now:
                self._take_back(task, run)
            elif run.state not in OVER:
                run.state = "canceled"
        return _ok()

    async def _runtimes(self, request: web.Request) -> web.Response:
        task = self._known(request)
        since, until = _span(request)
        free = [(since, until)]
        if CLASSES[task.test] == "exclusive" and Fault.LIES not in self.faults:
            for run in self.booked:
                free = [part for span in free for part in _without(span, run)]
        fitting = [span for span in free if span[1] - span[0] >= task.duration]
        return _json([{"lower": _instant(a), "upper": _instant(b)} for a, b in fitting])

    async def _run(self, request: web.Request) -> web.Response:
        task, run = self._booked(request)
        return await self._told(request, task, run, "wait-local")

    async def _told(self, request: web.Request, task: Task, run: Run, waits: str) -> web.Response:
        patience = int(request.query.get("wait", "0"))
        if request.query.get(waits, "") in {"true", "True", "1"} and run.work is not None:
            await asyncio.wait({run.work}, timeout=patience)
        return _json(
            {
                "start-time": _instant(run.starts_at),
                "end-time": _instant(run.ends_at),
                "duration": times.format_duration(task.duration),
                "participant": task.participant,
                "participant-data": run.data,
                "participant-data-full": run.data_full,
                "state": run.state,
                "state-display": run.state.capitalize(),
                "result": run.result,
                "result-merged": None if run.result is None else run.merged,
                "errors": "Too busy" if run.state == "nonstart" else None,
            }
        )

    async def _put(self, request: web.Request) -> web.Response:
        task = self._known(request, writes=True)
        number, document = UUID(request.match_info["run"]), await request.json()
        if "part-data-full" in document:
            self._fail_to_hear(request, task, number)
        if number in task.runs:
            return self._complete(task, task.runs[number], document)
        if "start-time" not in document:
            if Fault.FORGETS_DATA in self.faults:
                raise web.HTTPNotFound(text="Not found\n")
            raise web.HTTPBadRequest(text="Missing start time\n")
        if Fault.IS_SLOW in self.faults:
            self.waiting.set()
            await self.go_on.wait()
        starts_at = times.parse_instant(document["start-time"])
        starts_at -= starts_at % times.SECOND
        run = Run(number, starts_at, starts_at + task.duration)
        if Fault.TAKES_NOTHING in self.faults or self._conflicts(task, run) or not task.enabled:
            raise web.HTTPConflict(text="Run would create a scheduling conflict.\n")
        run.data = self._data_for(task)
        task.runs[number] = run
        if Fault.DIES_AFTER_BOOKING in self.faults:
            self._die(request, Fault.DIES_AFTER_BOOKING)
        return _ok()

    def _fail_to_hear(self, request: web.Request, task: Task, number: UUID) -> None:
        """Do what the faults demand when the data of all come."""
        if Fault.FORGETS_DATA in self.faults:
            task.runs.pop(number, None)
        if Fault.DIES_BEFORE_DATA in self.faults:
            self._die(request, Fault.DIES_BEFORE_DATA)

    def _die(self, request: web.Request, fault: Fault) -> None:
        """Be gone, once, before a request is answered."""
        self.faults.discard(fault)
        assert request.transport is not None
        request.transport.abort()
        self._dying = asyncio.create_task(self.kill())
        raise web.HTTPServiceUnavailable

    def _complete(self, task: Task, run: Run, document: JsonObject) -> web.Response:
        if "part-data-full" not in document:
            raise web.HTTPBadRequest(text="Missing part-data-full\n")
        run.data_full = document["part-data-full"]
        if run.work is None:
            run.work = asyncio.create_task(self._measure(task, run))
        return _ok()

    async def _drop(self, request: web.Request) -> web.Response:
        task, run = self._booked(request, writes=True)
        self._take_back(task, run)
        return _ok()

    def _take_back(self, task: Task, run: Run) -> None:
        del task.runs[run.id]
        if run.work is not None:
            run.work.cancel()

    def _conflicts(self, task: Task, run: Run) -> bool:
        return CLASSES[task.test] == "exclusive" and any(
            other.starts_at < run.ends_at and run.starts_at < other.ends_at for other in self.booked
        )

    def _data_for(self, task: Task) -> JsonObject:
        if task.test == "throughput":
            return {"schema": 3, "iperf3-version": "3.12", "server_port": self.iperf3_port}
        if task.test == "simplestream":
            return {"listen-port": task.spec.get("port", self.iperf3_port + 1)}
        return {}

    def _known(self, request: web.Request, *, writes: bool = False) -> Task:
        task = self.tasks.get(UUID(request.match_info["task"]))
        if task is None or Fault.KNOWS_NO_TASK in self.faults:
            raise web.HTTPNotFound(text="Not found\n")
        if writes and task.key is not None and request.query.get("key") != task.key:
            raise web.HTTPForbidden(text="Forbidden\n")
        return task

    def _booked(self, request: web.Request, *, writes: bool = False) -> tuple[Task, Run]:
        task = self._known(request, writes=writes)
        run = task.runs.get(UUID(request.match_info["run"]))
        if run is None:
            raise web.HTTPNotFound(text="Not found\n")
        return task, run

    async def _measure(self, task: Task, run: Run) -> None:
        """Measure a run whose time comes; one that was taken away does not begin."""
        await self.clock.sleep_until(run.starts_at)
        if run.state != "pending":
            return
        run.state = "running"
        if task.test == "throughput":
            measured = await self._iperf3(task)
        elif task.test == "simplestream":
            measured = await self._simplestream(run)
        elif task.test in TIMEOUTS:
            measured = await self._ask(task)
            run.merged = measured["result"]
        else:
            measured = await self._sleep(task, run)
        run.result = measured
        if task.test == "idle":
            run.merged = {"schema": 1, "succeeded": True, "duration": task.spec["duration"]}
        run.state = "finished" if measured["succeeded"] else "failed"

    async def _sleep(self, task: Task, run: Run) -> JsonObject:
        await self.clock.sleep_until(run.starts_at + _duration(task.spec["duration"]))
        return _done({"time-slept": task.spec["duration"]})

    async def _ask(self, task: Task) -> JsonObject:
        """Ask one question; a part whose result is the merged one."""
        ask = self._dns if task.test == "dns" else self._http
        began = asyncio.get_running_loop().time()
        try:
            told = await ask(task.spec)
        except (OSError, dns.exception.DNSException, aiohttp.ClientError) as fault:
            failed = {"schema": 1, "succeeded": False, "error": str(fault), "diags": ""}
            return {**failed, "result": failed}
        taken = round((asyncio.get_running_loop().time() - began) * times.SECOND)
        done = _done({"time": times.format_duration(taken), **told})
        return {**done, "result": {"succeeded": True, **done["result"]}}

    async def _dns(self, spec: JsonObject) -> JsonObject:
        resolver = dns.asyncresolver.Resolver(configure=False)
        resolver.nameservers, resolver.port = [spec["nameserver"]], self.dns_port
        lifetime_s = _duration(spec["timeout"]) / times.SECOND
        answer = await resolver.resolve(spec["query"], spec["record"], lifetime=lifetime_s)
        return {"record": [str(each) for each in answer]}

    async def _http(self, spec: JsonObject) -> JsonObject:
        total_s = _duration(spec["timeout"]) / times.SECOND
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=total_s)) as session,
            session.get(spec["url"], ssl=False) as response,
        ):
            found = spec["parse"] in await response.text() if "parse" in spec else False
            return {"schema": 2, "status": response.status, "found": found}

    async def _iperf3(self, task: Task) -> JsonObject:
        port, idle_s = str(self.iperf3_port), _duration(task.spec["duration"]) // times.SECOND
        argv = ["iperf3", "-s", "-1", "-J", "-p", port, "--idle-timeout", str(idle_s)]
        async with _program(argv) as process:
            stdout, _ = await process.communicate()
        printed = stdout.decode()
        failed = json.loads(printed).get("error") if printed.strip() else "nothing was printed"
        diags = f"{' '.join(argv)}\n\n{printed}"
        if failed:
            return {"succeeded": False, "diags": diags, "error": failed}
        return {"succeeded": True, "diags": diags, "intervals": [], "summary": {}}

    async def _simplestream(self, run: Run) -> JsonObject:
        arrived: asyncio.Future[str] = asyncio.get_running_loop().create_future()

        async def read(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            arrived.set_result((await reader.read()).decode())
            writer.close()

        began = self.clock.now()
        server = await asyncio.start_server(read, "127.0.0.1", run.data["listen-port"])
        async with server:
            left = (run.ends_at - began) / times.SECOND
            done, _ = await asyncio.wait({arrived}, timeout=left)
        if not done:
            return {"succeeded": False, "diags": "", "error": "Nobody came", "result": None}
        elapsed = times.format_duration(self.clock.now() - began)
        return _done({"received": arrived.result(), "elapsed-time": elapsed})


@contextlib.asynccontextmanager
async def _program(argv: list[str]) -> AsyncIterator[asyncio.subprocess.Process]:
    """Start a program; it has ended when this is left."""
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*argv, stdout=pipe, stderr=pipe)
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


def free_ports() -> int:
    """Return the first of three consecutive ports that nobody uses.

    They are below those that the kernel gives to connections, which would take one meanwhile.
    """
    while True:
        port = secrets.choice(range(20_000, 30_000, 3))
        with contextlib.ExitStack() as stack:
            try:
                for number in (port, port + 1, port + 2):
                    stack.enter_context(socket.socket()).bind(("", number))
            except OSError:
                continue
            return port


def _done(result: JsonObject) -> JsonObject:
    return {"succeeded": True, "diags": "", "error": "", "result": {"schema": 1, **result}}


def _duration(text: str) -> int:
    return times.parse_duration(text)


def _instant(instant: int) -> str:
    return times.to_datetime(instant - instant % times.SECOND).isoformat()


def _span(request: web.Request) -> tuple[int, int]:
    since, until = (times.parse_instant(request.query[name]) for name in ("start", "end"))
    return since, until


def _without(span: tuple[int, int], run: Run) -> list[tuple[int, int]]:
    """Return what is left of a span beside a run."""
    parts = [(span[0], min(span[1], run.starts_at)), (max(span[0], run.ends_at), span[1])]
    return [part for part in parts if part[0] < part[1]]


def _json(document: Any) -> web.Response:
    return web.Response(text=f"{json.dumps(document)}\n", content_type="application/json")


def _ok() -> web.Response:
    return web.Response(text="OK\n", content_type="text/html")
