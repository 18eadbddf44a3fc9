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
from node.model.times import MILLISECOND, SECOND
from node.model.wire.fields import Document
from node.plugins.contracts import Command, Interval, Output, PartContext, Requirement, Result
from node.plugins.distribution import BUCKETS_MAX
from node.plugins.fields import Counted, Finite
from node.plugins.figures import DelayFigures, milliseconds
from node.plugins.oneway import Clock, DelaysBothWays, DestPart, JitterBothWays
from node.plugins.ownprograms import own_program
from node.plugins.reading import document_of, failure, record_of
from node.plugins.streaming import StreamEnd
from node.plugins.tests.latencybg import (
    Histogram,
    HistogramsBothWays,
    LatencyBgSpec,
    SourceInterval,
    histogram_of,
)

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
_Ticks = Annotated[int, Field(ge=-(2**62), le=2**62)]


class _ClockOutput(Document):
    synchronised: bool | None
    error_bound_ns: Counted | None
    stepped_ns: Finite
    identity: str = Field(max_length=64, pattern=r"^[0-9a-f]*$")


class _Histogram(Document):
    width: Annotated[int, Field(ge=1, le=2**62)]
    buckets: Annotated[tuple[tuple[_Ticks, Counted], ...], Field(max_length=BUCKETS_MAX)]


class _Histograms(Document):
    forward: _Histogram
    backward: _Histogram
    round_trip: _Histogram


class _SenderRecord(Document):
    interval: Counted
    sent: Counted
    unsent: Counted
    received_back: Counted
    late: Counted
    unreachable: Counted
    duplicates_forward: Counted
    duplicates_backward: Counted
    reordered_backward: Counted
    delay_ms: DelaysBothWays
    jitter_ms: JitterBothWays
    histogram_us: _Histograms
    ttls: tuple[_Octet, _Octet] | None
    complaint: str = Field(max_length=200)
    clock: _ClockOutput


class _ReflectorRecord(Document):
    interval: Counted
    received: Counted
    duplicates: Counted
    reordered: Counted
    unsent: Counted
    strays: Counted
    clock: _ClockOutput


class _Failed(Document):
    error: str


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
        if output.exit_code > 0 and output.stdout:
            raise ToolOutputError(f"STAMP: {document_of(output, 'STAMP', _Failed).error}")
        if output.exit_code != 0:
            raise failure(output, "STAMP", "it was ended")
        return document_of(output, "STAMP", StreamEnd).model_dump(mode="json")


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


def _clock(output: _ClockOutput) -> Clock:
    bound_ns = output.error_bound_ns
    return Clock(
        synchronised=output.synchronised,
        error_bound_ms=None if bound_ns is None else milliseconds(bound_ns),
        stepped_ms=round(output.stepped_ns / 1e6, 3),
        identity=output.identity,
    )


def _source(told: _SenderRecord, packets: int) -> Interval:
    if told.sent + told.unsent != packets:
        raise ToolOutputError(
            f"STAMP sender tells of {told.sent + told.unsent} packets, not {packets}"
        )
    if told.received_back + told.late > told.sent:
        raise ToolOutputError("STAMP sender tells of more answers than packets")
    if not told.sent:
        because = f": {told.complaint}" if told.complaint else ""
        return Interval(told.interval, None, f"no packet could be sent{because}")
    _check(told)
    result = SourceInterval(
        sent=told.sent,
        unsent=told.unsent,
        received_back=told.received_back,
        late=told.late,
        unreachable=told.unreachable,
        duplicates_forward=told.duplicates_forward,
        duplicates_backward=told.duplicates_backward,
        reordered_backward=told.reordered_backward,
        delay_ms=told.delay_ms,
        jitter_ms=told.jitter_ms,
        hops_forward=_TTL_SENT - told.ttls[0] if told.ttls else None,
        hops_backward=_TTL_SENT - told.ttls[1] if told.ttls else None,
        clock=_clock(told.clock),
        histogram=HistogramsBothWays(
            forward=_histogram(told.histogram_us.forward),
            backward=_histogram(told.histogram_us.backward),
            round_trip=_histogram(told.histogram_us.round_trip),
        ),
    )
    return Interval(told.interval, result.model_dump(mode="json"))


def _histogram(told: _Histogram) -> Histogram:
    return histogram_of(told.width, dict(told.buckets))


def _check(told: _SenderRecord) -> None:
    """Refuse what cannot be: round trips below zero, figures of other packets than came back."""
    delays: tuple[DelayFigures | None, ...] = (
        told.delay_ms.forward,
        told.delay_ms.backward,
        told.delay_ms.round_trip,
    )
    if any((each is None) == bool(told.received_back) for each in delays):
        raise ToolOutputError("STAMP sender's delays and counts contradict each other")
    round_trip = told.delay_ms.round_trip
    if round_trip is not None and round_trip.min < 0:
        stepped_ms = milliseconds(round(told.clock.stepped_ns))
        raise ToolOutputError(
            "a round trip took less than no time: a clock was set during the interval"
            f" (the sender's by {stepped_ms:.3f} ms)"
        )
    histograms = (
        told.histogram_us.forward,
        told.histogram_us.backward,
        told.histogram_us.round_trip,
    )
    if any(sum(n for _, n in each.buckets) != told.received_back for each in histograms):
        raise ToolOutputError("STAMP sender's histograms and counts contradict each other")


def _dest(told: _ReflectorRecord, packets: int) -> Interval:
    if told.received > packets:
        raise ToolOutputError(f"STAMP reflector counts {told.received} packets, too many")
    result = DestPart(
        received=told.received,
        duplicates=told.duplicates,
        reordered=told.reordered,
        strays=told.strays,
        unsent=told.unsent,
        clock=_clock(told.clock),
    )
    return Interval(told.interval, result.model_dump(mode="json"))


TOOL = StampBgTool()
