"""Asks an NTP server for the time, and prints offsets, round trips, and what the server says.

``ntp_client.py '{"host": "192.0.2.7", "port": 123, "count": 4, …}'``, see :func:`measure`.

A packet is a client's of version 4 (RFC 5905). In place of the time it carries a random number,
which the server returns: an answer without it is not ours, and nobody learns what this clock says.
Differences of instants are taken in 64 bits, so that they are right in any era of NTP as long as
both clocks are within 68 years of each other.
"""

from __future__ import annotations

import secrets
import select
import socket
import struct
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

if __name__ == "__main__":  # started by its path and in isolated mode: nothing else is importable
    sys.path.append(str(Path(__file__).resolve().parents[4]))

from node.plugins.tools.programs import stamp_endpoint, target

_PACKET = struct.Struct("!BBbbIII4Q")
"""RFC 5905, section 7.3: leap, version and mode; stratum; poll; precision; root delay; root
dispersion; reference; and the times of reference, origin, receipt and departure."""

_CLIENT, _SERVER = 3, 4
_VERSION = 4
_EPOCH_S = 2_208_988_800  # from 1900, where NTP begins, to 1970
_HALF = 1 << 63
_WHOLE = 1 << 64
_NAMED_STRATA = 2  # those below name their reference in letters


class _Answer(NamedTuple):
    """The fields of an answer; times in 2⁻³² s since 1900, root delay and dispersion in 2⁻¹⁶ s."""

    leap: int
    stratum: int
    precision: int
    root_delay: int
    root_dispersion: int
    reference: int
    origin: int
    received: int
    departed: int


class NtpClient:
    """The packets: those that are under way, and the answers."""

    def __init__(self, endpoint: socket.socket, arguments: stamp_endpoint.Arguments) -> None:
        """Use a connected socket, with the arguments of :func:`measure`."""
        self._endpoint = endpoint
        self._timeout_ns: int = arguments["timeout_ns"]
        self._begun: dict[int, tuple[int, int]] = {}
        """By the number in it, when a packet left: by the wall clock, and by steady time (ns)."""
        self._answers: list[tuple[int, int]] = []
        self._server: dict[str, object] | None = None
        self._kiss: str | None = None
        self._trouble: str | None = None

    def run(self, count: int, interval_ns: int) -> dict[str, Any]:
        """Send all packets, unless the server refuses; return the outcome."""
        began_ns, sent = time.monotonic_ns(), 0
        while sent < count and self._kiss is None:
            self._send()
            sent += 1
            self._listen_until(began_ns + sent * interval_ns, last=sent == count)
        result = {"sent": sent, "answers": self._answers, "server": self._server}
        if not self._answers and self._trouble is not None:
            result["failure"] = self._trouble
        return result | {"kiss": self._kiss}

    def _send(self) -> None:
        cookie = secrets.randbits(64) or 1
        head = _VERSION << 3 | _CLIENT
        packet = _PACKET.pack(head, 0, 0, 0, 0, 0, 0, 0, 0, 0, cookie)
        self._begun[cookie] = (time.time_ns(), time.monotonic_ns())
        try:
            self._endpoint.send(packet)
        except OSError as fault:
            self._note(fault)

    def _note(self, fault: OSError) -> None:
        """Note an ICMP error of an earlier packet, or that there is no way: that packet is lost."""
        where = target.place(self._endpoint.getpeername())
        self._trouble = f"{where}: {target.system_error_text(fault)}"

    def _listen_until(self, due_ns: int, *, last: bool) -> None:
        """Take answers until an instant of steady time, or until the server refuses.

        After the last packet it is over with its answer, or its timeout.
        """
        if last:
            due_ns = time.monotonic_ns() + self._timeout_ns
        while self._kiss is None and (self._begun or not last):
            left_ns = due_ns - time.monotonic_ns()
            if left_ns <= 0:
                return
            select.select([self._endpoint], [], [], left_ns / stamp_endpoint.SECOND_NS)
            try:
                arrival = stamp_endpoint.receive(self._endpoint)
            except OSError as fault:
                self._note(fault)
            else:
                if arrival is not None:
                    self._take(arrival[0], arrival[1])

    def _take(self, packet: bytes, arrived_ns: int) -> None:
        answer = _parse(packet)
        if answer is None:
            return
        departed_ns, steady_ns = self._begun.get(answer.origin, (0, 0))
        if not departed_ns or time.monotonic_ns() - steady_ns > self._timeout_ns:
            return  # not ours, a second copy, or too late
        del self._begun[answer.origin]
        reference = answer.reference.to_bytes(4)
        if answer.stratum == 0:
            self._kiss = _letters(reference) or "no code"
            return
        there_ns = _difference_ns(answer.received, departed_ns)
        back_ns = _difference_ns(answer.departed, arrived_ns)
        self._answers.append(((there_ns + back_ns) // 2, there_ns - back_ns))
        self._server = {
            "leap": answer.leap,
            "stratum": answer.stratum,
            "reference": _letters(reference) if answer.stratum < _NAMED_STRATA else reference.hex(),
            "root_delay_ns": _short_ns(answer.root_delay),
            "root_dispersion_ns": _short_ns(answer.root_dispersion),
            "precision_ns": 2.0**answer.precision * stamp_endpoint.SECOND_NS,
        }


def _parse(packet: bytes) -> _Answer | None:
    """Return the fields of a server's answer; None of anything else."""
    if len(packet) < _PACKET.size:
        return None
    head, stratum, _, precision, delay, dispersion, reference, _, origin, received, departed = (
        _PACKET.unpack_from(packet)
    )
    if head & 0b111 != _SERVER or (stratum and not (received and departed)):
        return None
    return _Answer(
        head >> 6, stratum, precision, delay, dispersion, reference, origin, received, departed
    )


def _difference_ns(instant: int, own_ns: int) -> int:
    """Return how far an instant of NTP is ahead of one of this host's clock, in nanoseconds."""
    seconds, rest_ns = divmod(own_ns, stamp_endpoint.SECOND_NS)
    own = ((seconds + _EPOCH_S) << 32) + (rest_ns << 32) // stamp_endpoint.SECOND_NS
    ahead = (instant - own + _HALF) % _WHOLE - _HALF
    return ahead * stamp_endpoint.SECOND_NS >> 32


def _short_ns(short: int) -> int:
    """Return a span of 16 bits of seconds and 16 of their fractions in nanoseconds."""
    return short * stamp_endpoint.SECOND_NS >> 16


def _letters(octets: bytes) -> str:
    """Return a code of up to four letters; what is none of them is left out."""
    return "".join(chr(each) for each in octets if chr(each).isalnum() and each < 128).strip()  # noqa: PLR2004 - ASCII


def measure(arguments: stamp_endpoint.Arguments) -> dict[str, Any]:
    """Ask a server.

    Arguments: ``host``, ``port``, ``ip_version`` (4, 6 or null), ``device``, ``source`` (the
    address to send from, or null), ``count``, ``interval_ns``, ``timeout_ns`` (for the name, and
    for each packet), ``first_ns`` (the instant of the first packet), ``private`` (see
    :class:`.target.Private`).
    Result: the address; ``sent``; ``answers``, for each its offset and its round trip in
    nanoseconds; what the last one says of the ``server``; ``kiss``, the code of a refusal, after
    which nothing more is sent; the state of the own ``clock``; or ``failure``, if the name has no
    address or there is no way to it.
    """
    rules = target.Private(arguments).rules
    clock = stamp_endpoint.KernelClock()
    stamp_endpoint.wait_until(arguments["first_ns"])
    result: dict[str, Any] = {}
    try:
        deadline = target.Deadline(arguments["timeout_ns"])
        host, port = arguments["host"], arguments["port"]
        addresses = target.look_up(host, port, arguments["ip_version"], deadline, rules)
        family, address = addresses[0]
        result["address"] = address[0]
        with _socket(family, address, arguments) as endpoint:
            result |= NtpClient(endpoint, arguments).run(
                arguments["count"], arguments["interval_ns"]
            )
    except target.TargetUnreachable as reason:
        result["failure"] = str(reason)
    return result | {"clock": clock.state()}


def _socket(
    family: int, address: stamp_endpoint.SocketAddress, arguments: stamp_endpoint.Arguments
) -> socket.socket:
    """Return a socket that receives from one server alone, with the kernel's times of arrival.

    :raises target.TargetUnreachable: there is no way to it.
    """
    endpoint = target.endpoint_of(family, socket.SOCK_DGRAM, arguments)
    endpoint.settimeout(0)  # never blocks
    stamp_endpoint.record_arrivals(endpoint)
    try:
        endpoint.connect(address)
    except OSError as fault:
        endpoint.close()
        raise target.TargetUnreachable(
            f"{target.place(address)}: {target.system_error_text(fault)}"
        ) from None
    return endpoint


if __name__ == "__main__":
    sys.exit(stamp_endpoint.run(measure, undisturbed=True))
