"""A program on this host calls over loopback, by a loopback name, and through no proxy."""

from __future__ import annotations

import pytest

from node.api.local_access import is_local

HERE = {"Host": "127.0.0.1:8642"}


@pytest.mark.parametrize(
    "host", ["localhost", "localhost:8642", "127.0.0.1", "127.1.2.3:8642", "[::1]", "[::1]:8642"]
)
def test_names_of_this_host(host: str) -> None:
    """A request over loopback to a loopback name is this host's own."""
    assert is_local("127.0.0.1", (1, 1), "/v1/tasks", {"Host": host})
    assert is_local("::1", (1, 1), "/v1/tasks", {"Host": host})
    assert not is_local("192.0.2.1", (1, 1), "/v1/tasks", {"Host": host})


@pytest.mark.parametrize(
    "host",
    [
        "",
        "evil.example",
        "localhost.evil.example",
        "127.0.0.1.x",
        "[::1].x",
        "[::1",
        "a@localhost",
        "192.0.2.1",
        "0.0.0.0",
        "[::]",
        "[::1]:x",
        "127.0.0.1:8642:1",
        "�",
        "localhost\n",
    ],
)
def test_names_of_other_hosts(host: str) -> None:
    """A name that is not this host's, or none, is not believed: it may be rebound."""
    assert not is_local("127.0.0.1", (1, 1), "/v1/tasks", {"Host": host})


@pytest.mark.parametrize(
    "header",
    [
        "X-Forwarded-For",
        "x-forwarded-host",
        "X-Forwarded-Anything",
        "Forwarded",
        "VIA",
        "X-Real-IP",
        "X_Forwarded_For",
        "X-Forwarded",
        "X-Original-URL",
        "CDN-Loop",
        "CF-Connecting-IP",
        "True-Client-IP",
        "Fastly-Client-IP",
        "Fly-Client-IP",
        "X-Azure-ClientIP",
        "X-ARR-LOG-ID",
        "X-Amzn-Trace-Id",
        "Proxy-Connection",
    ],
)
def test_what_proxies_add(header: str) -> None:
    """A request that a proxy has passed on is not this host's, whatever the header says."""
    assert not is_local("127.0.0.1", (1, 1), "/v1/tasks", {**HERE, header: "127.0.0.1"})
    assert not is_local("127.0.0.1", (1, 1), "/v1/tasks", {**HERE, header: ""})


@pytest.mark.parametrize("header", ["Accept", "User-Agent", "Last-Event-ID", "Origin", "Avia"])
def test_what_programs_send(header: str) -> None:
    """Headers that no proxy adds do not end the privilege."""
    assert is_local("127.0.0.1", (1, 1), "/v1/tasks", {**HERE, header: "x"})


def test_request_lines_of_proxies() -> None:
    """HTTP/1.0 and a whole URL as the target are what proxies send."""
    assert not is_local("127.0.0.1", (1, 0), "/v1/tasks", HERE)
    assert not is_local("127.0.0.1", (1, 1), "http://localhost/v1/tasks", HERE)
