"""A broken WAN: ``python -m tests.accuracy.faults FAULT …`` is ``node.cli.lab.wan`` with a fault.

Only IPv4 is broken. Instants count from the first packet that a site sends to another one.
"""

from __future__ import annotations

import contextlib
import os
import struct
import sys
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from node.cli.lab import wan
from node.cli.lab.wan import Wan

MIDDLE_S = 3.0
"""The path dies this long after the first packet."""
SMALL_BYTES = 1300
_ICMP, _TCP = 1, 6
_ECHO_REPLY, _ECHO_REQUEST, _UNREACHABLE, _PROHIBITED = 0, 8, 3, 13
_CUT_BYTES = 68
"""Data bytes that a truncated echo reply keeps."""
_PER_SECOND = 2
_LATER_S = 0.25
_EACH = 5


Fault = Callable[["BrokenWan", int, bytes, float], Sequence[bytes]]
"""Takes the WAN, the sending site, its packet, and the instant; returns what becomes of it."""


class BrokenWan(Wan):
    """A WAN whose packets a fault may drop, change, double, delay, or answer."""

    fault: Fault
    began: float | None = None

    def __init__(self, *words: Any) -> None:
        """Forward as :class:`Wan` does, but for the fault."""
        super().__init__(*words)
        self._delayed: deque[tuple[float, int, bytes]] = deque()

    def take(self, sender: int, packet: bytes, now: float) -> None:
        """Accept what the fault makes of a packet."""
        if packet[0] >> 4 != 4 or self._sites.get(packet[16:20]) is None:
            super().take(sender, packet, now)
            return
        self.began = now if self.began is None else self.began
        for each in self.fault(self, sender, packet, now):
            super().take(sender, each, now)

    def delay(self, packet: bytes, due: float) -> None:
        """Have a packet arrive at an instant, after others."""
        self._delayed.append((due, self.devices[self._sites[packet[16:20]]], packet))

    def release(self, now: float) -> float | None:
        """Write out the due packets, delayed ones as well; return when the next one is due."""
        following = super().release(now)
        while self._delayed and self._delayed[0][0] <= now:
            _, device, packet = self._delayed.popleft()
            with contextlib.suppress(OSError):
                os.write(device, packet)
        dues = [due for due, *_ in [*self._delayed][:1]]
        return min([*dues, *([] if following is None else [following])], default=None)

    def answer(self, sender: int, packet: bytes) -> None:
        """Send a packet back to the site that sent the other one."""
        with contextlib.suppress(OSError):
            os.write(self.devices[sender], packet)


def _whole(_wan: BrokenWan, _sender: int, packet: bytes, _now: float) -> Sequence[bytes]:
    return (packet,)


def _dark(_wan: BrokenWan, _sender: int, _packet: bytes, _now: float) -> Sequence[bytes]:
    return ()


def _dies(wan_: BrokenWan, _sender: int, packet: bytes, now: float) -> Sequence[bytes]:
    return (packet,) if now < (wan_.began or now) + MIDDLE_S else ()


def _one_way(_wan: BrokenWan, sender: int, packet: bytes, _now: float) -> Sequence[bytes]:
    return () if sender else (packet,)


def _small(_wan: BrokenWan, _sender: int, packet: bytes, _now: float) -> Sequence[bytes]:
    return (packet,) if len(packet) <= SMALL_BYTES else ()


def _double(_wan: BrokenWan, _sender: int, packet: bytes, _now: float) -> Sequence[bytes]:
    return packet, packet


class _Shuffler:
    """Delays each fifth packet, so that later ones overtake it."""

    def __init__(self) -> None:
        self._count = 0

    def __call__(self, wan_: BrokenWan, _: int, packet: bytes, now: float) -> Sequence[bytes]:
        self._count += 1
        if self._count % _EACH:
            return (packet,)
        wan_.delay(packet, now + _LATER_S)
        return ()


def _truncate(_wan: BrokenWan, _sender: int, packet: bytes, _now: float) -> Sequence[bytes]:
    start = (packet[0] & 15) * 4
    if packet[9] != _ICMP or packet[start] != _ECHO_REPLY or len(packet) <= start + 8 + _CUT_BYTES:
        return (packet,)
    return (
        _ip(packet[12:16], packet[16:20], _ICMP, _icmp(packet[start : start + 8 + _CUT_BYTES])),
    )


class _Limiter:
    """Passes two ICMP packets a second of each site."""

    def __init__(self) -> None:
        self._passed: dict[tuple[int, int], int] = {}

    def __call__(self, _wan: BrokenWan, sender: int, packet: bytes, now: float) -> Sequence[bytes]:
        if packet[9] != _ICMP:
            return (packet,)
        second = (sender, int(now))
        self._passed[second] = self._passed.get(second, 0) + 1
        return (packet,) if self._passed[second] <= _PER_SECOND else ()


def _refuse(wan_: BrokenWan, sender: int, packet: bytes, _now: float) -> Sequence[bytes]:
    """Answer what ``a`` sends with a reset, or as prohibited."""
    if sender:
        return (packet,)
    start = (packet[0] & 15) * 4
    source, dest, payload = packet[12:16], packet[16:20], packet[start:]
    if packet[9] == _TCP:
        wan_.answer(sender, _ip(dest, source, _TCP, _reset(source, dest, payload)))
    else:
        head = bytes([_UNREACHABLE, _PROHIBITED, 0, 0, 0, 0, 0, 0])
        wan_.answer(sender, _ip(dest, source, _ICMP, _icmp(head + packet[: start + 8])))
    return ()


FAULTS: Mapping[str, Callable[[], Fault]] = {
    "black hole from the start": lambda: _dark,
    "black hole from the middle": lambda: _dies,
    "nothing comes back": lambda: _one_way,
    "MTU of 1300, silent": lambda: _small,
    "30 % loss": lambda: _whole,
    "every packet twice": lambda: _double,
    "packets out of order": _Shuffler,
    "truncated echo replies": lambda: _truncate,
    "2 ICMP packets a second": _Limiter,
    "a firewall that resets": lambda: _refuse,
}
"""Faults of a path by their names; the loss is one of the WAN's settings."""


def _ip(source: bytes, dest: bytes, protocol: int, payload: bytes) -> bytes:
    head = struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(payload), 0, 0, 64, protocol, 0)
    head += source + dest
    return head[:10] + _checksum(head) + head[12:] + payload


def _icmp(message: bytes) -> bytes:
    blank = message[:2] + b"\0\0" + message[4:]
    return blank[:2] + _checksum(blank) + blank[4:]


def _reset(source: bytes, dest: bytes, segment: bytes) -> bytes:
    """Return the reset that answers a segment from ``source`` to ``dest``."""
    own, peer, sequence, _, flags = struct.unpack("!HHIIH", segment[:14])
    length = len(segment) - (flags >> 12) * 4 + bool(flags & 2)
    reset = struct.pack("!HHIIHHHH", peer, own, 0, (sequence + length) % 2**32, 0x5014, 0, 0, 0)
    pseudo = dest + source + struct.pack("!BBH", 0, _TCP, len(reset))
    return reset[:16] + _checksum(pseudo + reset) + reset[18:]


def _checksum(data: bytes) -> bytes:
    padded = data + b"\0" * (len(data) % 2)
    total = sum(struct.unpack(f"!{len(padded) // 2}H", padded))
    while total >> 16:
        total = (total >> 16) + (total & 0xFFFF)
    return struct.pack("!H", ~total & 0xFFFF)


def main(name: str, words: Sequence[str]) -> None:
    """Forward with a fault until TERM or INT, then print the report, as the whole WAN does."""
    wan.main(words, type("FaultyWan", (BrokenWan,), {"fault": staticmethod(FAULTS[name]())}))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
