"""A stream of our own STAMP packets (RFC 8762), with figures per interval. Pure.

The programs are in ``programs/``. A run's packets are sent for exactly as long as it is booked,
0.2 s later: when the first packet of the next run is due, the last one of this run has just been
sent. Packets under way then are awaited after the booked end, which the scheduling class allows.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

from pydantic import Field

from node.model.intervals import Interval
from node.model.times import MILLISECOND, SECOND
from node.model.wire.fields import Document
from node.plugins.binding import EITHER
from node.plugins.contracts import Command, Output, PartContext, Result
from node.plugins.fields import CountField
from node.plugins.oneway import not_between_nodes
from node.plugins.outline import OwnTool
from node.plugins.ownprograms import MICROSECOND_NS, own_program
from node.plugins.reading import record_of
from node.plugins.sendrecords import (
    ReflectorCounts,
    SenderRecord,
    check,
    explain_unsent,
    source_interval,
    stream_end,
)
from node.plugins.tests.latencybg import LatencyBgSpec

_SOURCE, _DEST = 0, 1
_TTL_SENT = 255

LEAD_IN = 200 * MILLISECOND
"""The first packet leaves this long after the start: the reflector's clock may be that late."""
SLACK = SECOND
"""An interval is closed this long after the last packet's timeout: clocks may be that far apart."""
_WRAP_UP = SECOND
"""Time for the output, before the launcher ends what still runs."""
_MARGIN = 500 * MILLISECOND
"""The reflector stops by itself this long before, whatever the sender does."""

_Octet = Annotated[int, Field(ge=0, le=255)]


class _SenderRecord(SenderRecord):
    unreachable: CountField
    duplicates_forward: CountField
    duplicates_backward: CountField
    ttls: tuple[_Octet, _Octet] | None


class _Numbered(Document):
    interval: CountField


class _ReflectorRecord(ReflectorCounts, _Numbered):
    """The counts of an interval, whose number comes first."""


class StampBgTool(OwnTool):
    """Our own STAMP programs, as a stream."""

    name = "stampbg"
    tests: tuple[str, ...] = ("latencybg",)
    listener = _DEST
    binds = EITHER

    def can(self, spec: LatencyBgSpec) -> str | None:
        """Refuse a dest that is no node."""
        return not_between_nodes(self.name, spec)

    def duration(self, spec: LatencyBgSpec) -> int:
        """Return the spec's duration in microseconds: the next run begins when this one ends."""
        return spec.duration

    def command(self, part: PartContext) -> Command:
        """Return our sender at source, our reflector at dest."""
        if part.participant == _SOURCE:
            return _program("stampbg_sender.py", part, _sender_arguments(part))
        return _program("stampbg_reflector.py", part, _reflector_arguments(part))

    def read_interval(self, part: PartContext, record: bytes) -> Interval:
        """Read what this end saw in one interval.

        :raises ToolOutputError: it is not a record of this end, or is impossible.
        """
        packets = part.spec.each // part.spec.interval
        if part.participant == _SOURCE:
            return _source_interval(record_of(record, "STAMP sender", _SenderRecord), packets)
        counts = record_of(record, "STAMP reflector", _ReflectorRecord)
        return Interval(counts.interval, counts.checked_part(packets))

    def read(self, part: PartContext, output: Output) -> Result:
        """Return how many intervals it reported.

        :raises ToolOutputError: the program says that it could not measure, or the output is wrong.
        """
        return stream_end(output, "STAMP")


def overtime(spec: LatencyBgSpec) -> int:
    """Return how long after the booked end it waits for what is under way, in microseconds."""
    return LEAD_IN + spec.timeout + SLACK + _WRAP_UP


def _program(name: str, part: PartContext, arguments: dict[str, object]) -> Command:
    program = own_program(name, _shared_arguments(part) | arguments)
    return replace(program, streams=True, overtime=overtime(part.spec))


def _shared_arguments(part: PartContext) -> dict[str, object]:
    spec: LatencyBgSpec = part.spec
    return {
        "port": spec.port or int(part.parties[_DEST].data["port"]),
        "ip_version": spec.ip_version,
        "device": part.parties[part.participant].device,
        "packets": spec.each // spec.interval,
        "intervals": spec.duration // spec.each,
        "interval_ns": spec.interval * MICROSECOND_NS,
        "timeout_ns": spec.timeout * MICROSECOND_NS,
        "slack_ns": SLACK * MICROSECOND_NS,
        "first_ns": (part.starts + LEAD_IN) * MICROSECOND_NS,
        # Both ends derive the same id, so that packets of an earlier run on this port are rejected.
        "session": 1 + part.starts // MILLISECOND % 0xFFFF,
    }


def _sender_arguments(part: PartContext) -> dict[str, object]:
    return {
        "reflector": part.parties[_DEST].address,
        "source": part.parties[_SOURCE].address,
        "length": part.spec.length,
    }


def _reflector_arguments(part: PartContext) -> dict[str, object]:
    deadline = part.ends + overtime(part.spec) - _MARGIN
    return {
        "address": part.parties[_DEST].address,
        "sender": part.parties[_SOURCE].address,
        "deadline_ns": deadline * MICROSECOND_NS,
    }


def _source_interval(record: _SenderRecord, packets: int) -> Interval:
    check(record, packets, "STAMP sender")
    if not record.sent:
        return Interval(record.interval, None, explain_unsent(record))
    counts = {
        "unreachable": record.unreachable,
        "duplicates_forward": record.duplicates_forward,
        "duplicates_backward": record.duplicates_backward,
        "hops_forward": _TTL_SENT - record.ttls[0] if record.ttls else None,
        "hops_backward": _TTL_SENT - record.ttls[1] if record.ttls else None,
    }
    return Interval(record.interval, source_interval(record, counts).model_dump(mode="json"))


TOOL = StampBgTool()
