"""The system interface of both STAMP programs: sockets with kernel timestamps, the clock's state.

The arrival time is the kernel's, not the time at which Python came to read the packet.
"""

from __future__ import annotations

import ctypes
import errno
import gc
import ipaddress
import json
import socket
import struct
import sys
import time
from binascii import crc32
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from node.plugins.tools.programs import stamp_packet

Arguments = Mapping[str, Any]
"""The arguments of a program: one JSON object in its argv."""

SocketAddress = tuple[Any, ...]
"""(address, port) and, for IPv6, flow and scope."""

_SO_TIMESTAMPNS = 35  # asm-generic/socket.h; with 64-bit longs also the message's type
_IP_RECVTTL = 12  # linux/in.h
_BUFFER_BYTES = 4_000_000  # a second of packets at 1 ms and 1500 bytes; the kernel may grant less
_PACKET_BYTES_MAX = 65_536
_ANCILLARY_BYTES = 256
_TIMESPEC = struct.Struct("@qq")
SECOND_NS = 1_000_000_000

_STA_UNSYNC = 0x40  # linux/timex.h
_TIME_ERROR = 5
_TIMEX = struct.Struct("@I4li")  # modes, offset, freq, maxerror (us), esterror, status, …
_TIMEX_BYTES = 256

_SPIN_NS = 1_000_000  # longer than a sleeping process may oversleep here
_NAP_S_MAX = 0.5  # the clock may be stepped during the wait


class Unusable(Exception):
    """Measuring is impossible; the message is the reason."""


def run(measure: Callable[[Arguments], dict[str, Any]], *, undisturbed: bool = False) -> int:
    """Call ``measure`` with the arguments (a JSON object in argv), and print its result as JSON.

    If measuring is impossible, ``{"error": …}`` with the reason is printed, with exit code 1.
    ``undisturbed``: without collections of garbage, which would delay what is timed; such a program
    makes few cycles, or none.
    """
    if undisturbed:
        gc.disable()
    try:
        result = measure(json.loads(sys.argv[1]))
    except Unusable as reason:
        result = {"error": str(reason)}
    print(json.dumps(result, separators=(",", ":")))
    return 1 if "error" in result else 0


def record(interval: Mapping[str, Any]) -> None:
    """Print the record of one interval (RFC 7464) and flush it."""
    sys.stdout.write(f"\x1e{json.dumps(interval, separators=(',', ':'))}\n")
    sys.stdout.flush()


def host_and_port(host: str, port: int) -> str:
    """Return ``192.0.2.7:5000`` or ``[2001:db8::7]:5000``."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def is_address(host: str) -> bool:
    """Return whether a host is written as an IP address."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def addresses(host: str, ip_version: int | None, port: int) -> list[tuple[int, SocketAddress]]:
    """Return the (family, socket address) pairs of a host, best first.

    :raises Unusable: there are none.
    """
    family = {None: socket.AF_UNSPEC, 4: socket.AF_INET, 6: socket.AF_INET6}[ip_version]
    try:
        entries = socket.getaddrinfo(host, port, family, socket.SOCK_DGRAM)
    except OSError as fault:
        raise Unusable(f"{host}: {fault.strerror}") from None
    return [(entry[0], entry[4]) for entry in entries]


def open_socket(family: int, device: str | None = None) -> socket.socket:
    """Open a non-blocking UDP socket that reports the arrival time and TTL of packets.

    With a ``device`` it sends and receives through that interface alone.

    :raises Unusable: there is no such interface, or it may not be used.
    """
    endpoint = socket.socket(family, socket.SOCK_DGRAM)
    endpoint.settimeout(0)  # never blocks
    bind_to_device(endpoint, device)
    record_arrivals(endpoint)
    endpoint.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER_BYTES)
    # An IPv6 socket may also carry IPv4, so it gets both sets of options.
    endpoint.setsockopt(socket.IPPROTO_IP, _IP_RECVTTL, 1)
    endpoint.setsockopt(socket.IPPROTO_IP, socket.IP_TTL, stamp_packet.TTL)
    if family == socket.AF_INET6:
        endpoint.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_RECVHOPLIMIT, 1)
        endpoint.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_UNICAST_HOPS, stamp_packet.TTL)
    return endpoint


def record_arrivals(endpoint: socket.socket) -> None:
    """Have the kernel report when each packet arrived, for :func:`receive`."""
    endpoint.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)


def bind_to_device(endpoint: socket.socket, device: str | None) -> None:
    """Make a socket send and receive through one interface alone, if there is a ``device``.

    :raises Unusable: there is no such interface, or it may not be used.
    """
    try:
        if device is not None:
            endpoint.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, device.encode())
    except OSError as fault:
        raise Unusable(f"cannot use interface {device}: {fault.strerror}") from None


def bind(endpoint: socket.socket, address: SocketAddress, *, fixed_port: bool) -> None:
    """Bind to an address of this host, or to any if it is not (behind address translation).

    :raises Unusable: the port is taken, or the address may not be used.
    """
    anywhere = "::" if endpoint.family == socket.AF_INET6 else "0.0.0.0"  # noqa: S104 - see above
    try:
        try:
            endpoint.bind(address)
        except OSError as fault:
            if fault.errno != errno.EADDRNOTAVAIL:
                raise
            endpoint.bind((anywhere, address[1] if fixed_port else 0))
    except OSError as fault:
        raise Unusable(f"cannot use {address[0]} port {address[1]}: {fault.strerror}") from None


def connected_socket(arguments: Arguments) -> socket.socket:
    """Return a sender's socket, connected from its own address to the reflector.

    Arguments: ``reflector``, ``source`` (addresses or names), ``port``, ``ip_version``, ``device``.

    :raises Unusable: a name is unknown, or there is no route to the reflector.
    """
    reflector, port = arguments["reflector"], arguments["port"]
    family, address = addresses(reflector, arguments["ip_version"], port)[0]
    endpoint = open_socket(family, arguments["device"])
    own = addresses(arguments["source"], None, 0)
    mine = next((address for own_family, address in own if own_family == family), None)
    if mine is not None:
        bind(endpoint, mine, fixed_port=False)
    try:
        endpoint.connect(address)
    except OSError as fault:
        raise Unusable(f"no route to {reflector} port {port}: {fault.strerror}") from None
    return endpoint


def bound_socket(arguments: Arguments, *, shared: bool = False) -> socket.socket:
    """Return a reflector's socket, bound to its own address (see :func:`bind_at_own_address`).

    ``shared``: another socket of this account may use the same port.

    :raises Unusable: a name is unknown, or the port cannot be used.
    """

    def opened(family: int) -> socket.socket:
        endpoint = open_socket(family, arguments["device"])
        if shared:
            endpoint.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        return endpoint

    return bind_at_own_address(arguments, opened)


def bind_at_own_address(
    arguments: Arguments, opened: Callable[[int], socket.socket]
) -> socket.socket:
    """Return a socket of a family that is bound to the own address; for a name to any.

    A name may have another address here. Arguments: ``address``, ``port``, ``ip_version``.

    :raises Unusable: the port cannot be used.
    """
    address, port = arguments["address"], arguments["port"]
    if not is_address(address):
        address = "0.0.0.0" if arguments["ip_version"] == 4 else "::"  # noqa: S104, PLR2004
    family, own = addresses(address, None, port)[0]
    endpoint = opened(family)
    if address == "::" and arguments["ip_version"] is None:
        endpoint.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    bind(endpoint, own, fixed_port=True)
    return endpoint


def receive(endpoint: socket.socket) -> tuple[bytes, int, int, SocketAddress] | None:
    """Return the next packet: octets, arrival in ns, TTL, sender; ``None`` if there is none.

    :raises OSError: an ICMP error came instead (connected sockets only).
    """
    try:
        packet, ancillary, _, sender = endpoint.recvmsg(_PACKET_BYTES_MAX, _ANCILLARY_BYTES)
    except BlockingIOError:
        return None
    arrived_ns, ttl = 0, 0
    for level, kind, content in ancillary:
        if level == socket.SOL_SOCKET and kind == _SO_TIMESTAMPNS:
            seconds, rest_ns = _TIMESPEC.unpack(content[: _TIMESPEC.size])
            arrived_ns = seconds * SECOND_NS + rest_ns
        elif (level, kind) in {
            (socket.IPPROTO_IP, socket.IP_TTL),
            (socket.IPPROTO_IPV6, socket.IPV6_HOPLIMIT),
        }:
            ttl = struct.unpack("@i", content[:4])[0]
    return packet, arrived_ns or time.time_ns(), ttl, sender


def wait_until(instant_ns: int) -> None:
    """Return at the instant of the wall clock, to some 10 µs; immediately if it is past."""
    while (left_ns := instant_ns - time.time_ns()) > _SPIN_NS:
        time.sleep(min((left_ns - _SPIN_NS) / SECOND_NS, _NAP_S_MAX))
    while time.time_ns() < instant_ns:
        pass


def sleep_until(due_ns: int) -> None:
    """Return at the instant of steady time (monotonic), or soon after."""
    while (left_ns := due_ns - time.monotonic_ns()) > 0:
        time.sleep(left_ns / SECOND_NS)


class KernelClock:
    """The kernel's state of its clock, and how the clock moves during the measurement."""

    def __init__(self) -> None:
        """Query the kernel (``adjtimex`` for reading, which needs no privilege)."""
        self.synchronised: bool | None = None
        self.error_ns = 0
        self._offset_ns = time.time_ns() - time.monotonic_ns()
        buffer = ctypes.create_string_buffer(_TIMEX_BYTES)
        state = ctypes.CDLL(None).adjtimex(buffer)
        if state >= 0:
            _, _, _, error_us, _, status = _TIMEX.unpack_from(buffer.raw)
            self.synchronised = state != _TIME_ERROR and not status & _STA_UNSYNC
            self.error_ns = error_us * 1000

    def error_estimate(self) -> int:
        """Return the error estimate field of a packet."""
        synchronised = bool(self.synchronised)
        return stamp_packet.error_estimate(synchronised=synchronised, error_ns=self.error_ns)

    def state(self) -> dict[str, object]:
        """Return the clock's part of the output; ``stepped_ns`` counts from the constructor."""
        return {
            "synchronised": self.synchronised,
            "error_bound_ns": self.error_ns if self.synchronised else None,
            "stepped_ns": time.time_ns() - time.monotonic_ns() - self._offset_ns,
            "identity": _clock_identity(),
        }


def _clock_identity() -> str:
    """Return an id that is equal under one kernel, thus one clock; hashed, to reveal no more."""
    try:
        booted = Path("/proc/sys/kernel/random/boot_id").read_bytes()
    except OSError:
        return ""
    return f"{crc32(booted):08x}"
