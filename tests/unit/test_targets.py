"""Addresses that a task of another node may reach, or may not, in all their spellings."""

from __future__ import annotations

import ipaddress
import json
from dataclasses import replace

import pytest

from node.model.targets import (
    TargetRules,
    addresses_refusal,
    api_networks,
    host_refusal,
    literal,
    target_refusal,
)

OWN = frozenset(map(ipaddress.ip_address, ("192.0.2.1", "10.0.0.1", "2001:db8::1")))
RULES = TargetRules(OWN, 8642)
LOOPBACK, LINK, HERE = "a loopback address", "a link-local address", "an address of this host"
CLOUD, MANY = "the metadata service", "a multicast address"

REFUSED = [
    ("127.0.0.1", LOOPBACK),
    ("127.255.255.254", LOOPBACK),
    ("::1", LOOPBACK),
    ("::ffff:127.0.0.1", LOOPBACK),
    ("::ffff:7f00:1", LOOPBACK),
    ("::127.0.0.1", LOOPBACK),
    ("64:ff9b::127.0.0.1", LOOPBACK),
    ("64:ff9b::a9fe:a9fe", CLOUD),
    ("64:ff9b:1::1", "a local translator"),
    ("2002:7f00:1::", LOOPBACK),
    ("2001:0:c000:207:0:0:80ff:fffe", LOOPBACK),  # Teredo, the client inverted
    ("0.0.0.0", HERE),
    ("0.1.2.3", HERE),
    ("::", HERE),
    ("::ffff:0.0.0.0", HERE),
    ("169.254.169.254", CLOUD),
    ("::ffff:169.254.169.254", CLOUD),
    ("168.63.129.16", CLOUD),
    ("100.100.100.200", CLOUD),
    ("192.0.0.192", CLOUD),
    ("fd00:ec2::254", CLOUD),
    ("fd20:ce::254", CLOUD),
    ("fd00:42::42", CLOUD),
    ("169.254.1.1", LINK),
    ("fe80::1", LINK),
    ("fe80::1%eth0", LINK),
    ("224.0.0.1", MANY),
    ("ff02::1", MANY),
    ("255.255.255.255", "the broadcast address"),
    ("250.0.0.1", "a reserved address"),
    ("192.0.2.1", HERE),
    ("10.0.0.1", HERE),
    ("::ffff:192.0.2.1", HERE),
    ("2001:db8::1", HERE),
    ("2001:0DB8:0:0:0:0:0:1", HERE),
]


@pytest.mark.parametrize(("address", "kind"), REFUSED)
def test_refused(address: str, kind: str) -> None:
    """Addresses that only this host can reach are refused, with their kind and the remedy."""
    refusal = target_refusal(address, 80, RULES)
    assert refusal is not None
    assert refusal.startswith(address)
    assert kind in refusal
    assert refusal.endswith("can allow it: PARLEY_TARGETS=NETWORK")


TARGETS = (
    "192.0.2.2", "8.8.8.8", "10.0.0.2", "192.168.1.1", "100.64.0.1", "2001:db8::2", "fd00::7",
    "64:ff9b::8.8.8.8", "::ffff:8.8.8.8", "2002:808:808::1", "128.0.0.1", "126.255.255.255",
)  # fmt: skip


@pytest.mark.parametrize("address", TARGETS)
def test_allowed(address: str) -> None:
    """Public addresses, and for now private ones, are targets."""
    assert target_refusal(address, 80, RULES) is None


@pytest.mark.parametrize(
    ("host", "address"),
    [
        ("127.1", "127.0.0.1"),
        ("2130706433", "127.0.0.1"),
        ("0x7f000001", "127.0.0.1"),
        ("0X7F.1", "127.0.0.1"),
        ("0177.0.0.1", "127.0.0.1"),
        ("017700000001", "127.0.0.1"),
        ("127.0.0.1.", "127.0.0.1"),
        ("0", "0.0.0.0"),
        ("0x", "0.0.0.0"),
        ("0xa9fea9fe", "169.254.169.254"),
        ("169.254.43518", "169.254.169.254"),
        ("4294967295", "255.255.255.255"),
        ("0:0:0:0:0:0:0:1", "::1"),
        ("4294967296", None),
        ("1.2.3.4.5", None),
        ("256.1", None),
        ("1.2.3.256", None),
        ("09.1.2.3", None),
        ("0x7g.1", None),
        ("1..2", None),
        ("a.example", None),
        ("1.example", None),
        ("", None),
    ],
)
def test_spellings(host: str, address: str | None) -> None:
    """The forms of addresses that programs accept are read as they read them."""
    assert literal(host) == address


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST.", "a.localhost", "127.1", "0x7f000001"])
def test_before_the_look_up(host: str) -> None:
    """This host's own name, and any form of its address, is refused before anything is booked."""
    assert host_refusal(host, None, RULES)


def test_a_name_is_not_judged() -> None:
    """A name says nothing before its look-up."""
    assert host_refusal("localhost.example", None, RULES) is None


def test_one_of_several() -> None:
    """A name with a public and a refused address is refused, with its name in the reason."""
    refusal = addresses_refusal("x.example", ["8.8.8.8", "::1"], 80, RULES)
    assert refusal is not None
    assert refusal.startswith("x.example leads to a loopback address, which")
    assert addresses_refusal("x.example", ["8.8.8.8", "2001:db8::2"], 80, RULES) is None


def test_exceptions() -> None:
    """The owner may allow networks, but nothing allows this node's own API."""
    own = frozenset({ipaddress.ip_address("127.1.0.1")})
    anything = (ipaddress.ip_network("127.0.0.0/8"), ipaddress.ip_network("0.0.0.0/8"))
    rules = TargetRules(own, 8642, api_networks("127.1.0.1"), anything)
    for address in ("127.1.0.1", "0.0.0.0", "::ffff:127.1.0.1"):
        assert target_refusal(address, 80, rules) is None
        assert target_refusal(address, None, rules) is None
        refusal = target_refusal(address, 8642, rules)
        assert refusal is not None
        assert "must never reach" in refusal
    assert target_refusal("127.1.0.2", 8642, rules) is None  # another node's API
    assert target_refusal("169.254.169.254", 80, rules)


def test_listening_everywhere() -> None:
    """A node that listens on all addresses has its API on all of loopback."""
    rules = TargetRules(OWN, 8642, api_networks("0.0.0.0"), (ipaddress.ip_network("127.0.0.0/8"),))
    assert target_refusal("127.9.9.9", 8642, rules)
    assert target_refusal("127.9.9.9", 8643, rules) is None


def test_content() -> None:
    """The answer of a private address is not told to other nodes."""
    rules = TargetRules(OWN, 8642, (), (ipaddress.ip_network("10.9.0.0/16"),), "text")
    for address in ("10.0.0.2", "192.168.1.1", "172.31.0.1", "fd00::7", "::ffff:10.0.0.2"):
        refusal = target_refusal(address, 80, rules)
        assert refusal is not None
        assert "is a private address, and text would tell others" in refusal
    assert target_refusal("10.9.1.1", 80, rules) is None
    assert target_refusal("8.8.8.8", 80, rules) is None


@pytest.mark.parametrize(
    "address",
    [
        *("10.9.9.9", "172.31.0.1", "192.168.0.1", "100.127.0.1", "192.0.0.8", "198.19.255.1"),
        *("fd12::1", "fec0::1", "2001:2::1", "::ffff:198.18.0.1", "64:ff9b::10.9.9.9"),
    ],
)
def test_private_networks(address: str) -> None:
    """No network that the internet does not route is reached but where a known node is."""
    rules = TargetRules(OWN, 8642, private=())
    assert "is a private address" in str(target_refusal(address, 80, rules))
    assert target_refusal(address, 80, replace(rules, private=None)) is None


def test_ports_of_private_nodes() -> None:
    """A known node with a private address is a target at its API's port and at those of tools."""
    node = ipaddress.ip_network("10.0.0.2")
    apis = frozenset({(node.network_address, 8643)})
    rules = TargetRules(OWN, 8642, private=(node,), tool_ports=range(5000, 5010), known_apis=apis)
    for port in (None, 5000, 5009, 8643):
        assert target_refusal("10.0.0.2", port, rules) is None
    for port in (22, 6379, 5010, 8642):
        refusal = str(target_refusal("::ffff:10.0.0.2", port, rules))
        assert f"port {port} is neither a node's API nor for tools" in refusal
    assert target_refusal("203.0.113.2", 22, rules) is None
    assert target_refusal("10.0.0.2", 22, replace(rules, private=None)) is None
    assert target_refusal("10.0.0.2", 22, replace(rules, allowed=(node,))) is None


def test_as_a_document() -> None:
    """Rules survive the way to a program."""
    apis = frozenset({(ipaddress.ip_address("10.0.0.2"), 8643)})
    allowed = (ipaddress.ip_network("10.9.0.0/16"),)
    rules = TargetRules(
        OWN, 8642, (), allowed, "text", tool_ports=range(5000, 5010), known_apis=apis
    )
    assert TargetRules.of(json.loads(json.dumps(rules.as_document()))) == rules
