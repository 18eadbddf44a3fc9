"""The documented configuration of nginx, in front of a real node."""

from __future__ import annotations

import asyncio
import io
import os
import re
import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import aiohttp
import pytest

from node.model import times
from node.model.classes import SchedulingClass
from node.model.wire.participants import Introduction
from node.model.wire.tasks import Participant, Schedule
from node.store.database import Notice
from tests.architecture.sources import REPOSITORY
from tests.conftest import NewDatabase
from tests.integration.plugins.targets import Authority
from tests.support.clocks import START, ManualClock
from tests.support.loopback import free_port
from tests.support.needs import fixture_needs
from tests.support.patience import PATIENCE_S
from tests.support.served_nodes import Served, asker, know, served
from tests.support.worlds import introduce

TOKEN = {"Authorization": "Bearer secret"}
_OUTSIDE = """
daemon off;
pid {folder}/pid;
error_log {folder}/errors;
events {{ }}
http {{
    access_log {folder}/log;
    client_body_temp_path {folder}/bodies;
    proxy_temp_path {folder}/answers;
    {block}
}}
"""


@dataclass
class Proxied:
    """A node behind nginx, a client without a token that asks through it, and another node."""

    node: Served
    url: str
    http: aiohttp.ClientSession
    folder: Path
    trusting: ssl.SSLContext

    async def ask(self, method: str, path: str, **options: object) -> tuple[int, bytes]:
        """Return status and body of the answer."""
        async with self.http.request(method, f"{self.url}{path}", **options) as response:  # type: ignore[arg-type]
            return response.status, await response.read()


def _block(port: int, upstream: str, certificate: Path) -> str:
    """Return the documented block, with other addresses and files."""
    readme = (REPOSITORY / "docs" / "how-to" / "proxy.md").read_text()
    block: str
    [block] = re.findall(r"^```nginx\n(.*?)^```$", readme, re.DOTALL | re.MULTILINE)
    for documented, here in (
        ("server 127.0.0.1:8642;", f"server {upstream};"),
        ("listen 443 ssl;", f"listen 127.0.0.1:{port} ssl;"),
        ("listen [::]:443 ssl;", ""),
        ("/etc/ssl/a.example.pem", str(certificate)),
        ("/etc/ssl/a.example.key", str(certificate)),
    ):
        assert documented in block
        block = block.replace(documented, here)
    return block


@pytest.fixture
@fixture_needs("nginx")
async def proxied(
    new_database: NewDatabase, clock: ManualClock, tmp_path: Path
) -> AsyncIterator[Proxied]:
    """Serve a node on loopback, without a URL of its own, and nginx in front of it."""
    port = free_port()
    authority = Authority(tmp_path)
    trusting = ssl.create_default_context(cafile=authority.file)
    async with (
        asker("a", await new_database(), clock, tmp_path, address="198.51.100.1") as a,
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=trusting)) as http,
    ):
        block = _block(port, a.node.settings.listen, authority.certificate("127.0.0.1"))
        configuration = tmp_path / "nginx.conf"
        user = "user root;" if os.geteuid() == 0 else ""
        configuration.write_text(user + _OUTSIDE.format(folder=tmp_path, block=block))
        argv = ["nginx", "-p", str(tmp_path), "-e", str(tmp_path / "errors"), "-c"]
        server = await asyncio.create_subprocess_exec(*argv, str(configuration))
        try:
            async with asyncio.timeout(PATIENCE_S):
                while not await _listens(port):
                    assert server.returncode is None
            yield Proxied(a.node, f"https://127.0.0.1:{port}", http, tmp_path, trusting)
        finally:
            server.terminate()
            await server.wait()


async def _listens(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return False
    writer.close()
    return True


async def test_who_comes_through_the_proxy_needs_a_token(proxied: Proxied) -> None:
    """Nobody reads through the proxy without a token, whatever they say of themselves."""
    headers: tuple[dict[str, str], ...] = (
        *({}, {"Host": "127.0.0.1:8642"}, {"X-Forwarded-For": "127.0.0.1"}),
        {"Connection": "X-Forwarded-For"},
    )
    for path in ("/v1/nodes", "/v1/events", "/metrics"):
        for each in headers:
            assert (await proxied.ask("GET", path, headers=each))[0] == 401, (path, each)
        assert path == "/v1/events" or (await proxied.ask("GET", path, headers=TOKEN))[0] == 200
    assert (await proxied.ask("GET", "/healthz"))[0] == 200
    logged = (proxied.folder / "log").read_text()
    assert logged.startswith("127.0.0.1 - - [")


async def test_events_come_through_at_once(proxied: Proxied) -> None:
    """An event passes the proxy while the stream stays open."""
    async with (
        asyncio.timeout(PATIENCE_S),
        proxied.http.get(f"{proxied.url}/v1/events", headers=TOKEN) as response,
    ):
        assert await response.content.readline() == b"retry: 2000\n"
        proxied.node.hub.on_notice(Notice("task", str(uuid4()), ("active",)))
        seen = b""
        while b'"state":"active"' not in seen:
            seen += await response.content.readany()


async def test_bodies_that_are_too_large_are_refused(proxied: Proxied) -> None:
    """A refusal at the head of a request passes the proxy, too, and 8 MB are the limit."""
    refused: tuple[tuple[int, int, dict[str, str]], ...]
    refused = ((401, 5_000_000, {}), (413, 5_000_000, TOKEN), (413, 9_000_000, TOKEN))
    for status, length, headers in refused:
        for _ in range(3):
            body = io.BytesIO(bytes(length))
            answer = await proxied.ask("POST", "/v1/tasks", data=body, headers=headers)
            assert answer[0] == status, answer
    assert (await proxied.ask("POST", "/v1/tasks", data=b"{}", headers=TOKEN))[0] == 422


async def test_nodes_reach_each_other_through_the_proxy(
    proxied: Proxied,
    new_database: NewDatabase,
    clock: ManualClock,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Signed requests pass unchanged, and no task of another node reads the proxy or the node."""
    card = proxied.node.card
    async with served("c", await new_database(), clock, tmp_path / "c") as c:
        await know(proxied.node, c)
        monkeypatch.setattr("node.client.peers.public", lambda: {"ssl": proxied.trusting})
        peer = c.peers.client_of(card.identity, card.name, proxied.url)
        listed = Participant(node=card.identity, name="a", url=card.url, address=card.address)
        idle = introduce([listed], schedule=Schedule(start=START + times.HOUR, slip=0))
        assert (await peer.introduce(idle)).accepted
        loopback = "127.0.0.1 is this node itself, whose API tasks of other nodes must never reach"
        refused = {
            f"{card.url}/v1/nodes": loopback,
            f"{proxied.url}/v1/nodes": "127.0.0.1 is an address of this host itself",
            "https://localhost/v1/nodes": "localhost is this host itself",
        }
        for url, reason in refused.items():
            answer = await peer.introduce(_http(idle, {"source": "a", "url": url}))
            assert str(answer.reason).startswith(reason)


def _http(idle: Introduction, spec: dict[str, str]) -> Introduction:
    changes = {
        "test": "http",
        "spec": spec,
        "tool": "fetch",
        "scheduling_class": SchedulingClass.BACKGROUND,
        "duration": 11 * times.SECOND,
    }
    return idle.model_copy(update=changes)
