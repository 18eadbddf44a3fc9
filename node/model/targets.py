"""Targets of measurements that another node asks for: which addresses a task may reach. Pure.

The owner of a host may measure anything from it. A task that another node leads must not reach what
only this host can reach: its own services, loopback, its link, or a cloud's metadata service. The
decision is about an address after the look-up; a name says nothing.

Our own programs import this module: it needs the standard library only.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

IpAddress = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

_ALLOWING = "the owner of this host can allow it: PARLEY_TARGETS=NETWORK"

_METADATA: Mapping[IpAddress, str] = {
    ipaddress.ip_address(address): "the metadata service of a cloud"
    for address in (
        "169.254.169.254",  # AWS, Google, Azure, OpenStack
        "168.63.129.16",  # Azure
        "100.100.100.200",  # Alibaba
        "192.0.0.192",  # Oracle
        "fd00:ec2::254",  # AWS
        "fd20:ce::254",  # Google
    )
}
_NEVER: tuple[tuple[Network, str], ...] = tuple(
    (ipaddress.ip_network(network), kind)
    for network, kind in (
        ("127.0.0.0/8", "a loopback address"),
        ("::1/128", "a loopback address"),
        ("0.0.0.0/8", "an address of this host itself"),
        ("::/128", "an address of this host itself"),
        ("169.254.0.0/16", "a link-local address"),
        ("fe80::/10", "a link-local address"),
        ("224.0.0.0/4", "a multicast address"),
        ("ff00::/8", "a multicast address"),
        ("255.255.255.255/32", "the broadcast address"),
        ("240.0.0.0/4", "a reserved address"),
        ("64:ff9b:1::/48", "an address of a local translator"),
    )
)
_PRIVATE: tuple[Network, ...] = tuple(
    ipaddress.ip_network(network)
    for network in (
        "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "fc00::/7", "fec0::/10",
    )
)  # fmt: skip
_NAT64 = ipaddress.ip_network("64:ff9b::/96")
_COMPATIBLE = ipaddress.ip_network("::/96")
_TRANSLATED = ipaddress.ip_network("::ffff:0:0:0/96")
_ISATAP = frozenset({0x0000_5EFE, 0x0200_5EFE})
_LOW_32_BITS = 0xFFFF_FFFF
_PARTS_MAX = 4
_PART = re.compile(r"0[xX][0-9a-fA-F]*|[0-9]+", re.ASCII)

_LOOPBACK = tuple(map(ipaddress.ip_network, ("127.0.0.0/8", "::1/128")))
_UNSPECIFIED = tuple(map(ipaddress.ip_network, ("0.0.0.0/8", "::/128")))


@dataclass(frozen=True)
class TargetRules:
    """The rules for the targets of one run.

    ``own`` are this host's addresses. ``api`` are the networks in which its API answers, at
    ``own_port``. ``allowed`` are networks that are excepted: those that the owner allows, and known
    nodes of a host that is itself on loopback.
    ``private`` are the private addresses that are targets: those of known nodes, for hosts that
    take no part; None is all of them, for participants. ``content`` is the field of the spec
    because of which the result tells what a target sends, if there is one: then none of them is.
    """

    own: frozenset[IpAddress]
    own_port: int
    api: tuple[Network, ...] = ()
    allowed: tuple[Network, ...] = ()
    content: str | None = None
    private: tuple[Network, ...] | None = None

    def as_document(self) -> dict[str, Any]:
        """Return the rules as JSON, for a program."""
        return {
            "own": sorted(map(str, self.own)),
            "own_port": self.own_port,
            "api": [str(network) for network in self.api],
            "allowed": [str(network) for network in self.allowed],
            "content": self.content,
            "private": None if self.private is None else [str(each) for each in self.private],
        }

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> TargetRules:
        """Read the rules from JSON."""
        return cls(
            frozenset(ipaddress.ip_address(address) for address in document["own"]),
            document["own_port"],
            tuple(ipaddress.ip_network(network) for network in document["api"]),
            tuple(ipaddress.ip_network(network) for network in document["allowed"]),
            document["content"],
            None
            if document["private"] is None
            else tuple(ipaddress.ip_network(network) for network in document["private"]),
        )


def target_refusal(address: str, port: int | None, rules: TargetRules) -> str | None:
    """Return why an address is no target for a task that another node leads; None if it is one.

    ``address`` is an IP address; ``port`` is None if the measurement has none, or none that is
    known. An IPv4 address inside an IPv6 address is judged as well.
    """
    outer, *inner = reached(address)
    for each in (outer, *inner):
        kind = _kind_refused(each, port, rules)
        if kind is not None:
            text = address if each == outer else f"{address}, which leads to {each},"
            return f"{text} is {kind}"
    return None


def reached(address: str) -> tuple[IpAddress, ...]:
    """Return an address, and the IPv4 addresses to which packets for it may be sent."""
    outer = ipaddress.ip_address(address.partition("%")[0])
    return outer, *_inside(outer)


def is_private(address: IpAddress) -> bool:
    """Return whether an address is of a private network."""
    return any(address in network for network in _PRIVATE)


def api_networks(listen_host: str) -> tuple[Network, ...]:
    """Return the networks in which a service answers that listens on an address or a name.

    An unspecified address reaches loopback, so it counts always.
    """
    address = literal(listen_host)
    if address is None or ipaddress.ip_address(address).is_unspecified:
        return (*_UNSPECIFIED, *_LOOPBACK)
    return (*_UNSPECIFIED, ipaddress.ip_network(address))


def literal(host: str) -> str | None:
    """Return the address that a host is written as, in its shortest form; None if it is a name.

    The decimal, octal, hexadecimal, and short forms of IPv4 addresses that programs accept
    (``2130706433``, ``0x7f.1``) are addresses, too.
    """
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        number = _number(host.removesuffix("."))
    return None if number is None else str(ipaddress.IPv4Address(number))


def host_refusal(host: str, port: int | None, rules: TargetRules) -> str | None:
    """Return why a host is no target, as far as it is known before its name is looked up."""
    address = literal(host)
    if address is not None:
        return target_refusal(address, port, rules)
    last = host.removesuffix(".").lower().rpartition(".")[2]
    if last == "localhost" and target_refusal("127.0.0.1", port, rules):
        return f"{host} is this host itself{_remedy()}"
    return None


def addresses_refusal(
    host: str, addresses: Iterable[str], port: int | None, rules: TargetRules
) -> str | None:
    """Return why a host with these addresses is no target, with its name; None if it is one.

    One refused address refuses the host: whoever gave it that address chose it.
    """
    for address in addresses:
        refusal = target_refusal(address, port, rules)
        if refusal is not None:
            return refusal if literal(host) else f"{host}: {refusal}"
    return None


def _inside(address: IpAddress) -> Iterator[IpAddress]:
    """Yield the IPv4 addresses to which packets for an IPv6 address may be sent."""
    if address.version == 4:  # noqa: PLR2004 - the version of IP
        return
    embedded = [address.ipv4_mapped, address.sixtofour, *(address.teredo or ())]
    last_64 = int(address) & 0xFFFF_FFFF_FFFF_FFFF
    if (
        address in _NAT64
        or address in _TRANSLATED
        or last_64 >> 32 in _ISATAP
        or (address in _COMPATIBLE and int(address) > 1)
    ):
        embedded.append(ipaddress.IPv4Address(int(address) & _LOW_32_BITS))
    yield from (each for each in embedded if each is not None)


def _kind_refused(address: IpAddress, port: int | None, rules: TargetRules) -> str | None:
    api = address in rules.own or any(address in network for network in rules.api)
    if api and port == rules.own_port:
        return "this node itself: another node's task never reaches its API"
    if any(address in network for network in rules.allowed):
        return None
    kind = _METADATA.get(address)
    if kind is None and address in rules.own:
        kind = "an address of this host itself"
    if kind is None:
        kind = next((kind for network, kind in _NEVER if address in network), None)
    if kind is not None:
        return f"{kind}{_remedy()}"
    if not is_private(address):
        return None
    if rules.content is not None:
        return (
            f"a private address, and {rules.content} would tell another node what is sent there; "
            f"leave {rules.content} out, or {_ALLOWING}"
        )
    known = rules.private is None or any(address in network for network in rules.private)
    return None if known else f"a private address{_remedy()}"


def _remedy() -> str:
    return f", which tasks of other nodes must not reach; {_ALLOWING}"


def _number(text: str) -> int | None:
    """Return the IPv4 address that ``inet_aton`` reads from a text, as a number; None if none."""
    parts = text.split(".")
    if len(parts) > _PARTS_MAX or not all(map(_PART.fullmatch, parts)):
        return None
    try:
        *high, low = [_part(part) for part in parts]
    except ValueError:
        return None
    if any(part > 255 for part in high) or low >> 8 * (_PARTS_MAX - len(high)):  # noqa: PLR2004
        return None
    return sum(part << 8 * (3 - at) for at, part in enumerate(high)) + low


def _part(part: str) -> int:
    if part[:2].lower() == "0x":
        return int(part[2:] or "0", 16)
    return int(part, 8) if part.startswith("0") else int(part)
