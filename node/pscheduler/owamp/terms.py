"""The terms on which strangers have sessions with this host's server of OWAMP. Pure.

A session is between this host and the one that asks: its address is that of the connection, and a
request that names another host is refused, so that nobody has packets sent to a third one. The rest
bounds what a session takes: a rate that hosts get without having agreed to more, a length in time,
and memory for the records of what has arrived.
"""

from __future__ import annotations

from dataclasses import dataclass

from node.execution.targets import STRANGERS_MBPS_MAX
from node.model import times
from node.plugins.tools.programs.owamp_messages import PACKET_LENGTH, Accept, Request

SESSIONS_MAX = 8
"""Maximum sessions that one connection has at a time."""
PACKETS_MAX = 36_000
"""Maximum packets of a session that this host receives, and keeps records of."""
SLOTS_MAX = 16
LENGTH_MAX = 8_952
_LONGEST_NS = 25 * times.HOUR * 1000
"""A session lasts no longer: a day, and what streams take to begin."""
_AHEAD_NS = 2 * times.HOUR * 1000
"""A session begins no later than this from now."""
_TIMEOUT_NS_MAX = 10 * times.MINUTE * 1000
_SECOND_NS = 1_000_000_000
_MEGABIT = 1_000_000
_PORT_MIN = 1_024


@dataclass(frozen=True)
class Refusal:
    """A refusal of a session, as a code of OWAMP and in words for the log."""

    accept: Accept
    why: str


def mean_pause_ns(request: Request) -> int:
    """Return the mean time between two packets."""
    return sum(each.pause_ns for each in request.slots) // max(1, len(request.slots))


def length_bytes(request: Request) -> int:
    """Return the UDP payload of a packet."""
    return PACKET_LENGTH + request.padding


def duration_ns(request: Request) -> int:
    """Return how long a session is expected to send."""
    return request.packets * mean_pause_ns(request)


def refusal(request: Request, peer: str, now_ns: int, start_ns: int) -> Refusal | None:
    """Return why a session with the host at ``peer`` is refused; None if it is not.

    ``start_ns`` is when it shall begin.
    """
    other = (request.receiver if request.server_sends else request.sender)[0]
    pause_ns = mean_pause_ns(request)
    to_service = request.server_sends and request.receiver[1] < _PORT_MIN
    rated = STRANGERS_MBPS_MAX * _MEGABIT * pause_ns
    unsupported = {
        f"packets would be exchanged with {other}, which has not asked": other not in {"", peer},
        "packets are wanted at a port of a service": to_service,
        "the connection has another version of IP": request.ip_version != _version(peer),
        "a type of packets is asked for": request.type_of_packet != 0,
        "there are no packets": not request.packets,
        "there are no pauses, or too many": not 0 < len(request.slots) <= SLOTS_MAX,
        "the packets are too long": length_bytes(request) > LENGTH_MAX,
        "the packets are awaited for too long": request.timeout_ns > _TIMEOUT_NS_MAX,
    }
    too_much = {
        f"more than {STRANGERS_MBPS_MAX} Mb/s": length_bytes(request) * 8 * _SECOND_NS > rated,
        "it lasts too long": duration_ns(request) > _LONGEST_NS,
        "it is too far ahead": start_ns - now_ns > _AHEAD_NS,
        f"more than {PACKETS_MAX} packets to keep records of": not request.server_sends
        and request.packets > PACKETS_MAX,
    }
    for accept, reasons in (
        (Accept.NOT_SUPPORTED, unsupported),
        (Accept.NO_RESOURCES, too_much),
    ):
        for why, is_so in reasons.items():
            if is_so:
                return Refusal(accept, why)
    return None


def _version(address: str) -> int:
    return 6 if ":" in address else 4
