"""Two hundred ways to write an address that a foreign task must not reach; none gets through."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import ValidationError

from node.model.targets import TargetRules, addresses_refusal, host_refusal
from node.plugins import registry
from node.plugins.tools.programs import target

OWN = "10.0.0.1"
RULES = TargetRules(frozenset({ipaddress.ip_address(OWN)}), 8642, private=())
FORBIDDEN = (
    *("127.0.0.1", "127.1.2.3", "0.0.0.0", "169.254.169.254", "100.100.100.200"),
    *("169.254.7.7", "224.0.0.251", "255.255.255.255", "250.1.2.3", OWN),
    *("10.7.0.9", "172.16.3.4", "192.168.1.1", "100.64.0.1"),
)
NAMES = ("localhost", "LOCALHOST", "localhost.", "anything.localhost", "a.b.LocalHost.")
IN_URLS = (
    *(
        "\uff11\uff12\uff17.0.0.1",
        "127\u30020\u30020\u30021",
        "127\uff0e0\uff0e0\uff0e1",
        "127\uff610\uff610\uff611",
    ),
    *("\u2460\u2461\u2466.0.0.1", "\u0661\u0662\u0667.0.0.1"),
    *("%31%32%37.0.0.1", "127.0.0.1%00", "127.0.0.1%2e", "127.0.0.1%09", "0x7f\u30021"),
    *("user@127.0.0.1", "user:pw@127.1", "8.8.8.8@127.0.0.1", "127.0.0.1#@8.8.8.8"),
    *("8.8.8.8\\@127.0.0.1", "127.0.0.1\\@8.8.8.8", "127.0.0.1?@8.8.8.8", "1.1.1.1 &@127.0.0.1"),
    *(
        " 127.0.0.1",
        "127.0.0.1 ",
        "127.0.0.1\t",
        "127.0.0.1\n",
        "127.0.0.1\u200b",
        "127.0.0.1\u00ad",
    ),
    *(
        "\u24dbocalhost",
        "loc\U0001d4b6lhost",
        "localhost\u3002",
        "127.0.0.1:80:80",
        "[::1].",
        "[::1%25lo]",
    ),
    *("[::1]", "[::]", "[::ffff:127.0.0.1]", "[::ffff:0:127.0.0.1]", "[64:ff9b::7f00:1]"),
    *("[2002:7f00:1::]", "[fe80::1%25eth0]", "[fd00:ec2::254]", "0", "00", "0x0", "2130706433"),
    *("127.1", "017700000001", "0xA9FEA9FE", "169.254.43518", "127.0.0.1.", "127.0.0.1.."),
)
"""Hosts as they may stand in a URL: other digits and dots, user information, escapes, zones."""
IPV6 = ("::1", "0:0::0:1", "::", "fe80::1", "fe80::1%eth0", "ff02::1", "fd00:ec2::254")
FORMS = 200


def _as_ipv4(address: str) -> Iterator[str]:
    number, parts = int(ipaddress.ip_address(address)), [int(it) for it in address.split(".")]
    first, second = parts[:2]
    yield address
    yield f"{address}."
    yield str(number)
    yield f"0x{number:x}"
    yield f"0X{number:08X}"
    yield f"0{number:o}"
    yield ".".join(f"0x{part:x}" for part in parts)
    yield ".".join(f"0{part:o}" for part in parts)
    yield ".".join(f"0000{part:o}" for part in parts)
    yield f"{first}.{number & 0xFFFFFF}"
    yield f"{first}.{second}.{number & 0xFFFF}"
    yield f"0x{first:x}.0{second:o}.{number & 0xFFFF}"


def _inside_ipv6(address: str) -> Iterator[str]:
    number = int(ipaddress.ip_address(address))
    high, low = number >> 16, number & 0xFFFF
    yield f"::ffff:{address}"
    yield f"::FFFF:{high:X}:{low:X}"
    yield f"0000:0000:0000:0000:0000:ffff:{high:04x}:{low:04x}"
    yield f"::{address}"
    yield f"64:ff9b::{address}"
    yield f"64:ff9b::{high:x}:{low:x}"
    yield f"2002:{high:x}:{low:x}::"
    yield f"2002:{high:x}:{low:x}:1::7"
    yield f"2001:0:c633:6407:0:0:{high ^ 0xFFFF:x}:{low ^ 0xFFFF:x}"
    yield f"::ffff:{address}%eth0"
    yield f"::ffff:0:{address}"
    yield f"2a00:1450::5efe:{address}"
    yield f"2a00:1450::200:5efe:{high:x}:{low:x}"


def _matrix() -> list[str]:
    written = [*NAMES, *IPV6]
    for address in FORBIDDEN:
        written += [*_as_ipv4(address), *_inside_ipv6(address)]
    return written


def _gets_through(host: str) -> bool:
    """Return whether a host is measured: as written, or as the system's library reads it."""
    if host_refusal(host, 80, RULES) is not None:
        return False
    try:
        found = socket.getaddrinfo(host, 80, flags=socket.AI_NUMERICHOST)
    except OSError:
        return False  # nobody takes it for an address: it is looked up, and what is found is judged
    addresses = [str(sockaddr[0]) for *_, sockaddr in found]
    return addresses_refusal(host, addresses, 80, RULES) is None


def test_no_form_of_a_forbidden_address_gets_through() -> None:
    """However an address is written, it is refused, or is no address to anybody."""
    matrix = _matrix()
    assert len(set(matrix)) >= FORMS
    assert [host for host in matrix if _gets_through(host)] == []


def test_all_forms_are_judged_before_a_look_up() -> None:
    """Each form is refused as it is written, so that the task is refused at its introduction."""
    assert [host for host in _matrix() if host_refusal(host, 80, RULES) is None] == []


def test_the_same_forms_of_a_public_address_get_through() -> None:
    """The address is refused, and not the way in which it is written."""
    spellings = [*_as_ipv4("8.8.8.8"), *_inside_ipv6("8.8.8.8")]
    assert [host for host in spellings if host_refusal(host, 80, RULES) is not None] == []


def _hosts_of(test_name: str, fields: dict[str, Any]) -> list[str]:
    """Return the hosts of a spec; none if it is no spec."""
    test = registry.tests()[test_name]
    try:
        spec = test.spec_model.model_validate(fields)
    except ValidationError:
        return []
    return list(test.hosts(spec))


@pytest.mark.parametrize("test_name", ["http", "tcp", "dns", "rtt", "tls", "trace"])
def test_no_form_in_a_document_gets_through(test_name: str) -> None:
    """A host that only looks like another one is no host, or it is refused as what it is."""
    for host in [*_matrix(), *IN_URLS]:
        bracketed = f"[{host}]" if ":" in host and host.partition("%")[0] in IPV6 else host
        fields: dict[str, Any] = {"dest": host.strip("[]"), "port": 80}
        if test_name == "http":
            fields = {"url": f"http://{bracketed}/"}
        elif test_name == "dns":
            fields = {"name": "a.example", "server": host.strip("[]")}
        elif test_name in {"rtt", "trace"}:
            del fields["port"]
        through = [it for it in _hosts_of(test_name, fields) if _gets_through(it)]
        assert through == [], host


def test_a_name_that_changes_its_address_gains_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each look-up is judged, and connections are made to what was judged, not to the name."""
    answers = [["8.8.8.8"], ["8.8.8.8", "127.0.0.1"], ["169.254.169.254"], ["::ffff:10.7.0.9"]]

    def resolved(_host: str, port: int, _version: object, flags: int) -> list[target.Address]:
        if flags:
            raise socket.gaierror
        return [(socket.AF_INET, (address, port)) for address in answers.pop(0)]

    monkeypatch.setattr(target, "_resolve", resolved)
    deadline = target.Deadline(10**10)
    found = target.look_up("rebinding.example", 80, None, deadline, RULES)
    assert [address for _, address in found] == [("8.8.8.8", 80)]
    for _ in range(3):
        with pytest.raises(target.TargetUnreachable, match="must not reach"):
            target.look_up("rebinding.example", 80, None, deadline, RULES)
