"""The test packets of STAMP in unauthenticated mode: RFC 8762 section 4, with RFC 8972. Pure.

::

    offset  session-sender (4.2.1)        session-reflector (4.3.1)
    0       sequence number               the reflector's own sequence number
    4       timestamp                     timestamp: when it was sent back
    12      error estimate                error estimate
    14      session id (RFC 8972)         session id, copied
    16      must be zero                  receive timestamp
    24      …                             sender's sequence number, copied
    28      …                             sender's timestamp, copied
    36      …                             sender's error estimate, copied
    38      …                             must be zero
    40      …                             sender's TTL as it arrived
    44      TLVs (RFC 8972 section 4)     TLVs, copied

Numbers are in network byte order; timestamps are 64 bits of NTP (RFC 5905 section 6): seconds since
1900 and a binary fraction. Elsewhere instants are nanoseconds since 1970.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

LENGTH = 44
TTL = 255
"""The TTL of sent packets: what is missing on arrival is the number of routers passed."""

_SENDER = struct.Struct("!IQHH28x")
_REFLECTOR = struct.Struct("!IQHHQIQHHB3x")
_TLV = struct.Struct("!BBH")
_UNRECOGNISED = 0x80  # the U flag: set by the sender, cleared by a reflector that knows the type
_EXTRA_PADDING = 1

_SECOND_NS = 1_000_000_000
_EPOCH_S = 2_208_988_800  # from 1900 to 1970
_ERA_NS = 2**32 * _SECOND_NS  # NTP's seconds start again from zero in 2036
_FRACTION = 2**32

_MULTIPLIER_MAX = 255
_SCALE_MAX = 63


class SenderPacket(NamedTuple):
    """The fields of a session-sender's packet, in their order."""

    sequence: int
    timestamp: int
    error: int
    session: int


class ReflectorPacket(NamedTuple):
    """The fields of a session-reflector's packet, in their order; timestamps are NTP's."""

    sequence: int
    timestamp: int
    error: int
    session: int
    received: int
    sender_sequence: int
    sender_timestamp: int
    sender_error: int
    must_be_zero: int
    sender_ttl: int


def ntp_from_ns(instant_ns: int) -> int:
    """Return an instant as a 64-bit NTP timestamp, rounded to the nearest 2^-32 s."""
    seconds, rest_ns = divmod(instant_ns, _SECOND_NS)
    fraction = (rest_ns * _FRACTION + _SECOND_NS // 2) // _SECOND_NS
    return (((seconds + _EPOCH_S) << 32) + fraction) % 2**64


def ns_from_ntp(timestamp: int, near_ns: int) -> int:
    """Return the instant of a 64-bit NTP timestamp, in the era that is closest to ``near_ns``."""
    seconds, fraction = timestamp >> 32, timestamp & (_FRACTION - 1)
    rest_ns = (fraction * _SECOND_NS + _FRACTION // 2) // _FRACTION
    instant_ns = (seconds - _EPOCH_S) * _SECOND_NS + rest_ns
    eras = (near_ns - instant_ns + _ERA_NS // 2) // _ERA_NS
    return instant_ns + eras * _ERA_NS


def error_estimate(*, synchronised: bool, error_ns: int) -> int:
    """Return the 16 bits of RFC 4656 section 4.1.2: S, Z = 0 (NTP), scale, multiplier.

    The error is multiplier * 2^-32 * 2^scale seconds, rounded up; the multiplier is never zero.
    """
    units = max(1, -(-error_ns * _FRACTION // _SECOND_NS))
    scale = max(0, units.bit_length() - 8)
    multiplier = -(-units // (1 << scale))
    if multiplier > _MULTIPLIER_MAX:  # rounding up carried into the ninth bit
        scale, multiplier = scale + 1, 128
    if scale > _SCALE_MAX:
        scale, multiplier = _SCALE_MAX, _MULTIPLIER_MAX
    return int(synchronised) << 15 | scale << 8 | multiplier


def padding(length: int, octets: bytes) -> bytes:
    """Return the octets after the first 44 of a packet of ``length``: none, or one padding TLV."""
    extra = length - LENGTH
    if not extra:
        return b""
    value = octets[: extra - _TLV.size]
    return _TLV.pack(_UNRECOGNISED, _EXTRA_PADDING, len(value)) + value


def pack_sender(packet: SenderPacket) -> bytes:
    """Return the first 44 octets of a session-sender's packet."""
    return _SENDER.pack(*packet)


def unpack_sender(octets: bytes) -> SenderPacket | None:
    """Parse a session-sender's packet; ``None`` if there are too few octets."""
    return SenderPacket(*_SENDER.unpack_from(octets)) if len(octets) >= LENGTH else None


def pack_reflector(packet: ReflectorPacket) -> bytes:
    """Return the first 44 octets of a session-reflector's packet."""
    return _REFLECTOR.pack(*packet)


def unpack_reflector(octets: bytes) -> ReflectorPacket | None:
    """Parse a session-reflector's packet; ``None`` if there are too few octets."""
    return ReflectorPacket(*_REFLECTOR.unpack_from(octets)) if len(octets) >= LENGTH else None


def reflected_tail(octets: bytes) -> bytes:
    """Return the octets after the first 44 of the answer: the TLVs as they came, U flag cleared."""
    tail = bytearray(octets[LENGTH:])
    if len(tail) >= _TLV.size and tail[1] == _EXTRA_PADDING:
        tail[0] &= ~_UNRECOGNISED
    return bytes(tail)
