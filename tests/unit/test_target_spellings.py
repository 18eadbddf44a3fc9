"""Two hundred ways to write an address that a foreign task must not reach; none gets through."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterator

from node.model.targets import TargetRules, addresses_refusal, host_refusal

OWN = "10.0.0.1"
RULES = TargetRules(frozenset({ipaddress.ip_address(OWN)}), 8642)
FORBIDDEN = (
    *("127.0.0.1", "127.1.2.3", "0.0.0.0", "169.254.169.254", "100.100.100.200"),
    *("169.254.7.7", "224.0.0.251", "255.255.255.255", "250.1.2.3", OWN),
)
NAMES = ("localhost", "LOCALHOST", "localhost.", "anything.localhost", "a.b.LocalHost.")
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


def _matrix() -> list[str]:
    written = [
        *NAMES,
        "::1",
        "0:0::0:1",
        "::",
        "fe80::1",
        "fe80::1%eth0",
        "ff02::1",
        "fd00:ec2::254",
    ]
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
