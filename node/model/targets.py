"""Targets of measurements that another node asks for: which addresses a task may reach. Pure.

The owner of a host may measure anything from it. A task that another node leads must not reach what
only this host can reach: its own services, loopback, its link, or a cloud's metadata service. The
decision is about an address after the look-up; a name says nothing.

Our own programs import this module: it, and what it imports, need the standard library only.
"""

from __future__ import annotations

import ipaddress
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from node.model.reason import Reason
from node.model.reasons import (
    forbidden_target,
    port_of_private_target,
    private_target_would_tell,
    redirect_not_followed,
    target_is_this_node,
)

IpAddress = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

_METADATA: Mapping[IpAddress, str] = {
    ipaddress.ip_address(address): "the metadata service of a cloud"
    for address in (
        "169.254.169.254",  # AWS, Google, Azure, OpenStack
        "168.63.129.16",  # Azure
        "100.100.100.200",  # Alibaba
        "192.0.0.192",  # Oracle
        "fd00:ec2::254",  # AWS
        "fd20:ce::254",  # Google
        "fd00:42::42",  # Scaleway
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
PRIVATE: tuple[Network, ...] = tuple(
    ipaddress.ip_network(network)
    for network in (
        "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "192.0.0.0/24",
        "198.18.0.0/15", "fc00::/7", "fec0::/10", "2001:2::/48",
    )
)  # fmt: skip
_NAT64 = ipaddress.ip_network("64:ff9b::/96")
_COMPATIBLE = ipaddress.ip_network("::/96")
_TRANSLATED = ipaddress.ip_network("::ffff:0:0:0/96")
_ISATAP = frozenset({0x0000_5EFE, 0x0200_5EFE})
_LOW_32_BITS = 0xFFFF_FFFF
_IDEOGRAPHIC_STOP = "\N{IDEOGRAPHIC FULL STOP}"
_PARTS_MAX = 4
_PART = re.compile(r"0[xX][0-9a-fA-F]*|[0-9]+", re.ASCII)

LOOPBACK = tuple(map(ipaddress.ip_network, ("127.0.0.0/8", "::1/128")))
_UNSPECIFIED = tuple(map(ipaddress.ip_network, ("0.0.0.0/8", "::/128")))


@dataclass(frozen=True)
class TargetRules:
    """The rules for the targets of one run.

    ``own`` are this host's addresses. ``api`` are the networks in which its API answers, at
    ``own_port``. ``allowed`` are networks that are excepted: those that the owner allows, and known
    nodes of a host that is itself on loopback.
    ``private`` are the private addresses that are targets: those of known nodes, for hosts that
    take no part; None is all of them, for participants. Of their ports, known ones are targets
    only in ``tool_ports``, or where ``known_apis`` has the address and the port of the API that a
    node answers at. ``content`` is the field of the spec because of which the result tells what a
    target sends, if there is one: then none of them is. ``whose`` says in words whom the rules
    bind.
    """

    own: frozenset[IpAddress]
    own_port: int
    api: tuple[Network, ...] = ()
    allowed: tuple[Network, ...] = ()
    content: str | None = None
    private: tuple[Network, ...] | None = None
    whose: str = "tasks of other nodes"
    tool_ports: range = range(0)
    known_apis: frozenset[tuple[IpAddress, int]] = frozenset()

    def as_document(self) -> dict[str, Any]:
        """Return the rules as JSON, for a program."""
        return {
            "own": sorted(map(str, self.own)),
            "own_port": self.own_port,
            "api": [str(network) for network in self.api],
            "allowed": [str(network) for network in self.allowed],
            "content": self.content,
            "private": None if self.private is None else [str(each) for each in self.private],
            "whose": self.whose,
            "tool_ports": [self.tool_ports.start, self.tool_ports.stop],
            "known_apis": sorted([str(address), port] for address, port in self.known_apis),
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
            document["whose"],
            range(*document["tool_ports"]),
            frozenset((ipaddress.ip_address(at), port) for at, port in document["known_apis"]),
        )


def target_refusal(address: str, port: int | None, rules: TargetRules) -> Reason | None:
    """Return why an address is no target for a task that another node leads; None if it is one.

    ``address`` is an IP address; ``port`` is None if the measurement has none, or none that is
    known. An IPv4 address inside an IPv6 address is judged as well.
    """
    outer, *inner = reached_addresses(address)
    judged = [(address, outer), *((str(each), each) for each in inner)]
    refusals = (_refusal(address, shown, each, port, rules) for shown, each in judged)
    return next(filter(None, refusals), None)


def reached_addresses(address: str) -> tuple[IpAddress, ...]:
    """Return an address, and the IPv4 addresses to which packets for it may be sent."""
    outer = ipaddress.ip_address(address.partition("%")[0])
    return outer, *_embedded_addresses(outer)


def is_private(address: IpAddress) -> bool:
    """Return whether an address is of a private network."""
    return any(address in network for network in PRIVATE)


def api_networks(listen_host: str) -> tuple[Network, ...]:
    """Return the networks in which a service answers that listens on an address or a name.

    An unspecified address reaches loopback, so it counts always.
    """
    address = literal(listen_host)
    if address is None or ipaddress.ip_address(address).is_unspecified:
        return (*_UNSPECIFIED, *LOOPBACK)
    return (*_UNSPECIFIED, ipaddress.ip_network(address))


def literal(host: str) -> str | None:
    """Return the address that a host is written as, in its shortest form; None if it is a name.

    The decimal, octal, hexadecimal, and short forms of IPv4 addresses that programs accept
    (``2130706433``, ``0x7f.1``) are addresses, too, and so are the digits and dots of other scripts
    that libraries of names take for those of ASCII.
    """
    host = _plain(host)
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        number = _number(host.removesuffix("."))
    return None if number is None else str(ipaddress.IPv4Address(number))


def host_refusal(host: str, port: int | None, rules: TargetRules) -> Reason | None:
    """Return why a host is no target, as far as it is known before its name is looked up."""
    address = literal(host)
    if address is not None:
        return target_refusal(address, port, rules)
    last = _plain(host).removesuffix(".").lower().rpartition(".")[2]
    if last == "localhost" and target_refusal("127.0.0.1", port, rules):
        return forbidden_target(host, host, "this host itself", rules.whose)
    return None


def addresses_refusal(
    host: str, addresses: Iterable[str], port: int | None, rules: TargetRules
) -> Reason | None:
    """Return why a host with these addresses is no target, with its name; None if it is one.

    One refused address refuses the host: whoever gave it that address chose it. The address of a
    name is not told, because that may be known to the resolvers of this host alone.
    """
    refusals: Iterator[Reason | None]
    if literal(host):
        refusals = (target_refusal(address, port, rules) for address in addresses)
    else:
        judged = (each for address in addresses for each in reached_addresses(address))
        refusals = (_refusal(host, None, each, port, rules) for each in judged)
    return next(filter(None, refusals), None)


def redirect_refusal(named: str, host: str, rules: TargetRules | None) -> Reason | None:
    """Return why a redirect to a host is not followed; None if it is.

    ``named`` is the host that the task names, without ``rules`` on the owner's word. Anybody else
    answers for the hosts of a task by naming them: these were judged, and counted for the limits.
    """
    if rules is None or host == named:
        return None
    return redirect_not_followed(host, rules.whose)


def _embedded_addresses(address: IpAddress) -> Iterator[IpAddress]:
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


def _refusal(
    target: str, shown: str | None, address: IpAddress, port: int | None, rules: TargetRules
) -> Reason | None:
    """Return why an address is no target, None if it is; ``shown`` is how it is told, if it is."""
    api = address in rules.own or any(address in network for network in rules.api)
    if api and port == rules.own_port:
        return target_is_this_node(target, shown, rules.whose)
    if any(address in network for network in rules.allowed):
        return None
    kind = _METADATA.get(address)
    if kind is None and address in rules.own:
        kind = "an address of this host itself"
    if kind is None:
        kind = next((kind for network, kind in _NEVER if address in network), None)
    if kind is not None:
        return forbidden_target(target, shown, kind, rules.whose)
    return _private_refusal(target, shown, address, port, rules) if is_private(address) else None


def _private_refusal(
    target: str, shown: str | None, address: IpAddress, port: int | None, rules: TargetRules
) -> Reason | None:
    if rules.content is not None:
        return private_target_would_tell(target, shown, rules.content)
    if rules.private is None:
        return None
    if not any(address in network for network in rules.private):
        return forbidden_target(target, shown, "a private address", rules.whose)
    if port is None or port in rules.tool_ports or (address, port) in rules.known_apis:
        return None
    return port_of_private_target(target, shown, port, rules.whose)


def _plain(host: str) -> str:
    """Return a host with the letters, digits, and dots for which libraries of names take others."""
    if host.isascii():
        return host
    return unicodedata.normalize("NFKC", host).replace(_IDEOGRAPHIC_STOP, ".")


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
