"""Secrets in every place that takes one, and everything that a node tells or keeps afterwards."""

from __future__ import annotations

import asyncio
import contextlib
import re
import tarfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from aiohttp import web

from node.execution import process
from node.model import times
from node.model.permissions import PERMISSIONS
from node.postgres.binaries import ServerBinaries, locate
from node.runtime.clock import SystemClock
from node.trust.sealing import FILE
from tests.acceptance.commands import parley
from tests.acceptance.conftest import facade_of
from tests.acceptance.outsider import Answer, Json, Outsider
from tests.support.loopback import serving
from tests.support.pscheduler.agent import Agent
from tests.support.pscheduler.command import CommandLine

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.usefixtures("tidy")]

MARK = "hush4f1d9c"
"""Part of every secret of these tests."""

ROLES = ("read", "run", "operate", "own")


class Target:
    """A web server that is measured: what it was sent, and what all processes show meanwhile."""

    def __init__(self) -> None:
        """Nobody has asked yet."""
        self.url, self.archive = "", ""
        self.headers: list[dict[str, str]] = []
        self.shown: list[tuple[str, bytes]] = []

    async def take(self, request: web.Request) -> web.Response:
        """Answer, after a look at the argv of every process: the tool is still there."""
        self.headers.append(dict(request.headers))
        self.shown += [
            (str(path), content)
            for path in Path("/proc").glob("[0-9]*/cmdline")
            if (content := _read(path))
        ]
        return web.Response(text="fine")

    async def archived(self, request: web.Request) -> web.Response:
        """Take a result, or a message of a webhook."""
        self.headers.append(dict(request.headers))
        self.shown.append(("archive", await request.read()))
        return web.Response(status=204)


def _read(path: Path) -> bytes:
    with contextlib.suppress(OSError):
        return path.read_bytes()
    return b""


@contextlib.asynccontextmanager
async def target(host: str) -> AsyncIterator[Target]:
    """Serve a target at an address of this host that nodes may measure."""
    made = Target()
    app = web.Application()
    app.router.add_get("/", made.take)
    app.router.add_post("/in", made.archived)
    async with serving(app, host=host) as url:
        made.url, made.archive = f"{url}/", f"{url}/in"
        yield made


def _found(where: str, content: bytes | str) -> Iterator[str]:
    """Yield where a secret was found, with what is around it."""
    text = content if isinstance(content, bytes) else content.encode()
    for match in re.finditer(MARK.encode(), text):
        yield f"{where}: …{text[max(0, match.start() - 80) : match.end() + 20]!r}"


async def _measured(lead: Outsider, document: Json) -> tuple[Json, Json]:
    """Create a task, and return it with its run when that is over."""
    answer = await lead.ask("POST", "/v1/tasks", document)
    assert answer.status == 201, answer
    run = await lead.run(answer.body)
    return answer.body, await lead.over(run)


def _http(url: str, source: Outsider, *tools: str, **headers: Json) -> Json:
    spec = {"url": url, "source": source.name, "headers": headers}
    return {"test": {"type": "http", "spec": spec}, **({"tools": tools} if tools else {})}


def _paths(known: dict[str, list[str]]) -> Iterator[str]:
    """Yield every path of the API that is read, with the ids and names that are known."""
    for route in PERMISSIONS:
        method, _, path = route.partition(" ")
        if method != "GET" or path.startswith("/v1/participant/") or path == "/v1/events":
            continue
        place = path.removeprefix("/v1/").partition("/")[0]
        for value in known.get(place, [""]) if "{" in path else [""]:
            yield re.sub(r"\{[a-z]+\}", value, path)


async def _as(node: Outsider, token: str, path: str) -> Answer:
    return await node.ask("GET", path, headers={"Authorization": f"Bearer {token}"})


async def _told(node: Outsider, known: dict[str, list[str]]) -> list[str]:
    """Return where answers to readers of every role have a secret, or one that is sealed."""
    found: list[str] = []
    for role in ROLES:
        made = await node.ask("POST", "/v1/tokens", {"label": f"hush-{role}", "role": role})
        assert made.status == 201, made
        for path in _paths(known):
            answer = await _as(node, made.body["token"], path)
            written = answer.body if isinstance(answer.body, bytes) else str(answer.body).encode()
            found += _found(f"{role} GET {path}", written)
            if b"parley1:" in written:
                found.append(f"{role} GET {path} has a sealed text")
        await node.ask("DELETE", f"/v1/tokens/{made.body['id']}")
    return found


async def _printed(program: str, *options: str) -> bytes:
    binaries = locate()
    assert isinstance(binaries, ServerBinaries), binaries
    argv = [binaries.program(program), *options]
    ended = await (await process.start(argv, output_bytes_max=500_000_000)).wait()
    assert ended.exit_code == 0, ended.stderr
    return ended.stdout


def _files(node: Outsider) -> Iterator[tuple[str, bytes]]:
    """Yield what a node has written: its log, and its state directory but for its keys."""
    state = Path(node.state)
    yield "log", state.with_name(f"{node.name}.log").read_bytes()
    for path in state.rglob("*"):
        if path.is_file() and path.name not in {FILE, "token", "node.pem"}:
            yield str(path), _read(path)


async def _backed_up(node: Outsider, folder: Path) -> bytes:
    """Return what a backup without keys says in all."""
    file = folder / f"{node.name}.parley"
    done = await parley(
        node, "admin", "backup", str(file), "--without-key", "--dsn", node.dsn,
        "--state-dir", node.state,
    )  # fmt: skip
    assert done.code == 0, done.err
    with tarfile.open(file) as archive:
        assert set(archive.getnames()) == {"manifest.json", "database.dump"}
        dump = archive.extractfile("database.dump")
        assert dump is not None
        (folder / "database.dump").write_bytes(dump.read())
    restored = await _printed("pg_restore", "--file=-", str(folder / "database.dump"))
    assert b"CREATE TABLE public.task" in restored
    return restored


async def _kept(node: Outsider) -> list[str]:
    """Return where the database, a backup, the log and the files of a node have a secret."""
    found = [*_found(f"{node.name}: pg_dump", await _printed("pg_dump", f"--dbname={node.dsn}"))]
    for where, content in _files(node):
        found += _found(f"{node.name}: {where}", content)
    return found


@contextlib.asynccontextmanager
async def listening(nodes: list[Outsider]) -> AsyncIterator[list[Json]]:
    """Yield the list of what the streams of events tell meanwhile."""
    events: list[Json] = []

    async def listen(node: Outsider) -> None:
        async for event in node.events():
            events.append(event)  # noqa: PERF401 - it is read before the stream ends

    tasks = [asyncio.create_task(listen(node)) for node in nodes]
    try:
        yield events
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _tools_get_headers(a: Outsider, asked: Target, sources: list[Outsider]) -> list[str]:
    """Have nodes measure with a secret header by each tool; return the tasks."""
    tasks = []
    for source in sources:
        for tool in ("fetch", "curl"):
            word = f"Bearer {MARK}-{source.name}-{tool}"
            archive = {"archiver": "http", "spec": {"url": asked.archive}}
            document = _http(asked.url, source, tool, Authorization=word)
            document["reference"] = {"mesh": "hushed", "key": f"{tool}/{source.name}/a"}
            task, run = await _measured(a, {**document, "archives": [archive]})
            assert run["state"] == "finished", run["reason"]
            assert word in [each.get("Authorization") for each in asked.headers]
            assert task["test"]["spec"]["headers"] == {"Authorization": "(secret)"}
            tasks.append(task["id"])
    return tasks


async def _edits_keep_headers(a: Outsider, asked: Target, source: Outsider) -> str:
    """Edit a header beside another one, which keeps its value; return the task."""
    document = _http(asked.url, source, X=f"{MARK}-one", Y=f"{MARK}-two")
    document["schedule"] = {"repeat": "PT1H", "max_runs": 3}
    task = (await a.ask("POST", "/v1/tasks", document)).body
    patch = {"test": {"spec": {"headers": {"X": "(secret)", "Y": f"{MARK}-three"}}}}
    edited = await a.ask("PATCH", f"/v1/tasks/{task['id']}", patch)
    assert edited.status == 200, edited
    assert edited.body["revision"] == task["revision"] + 1
    explained = await a.explain("task", task)
    assert "Y (secret) → (secret)" in str(explained)
    assert "X (secret)" not in str(explained)
    again = await a.ask("PATCH", f"/v1/tasks/{task['id']}", patch)
    assert again.body["revision"] == edited.body["revision"]
    return str(task["id"])


@pytest.mark.needs("curl")
@pytest.mark.nightly
async def test_only_the_tool_is_told_the_headers_of_a_test(
    nodes: list[Outsider], a: Outsider, b: Outsider, c: Outsider
) -> None:
    """A header reaches its target by each tool of each node, and nothing tells or keeps it."""
    async with target(c.address) as asked, listening(nodes) as events:
        tasks = await _tools_get_headers(a, asked, [a, b])
        tasks.append(await _edits_keep_headers(a, asked, b))
        plan = await a.ask("POST", "/v1/plans", _http(asked.url, b, Z=f"{MARK}-plan"))
        assert plan.status == 200, plan
        assert asked.shown
        found = [*_found("plan", str(plan.body)), *_found("events", str(events))]
    runs = [run["id"] for task in tasks for run in await a.runs({"id": task})]
    for node in (a, b):
        found += await _told(node, {"tasks": tasks, "runs": runs, "meshes": ["hushed"]})
        found += await _kept(node)
    found += [hit for where, content in asked.shown for hit in _found(where, content)]
    assert not found, "\n".join(found)


async def _stored(node: Outsider, *options: str) -> None:
    """Store a secret of the owner, by the command line."""
    added = await parley(node, "secret", "add", "door", *options, stdin=f"Bearer {MARK}-named\n")
    assert added.code == 0, added.err


async def _named(a: Outsider, asked: Target, source: Outsider) -> Json:
    document = _http(asked.url, source, Authorization={"secret": "door"})
    task, run = await _measured(a, document)
    assert task["test"]["spec"]["headers"] == {"Authorization": {"secret": "door"}}
    return run


@pytest.mark.nightly
async def test_a_secret_of_the_owner_is_sent_where_the_owner_lets_it(
    a: Outsider, b: Outsider, c: Outsider, tmp_path: Path
) -> None:
    """A named secret is sent for the node's own task, and for another lead that it names."""
    async with target(c.address) as asked:
        port = urlsplit(asked.url).port
        bound = ("--host", f"{c.address}:{port}")
        await _stored(a, "--host", c.address)
        await _stored(b, *bound)
        assert (await _named(a, asked, a))["state"] == "finished"
        assert asked.headers[-1]["Authorization"] == f"Bearer {MARK}-named"
        refused = await _named(a, asked, b)
        assert "has no secret door for tasks of the node that leads this one" in refused["reason"]
        await _stored(b, *bound, "--lead", "a", "--replace")
        assert (await _named(a, asked, b))["state"] == "finished"
        assert [each["Authorization"] for each in asked.headers] == [f"Bearer {MARK}-named"] * 2
        await _stored(b, "--host", f"{c.address}:9", "--lead", "a", "--replace")
        elsewhere = await _named(a, asked, b)
        assert f"may not be sent to {c.address}, only to: {c.address}:9" in elsewhere["reason"]
        assert len(asked.headers) == 2
    found = []
    for node in (a, b):
        found += await _told(node, {})
        found += await _kept(node)
        found += _found("backup", await _backed_up(node, tmp_path))
        removed = await parley(node, "secret", "remove", "door")
        assert removed.code == 0, removed.err
    assert not found, "\n".join(found)


async def _seen(facade: str, url: str) -> str:
    """Return all that the façade tells of a task to a client that did not post it."""
    reader = CommandLine(facade, "127.0.0.77")
    listed = await reader.request("GET", reader.url("/tasks"), {"expanded": 1, "detail": 1})
    replies = [await reader.request("GET", f"{url}{path}") for path in ("", "/cli", "/runs")]
    return str([listed, *replies])


@pytest.mark.nightly
async def test_headers_of_clients_of_pscheduler_are_kept_sealed(
    a: Outsider, c: Outsider, tmp_path: Path
) -> None:
    """A client's header reaches its target, the client knows its task again, and nobody else."""
    agent = Agent(facade_of(a.url))
    async with target(c.address) as asked:
        word = f"Bearer {MARK}-agent"
        spec = {"schema": 4, "url": asked.url, "headers": {"Authorization": word}}
        # A second run, tomorrow, keeps the task open: an agent finds no others again.
        until = times.to_datetime(SystemClock().now() + 3 * times.DAY).isoformat()
        rare = {"repeat": "P1D", "max-runs": 2, "until": until}
        schedule = {"slip": "PT10S", "sliprand": False, **rare}
        wanted = agent.task("http", spec, SystemClock().now(), schedule=schedule)
        wanted["_key"] = f"{MARK}-key"
        [url] = (await agent.run([wanted])).added
        task = {"id": url.rpartition("/")[2]}
        run = await a.over(await a.run(task))
        assert run["state"] == "finished", run["reason"]
        assert [each["Authorization"] for each in asked.headers] == [word]
        found = [*_found("façade", await _seen(agent.host, url))]
        assert (await agent.mine())[0]["test"]["spec"]["headers"] == {"Authorization": word}
    known = {"tasks": [task["id"]], "runs": [run["id"]]}
    found += [*await _told(a, known), *await _kept(a)]
    found += _found("backup", await _backed_up(a, tmp_path))
    await a.cancel(task)
    assert not found, "\n".join(found)


def _delivered(page: Json) -> bool:
    return bool(page["items"]) and all(each["state"] == "delivered" for each in page["items"])


async def test_secrets_of_archives_and_webhooks_are_kept_sealed(
    a: Outsider, c: Outsider, tmp_path: Path
) -> None:
    """An archive gets its headers, and a webhook its signature; nothing tells or keeps them."""
    async with target(c.address) as asked:
        spec = {"url": asked.archive, "headers": {"X": MARK}, "secret": f"{MARK}-signs"}
        archive = {"name": "hushed", "archiver": "http", "spec": spec}
        added = await a.ask("POST", "/v1/archives", archive)
        assert added.status == 201, added
        word = f"whsec_{MARK * 4}"
        webhook = {"name": "hushed", "url": asked.archive, "secret": word}
        assert (await a.ask("POST", "/v1/webhooks", webhook)).body["secret"] == word
        tested = await a.ask("POST", "/v1/webhooks/hushed/test")
        assert tested.status == 200, tested
        own = {"archiver": "http", "spec": spec}
        task = await a.create("idle", a, spec={"duration": "PT1S"}, archives=[own])
        await a.finished(await a.run(task))
        await a.until("/v1/archivings?archive=hushed", _delivered)
        assert any(sent.get("X") == MARK for sent in asked.headers)
        patch = {"spec": {"url": asked.archive, "headers": {"X": "(secret)"}, "secret": "(secret)"}}
        same = await a.ask("PATCH", "/v1/archives/hushed", patch)
        assert (same.status, same.body["revision"]) == (200, added.body["revision"])
    found = [*await _told(a, {"archives": ["hushed"], "tasks": [task["id"]]}), *await _kept(a)]
    found += _found("backup", await _backed_up(a, tmp_path))
    for path in ("/v1/archives/hushed", "/v1/webhooks/hushed"):
        assert (await a.ask("DELETE", path)).status in {200, 204}
    assert not found, "\n".join(found)
