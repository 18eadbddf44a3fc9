"""Measuring a server of OWAMP that is no node: what both of its tools share. Pure.

``programs/owamp_client.py`` measures, once or interval by interval, and prints the same record for
each interval. A server that refuses, or has no resources, is a reason with a code.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, RootModel

from node.model.reason import Reason
from node.model.reasons import owamp_busy, owamp_failed, owamp_refused
from node.model.times import SECOND
from node.model.wire.fields import Document
from node.plugins.binding import EITHER, source_arguments
from node.plugins.contracts import Command, PartContext
from node.plugins.fields import CountField, ForeignText
from node.plugins.figures import milliseconds
from node.plugins.oneway import OWAMP, OWAMP_PORT, HostClock
from node.plugins.outline import ClientTool
from node.plugins.ownprograms import MICROSECOND_NS, own_program
from node.plugins.reading import record_of
from node.plugins.sendrecords import SenderRecord, check, explain_unsent, source_interval
from node.plugins.tests.latency import LatencySpec
from node.plugins.tests.latencybg import LatencyBgSpec, SourceInterval

PROGRAM = "OWAMP"
OPENING = 4 * SECOND
"""Time for connecting and agreeing: seven round trips of at most 400 ms each, and the name."""
_FETCHING = 4 * SECOND
CLOSING = SECOND + _FETCHING
"""Time for ending both sessions, a second late, and for fetching the records."""
_TTL_SENT = 255
_CODES = {
    2: "internal error",
    3: "it does not support this",
    4: "it has not the resources for it",
    5: "it has not the resources for it at present",
}
"""The codes of RFC 4656, section 3.3, in words; 1 tells nothing."""
_BUSY = frozenset({4, 5})

_Octet = Annotated[int, Field(ge=0, le=255)]
Spec = LatencySpec | LatencyBgSpec


class _ServerClock(Document):
    synchronised: bool | None
    error_bound_ns: CountField | None


class _Record(SenderRecord):
    received_at_dest: CountField
    duplicates_forward: CountField
    duplicates_backward: CountField
    reordered_forward: CountField
    ttls: tuple[_Octet | None, _Octet | None]
    server: _ServerClock


class _Refusal(Document):
    interval: CountField
    refused: ForeignText
    accept: _Octet


class _Failure(Document):
    interval: CountField
    failure: ForeignText


class _Told(RootModel[_Record | _Refusal | _Failure]):
    """A record of one interval: figures, or why there are none."""


def overlapping_ports(spec: Spec) -> int:
    """Return the number of ports for packets: each exchange that overlaps another has its own."""
    if isinstance(spec, LatencySpec):
        return 1
    return 1 - (OPENING + spec.timeout + CLOSING) // -spec.each


class OwampTool(ClientTool):
    """Our own client of OWAMP."""

    binds = EITHER
    preference = -100
    """Behind all tools that measure between nodes, which never measure what this one does."""

    def can(self, spec: Spec) -> str | None:
        """Refuse what is measured between two nodes."""
        if spec.responder == OWAMP:
            return None
        return f"{self.name} measures servers of OWAMP, which are no nodes; set responder to owamp"

    def needs_port(self, spec: Spec, participant: int) -> int:
        """Return the number of consecutive ports for packets."""
        return overlapping_ports(spec)


def command(part: PartContext, first: int, packets: int, intervals: int) -> Command:
    """Return our client; ``first`` is when the first packet leaves, in microseconds."""
    spec: Spec = part.spec
    arguments = {
        "host": part.addresses.get(spec.dest or "", spec.dest),
        "port": spec.port or OWAMP_PORT,
        **source_arguments(part),
        "own_port": int(part.parties[0].data["port"]),
        "own_ports": overlapping_ports(spec),
        "packets": packets,
        "intervals": intervals,
        "interval_ns": spec.interval * MICROSECOND_NS,
        "timeout_ns": spec.timeout * MICROSECOND_NS,
        "length": spec.length,
        "first_ns": first * MICROSECOND_NS,
        "opening_ns": OPENING * MICROSECOND_NS,
        "closing_ns": _FETCHING * MICROSECOND_NS,
    }
    return own_program("owamp_client.py", arguments)


def read_record(spec: Spec, record: bytes, packets: int) -> tuple[int, SourceInterval | Reason]:
    """Return the number of an interval, and its part or why there is none.

    :raises ToolOutputError: it is not a record, or is impossible.
    """
    told = record_of(record, PROGRAM, _Told).root
    if isinstance(told, _Refusal):
        return told.interval, _refused(spec, told)
    if isinstance(told, _Failure):
        return told.interval, owamp_failed(spec.dest or "", told.failure)
    check(told, packets, PROGRAM)
    if not told.sent:
        return told.interval, owamp_failed(spec.dest or "", explain_unsent(told))
    there, back = told.ttls
    more = {
        "received_at_dest": told.received_at_dest,
        "unreachable": None,
        "duplicates_forward": told.duplicates_forward,
        "duplicates_backward": told.duplicates_backward,
        "reordered_forward": told.reordered_forward,
        "hops_forward": _router_count(there),
        "hops_backward": _router_count(back),
        "dest_clock": _clock_of_dest(told.server),
    }
    return told.interval, source_interval(told, more)


def _refused(spec: Spec, told: _Refusal) -> Reason:
    dest, why = spec.dest or "", _CODES.get(told.accept, "it does not tell why")
    return (owamp_busy if told.accept in _BUSY else owamp_refused)(dest, told.refused, why)


def _router_count(ttl: int | None) -> int | None:
    """Return the number of routers; 255 on arrival is what some servers tell of an unknown TTL."""
    return None if ttl is None else _TTL_SENT - ttl or None


def _clock_of_dest(server: _ServerClock) -> HostClock:
    bound_ns = server.error_bound_ns
    return HostClock(
        synchronised=server.synchronised,
        error_bound_ms=None if bound_ns is None else milliseconds(bound_ns),
        stepped_ms=None,
        identity="",
    )
