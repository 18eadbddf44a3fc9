"""TCP and TLS connections to servers on loopback, good ones and bad ones."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from node.plugins.contracts import Merged
from node.plugins.tools.programs import target
from node.plugins.tools.programs.tls_handshake import names_match
from tests.integration.plugins.targets import Authority, measured, pages, talking
from tests.support.loopback import free_port

BRISK = {"interval": "PT0.02S", "timeout": "PT0.3S"}


def connected(port: int, **fields: Any) -> Merged:
    """Connect to a port on loopback, and return the result."""
    given: dict[str, Any] = {"dest": "127.0.0.1", "port": port} | BRISK | fields
    return measured("tcp", "connect", **given)


def shaken(port: int, dest: str = "127.0.0.1", **fields: Any) -> Merged:
    """Shake hands with a port on loopback, under any name."""
    addresses = {dest: "127.0.0.1"}
    return measured("tls", "handshake", dest=dest, port=port, addresses=addresses, **fields)


def test_connections() -> None:
    """Every attempt at an open port becomes a connection within the limit."""
    with talking(lambda _: None) as port:
        run = connected(port, count=5)
    assert run.reason is None
    result = run.result or {}
    assert (result["attempts"], result["connected"], result["loss"]) == (5, 5, 0)
    assert 0 < result["connect_ms"]["min"] <= result["connect_ms"]["max"] < 300
    assert (result["banner"], result["failures"]) == (None, [])


def test_no_word_waits_for_the_last_one_to_be_acknowledged() -> None:
    """A request after a handshake does not wait for an acknowledgement (TCP_NODELAY)."""
    deadline = target.Deadline(1_000_000_000)
    with talking(lambda _: None) as port:
        addresses = target.look_up("127.0.0.1", port, None, deadline)
        with target.connect(addresses, deadline, {}) as endpoint:
            assert endpoint.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_a_banner() -> None:
    """The first line that the server sends unprompted is kept, made printable."""
    with talking(lambda it: it.sendall(b"SSH-2.0-\x1b[2J\xff\r\nmore")) as port:
        run = connected(port, banner=True)
    assert run.reason is None
    assert (run.result or {})[
        "banner"
    ] == "SSH-2.0-\N{REPLACEMENT CHARACTER}[2J\N{REPLACEMENT CHARACTER}"
    assert (run.result or {})["banner_ms"] >= 0


def _listens(connection: socket.socket) -> None:
    while connection.recv(4096):
        pass


def test_no_banner() -> None:
    """A server that waits for the client sends no banner, which fails a run that expects one."""
    with talking(_listens) as port:
        run = connected(port, banner=True)
    assert run.reason == f"127.0.0.1 port {port} accepted the connection and sent nothing"
    assert (run.result or {})["connected"] == 3


def test_refused_connections() -> None:
    """Every attempt at a closed port fails, and so does the run."""
    port = free_port()
    run = connected(port)
    assert run.reason == (
        f"no connection to 127.0.0.1 port {port}: Connection refused (3 attempts)"
    )
    assert (run.result or {})["failures"] == [{"reason": "Connection refused", "count": 3}]


def test_attempts_go_on_while_others_wait() -> None:
    """Attempts without an answer end after their timeouts, and do not delay the others."""
    with socket.socket() as deaf, contextlib.ExitStack() as waiting:
        deaf.bind(("127.0.0.1", 0))
        deaf.listen(0)  # the kernel keeps one connection more, and then drops what comes
        for _ in range(2):
            filler = waiting.enter_context(socket.socket())
            filler.settimeout(0)
            filler.connect_ex(deaf.getsockname())
        run = connected(deaf.getsockname()[1], count=5)
    assert (run.result or {})["failures"] == [{"reason": "no answer within 0.3 s", "count": 5}]


def test_a_trusted_certificate(tmp_path: Path) -> None:
    """A good server gives times, version, protocol and the certificate chain."""
    authority = Authority(tmp_path)
    with pages(authority.context("b.example", "*.c.example", "192.0.2.7", alpn="h2")) as port:
        run = shaken(port, "b.example", trusting=authority.file, alpn=["h2"], days_min=4)
    assert run.reason is None
    result = run.result or {}
    assert (result["version"], result["alpn"], result["verified"]) == ("TLSv1.3", "h2", True)
    assert (result["name_matches"], result["distrust"]) == (True, None)
    assert result["days_left"] == pytest.approx(5, abs=0.02)
    own, authoritys = result["chain"]
    assert own["names"] == ["b.example", "*.c.example", "192.0.2.7"]
    assert own["subject"] == "CN=b.example"
    assert own["issuer"] == authoritys["subject"] == "CN=the authority"
    assert own["key"] == "EC secp256r1"
    assert len(own["sha256"]) == 64
    assert result["phases_ms"]["handshake"] > 0


@pytest.mark.parametrize(
    ("dest", "days_left", "fields", "reason"),
    [
        ("b.example", -2, {}, "certificate has expired (it expired "),
        ("x.example", 5, {}, "Hostname mismatch, certificate is not valid for 'x.example'"),
        ("192.0.2.8", 5, {}, "IP address mismatch"),
        ("b.example", 5, {"days_min": 30}, "the certificate has 5.0 days left, fewer than 30"),
        ("b.example", 5, {"trusting": None}, "self-signed certificate in certificate chain"),
    ],
)
@pytest.mark.mostly_nightly
def test_certificates_that_are_not_good_enough(
    dest: str, days_left: float, fields: dict[str, Any], reason: str, tmp_path: Path
) -> None:
    """A run with a bad certificate fails with the reason, and keeps the chain."""
    authority = Authority(tmp_path)
    with pages(authority.context("b.example", days_left=days_left)) as port:
        run = shaken(port, dest, **{"trusting": authority.file} | fields)
    assert reason in str(run.reason)
    result = run.result or {}
    assert result["chain"][0]["names"] == ["b.example"]
    assert result["name_matches"] == (dest == "b.example")
    assert result["days_left"] == pytest.approx(days_left, abs=0.02)


def test_a_certificate_that_never_ends(tmp_path: Path) -> None:
    """A certificate that expires in the far future is accepted."""
    authority = Authority(tmp_path)
    with pages(authority.context("b.example", days_left=2_900_000)) as port:
        run = shaken(port, "b.example", trusting=authority.file)
    assert run.reason is None
    assert (run.result or {})["days_left"] == pytest.approx(2_900_000, abs=0.02)
    assert (run.result or {})["chain"][0]["not_after"].startswith("996")


def test_any_certificate_if_nobody_asks(tmp_path: Path) -> None:
    """Without verification, distrust is reported but does not fail the run."""
    with pages(Authority(tmp_path).context("b.example", days_left=-2)) as port:
        run = shaken(port, "b.example", verify=False)
    assert run.reason is None
    assert (run.result or {})["verified"] is False
    assert (run.result or {})["distrust"]


@pytest.mark.parametrize(
    ("talk", "reason"),
    [
        (lambda it: it.sendall(b"220 mail ready\r\n"), "no agreement on TLS"),
        (lambda _: None, "the connection was closed during the TLS handshake"),
        (_listens, "the TLS handshake was not over within 0.4 s"),
    ],
    ids=["mail", "closed", "silent"],
)
@pytest.mark.mostly_nightly
def test_servers_without_tls(talk: Callable[[socket.socket], None], reason: str) -> None:
    """A server without TLS fails the run, and the time of the connection is kept."""
    with talking(talk) as port:
        run = shaken(port, timeout="PT0.4S")
    assert reason in str(run.reason)
    assert (run.result or {})["phases_ms"]["connect"] > 0
    assert (run.result or {})["phases_ms"]["handshake"] is None


@pytest.mark.parametrize(
    ("name", "names", "match"),
    [
        ("a.example", ["A.Example"], True),
        ("a.example.", ["a.example"], True),
        ("a.b.example", ["*.b.example"], True),
        ("a.b.example", ["*.example"], False),
        ("b.example", ["*.b.example"], False),
        ("a.example", ["a*.example"], False),
        ("192.0.2.1", ["192.0.2.1"], True),
        ("192.0.2.1", ["*.0.2.1"], False),
        ("2001:DB8::1", ["2001:db8::1"], True),
        ("a.example", [], False),
    ],
)
def test_names_in_certificates(name: str, names: list[str], match: bool) -> None:  # noqa: FBT001 - a case
    """A star matches the whole first label of a name, and nothing in an address."""
    assert names_match(name, names) is match
