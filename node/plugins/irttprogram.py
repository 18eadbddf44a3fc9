"""irtt's server and client, for single runs and streams: their command lines and output. Pure.

The client prints a JSON document (format 1) at its end. A packet without an answer is ``true_up``
or ``true_down`` there if a later answer showed on which way it was lost, and otherwise ``true``.
Uses only the standard library: our programs use it too.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

_MICROSECOND_NS = 1000
PACKETS_MAX = 9_000
"""Maximum packets of one document: each takes some 1000 bytes in it."""
BYTES_MAX = 10_000_000
"""Maximum size of a document that is read."""

_LOST = frozenset({"false", "true", "true_up", "true_down"})
_DELAY_NS_MAX = 10**18
_NUMBER_MAX = 2**63 - 1
_CLIENT = ("irtt", "client", "-Q", "-o", "-")


class _Party(Protocol):
    @property
    def address(self) -> str: ...


class _Packets(Protocol):
    @property
    def interval(self) -> int: ...

    @property
    def timeout(self) -> int: ...

    @property
    def length(self) -> int: ...

    @property
    def ip_version(self) -> int | None: ...


def server_command(dest: _Party, port: int, spec: _Packets, idle: int = 0) -> list[str]:
    """Return ``irtt server -b ADDRESS:PORT …``; clients silent for ``idle`` µs are forgotten."""
    own = f"{_own_address(dest)}:{port}"
    # No minimum interval: packets that were delayed somewhere arrive closer than they were sent.
    return [
        "irtt",
        "server",
        "-b",
        own,
        "-i",
        "0",
        "-l",
        str(spec.length),
        f"--timeout={_idle_option(idle)}",
    ]


def client_command(
    source: _Party, dest: _Party, port: int, spec: _Packets, openings_ms: Sequence[int]
) -> list[str]:
    """Return ``irtt client … ADDRESS:PORT`` without ``-d``, which sets for how long it sends.

    ``openings_ms``: how long it waits for the server's reply to its first packet, its second …
    """
    argv = [*_CLIENT, "-i", f"{spec.interval * _MICROSECOND_NS}ns"]
    # With only these, a packet of the shortest length, 44, holds everything that is requested.
    argv += ["-l", str(spec.length), "--stats=both", "--tstamp=both", "--clock=wall"]
    argv += [f"--wait={spec.timeout * _MICROSECOND_NS}ns"]
    argv += [f"--timeouts={','.join(f'{wait_ms}ms' for wait_ms in openings_ms)}"]
    argv += [f"--local={_own_address(source)}"] if _own_address(source) else []
    argv += [f"-{spec.ip_version}"] if spec.ip_version else []
    return [*argv, "--", f"{_bracketed_address(dest.address)}:{port}"]


def with_sending_time(argv: Sequence[str], lasts_ns: int) -> list[str]:
    """Return the client's command line with how long it sends."""
    after = len(_CLIENT) + 2
    return [*argv[:after], "-d", f"{lasts_ns}ns", *argv[after:]]


def _idle_option(idle: int) -> str:
    return f"{idle * _MICROSECOND_NS}ns" if idle else "0"


def _own_address(party: _Party) -> str:
    """Return the party's address; empty for a name, which may resolve differently on its host."""
    try:
        ipaddress.ip_address(party.address)
    except ValueError:
        return ""
    return _bracketed_address(party.address)


def _bracketed_address(host: str) -> str:
    return f"[{host}]" if ":" in host else host


class IrttReply(NamedTuple):
    """An answer, in nanoseconds; from two clocks, so that either way may be below zero.

    ``around_ns`` excludes the time spent in the server, ``in_server_ns``; ``reflected_ns`` and
    ``arrived_ns`` are instants.
    """

    there_ns: int
    back_ns: int
    around_ns: int
    in_server_ns: int
    reflected_ns: int
    arrived_ns: int


class IrttPacket(NamedTuple):
    """One packet: the instant it was sent, whether it was lost, and its answer."""

    sent_ns: int
    lost: str
    answer: IrttReply | None


Trips = Sequence[IrttPacket]


class IrttDocument(NamedTuple):
    """A document: the packets in the order sent, and the number of duplicate answers."""

    trips: Trips
    duplicates: int


class IrttObservation(NamedTuple):
    """The counts of some packets; ``at_dest`` is None if no answer tells.

    ``in_time`` maps packet numbers to nanoseconds there and back.
    """

    in_time: Mapping[int, tuple[int, int]]
    at_dest: int | None
    late: int
    reordered: int


def parse_irtt_document(document: object, interval_ns: int, length: int) -> IrttDocument:
    """Parse a document of a client that was to send ``length`` bytes each ``interval_ns``.

    :raises ValueError: it is not such a document, or is impossible; begins with ``irtt``, or with
        the cause.
    """
    params = _object_in(document, "config", "params")
    every, long = _number_in(params, "interval"), _number_in(params, "length")
    if (every, long) != (interval_ns, length):
        expected = f"{length} bytes each {interval_ns} ns"
        raise ValueError(f"irtt sent {long} bytes each {every} ns instead of {expected}")
    stats = _object_in(document, "stats")
    entries = _member_of(document, "round_trips")
    if not isinstance(entries, list):
        raise _unlike_error("round_trips")
    if [_number_in(entry, "seqno") for entry in entries] != list(range(len(entries))):
        raise ValueError("irtt reports packets that are not numbered consecutively")
    sent = _number_in(stats, "packets_sent")
    if not entries:
        raise ValueError("irtt sent no packet")
    if len(entries) != sent:
        raise ValueError(f"irtt reports {len(entries)} packets, but {sent} as sent")
    trips = [_trip(number, entry) for number, entry in enumerate(entries)]
    return IrttDocument(trips, _number_in(stats, "duplicates"))


def observe_trips(trips: Trips, timeout_ns: int) -> IrttObservation:
    """Summarise ``trips``; an answer that took longer than ``timeout_ns`` is late."""
    answers = {at: trip.answer for at, trip in enumerate(trips) if trip.answer is not None}
    in_time = {
        at: (answer.there_ns, answer.back_ns)
        for at, answer in answers.items()
        if answer.around_ns + answer.in_server_ns <= timeout_ns
    }
    unknown = any(trip.lost == "true" for trip in trips)
    return IrttObservation(
        in_time=in_time,
        at_dest=None if unknown else sum(trip.lost != "true_up" for trip in trips),
        late=len(answers) - len(in_time),
        reordered=_reordered_count(answers.values()),
    )


def _reordered_count(answers: Iterable[IrttReply]) -> int:
    """Count the answers that came after one that dest sent later (RFC 4737)."""
    latest, count = -1, 0
    for answer in sorted(answers, key=lambda answer: answer.arrived_ns):
        count += answer.reflected_ns < latest
        latest = max(latest, answer.reflected_ns)
    return count


def _trip(number: int, entry: object) -> IrttPacket:
    lost = _member_of(entry, "lost")
    if not isinstance(lost, str) or lost not in _LOST:
        raise _unlike_error("lost")
    client, server = (
        _object_in(entry, "timestamps", "client"),
        _object_in(entry, "timestamps", "server"),
    )
    delay = _object_in(entry, "delay")
    sent_ns = _instant_in(client, "send")
    if lost != "false":
        return IrttPacket(sent_ns, lost, None)
    if not {"send", "receive", "rtt"} <= delay.keys():
        raise ValueError(f"irtt reports no delay of packet {number}")
    there_ns, back_ns, around_ns = (_delay_in(delay, key) for key in ("send", "receive", "rtt"))
    if around_ns < 0 or there_ns + back_ns < 0:
        raise ValueError("a round trip took less than zero time: a clock was set during the run")
    reflected_ns = _instant_in(server, "send")
    in_server_ns = max(0, reflected_ns - _instant_in(server, "receive"))
    arrived_ns = _instant_in(client, "receive")
    answer = IrttReply(there_ns, back_ns, around_ns, in_server_ns, reflected_ns, arrived_ns)
    return IrttPacket(sent_ns, "false", answer)


def _member_of(whole: object, key: str) -> object:
    if not isinstance(whole, dict) or key not in whole:
        raise _unlike_error(key)
    return whole[key]


def _object_in(whole: object, *keys: str) -> dict[str, Any]:
    for key in keys:
        whole = _member_of(whole, key)
    if not isinstance(whole, dict):
        raise _unlike_error(keys[-1])
    return whole


def _number_in(whole: object, key: str, least: int = 0, most: int = _NUMBER_MAX) -> int:
    value = _member_of(whole, key)
    if type(value) is not int or not least <= value <= most:
        raise _unlike_error(key)
    return value


def _delay_in(delay: object, key: str) -> int:
    return _number_in(delay, key, -_DELAY_NS_MAX, _DELAY_NS_MAX)


def _instant_in(stamps: dict[str, Any], key: str) -> int:
    """Return an instant of the wall clock; 0 if there is none."""
    stamp = _object_in(stamps, key)
    return _number_in(stamp, "wall") if "wall" in stamp else 0


def _unlike_error(key: str) -> ValueError:
    return ValueError(f"irtt: {key} in its output is not as expected")
