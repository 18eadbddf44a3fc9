"""Results to archive, and their receivers: real servers on loopback."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import json
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID, uuid4

from aiohttp import web

from node.execution.catalog import Capabilities
from node.execution.tool_runner import ToolRunner
from node.model.wire.archives import ArchiveDocument
from node.plugins.contracts import ArchivingHost
from node.results.archives import Archives
from node.results.delivery import DocumentForm, ResultDeliverer
from node.results.transforms import Transforms
from node.runtime.clock import Clock
from node.runtime.settings import Settings
from node.store.core import Core
from node.store.database import Database
from tests.support.loopback import serving

IDENTITY = "ed25519:a"
_NODE = """
INSERT INTO node (identity, name, address, is_self, added_at)
VALUES ($1, 'a', '127.0.0.1', true, $2) ON CONFLICT DO NOTHING
"""
_TASK = """
INSERT INTO task (id, lead, test, spec, scheduling_class, duration, participants, participant,
    created_at, parent)
VALUES ($1, $2, 'idle', '{"duration": "PT1S"}', 'background', interval '1 second',
    '[{"node": "ed25519:a", "name": "a", "url": null, "address": "127.0.0.1"}]', 0, $3, $4)
"""
_RUNS = """
INSERT INTO run (id, task_id, slot, attempt, participant, scheduling_class, priority, starts_at,
    ends_at, state, created_at, changed_at)
SELECT gen_random_uuid(), $1, at, 1, 0, 'background', 0, at, at + interval '1 second', 'merging',
    $2, $2
FROM (
    SELECT $2::timestamptz + (
        (SELECT count(*) FROM run WHERE task_id = $1) + number
    ) * interval '1 minute' AS at
    FROM generate_series(1, $3) AS number
) AS slot
RETURNING id
"""
_END = """
UPDATE run SET state = $2::run_state, reason = $3, result = $4, summary = $5, changed_at = $6,
    finished_at = $6
WHERE id = ANY($1)
"""


@dataclass
class Office:
    """A node's database with results in it, and the service that delivers them."""

    database: Database
    clock: Clock
    archives: Archives
    result_delivery: ResultDeliverer
    task: UUID

    async def archive(self, name: str, archiver: str, spec: Any, **more: Any) -> None:
        """Add an archive of the node."""
        document = {"name": name, "archiver": archiver, "spec": spec, **more}
        await self.archives.add(ArchiveDocument.model_validate(document))

    async def add_task(self, parent: UUID | None = None) -> UUID:
        """Add another task led here."""
        task = uuid4()
        await self.execute(_TASK, task, IDENTITY, self.clock.now(), parent)
        return task

    async def begun(self, count: int = 1, task: UUID | None = None) -> list[UUID]:
        """Create runs whose parts are awaited."""
        async with self.database.connection() as connection:
            rows = await connection.fetch(_RUNS, task or self.task, self.clock.now(), count)
        return [row[0] for row in rows]

    async def end(self, runs: list[UUID], state: str = "finished") -> None:
        """End these runs."""
        result = {"participants": 1, "slept_ms": 1000.0} if state == "finished" else None
        reason, summary = (None, "idle") if result else ("nobody was there", None)
        now = self.clock.now()
        await self.execute(_END, runs, state, reason, result, summary, now)

    async def ended(
        self, count: int = 1, state: str = "finished", task: UUID | None = None
    ) -> list[UUID]:
        """Create this many runs that are over."""
        runs = await self.begun(count, task)
        await self.end(runs, state)
        return runs

    async def execute(self, statement: str, *values: Any) -> None:
        """Execute a statement."""
        async with self.database.connection() as connection:
            await connection.execute(statement, *values)

    async def rows(self, query: str, *values: Any) -> list[Any]:
        """Return the rows of a query."""
        async with self.database.connection() as connection:
            return list(await connection.fetch(query, *values))

    async def states(self) -> dict[str, int]:
        """Return the deliveries by state."""
        rows = await self.rows("SELECT state::text, count(*) FROM archiving GROUP BY state")
        return {row[0]: row[1] for row in rows}

    @contextlib.asynccontextmanager
    async def at_work(self) -> AsyncIterator[None]:
        """Run the delivery loop, with notifications."""
        listening = asyncio.create_task(
            self.database.listen(self.result_delivery.on_notice, self.clock)
        )
        working = asyncio.create_task(self.result_delivery.run())
        try:
            yield
        finally:
            for loop in (working, listening):
                loop.cancel()
            await asyncio.gather(working, listening, return_exceptions=True)


async def office(
    database: Database,
    clock: Clock,
    runner: ToolRunner,
    *directories: Any,
    forms: Mapping[str, DocumentForm] | None = None,
) -> Office:
    """A node with one task that it leads."""
    transforms = Transforms(runner)
    host = ArchivingHost("a", tuple(directories), clock.now)
    core = Core(database, clock, IDENTITY, Settings())
    archives = Archives(database, clock, host, transforms.fault_of, uuid4, core.sealing)
    archiving = ResultDeliverer(core, host, Capabilities().metrics, transforms)
    for name, form in (forms or {}).items():
        archiving.add_form(name, form)
    made = Office(database, clock, archives, archiving, UUID(int=0))
    await made.execute(_NODE, IDENTITY, clock.now())
    made.task = await made.add_task()
    return made


@dataclass
class Posted:
    """A request that a receiver got."""

    headers: dict[str, str]
    body: bytes
    documents: list[Any]
    method: str = "POST"


@dataclass
class Receiver:
    """A server that accepts what is posted, or answers as configured."""

    url: str = ""
    posted: list[Posted] = field(default_factory=list)
    answer: Callable[[Posted], web.Response] = lambda _: web.Response(status=204)
    arrived: asyncio.Event = field(default_factory=asyncio.Event)
    held: asyncio.Event | None = None

    @property
    def documents(self) -> list[Any]:
        """Return all posted documents, in order."""
        return [document for each in self.posted for document in each.documents]

    async def take(self, request: web.Request) -> web.Response:
        """Handle one request."""
        body = await request.read()
        plain = body
        if body.startswith(b"\x1f\x8b"):
            plain = gzip.decompress(body)
        text = plain.decode()
        posted = Posted(dict(request.headers), body, _documents(text), request.method)
        self.posted.append(posted)
        self.arrived.set()
        if self.held is not None:
            await self.held.wait()
        return self.answer(posted)


def _documents(text: str) -> list[Any]:
    """Return the documents of a body; a text that is none stands for itself."""
    if text.startswith("["):
        return list(json.loads(text))
    lines = text.splitlines()
    return [json.loads(line) if line.startswith("{") else line for line in lines]


@contextlib.asynccontextmanager
async def receiver(tls: ssl.SSLContext | None = None, port: int = 0) -> AsyncIterator[Receiver]:
    """A receiver on a port, by default one of its own."""
    made = Receiver()
    app = web.Application(client_max_size=2**26)
    app.router.add_post("/in", made.take)
    app.router.add_put("/in", made.take)
    async with serving(app, tls, port, auto_decompress=False) as url:
        made.url = f"{url}/in"
        try:
            yield made
        finally:
            if made.held is not None:
                made.held.set()
