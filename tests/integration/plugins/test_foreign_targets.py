"""Our own programs keep to the rules for targets of tasks that another node leads."""

from __future__ import annotations

import asyncio
import http.server
import ipaddress
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from node.model.targets import TargetRules
from node.plugins.tools.programs import http_fetch, target
from node.runtime.opt_outs import OptOuts
from tests.integration.plugins.targets import measured, pages
from tests.support.objections import objecting
from tests.support.patience import PATIENCE_S

NOTHING = TargetRules(frozenset(), 8642)
ANY = TargetRules(frozenset(), 8642, allowed=(ipaddress.ip_network("127.0.0.0/8"),))


@pytest.mark.parametrize(
    ("test", "tool", "fields"),
    [
        ("http", "fetch", {"url": "http://localhost:{port}/page"}),
        ("http", "fetch", {"url": "http://2130706433:{port}/page", "text": "works"}),
        ("tcp", "connect", {"dest": "localhost", "banner": True}),
        ("tls", "handshake", {"dest": "localhost"}),
        ("dns", "dnspython", {"name": "a.example", "server": "localhost"}),
    ],
)
@pytest.mark.mostly_nightly
def test_an_address_is_checked_after_the_look_up(
    test: str, tool: str, fields: dict[str, Any]
) -> None:
    """A name of this host, or another form of its address, gets no packet, and the run says why."""
    with pages() as port:
        if "url" in fields:
            fields = fields | {"url": fields["url"].format(port=port)}
        else:
            fields = fields | {"port": port}
        run = measured(test, tool, rules=NOTHING, ip_version=4, **fields)
    assert "a loopback address, which tasks of other nodes" in str(run.reason)
    result = run.result or {}
    assert not any(result.get(name) for name in ("status", "matched", "banner", "version", "rcode"))


@pytest.fixture
def redirecting() -> Iterator[tuple[str, list[str]]]:
    """Yield the URL of a server that redirects to its path, and the hosts that were requested."""
    asked: list[str] = []

    class Redirecting(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.headers["Host"].partition(":")[0])
            self.send_response(302 if len(self.path) > 1 else 200)
            self.send_header("Location", self.path[1:])
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Print nothing."""

    with http.server.ThreadingHTTPServer(("0.0.0.0", 0), Redirecting) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}", asked
        server.shutdown()


@pytest.mark.parametrize("there", ["127.0.0.2", "0x7f.2", "[::ffff:127.0.0.2]", "localhost"])
def test_a_redirect_names_no_target(redirecting: tuple[str, list[str]], there: str) -> None:
    """A target cannot lead a foreign task to a host that the task has not named."""
    url, asked = redirecting
    onwards = url.replace("127.0.0.1", there)
    run = measured("http", "fetch", rules=ANY, url=f"{url}/{onwards}/")
    assert "which is not followed: tasks of other nodes measure what they name" in str(run.reason)
    assert (run.result or {})["redirects"] == 1
    assert asked == ["127.0.0.1"]


def test_a_redirect_to_another_port_is_checked(redirecting: tuple[str, list[str]]) -> None:
    """A target cannot lead a foreign task to a port that the task could not have named."""
    url, asked = redirecting
    rules = replace(ANY, own=frozenset({ipaddress.ip_address("127.0.0.1")}))
    run = measured("http", "fetch", rules=rules, url=f"{url}/http://127.0.0.1:8642/")
    assert "whose API tasks of other nodes must never reach" in str(run.reason)
    assert asked == ["127.0.0.1"]


def test_an_allowed_redirect_is_followed(redirecting: tuple[str, list[str]]) -> None:
    """Redirects at the host of the URL are followed, and an own task follows all."""
    url, asked = redirecting
    assert measured("http", "fetch", rules=ANY, url=f"{url}/{url}/").reason is None
    assert asked == ["127.0.0.1", "127.0.0.1"]
    elsewhere = url.replace("127.0.0.1", "127.0.0.2")
    assert measured("http", "fetch", url=f"{url}/{elsewhere}/").reason is None
    assert asked[2:] == ["127.0.0.1", "127.0.0.2"]


@pytest.mark.needs("curl")
def test_curl_leaves_no_host(redirecting: tuple[str, list[str]]) -> None:
    """curl, which asks nobody, follows redirects at the host of the URL alone, for all."""
    url, asked = redirecting
    assert measured("http", "curl", url=f"{url}/{url}/").reason is None
    assert asked == ["127.0.0.1", "127.0.0.1"]
    elsewhere = url.replace("127.0.0.1", "127.0.0.2")
    run = measured("http", "curl", url=f"{url}/{elsewhere}/")
    assert "redirected to 127.0.0.2, which curl cannot ask" in str(run.reason)
    assert asked[2:] == ["127.0.0.1"]


OBJECTING = "198.41.0.4"


async def test_a_redirect_to_a_target_that_objects(redirecting: tuple[str, list[str]]) -> None:
    """A host to which a target leads is asked whether it objects, whoever wants the measurement."""
    url, asked = redirecting
    arguments = {
        "url": f"{url}/http://{OBJECTING}:9/",
        "address": "127.0.0.1",
        "method": "GET",
        "ip_version": None,
        "redirects": 5,
        "timeout_ns": int(PATIENCE_S * 1e9),
        "bytes_max": 1000,
        "text": None,
        "agent": "parley",
        "verify": True,
    }
    async with objecting() as (zone, opt_outs):

        def objection(hosts: list[str], not_asked: list[str], patience_s: float) -> str | None:
            assert not_asked == ["192.0.2.0/24"]
            asker = OptOuts(tuple, opt_outs.servers)
            return asyncio.run(asker.refusal(hosts, patience_s))

        private = target.Private({})
        private.not_asked = ["192.0.2.0/24"]
        fetch = http_fetch.Fetch(arguments, private, None, objection)
        result = await asyncio.to_thread(fetch.run)
    assert "_parley.4.0.41.198.in-addr.arpa TXT) that it does not want" in result["failure"]
    assert asked == ["127.0.0.1"]
    assert zone.asked.total() > 0


def test_what_asks_is_found_by_the_program(redirecting: tuple[str, list[str]]) -> None:
    """The program, which starts without libraries, finds them where it asks; nobody else is."""
    url, asked = redirecting
    elsewhere = url.replace("127.0.0.1", "127.0.0.2")
    run = measured("http", "fetch", url=f"{url}/{elsewhere}/", not_asked=())
    assert run.reason is None
    assert asked == ["127.0.0.1", "127.0.0.2"]


def test_own_resolvers_are_asked_at_their_port_only() -> None:
    """The owner's resolvers, often on loopback, are no way to another port there."""
    with pytest.raises(ValueError, match="own resolvers are asked at port 53"):
        measured("dns", "dnspython", name="a.example", port=8642)
