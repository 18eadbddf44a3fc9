"""Two queries to the kernel's routing over netlink: no program, about ten microseconds."""

from __future__ import annotations

import contextlib
import ipaddress
import socket
import struct
import sys
from collections.abc import Iterator

IpAddress = ipaddress.IPv4Address | ipaddress.IPv6Address

_HEADER = struct.Struct("=IHHII")  # length, type, flags, sequence, port
_ROUTE = struct.Struct("=BBBBBBBBI")
_ADDRESS = struct.Struct("=BBBBI")  # family, prefix, flags, scope, interface
_ATTRIBUTE = struct.Struct("=HH")
_BYTES = 1 << 16
_REQUEST, _DUMP = 1, 0x300
_DONE, _NEW_ADDRESS, _GET_ADDRESS, _NEW_ROUTE, _GET_ROUTE = 3, 20, 22, 24, 26
_ROUTE_DESTINATION, _ROUTE_INTERFACE, _ADDRESS_LOCAL, _ADDRESS_ITSELF = 1, 4, 2, 1
_GLOBAL = 0


def interface_to(target: IpAddress) -> str | None:
    """Return the interface by which the kernel reaches an address; None without a route."""
    family = socket.AF_INET if target.version == 4 else socket.AF_INET6  # noqa: PLR2004
    packed = target.packed
    query = _ROUTE.pack(family, 8 * len(packed), 0, 0, 0, 0, 0, 0, 0)
    query += _ATTRIBUTE.pack(_ATTRIBUTE.size + len(packed), _ROUTE_DESTINATION) + packed
    for kind, body in _answers(_GET_ROUTE, _REQUEST, query):
        index = dict(_attributes(body[_ROUTE.size :])).get(_ROUTE_INTERFACE)
        if kind == _NEW_ROUTE and index is not None:
            with contextlib.suppress(OSError):
                return socket.if_indextoname(int.from_bytes(index, sys.byteorder))
    return None


def addresses(interface: str | None = None) -> list[IpAddress]:
    """Return the global addresses of this host, or of one interface; IPv4 first."""
    result: list[IpAddress] = []
    interface_index = None
    if interface is not None:
        try:
            interface_index = socket.if_nametoindex(interface)
        except OSError:
            return []
    for kind, body in _answers(_GET_ADDRESS, _REQUEST | _DUMP, _ADDRESS.pack(0, 0, 0, 0, 0)):
        if kind != _NEW_ADDRESS:
            continue
        _, _, _, scope, index = _ADDRESS.unpack_from(body)
        attributes = dict(_attributes(body[_ADDRESS.size :]))
        packed = attributes.get(_ADDRESS_LOCAL) or attributes.get(_ADDRESS_ITSELF)
        if scope == _GLOBAL and packed and interface_index in {None, index}:
            result.append(ipaddress.ip_address(packed))
    return sorted(result, key=lambda address: address.version)


def has_address(text: str) -> bool:
    """Return whether a text is a global address of this host, in its short form."""
    return any(str(each) == text for each in addresses())


def _answers(kind: int, flags: int, body: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield type and content of the kernel's reply messages; none if netlink is not permitted."""
    with contextlib.suppress(OSError), socket.socket(socket.AF_NETLINK, socket.SOCK_RAW) as kernel:
        kernel.send(_HEADER.pack(_HEADER.size + len(body), kind, flags, 1, 0) + body)
        while True:
            packet = kernel.recv(_BYTES)
            while len(packet) >= _HEADER.size:
                length, reply_kind, _, _, _ = _HEADER.unpack_from(packet)
                if reply_kind == _DONE or length < _HEADER.size:
                    return
                yield reply_kind, packet[_HEADER.size : length]
                packet = packet[(length + 3) & ~3 :]
            if not flags & _DUMP:
                return


def _attributes(octets: bytes) -> Iterator[tuple[int, bytes]]:
    while len(octets) >= _ATTRIBUTE.size:
        length, kind = _ATTRIBUTE.unpack_from(octets)
        if length < _ATTRIBUTE.size:
            return
        yield kind, octets[_ATTRIBUTE.size : length]
        octets = octets[(length + 3) & ~3 :]
