"""Queries to DNS servers on loopback with right, wrong or no answers."""

from __future__ import annotations

import base64
import contextlib
import socket
import ssl
from collections.abc import Callable, Iterator
from typing import Any

import dns.flags
import dns.message
import dns.rcode
import h2.config
import h2.connection
import h2.events
import pytest

from node.plugins.tools.programs.dns_query import resolvers
from tests.integration.plugins.targets import Authority, answering, measured, talking
from tests.support.loopback import free_port

ZONE = {
    ("www.example.", "A"): ["www.example. 300 IN A 192.0.2.80", "www.example. 300 IN A 192.0.2.81"],
    ("www.example.", "AAAA"): ["www.example. 60 IN AAAA 2001:db8::80"],
    ("alias.example.", "A"): [
        "alias.example. 60 IN CNAME www.example.",
        "www.example. 300 IN A 192.0.2.80",
    ],
    ("example.", "TXT"): ['example. 60 IN TXT "v=spf1 " "-all"'],
    ("example.", "MX"): ["example. 60 IN MX 10 Mail.example."],
    ("80.2.0.192.in-addr.arpa.", "PTR"): ["80.2.0.192.in-addr.arpa. 5 IN PTR www.example."],
    ("empty.example.", "A"): [],
}


def zone(question: bytes, flags: int = dns.flags.AA) -> bytes:
    """Answer as the zone's own server."""
    query = dns.message.from_wire(question)
    answer = dns.message.make_response(query)
    answer.flags |= flags
    key = (query.question[0].name.to_text(), query.question[0].rdtype.name)
    if key not in ZONE:
        answer.set_rcode(dns.rcode.NXDOMAIN)
    lines = "\n".join(ZONE.get(key, []))
    answer.answer = list(dns.message.from_text(f"id 1\n;ANSWER\n{lines}\n").answer)
    return answer.to_wire()


def asked(name: str, server: Callable[[bytes], bytes | None] = zone, **fields: Any) -> Any:
    """Query a server on loopback, and return the result."""
    with answering(server) as port:
        return measured("dns", "dnspython", name=name, server="127.0.0.1", port=port, **fields)


@pytest.mark.parametrize("protocol", ["udp", "tcp"])
def test_an_answer(protocol: str) -> None:
    """An answer has records, their TTL, flags and time, over UDP and TCP."""
    run = asked("www.example", protocol=protocol, expected="192.0.2.81")
    assert run.reason is None
    result = run.result or {}
    assert sorted((it["value"], it["ttl_s"]) for it in result["answers"]) == [
        ("192.0.2.80", 300),
        ("192.0.2.81", 300),
    ]
    assert (result["rcode"], result["authoritative"], result["truncated"]) == (
        "NOERROR",
        True,
        False,
    )
    assert (result["tries"], result["server"]) == (1, "127.0.0.1")
    assert 0 < result["time_ms"] <= result["total_ms"]


@pytest.mark.parametrize(
    ("name", "fields", "reason"),
    [
        ("alias.example", {"expected": "192.0.2.80"}, None),
        ("www.example", {"type": "AAAA", "expected": "2001:DB8:0::80"}, None),
        ("example", {"type": "TXT", "expected": "v=spf1 -all"}, None),
        ("example", {"type": "MX", "expected": "10 mail.example"}, None),
        ("192.0.2.80", {"type": "PTR", "expected": "www.example"}, None),
        ("none.example", {"rcode": "NXDOMAIN"}, None),
        ("empty.example", {"answers_min": 0}, None),
        ("none.example", {}, "127.0.0.1 answered NXDOMAIN for none.example A"),
        ("empty.example", {}, "127.0.0.1 has no record of empty.example A"),
        (
            "www.example",
            {"answers_min": 3},
            "127.0.0.1 has 2 records of www.example A where 3 were expected",
        ),
        (
            "alias.example",
            {"expected": "192.0.2.9"},
            "127.0.0.1 says 192.0.2.80 where 192.0.2.9 was expected",
        ),
        (
            "www.example",
            {"rcode": "NXDOMAIN"},
            "127.0.0.1 answered NOERROR for www.example A where NXDOMAIN was expected",
        ),
    ],
)
@pytest.mark.mostly_nightly
def test_expectations(name: str, fields: dict[str, Any], reason: str | None) -> None:
    """An unexpected answer fails the run with a reason, and is kept."""
    run = asked(name, **fields)
    assert run.reason == reason
    assert (run.result or {})["time_ms"] > 0


def test_a_cut_answer_is_known_to_be() -> None:
    """A truncated answer is a result with its flag."""
    run = asked("www.example", lambda question: zone(question, dns.flags.TC))
    assert (run.result or {})["truncated"] is True


def test_silence_is_asked_again() -> None:
    """A lost query is repeated, and the time is that of the last try alone."""
    silences = iter([None])
    run = asked("www.example", lambda it: next(silences, zone(it)), timeout="PT0.3S")
    result = run.result or {}
    assert run.reason is None
    assert result["tries"] == 2
    assert result["total_ms"] >= 300 > result["time_ms"]


@pytest.mark.parametrize(
    ("server", "fields", "reason"),
    [
        (lambda _: None, {}, "did not answer within 0.1 s"),
        (lambda _: b"", {}, "did not answer within 0.1 s"),
        (lambda _: b"nonsense", {}, "did not answer within 0.1 s"),
        (lambda it: bytes([it[0] ^ 1]) + zone(it)[1:], {}, "did not answer within 0.1 s"),
        (lambda it: zone(it)[:-2], {"protocol": "tcp"}, "sent a malformed answer"),
        (lambda _: b"", {"protocol": "tcp"}, "sent a malformed answer"),
    ],
    ids=["silent", "empty", "nonsense", "stranger", "cut", "empty over TCP"],
)
@pytest.mark.mostly_nightly
def test_malformed_answers(
    server: Callable[[bytes], bytes | None], fields: dict[str, Any], reason: str
) -> None:
    """A malformed answer, or one to another question, fails the run after all tries."""
    run = asked("www.example", server, timeout="PT0.1S", tries=2, **fields)
    assert reason in str(run.reason)
    assert (run.result or {})["tries"] == 2


def test_a_closed_port_is_said_at_once() -> None:
    """A closed port is reported immediately, even over UDP."""
    port = free_port()
    run = measured("dns", "dnspython", name="a.example", server="127.0.0.1", port=port, tries=1)
    assert run.reason == f"127.0.0.1 port {port}: Connection refused"


def test_the_hosts_resolvers() -> None:
    """At most three servers of resolv.conf are used, or the host itself if there are none."""
    assert resolvers("# x\nnameserver 192.0.2.1\noptions a\nnameserver ::1 # own\n") == [
        "192.0.2.1",
        "::1",
    ]
    assert resolvers("nameserver 192.0.2.1\n" * 5) == ["192.0.2.1"] * 3
    assert resolvers("nameserver\n") == ["127.0.0.1"]


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """Return an authority."""
    return Authority(tmp_path_factory.mktemp("authority"))


@contextlib.contextmanager
def certified(
    context: ssl.SSLContext, talk: Callable[[ssl.SSLSocket], None]
) -> Iterator[dict[str, Any]]:
    """Serve TLS, calling ``talk`` for each connection; yield where to ask."""

    def shake(plain: socket.socket) -> None:
        with contextlib.suppress(OSError), context.wrap_socket(plain, server_side=True) as secured:
            talk(secured)

    with talking(shake) as port:
        yield {"server": "127.0.0.1", "port": port, "server_name": "dns.example"}


def over_tls(secured: ssl.SSLSocket) -> None:
    """Answer one question over TLS (RFC 7858)."""
    reply = zone(secured.recv(4096)[2:])
    secured.sendall(len(reply).to_bytes(2) + reply)


def _answered(path: str) -> bytes:
    """Return the answer to the question in a path."""
    question = path.partition("?dns=")[2]
    return zone(base64.urlsafe_b64decode(question + "=" * (-len(question) % 4)))


def over_http_1(
    secured: ssl.SSLSocket, status: int = 200, kind: str = "application/dns-message"
) -> None:
    """Answer one request of HTTP/1.1."""
    _, path, _ = secured.recv(4096).split(b"\r\n")[0].decode().split(" ")
    body = _answered(path)
    head = f"HTTP/1.1 {status} X\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n"
    secured.sendall(head.encode() + body)


def over_http_2(secured: ssl.SSLSocket, *, reset: bool = False) -> None:
    """Answer one request of HTTP/2."""
    connection = h2.connection.H2Connection(
        h2.config.H2Configuration(client_side=False, header_encoding="utf-8")
    )
    connection.initiate_connection()
    secured.sendall(connection.data_to_send())
    while octets := secured.recv(4096):
        for event in connection.receive_data(octets):
            if not isinstance(event, h2.events.RequestReceived):
                continue
            stream = event.stream_id
            headers = {str(name): str(value) for name, value in event.headers}
            assert headers[":authority"].startswith("dns.example:")
            if reset:
                connection.reset_stream(stream)
                continue
            kind = ("content-type", "application/dns-message")
            connection.send_headers(stream, [(":status", "200"), kind])
            connection.send_data(stream, _answered(headers[":path"]), end_stream=True)
        secured.sendall(connection.data_to_send())


def said(secured: ssl.SSLSocket, octets: bytes) -> None:
    """Answer these octets to whatever is asked, and close the connection in order."""
    secured.recv(4096)
    secured.sendall(octets)
    with contextlib.suppress(OSError):
        secured.unwrap()


@pytest.mark.parametrize(
    ("protocol", "alpn", "talk"),
    [
        ("tls", "dot", over_tls),
        ("https", "http/1.1", over_http_1),
        ("https", "h2", over_http_2),
    ],
)
@pytest.mark.mostly_nightly
def test_an_answer_over_tls(
    authority: Authority, protocol: str, alpn: str, talk: Callable[[ssl.SSLSocket], None]
) -> None:
    """An answer over TLS, HTTP/1.1 and HTTP/2 is that of UDP, and its time has the handshake."""
    with certified(authority.context("dns.example", alpn=alpn), talk) as place:
        fields: dict[str, Any] = {
            "name": "www.example",
            "protocol": protocol,
            "expected": "192.0.2.81",
        }
        run = measured("dns", "dnspython", trusting=authority.file, **place, **fields)
    assert run.reason is None
    result = run.result or {}
    assert (result["rcode"], len(result["answers"]), result["tries"]) == ("NOERROR", 2, 1)
    assert 0 < result["time_ms"] <= result["total_ms"]


@pytest.mark.parametrize("protocol", ["tls", "https"])
@pytest.mark.nightly
def test_a_certificate_of_somebody_else(authority: Authority, protocol: str) -> None:
    """A certificate that is not trusted is no answer, and is not asked for again."""
    with certified(authority.context("other.example", alpn="dot"), over_tls) as place:
        fields: dict[str, Any] = {"name": "www.example", "protocol": protocol}
        refused = measured("dns", "dnspython", trusting=authority.file, **place, **fields)
        taken = measured(
            "dns", "dnspython", verify=False, **place, name="www.example", protocol="tls"
        )
    assert "the certificate is not trusted: Hostname mismatch" in str(refused.reason)
    assert (refused.result or {})["tries"] == 1
    assert taken.reason is None


@pytest.mark.parametrize(
    ("alpn", "talk", "reason"),
    [
        ("http/1.1", lambda it: over_http_1(it, 404), "it answered with HTTP status 404"),
        (
            "http/1.1",
            lambda it: over_http_1(it, kind="text/html"),
            "it answered with text/html where application/dns-message was expected",
        ),
        ("http/1.1", lambda it: said(it, b"nonsense\r\n"), "it does not speak HTTP"),
        ("h2", lambda it: said(it, bytes(9)), "it does not speak HTTP/2"),
        ("h2", lambda it: over_http_2(it, reset=True), "it refused the request: HTTP/2 error 0"),
        ("h2", lambda it: said(it, b""), "it closed the connection without an answer"),
    ],
    ids=["not found", "page", "no HTTP", "no HTTP/2", "reset", "closed"],
)
@pytest.mark.nightly
def test_servers_that_do_not_answer_over_https(
    authority: Authority, alpn: str, talk: Callable[[ssl.SSLSocket], None], reason: str
) -> None:
    """An answer that is none of DNS fails the run after all tries, and is named."""
    with certified(authority.context("dns.example", alpn=alpn), talk) as place:
        fields: dict[str, Any] = {"name": "www.example", "protocol": "https", "tries": 2}
        run = measured("dns", "dnspython", trusting=authority.file, **place, **fields)
    assert reason in str(run.reason)
    assert (run.result or {})["tries"] == 2
