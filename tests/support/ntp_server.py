"""Answers of an NTP server (RFC 5905, section 7.3)."""

from __future__ import annotations

import struct
import time

_PACKET = struct.Struct("!BBbbIII4Q")
_EPOCH_S = 2_208_988_800
_ERA = 1 << 64


def ntp_time(now_ns: int) -> int:
    """Return an instant as NTP has it, in the era that it is in."""
    return ((now_ns + _EPOCH_S * 10**9 << 32) // 10**9) % _ERA


def answer(
    question: bytes,
    *,
    ahead_ns: int = 0,
    stratum: int = 2,
    leap: int = 0,
    mode: int = 4,
    reference: bytes = bytes((192, 0, 2, 123)),
    origin: int | None = None,
) -> bytes:
    """Answer as a server whose clock is ahead by some nanoseconds."""
    cookie = _PACKET.unpack(question)[-1] if origin is None else origin
    now = ntp_time(time.time_ns() + ahead_ns)
    return _PACKET.pack(
        leap << 6 | 4 << 3 | mode, stratum, 6, -20, 1 << 10, 1 << 9,
        int.from_bytes(reference), now, cookie, now, now,
    )  # fmt: skip
