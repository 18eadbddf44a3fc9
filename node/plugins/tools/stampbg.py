"""A stream of our own STAMP packets (RFC 8762), with figures each interval. Pure.

The programs are in ``programs/``. A run's packets are sent for exactly as long as it is booked,
0.2 s later: when the first packet of the next run is due, the last one of this run has just been
sent. What is under way then is waited for after the booked end; the class allows it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

from pydantic import Field

from node.model.errors import ToolOutputError
from node.model.intervals import Interval
from node.model.times import MILLISECOND, SECOND
from node.model.wire.fields import Document
from node.plugins.attendance import ClockOutput
from node.plugins.contracts import Command, Output, PartContext, Requirement, Result
from node.plugins.fields import CountField
from node.plugins.oneway import DestPart
from node.plugins.ownprograms import own_program
from node.plugins.reading import record_of
from node.plugins.sendrecords import (
    SenderRecord,
    check,
    explain_unsent,
    source_interval,
    stream_end,
)
from node.plugins.tests.latencybg import LatencyBgSpec

_SOURCE, _DEST = 0, 1
_MICROSECOND_NS = 1000
_TTL_SENT = 255

LEAD_IN = 200 * MILLISECOND
"""The first packet leaves this long after the start: the reflector's clock may be that late."""
SLACK = SECOND
"""An interval is closed this long after the last packet's timeout: clocks may be that far apart."""
_WRAP_UP = SECOND
"""For the output, before the launcher ends what still runs."""
_MARGIN = 500 * MILLISECOND
"""The reflector stops by itself this long before, whatever the sender does."""

_Octet = Annotated[int, Field(ge=0, le=255)]


class _SenderRecord(SenderRecord):
    unreachable: CountField
    duplicates_forward: CountField
    duplicates_backward: CountField
    ttls: tuple[_Octet, _Octet] | None


class _ReflectorRecord(Document):
    interval: CountField
    received: CountField
    duplicates: CountField
    reordered: CountField
    unsent: CountField
    strays: CountField
    clock: ClockOutput


class StampBgTool:
    """Our own STAMP, as a stream."""

    name = "stampbg"
    tests: tuple[str, ...] = ("latencybg",)
    preference = 0
    requirement: Requirement | None = None
    tried: tuple[str, ...] = ()
    binds = frozenset({"interface", "address"})

    def can(self, spec: LatencyBgSpec) -> str | None:  # noqa: ARG002 - contract
        """Whatever the spec asks."""
        return None

    def duration(self, spec: LatencyBgSpec) -> int:
        """Exactly what the spec says, in microseconds: the next run begins when this one ends."""
        return spec.duration

    def needs_port(self, spec: LatencyBgSpec, participant: int) -> bool:
        """The reflector's node gives out a port, unless the spec names one."""
        return participant == _DEST and spec.port is None

    def command(self, part: PartContext) -> Command:
        """Our sender at source, our reflector at dest."""
        if part.participant == _SOURCE:
            return _program("stampbg_sender.py", part, _for_sender(part))
        return _program("stampbg_reflector.py", part, _for_reflector(part))

    def read_interval(self, part: PartContext, record: bytes) -> Interval:
        """What this end saw in one interval.

        :raises ToolOutputError: it is not a record of this end, or tells what cannot be.
        """
        packets = part.spec.each // part.spec.interval
        if part.participant == _SOURCE:
            return _source(record_of(record, "STAMP sender", _SenderRecord), packets)
        return _dest(record_of(record, "STAMP reflector", _ReflectorRecord), packets)

    def read(self, part: PartContext, output: Output) -> Result:  # noqa: ARG002 - contract
        """How many intervals it told of.

        :raises ToolOutputError: the program says that it could not measure, or the output is wrong.
        """
        return stream_end(output, "STAMP")


def overtime(spec: LatencyBgSpec) -> int:
    """How long after the booked end it waits for what is under way, in microseconds."""
    return LEAD_IN + spec.timeout + SLACK + _WRAP_UP


def _program(name: str, part: PartContext, arguments: dict[str, object]) -> Command:
    program = own_program(name, _shared(part) | arguments)
    return replace(program, streams=True, overtime=overtime(part.spec))


def _shared(part: PartContext) -> dict[str, object]:
    spec: LatencyBgSpec = part.spec
    return {
        "port": spec.port or int(part.parties[_DEST].data["port"]),
        "ip_version": spec.ip_version,
        "device": part.parties[part.participant].device,
        "packets": spec.each // spec.interval,
        "intervals": spec.duration // spec.each,
        "interval_ns": spec.interval * _MICROSECOND_NS,
        "timeout_ns": spec.timeout * _MICROSECOND_NS,
        "slack_ns": SLACK * _MICROSECOND_NS,
        "first_ns": (part.starts + LEAD_IN) * _MICROSECOND_NS,
        # Both ends derive the same id, so packets of an earlier run on this port are not mistaken.
        "session": 1 + part.starts // MILLISECOND % 0xFFFF,
    }


def _for_sender(part: PartContext) -> dict[str, object]:
    return {
        "reflector": part.parties[_DEST].address,
        "source": part.parties[_SOURCE].address,
        "length": part.spec.length,
    }


def _for_reflector(part: PartContext) -> dict[str, object]:
    deadline = part.ends + overtime(part.spec) - _MARGIN
    return {
        "address": part.parties[_DEST].address,
        "sender": part.parties[_SOURCE].address,
        "deadline_ns": deadline * _MICROSECOND_NS,
    }


def _source(told: _SenderRecord, packets: int) -> Interval:
    check(told, packets, "STAMP sender")
    if not told.sent:
        return Interval(told.interval, None, explain_unsent(told))
    counts = {
        "unreachable": told.unreachable,
        "duplicates_forward": told.duplicates_forward,
        "duplicates_backward": told.duplicates_backward,
        "hops_forward": _TTL_SENT - told.ttls[0] if told.ttls else None,
        "hops_backward": _TTL_SENT - told.ttls[1] if told.ttls else None,
    }
    return Interval(told.interval, source_interval(told, counts).model_dump(mode="json"))


def _dest(told: _ReflectorRecord, packets: int) -> Interval:
    if told.received > packets:
        raise ToolOutputError(f"STAMP reflector counts {told.received} packets, too many")
    result = DestPart(
        received=told.received,
        duplicates=told.duplicates,
        reordered=told.reordered,
        strays=told.strays,
        unsent=told.unsent,
        clock=told.clock.clock,
    )
    return Interval(told.interval, result.model_dump(mode="json"))


TOOL = StampBgTool()
