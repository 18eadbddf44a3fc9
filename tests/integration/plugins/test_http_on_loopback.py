"""Both HTTP tools against real servers on loopback: they report the same for the same answer."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest

from tests.integration.plugins.targets import Authority, measured, pages, talking
from tests.support.loopback import free_port

TOOLS = ["fetch", pytest.param("curl", marks=pytest.mark.needs("curl"))]


@pytest.mark.parametrize("tool", TOOLS)
def test_the_phases_of_an_answer(tool: str) -> None:
    """The server's delay is in the first byte, and no phase is longer than the whole."""
    with pages() as port:
        run = measured("http", tool, url=f"http://127.0.0.1:{port}/slow", text="größer")
    assert run.reason is None
    result = run.result or {}
    assert (result["status"], result["matched"], result["complete"]) == (200, True, True)
    assert (result["address"], result["protocol"]) == ("127.0.0.1", "HTTP/1.1")
    assert result["body_bytes"] == len("it works: größer".encode())
    phases = result["phases_ms"]
    assert phases["tls"] is None
    assert phases["first_byte"] >= 80
    assert sum(spent for spent in phases.values() if spent is not None) <= result["total_ms"] + 1


@pytest.mark.parametrize("tool", TOOLS)
def test_a_target_is_told_whom_to_ask(tool: str) -> None:
    """A target sees the version and the contact in the name of the program that asks."""
    agent = "parley/0.4.0 (+https://a.example:8642)"
    with pages() as port:
        url = f"http://127.0.0.1:{port}/header"
        assert measured("http", tool, url=url, text=agent, agent=agent).reason is None


@pytest.mark.parametrize("tool", TOOLS)
def test_redirects_are_followed_as_far_as_asked(tool: str) -> None:
    """Redirects are followed up to the limit; without one, a redirect is an ordinary answer."""
    with pages() as port:
        url = f"http://127.0.0.1:{port}/again1"
        run = measured("http", tool, url=url, text="it works")
        assert run.reason is None
        followed = run.result or {}
        assert (followed["redirects"], followed["status"]) == (2, 200)
        assert followed["url"].endswith("/page")
        assert 0 < followed["redirect_ms"] <= followed["total_ms"]
        broken_off = measured("http", tool, url=url, redirects=1)
        assert "redirects" in str(broken_off.reason)
        assert (broken_off.result or {})["status"] == 302
        assert (measured("http", tool, url=url, redirects=0).result or {})["status"] == 302


@pytest.mark.parametrize("tool", TOOLS)
@pytest.mark.parametrize(
    ("path", "fields", "reason"),
    [
        ("/error", {}, "127.0.0.1 answered 500 Internal Server Error"),
        ("/page", {"status": 404}, "127.0.0.1 answered 200 OK where 404 was expected"),
        ("/page", {"text": "it fails"}, "'it fails' is not in the body"),
    ],
)
def test_answers_that_are_not_as_expected(
    path: str, fields: dict[str, Any], reason: str, tool: str
) -> None:
    """An unexpected answer fails the run with a reason, and all measurements are kept."""
    with pages() as port:
        run = measured("http", tool, url=f"http://127.0.0.1:{port}{path}", **fields)
    assert run.reason == reason
    assert (run.result or {})["phases_ms"]["first_byte"] > 0


@pytest.mark.parametrize("tool", TOOLS)
def test_no_more_is_read_than_asked(tool: str) -> None:
    """A body that exceeds the limit is truncated, and the result says so."""
    with pages() as port:
        run = measured("http", tool, url=f"http://127.0.0.1:{port}/large", bytes_max=1000)
    assert run.reason is None
    result = run.result or {}
    assert result["complete"] is False
    assert result["body_bytes"] <= 1000


@pytest.mark.parametrize("tool", TOOLS)
def test_head_has_no_body(tool: str) -> None:
    """HEAD returns a status and no body."""
    with pages() as port:
        run = measured("http", tool, url=f"http://127.0.0.1:{port}/page", method="HEAD")
    assert run.reason is None
    assert ((run.result or {})["status"], (run.result or {})["body_bytes"]) == (200, 0)


@pytest.mark.parametrize("tool", TOOLS)
def test_headers_are_sent_and_told_to_nobody(tool: str) -> None:
    """A header reaches the server, and the result does not contain it."""
    with pages() as port:
        url = f"http://127.0.0.1:{port}/header"
        run = measured("http", tool, url=url, headers={"X-Probe": "se cret"}, text="se cret")
    assert run.reason is None
    assert "cret" not in str(run.result)


@pytest.mark.parametrize("tool", TOOLS)
@pytest.mark.nightly
def test_certificates_are_judged(tool: str, tmp_path: Path) -> None:
    """A trusted certificate passes, and an expired one fails unless verification is off."""
    authority = Authority(tmp_path)
    with pages(authority.context("127.0.0.1")) as port:
        url = f"https://127.0.0.1:{port}/page"
        trusted = measured("http", tool, url=url, trusting=authority.file, timeout="PT5S")
        assert trusted.reason is None
        assert (trusted.result or {})["phases_ms"]["tls"] > 0
    with pages(authority.context("127.0.0.1", days_left=-2)) as port:
        url = f"https://127.0.0.1:{port}/page"
        ended = measured("http", tool, url=url, trusting=authority.file)
        assert "certificate has expired" in str(ended.reason)
        assert (ended.result or {})["phases_ms"]["tls"] is None
        anyway = measured("http", tool, url=url, trusting=authority.file, verify=False)
        assert anyway.reason is None


@pytest.mark.parametrize("tool", TOOLS)
def test_a_node_is_found_under_its_own_address(tool: str) -> None:
    """The host of a URL may be a node's name, which no name server knows."""
    with pages() as port:
        url = f"http://b.invalid:{port}/again0"
        run = measured("http", tool, url=url, addresses={"b.invalid": "127.0.0.1"})
    assert run.reason is None
    assert (run.result or {})["redirects"] == 1
    assert (run.result or {})["address"] == "127.0.0.1"


@pytest.mark.parametrize("tool", TOOLS)
def test_over_ipv6(tool: str) -> None:
    """A host may be an IPv6 address in brackets."""
    with pages(address="::1") as port:
        run = measured("http", tool, url=f"http://[::1]:{port}/page", ip_version=6)
    assert run.reason is None
    assert (run.result or {})["address"] == "::1"


@pytest.mark.parametrize("tool", TOOLS)
def test_a_refused_connection_is_a_result(tool: str) -> None:
    """A refused connection fails the run, and the measurements until then are kept."""
    port = free_port()
    run = measured("http", tool, url=f"http://127.0.0.1:{port}/")
    assert str(port) in str(run.reason)
    result = run.result or {}
    assert (result["status"], result["phases_ms"]["connect"]) == (None, None)
    assert result["total_ms"] > 0


def _says(octets: bytes, connection: socket.socket) -> None:
    connection.recv(4096)
    connection.sendall(octets)


@pytest.mark.parametrize("tool", TOOLS)
@pytest.mark.parametrize(
    "octets",
    [
        b"",
        b"220 mail ready\r\n",
        b"HTTP/1.1 200 OK\r\n\r\n"[:10],
        b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\nshort",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 302 Found\r\nContent-Length: 0\r\nLocation: ftp://127.0.0.1/\r\n\r\n",
        b"HTTP/1.1 302 Found\r\nContent-Length: 0\r\nLocation: http://:x/\r\n\r\n",
        b"HTTP/1.1 302 Found\r\nContent-Length: 0\r\nLocation: http://[::x/\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-5\r\nabc\r\n",
    ],
    ids=["nothing", "mail", "cut", "short", "chunk", "elsewhere", "nowhere", "bracket", "below 0"],
)
@pytest.mark.mostly_nightly
def test_malformed_answers_fail_the_run(tool: str, octets: bytes) -> None:
    """Any malformed answer fails the run with a reason and times."""
    with talking(lambda connection: _says(octets, connection)) as port:
        run = measured("http", tool, url=f"http://127.0.0.1:{port}/", timeout="PT5S")
    assert run.reason
    assert 0 < (run.result or {})["total_ms"] < 5000


def _listens(connection: socket.socket) -> None:
    while connection.recv(4096):
        pass


@pytest.mark.parametrize("tool", TOOLS)
def test_a_silent_server_is_given_up(tool: str) -> None:
    """A server that accepts the connection and stays silent costs the timeout and no more."""
    with talking(_listens) as port:
        run = measured("http", tool, url=f"http://127.0.0.1:{port}/", timeout="PT0.3S")
    assert run.reason
    assert 250 < (run.result or {})["total_ms"] < 3000
