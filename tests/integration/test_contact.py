"""The contact of a node is told to every server of HTTP that it asks or tells something."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import web

from node.access.oidc import IssuerKeys
from node.cli.published import Documents
from node.plugins.archivers.http import ARCHIVER, HttpArchiverSpec
from node.plugins.contracts import DeliveryItem, DeliveryStatus
from node.runtime.version import program_version
from tests.conftest import NewDatabase
from tests.support.clocks import START, ManualClock
from tests.support.loopback import serving
from tests.support.served_nodes import asker

CONTACT = "noc@example.org"
AGENT = f"parley/{program_version()} (+{CONTACT})"


class Server:
    """A server that notes who asks."""

    def __init__(self) -> None:
        """Nobody has asked yet."""
        self.url = ""
        self.agents: dict[str, str] = {}

    async def take(self, request: web.Request) -> web.Response:
        """Answer with an empty document."""
        self.agents[request.path] = request.headers["User-Agent"]
        return web.json_response({})


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    """Return a server on loopback."""
    made, app = Server(), web.Application()
    app.router.add_route("*", "/{path:.*}", made.take)
    async with serving(app) as made.url:
        yield made


async def test_servers_are_told_the_contact(
    new_database: NewDatabase,
    clock: ManualClock,
    tmp_path: Path,
    server: Server,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Webhooks, archives, issuers and publishers see the version, and whom to ask."""
    async with asker("a", await new_database(), clock, tmp_path, contact=CONTACT) as a:
        webhook = {"name": "pager", "url": f"{server.url}/webhook"}
        assert (await a.ask("POST", "/v1/webhooks", webhook))[0] == 201
        await a.ask("POST", "/v1/webhooks/pager/test")
        spec = HttpArchiverSpec(url=f"{server.url}/archive")
        destination = ARCHIVER.open(spec, a.node.result_delivery._host)
        item = DeliveryItem("k", "s", START, succeeded=True, body=b"{}")
        [outcome] = await destination.deliver([item])
        assert outcome.status is DeliveryStatus.ACCEPTED, outcome
        await destination.close()
        await a.node.result_delivery.close()
    keys = IssuerKeys(server.url, clock, agent=AGENT)
    with pytest.raises(ValueError, match="its discovery document is that of None"):
        await keys._fetch()
    monkeypatch.setenv("PARLEY_CONTACT", CONTACT)
    assert await Documents(insecure=False).read_named(f"{server.url}/mesh") == "{}"
    assert server.agents == dict.fromkeys(
        ("/webhook", "/archive", "/.well-known/openid-configuration", "/mesh"), AGENT
    )
