"""Queries to DNS servers on loopback with right, wrong or no answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import dns.flags
import dns.message
import dns.rcode
import pytest

from node.plugins.tools.programs.dns_query import resolvers
from tests.integration.plugins.targets import answering, measured
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
