"""Our own programs keep to the rules for targets of tasks that another node leads."""

from __future__ import annotations

import http.server
import ipaddress
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from node.model.targets import TargetRules
from tests.integration.plugins.targets import measured, pages

NOTHING = TargetRules(frozenset(), 8642)
ONE = TargetRules(frozenset(), 8642, allowed=(ipaddress.ip_network("127.0.0.1"),))


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
    assert "127.0.0.1 is a loopback address, which tasks of other nodes" in str(run.reason)
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


@pytest.mark.parametrize("there", ["127.0.0.2", "0x7f.2", "[::ffff:127.0.0.2]", "0.0.0.0"])
def test_each_redirect_is_checked(redirecting: tuple[str, list[str]], there: str) -> None:
    """A target cannot lead a foreign task to an address that the task could not have named."""
    url, asked = redirecting
    onwards = url.replace("127.0.0.1", there)
    run = measured("http", "fetch", rules=ONE, url=f"{url}/{onwards}/")
    assert "which tasks of other nodes must not reach" in str(run.reason)
    assert (run.result or {})["redirects"] == 1
    assert asked == ["127.0.0.1"]


def test_an_allowed_redirect_is_followed(redirecting: tuple[str, list[str]]) -> None:
    """Redirects to targets are followed, and an own task follows all."""
    url, asked = redirecting
    assert measured("http", "fetch", rules=ONE, url=f"{url}/{url}/").reason is None
    assert asked == ["127.0.0.1", "127.0.0.1"]
    elsewhere = url.replace("127.0.0.1", "127.0.0.2")
    assert measured("http", "fetch", url=f"{url}/{elsewhere}/").reason is None
    assert asked[2:] == ["127.0.0.1", "127.0.0.2"]


def test_own_resolvers_are_asked_at_their_port_only() -> None:
    """The owner's resolvers, often on loopback, are no way to another port there."""
    with pytest.raises(ValueError, match="own resolvers are asked at port 53"):
        measured("dns", "dnspython", name="a.example", port=8642)
