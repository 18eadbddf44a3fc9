"""The messages of OWAMP, RFC 4656, in its open (unauthenticated) mode. Pure: octets in, values out.

Over TCP a client and a server agree on *sessions*, each a stream of numbered UDP packets one way::

    server  greeting (64) ─▶           client  set-up response (164) ─▶
    server  server start (48) ─▶
    client  request (112, slots, 16) ─▶    server  accept (48) ─▶        for each session
    client  start (32) ─▶                  server  start ack (32) ─▶
            … packets: number, timestamp, error estimate, padding …
    either  stop (16, what was sent of each session, 16) ─▶              once it has sent all
    client  fetch (48) ─▶                  server  fetch ack (32), the request, skips, records

All messages are multiples of 16 octets, the fields of HMACs are zero in this mode. A record is what
the receiver of a session keeps of one packet. A packet that was lost has a record without a time of
arrival; the numbers that a sender has left out are told as ranges, the *skips*.

The error estimate is that of STAMP (:mod:`.stamp_packet`): whether a clock is synchronised, and how
far it may be off, as a multiplier and a scale.

Whatever octets come, reading raises nothing but :class:`Malformed`.
"""

from __future__ import annotations

import ipaddress
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, NamedTuple

PORT = 861
BLOCK = 16
"""Octets of which every message is a multiple."""
OPEN_MODE = 1
"""The bit of the mode without keys."""
GREETING_LENGTH, SET_UP_LENGTH, SERVER_START_LENGTH = 64, 164, 48
REQUEST_LENGTH, ACCEPT_LENGTH, START_LENGTH, START_ACK_LENGTH = 112, 48, 32, 32
STOP_LENGTH, FETCH_LENGTH, FETCH_ACK_LENGTH = 16, 48, 32
"""Lengths of messages in octets; of a stop that of its head."""
PACKET_LENGTH, RECORD_LENGTH = 14, 25
ALL_RECORDS = 2**32 - 1

_SECOND_NS = 1_000_000_000
_FRACTION = 2**32

_GREETING = struct.Struct("!12xI16s16sI12x")
_SET_UP = struct.Struct("!I160x")
_SERVER_START = struct.Struct("!15xB16sQ8x")
_REQUEST = struct.Struct("!BBBBIIHH16s16s16sIQQI24x")
_SLOT = struct.Struct("!B7xQ")
_ACCEPT = struct.Struct("!BxH16s28x")
_SIMPLE = struct.Struct("!BB")
_STOP = struct.Struct("!BB2xI8x")
_STOPPED = struct.Struct("!16sII")
_SKIP = struct.Struct("!II")
_FETCH = struct.Struct("!B7xII16s16x")
_FETCH_ACK = struct.Struct("!BB2xIII16x")
_RECORD = struct.Struct("!IHHQQB")
_PACKET = struct.Struct("!IQH")
_VERSIONS = {4: 4, 6: 16}
_SYNCHRONISED, _SCALE_SHIFT, _SCALE_MASK, _MULTIPLIER_MASK = 0x8000, 8, 0x3F, 0xFF


class Malformed(Exception):
    """Octets that are no message of OWAMP; the message says which."""


class Command(IntEnum):
    """The first octet of what a client sends once the connection is set up."""

    REQUEST = 1
    START = 2
    STOP = 3
    FETCH = 4


class Accept(IntEnum):
    """The answer to a request: agreed, or why not."""

    OK = 0
    FAILURE = 1
    INTERNAL_ERROR = 2
    NOT_SUPPORTED = 3
    NO_RESOURCES = 4
    NO_RESOURCES_NOW = 5


class Slot(NamedTuple):
    """A pause before a packet: of fixed length, or drawn from an exponential distribution."""

    exponential: bool
    pause_ns: int


@dataclass(frozen=True)
class Greeting:
    """The modes that a server offers, none if it refuses to talk."""

    modes: int

    def pack(self, challenge: bytes, salt: bytes, count: int) -> bytes:
        """Return 64 octets; open mode does not use the other fields."""
        return _GREETING.pack(self.modes, challenge, salt, count)

    @classmethod
    def unpack(cls, octets: bytes) -> Greeting:
        """Read a greeting.

        :raises Malformed: it is none.
        """
        return cls(_fields(_GREETING, octets, "greeting")[0])


def pack_set_up(mode: int) -> bytes:
    """Return the 164 octets by which a client chooses a mode."""
    return _SET_UP.pack(mode)


def unpack_set_up(octets: bytes) -> int:
    """Return the mode that a client chooses.

    :raises Malformed: they are no response to a greeting.
    """
    mode: int = _fields(_SET_UP, octets, "set-up response")[0]
    return mode


def pack_server_start(accept: int, started: int) -> bytes:
    """Return the 48 octets by which a server begins; ``started`` is an NTP timestamp."""
    return _SERVER_START.pack(accept, bytes(16), started)


def unpack_server_start(octets: bytes) -> int:
    """Return whether a server begins: 0, or another :class:`Accept`.

    :raises Malformed: they are no start of a server.
    """
    accept: int = _fields(_SERVER_START, octets, "server start")[0]
    return accept


@dataclass(frozen=True)
class Request:
    """A session that a client asks for.

    ``server_sends`` or the server receives; ``sender`` and ``receiver`` are address and port, the
    address empty for that of the connection. ``start`` is an NTP timestamp, ``timeout_ns`` how long
    a packet is awaited. The receiver of packets chooses the ``session``.
    """

    ip_version: int
    server_sends: bool
    packets: int
    sender: tuple[str, int]
    receiver: tuple[str, int]
    session: bytes
    padding: int
    start: int
    timeout_ns: int
    slots: tuple[Slot, ...]
    type_of_packet: int = 0

    def pack(self) -> bytes:
        """Return 112 octets, 16 for each slot, and 16."""
        head = _REQUEST.pack(
            Command.REQUEST,
            self.ip_version,
            self.server_sends,
            not self.server_sends,
            len(self.slots),
            self.packets,
            self.sender[1],
            self.receiver[1],
            _pack_address(self.sender[0]),
            _pack_address(self.receiver[0]),
            self.session,
            self.padding,
            self.start,
            _pack_span(self.timeout_ns),
            self.type_of_packet,
        )
        slots = (_SLOT.pack(not each.exponential, _pack_span(each.pause_ns)) for each in self.slots)
        return head + b"".join(slots) + bytes(BLOCK)

    @classmethod
    def slots_in(cls, head: bytes) -> int:
        """Return the number of slots that follow the first 112 octets.

        :raises Malformed: they do not begin a request.
        """
        slots: int = _fields(_REQUEST, head, "request")[4]
        return slots

    @classmethod
    def unpack(cls, octets: bytes) -> Request:
        """Read a request with its slots.

        :raises Malformed: it is none, or asks for what is not in RFC 4656.
        """
        head = _fields(_REQUEST, octets[:REQUEST_LENGTH], "request")
        version, server_sends, server_receives, count = head[1] & 0xF, head[2], head[3], head[4]
        if head[0] != Command.REQUEST or version not in _VERSIONS:
            raise Malformed("this is no request of a session over IPv4 or IPv6")
        if (server_sends, server_receives) not in {(0, 1), (1, 0)}:
            raise Malformed("a request says who sends and who receives otherwise than by one of 1")
        if len(octets) != REQUEST_LENGTH + (count + 1) * BLOCK:
            raise Malformed(f"a request of {count} slots does not have {len(octets)} octets")
        slots = []
        for at in range(count):
            kind, pause = _SLOT.unpack_from(octets, REQUEST_LENGTH + at * BLOCK)
            if kind > 1:
                raise Malformed(f"a slot is of the unknown kind {kind}")
            slots.append(Slot(not kind, _unpack_span(pause)))
        return cls(
            ip_version=version,
            server_sends=bool(server_sends),
            packets=head[5],
            sender=(_unpack_address(head[8], version), head[6]),
            receiver=(_unpack_address(head[9], version), head[7]),
            session=head[10],
            padding=head[11],
            start=head[12],
            timeout_ns=_unpack_span(head[13]),
            slots=tuple(slots),
            type_of_packet=head[14],
        )


@dataclass(frozen=True)
class Accepted:
    """The answer to a request: the server's port, and the session if it receives."""

    accept: int
    port: int = 0
    session: bytes = bytes(16)

    def pack(self) -> bytes:
        """Return 48 octets."""
        return _ACCEPT.pack(self.accept, self.port, self.session)

    @classmethod
    def unpack(cls, octets: bytes) -> Accepted:
        """Read an answer.

        :raises Malformed: it is none.
        """
        return cls(*_fields(_ACCEPT, octets, "answer to a request"))


def pack_start() -> bytes:
    """Return the 32 octets by which a client has all its sessions begin."""
    return _SIMPLE.pack(Command.START, 0) + bytes(START_LENGTH - 2)


def pack_start_ack(accept: int) -> bytes:
    """Return the 32 octets by which a server answers that."""
    return _SIMPLE.pack(accept, 0) + bytes(START_ACK_LENGTH - 2)


def unpack_start_ack(octets: bytes) -> int:
    """Return whether sessions begin.

    :raises Malformed: it is no such answer.
    """
    if len(octets) != START_ACK_LENGTH:
        raise Malformed(f"an answer to a start has {len(octets)} octets")
    return octets[0]


class Stopped(NamedTuple):
    """The numbers that the sender of a session has sent: up to the next one, without ranges."""

    session: bytes
    next_number: int
    skips: tuple[tuple[int, int], ...] = ()


def pack_stop(accept: int, stopped: Sequence[Stopped]) -> bytes:
    """Return the message by which either side ends all sessions, with those that it has sent."""
    octets = _STOP.pack(Command.STOP, accept, len(stopped))
    for each in stopped:
        told = _STOPPED.pack(each.session, each.next_number, len(each.skips))
        octets += _padded(told + b"".join(_SKIP.pack(*skip) for skip in each.skips))
    return octets + bytes(BLOCK)


def unpack_stop(octets: bytes) -> tuple[int, int]:
    """Return why sessions end (0: they are complete), and how many the other side has sent.

    ``octets`` are the first 16; for each of those sessions there are :func:`stopped_length` more.

    :raises Malformed: it is no such message.
    """
    command, accept, count = _fields(_STOP, octets, "stop")
    if command != Command.STOP:
        raise Malformed(f"a message begins with {command} where sessions should be stopped")
    return accept, count


STOPPED_LENGTH = 32
"""Octets of what is told of one session, up to its first skip."""


def stopped_length(octets: bytes) -> int:
    """Return how many octets follow the first 32 of what is told of one session.

    :raises Malformed: they do not begin it.
    """
    *_, skips = _fields(_STOPPED, octets[: _STOPPED.size], "stopped session")
    return _rounded(_STOPPED.size + skips * _SKIP.size) - STOPPED_LENGTH


def unpack_stopped(octets: bytes) -> Stopped:
    """Read what is told of one session.

    :raises Malformed: it is something else.
    """
    session, next_number, count = _fields(_STOPPED, octets[: _STOPPED.size], "stopped session")
    return Stopped(session, next_number, _unpack_skips(octets[_STOPPED.size :], count))


@dataclass(frozen=True)
class Fetch:
    """The records that a client asks for, by the numbers of the first and the last one."""

    session: bytes
    first: int = 0
    last: int = ALL_RECORDS

    def pack(self) -> bytes:
        """Return 48 octets."""
        return _FETCH.pack(Command.FETCH, self.first, self.last, self.session)

    @classmethod
    def unpack(cls, octets: bytes) -> Fetch:
        """Read a request for records.

        :raises Malformed: it is none.
        """
        command, first, last, session = _fields(_FETCH, octets, "fetch")
        if command != Command.FETCH:
            raise Malformed(f"a request for records begins with {command}")
        return cls(session, first, last)


@dataclass(frozen=True)
class FetchAck:
    """The answer to it: how much follows, and whether the session came to its proper end."""

    accept: int
    finished: int = 0
    next_number: int = 0
    skips: int = 0
    records: int = 0

    def pack(self) -> bytes:
        """Return 32 octets."""
        values = (self.accept, self.finished, self.next_number, self.skips, self.records)
        return _FETCH_ACK.pack(*values)

    @classmethod
    def unpack(cls, octets: bytes) -> FetchAck:
        """Read an answer.

        :raises Malformed: it is none.
        """
        return cls(*_fields(_FETCH_ACK, octets, "answer to a fetch"))

    @property
    def skips_length(self) -> int:
        """Octets of the ranges that were left out."""
        return _rounded(self.skips * _SKIP.size) + BLOCK

    @property
    def records_length(self) -> int:
        """Octets of the records."""
        return _rounded(self.records * RECORD_LENGTH) + BLOCK


class Record(NamedTuple):
    """A receiver's record of a packet; ``received`` is 0 if it was lost. Times are NTP's."""

    number: int
    send_error: int
    receive_error: int
    sent: int
    received: int
    ttl: int


def pack_skips(skips: Sequence[tuple[int, int]]) -> bytes:
    """Return the ranges that were left out, as they are fetched."""
    return _padded(b"".join(_SKIP.pack(*each) for each in skips)) + bytes(BLOCK)


def unpack_skips(octets: bytes, count: int) -> tuple[tuple[int, int], ...]:
    """Read ``count`` ranges.

    :raises Malformed: there are fewer.
    """
    return _unpack_skips(octets, count)


def pack_record(record: Record) -> bytes:
    """Return the 25 octets of a record."""
    return _RECORD.pack(*record)


def pack_records(records: Sequence[Record]) -> bytes:
    """Return records as they are fetched."""
    return _padded(b"".join(map(pack_record, records))) + bytes(BLOCK)


def unpack_records(octets: bytes, count: int) -> list[Record]:
    """Read ``count`` records.

    :raises Malformed: there are fewer.
    """
    if len(octets) < count * RECORD_LENGTH:
        raise Malformed(f"{len(octets)} octets are fewer than {count} records")
    told = octets[: count * RECORD_LENGTH]
    return [Record(*fields) for fields in _RECORD.iter_unpack(told)]


class Packet(NamedTuple):
    """The fields of a packet of a session, in their order; its timestamp is NTP's."""

    number: int
    timestamp: int
    error: int


def pack_packet(packet: Packet) -> bytes:
    """Return the first 14 octets of a packet."""
    return _PACKET.pack(*packet)


def unpack_packet(octets: bytes) -> Packet:
    """Read a packet.

    :raises Malformed: it is too short, or says nothing of its clock (a multiplier of zero).
    """
    if len(octets) < PACKET_LENGTH:
        raise Malformed(f"a packet of {len(octets)} octets is too short")
    packet = Packet(*_PACKET.unpack_from(octets))
    if not packet.error & _MULTIPLIER_MASK:
        raise Malformed("a packet says nothing of its clock")
    return packet


def clock_error(estimate: int) -> tuple[bool, int]:
    """Return whether the clock of an error estimate is synchronised, and its error in ns."""
    scale = estimate >> _SCALE_SHIFT & _SCALE_MASK
    error_ns = -(-((estimate & _MULTIPLIER_MASK) << scale) * _SECOND_NS // _FRACTION)
    return bool(estimate & _SYNCHRONISED), error_ns


def _fields(layout: struct.Struct, octets: bytes, name: str) -> tuple[Any, ...]:
    if len(octets) != layout.size:
        raise Malformed(f"a {name} has {layout.size} octets, not {len(octets)}")
    return layout.unpack(octets)


def _unpack_skips(octets: bytes, count: int) -> tuple[tuple[int, int], ...]:
    if len(octets) < count * _SKIP.size:
        raise Malformed(f"{len(octets)} octets are fewer than {count} ranges")
    return tuple(_SKIP.iter_unpack(octets[: count * _SKIP.size]))


def _rounded(length: int) -> int:
    return -(-length // BLOCK) * BLOCK


def _padded(octets: bytes) -> bytes:
    return octets + bytes(_rounded(len(octets)) - len(octets))


def _pack_span(span_ns: int) -> int:
    seconds, rest_ns = divmod(span_ns, _SECOND_NS)
    return (seconds << 32) + (rest_ns * _FRACTION + _SECOND_NS // 2) // _SECOND_NS


def _unpack_span(span: int) -> int:
    return (span * _SECOND_NS + _FRACTION // 2) // _FRACTION


def _pack_address(address: str) -> bytes:
    return (ipaddress.ip_address(address).packed if address else b"").ljust(16, b"\0")


def _unpack_address(octets: bytes, version: int) -> str:
    address = ipaddress.ip_address(octets[: _VERSIONS[version]])
    return "" if address.is_unspecified else str(address)
