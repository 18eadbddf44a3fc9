"""Real nodes whose API is served on loopback, with signatures on."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import aiohttp
from aiohttp import web

from lead.assembly.with_node import lead_functions
from node.access.certificates import ServerCertificates
from node.api.app import application, listen, runner, tls_of
from node.cli.services import connector
from node.client.mailboxes import Mailboxes
from node.client.peers import Peers
from node.model import times
from node.model.host_limits.document import EVERYTHING
from node.model.principals import Role
from node.runtime.clock import Clock, SystemClock
from node.runtime.settings import Settings
from node.service import NodeDependencies, NodeService
from node.store import nodes, tokens
from node.store.core import Core
from node.store.database import PostgresDatabase
from node.store.tokens import StoredToken
from node.trust.key_files import KeyFile
from node.trust.keys import NodeKey
from node.trust.signer import Signer
from node.trust.tokens import digest
from tests.support.clocks import ManualClock
from tests.support.patience import PATIENCE_S

Command = Callable[..., Awaitable[Any]]
"""The command line with a node of its own: ``await ask("task", "list")``."""


def answered(node: NodeService, paths: str = "") -> int:
    """Return how many requests a node has answered at paths that begin like this.

    Long polls and streams do not count.
    """
    return sum(
        round(sample.value)
        for metric in node.core.instruments.registry.collect()
        for sample in metric.samples
        if sample.name == "parley_request_seconds_count"
        and sample.labels["route"].startswith(paths)
    )


class Served(NodeService):
    """A node with its key."""

    key: NodeKey


@contextlib.asynccontextmanager
async def served(
    name: str, dsn: str, clock: Clock, directory: Path, *, tls: bool = False, **settings_: Any
) -> AsyncIterator[Served]:
    """Serve a node's API on a port of its own; its loops are not started.

    With ``tls`` others know it by a URL with https; the same port serves plain HTTP.
    ``settings_`` are further settings of the node, and ``pages``, which it serves besides its API.
    Without ``limits`` among them, other nodes may have everything.
    """
    pages: list[web.RouteDef] = settings_.pop("pages", [])
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{listening.getsockname()[1]}"
        if tls:
            settings_ = {"url": f"https://{address}", **settings_}
        settings = Settings(name=name, listen=address, state_dir=directory, **settings_)
        directory.mkdir(parents=True, exist_ok=True)
        database, file = PostgresDatabase(dsn), KeyFile(directory / f"{name}.pem")
        key = file.current
        async with contextlib.AsyncExitStack() as stack:
            await database.open()
            stack.push_async_callback(database.close)
            session = await stack.enter_async_context(
                aiohttp.ClientSession(connector=connector(), auto_decompress=False)
            )
            signer = Signer(file, clock.now)
            peers = Peers(session, signer, PATIENCE_S)
            mailboxes = Mailboxes(clock, PATIENCE_S)
            peers.carry = mailboxes.carry
            limits = None if "limits" in settings_ else EVERYTHING
            core = Core(database, clock, key.identity, settings, signer)
            certificates = ServerCertificates(core, file) if tls else None
            means = NodeDependencies(
                peers,
                lead_functions(),
                mailboxes=mailboxes,
                certificates=certificates,
                key=file,
                limits=limits,
                dsn=dsn,
            )
            node = Served(core, means)
            stack.push_async_callback(node.tool_runner.close)
            node.key = key
            node.capabilities.assume_all()
            await know(node)
            serving = runner(application(node, pages))
            await serving.setup()
            stack.push_async_callback(serving.cleanup)
            if certificates is not None:
                certificates.load()
            server = await listen(serving, settings, listening, tls_of(node))
            stack.callback(server.close)
            yield node
            node.hub.close()
            node.mailboxes.close()


@contextlib.asynccontextmanager
async def fetching(node: NodeService) -> AsyncIterator[None]:
    """Let the node fetch its work meanwhile."""
    polling = asyncio.create_task(node.work_puller.run())
    try:
        yield
    finally:
        polling.cancel()
        await asyncio.gather(polling, return_exceptions=True)


async def know(node: NodeService, *others: NodeService) -> None:
    """Let a node know itself and others."""
    async with node.database.transaction() as connection:
        await nodes.keep_self(connection, node.card, node.clock.now())
        for other in others:
            await nodes.keep(connection, other.card, node.clock.now())
    await node.directory.refresh()


@contextlib.asynccontextmanager
async def three_served(
    new_dsn: Callable[[], Awaitable[str]], directory: Path
) -> AsyncIterator[tuple[Served, Served, Served]]:
    """Serve three nodes that know each other, a, b and c, each with a directory below this one."""
    clock = SystemClock()
    async with contextlib.AsyncExitStack() as stack:
        nodes_ = []
        for name in "abc":
            (directory / name).mkdir()
            serving = served(name, await new_dsn(), clock, directory / name)
            nodes_.append(await stack.enter_async_context(serving))
        for node in nodes_:
            async with node.database.transaction() as connection:
                await node.own_card.write(connection)
        for node in nodes_:
            await know(node, node, *(other for other in nodes_ if other is not node))
        # Requests of the second of the start are refused.
        await clock.sleep_until((clock.now() // times.SECOND + 1) * times.SECOND)
        yield nodes_[0], nodes_[1], nodes_[2]


@dataclass
class Asker:
    """A client with a token for a node."""

    node: Served
    session: aiohttp.ClientSession

    async def ask(self, method: str, path: str, document: object = None) -> tuple[int, Any]:
        """Return status and document of the answer; None if it is empty."""
        url = f"{self.node.card.url}{path}"
        async with self.session.request(method, url, json=document) as response:
            body = await response.read()
            return response.status, await response.json(content_type=None) if body else None

    async def rows(self, query: str, *values: Any) -> list[Any]:
        """Return rows of the node's tables, or execute a statement."""
        async with self.node.database.connection() as connection:
            return list(await connection.fetch(query, *values))


@contextlib.asynccontextmanager
async def asker(
    name: str, dsn: str, clock: ManualClock, directory: Path, **settings_: Any
) -> AsyncIterator[Asker]:
    """A served node, with a client that may do everything."""
    headers = {"Authorization": "Bearer secret"}
    async with (
        served(name, dsn, clock, directory, **settings_) as node,
        aiohttp.ClientSession(connector=connector(), headers=headers) as session,
    ):
        await give_token(node)
        yield Asker(node, session)


@contextlib.asynccontextmanager
async def user(a: Asker, token: str | None) -> AsyncIterator[Asker]:
    """Ask the same node with another token, or with none."""
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    async with aiohttp.ClientSession(connector=connector(), headers=headers) as session:
        yield Asker(a.node, session)


async def give_token(
    node: NodeService, secret: str = "secret", label: str = "owner", role: Role = Role.OWN
) -> None:
    """Let a user have a token with this secret."""
    made = StoredToken(uuid4(), label, role, node.clock.now(), "test")
    async with node.database.transaction() as connection:
        await tokens.keep(connection, digest(secret), made)
