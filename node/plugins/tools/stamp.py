"""One-way delay with our own STAMP sender and reflector (RFC 8762). Pure.

The programs are in ``programs/``; they are started ahead of time and wait for their instant. Each
answer has the four timestamps of an NTP exchange, so that they also compare two clocks.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Annotated

from pydantic import Field

from node.model.errors import ToolOutputError
from node.model.times import MILLISECOND, SECOND
from node.model.wire.fields import Document
from node.plugins.binding import EITHER
from node.plugins.contracts import Command, Output, PartContext, Result
from node.plugins.fields import CountField
from node.plugins.figures import milliseconds
from node.plugins.oneway import (
    LENGTH_BASE,
    SourcePart,
    delays_and_jitter,
    histograms,
    not_between_nodes,
)
from node.plugins.outline import OwnTool
from node.plugins.ownprograms import MICROSECOND_NS, ClockOutput, measured_output, own_program
from node.plugins.sendrecords import ReflectorCounts
from node.plugins.tests.clock import ClockSpec, ComparingPart, ReflectingPart
from node.plugins.tests.latency import LatencySpec

_SOURCE, _DEST = 0, 1
_TTL_SENT = 255

_LEAD_IN = 200 * MILLISECOND
"""The first packet leaves this long after the start: the reflector's clock may be that late."""
_WRAP_UP = SECOND
"""Time for the output, and for processes that got no processor when packets were due."""
_MARGIN = 450 * MILLISECOND
"""Both stop by themselves this long before the booked end; the launcher ends them at 250 ms."""

_Nanoseconds = Annotated[int, Field(ge=-(10**18), le=10**18)]
_Octet = Annotated[int, Field(ge=0, le=255)]
_Answer = tuple[CountField, _Nanoseconds, _Nanoseconds, _Nanoseconds, CountField, _Octet, _Octet]
"""Sequence number, ns there, ns in the reflector, ns back, reflector's number, TTL there, back."""


class _SenderOutput(Document):
    sent: Annotated[int, Field(ge=1)]
    unsent: CountField
    unreachable: CountField
    answers: tuple[_Answer, ...]
    clock: ClockOutput


class StampTool(OwnTool):
    """Our own STAMP programs."""

    name = "stamp"
    tests: tuple[str, ...] = ("clock", "latency")
    listener = _DEST
    binds = EITHER

    def can(self, spec: LatencySpec | ClockSpec) -> str | None:
        """Refuse a dest that is no node."""
        return not_between_nodes(self.name, spec)

    def duration(self, spec: LatencySpec | ClockSpec) -> int:
        """Return lead-in, all packets, the last one's timeout and wrap-up, in microseconds."""
        return _LEAD_IN + spec.count * spec.interval + spec.timeout + _WRAP_UP

    def command(self, part: PartContext) -> Command:
        """Return our sender at source, our reflector at dest."""
        if part.participant == _SOURCE:
            return own_program("stamp_sender.py", _shared_arguments(part) | _sender_arguments(part))
        return own_program(
            "stamp_reflector.py", _shared_arguments(part) | _reflector_arguments(part)
        )

    def read(self, part: PartContext, output: Output) -> Result:
        """Read what this end saw: figures from the sender, counts from the reflector.

        :raises ToolOutputError: the program says that it could not measure, or the output is wrong.
        """
        if part.participant == _SOURCE:
            sender = measured_output(output, "STAMP sender", _SenderOutput, "STAMP")
            if isinstance(part.spec, ClockSpec):
                return _comparing_part(part.spec, sender).model_dump(mode="json")
            return _source_part(part.spec, sender).model_dump(mode="json")
        reflector = measured_output(output, "STAMP reflector", ReflectorCounts, "STAMP")
        counts = reflector.checked_part(part.spec.count)
        if isinstance(part.spec, ClockSpec):
            return {name: counts[name] for name in ReflectingPart.model_fields}
        return counts


def _shared_arguments(part: PartContext) -> dict[str, object]:
    spec: LatencySpec | ClockSpec = part.spec
    port = spec.port or int(part.parties[_DEST].data["port"])
    return {
        "port": port,
        "device": part.parties[part.participant].device,
        "ip_version": spec.ip_version,
        "count": spec.count,
        "interval_ns": spec.interval * MICROSECOND_NS,
        "timeout_ns": spec.timeout * MICROSECOND_NS,
        # Both ends derive the same id, so that packets of an earlier run on this port are rejected.
        "session": 1 + part.starts // MILLISECOND % 0xFFFF,
    }


def _sender_arguments(part: PartContext) -> dict[str, object]:
    return {
        "reflector": part.parties[_DEST].address,
        "source": part.parties[_SOURCE].address,
        "length": LENGTH_BASE if isinstance(part.spec, ClockSpec) else part.spec.length,
        "first_ns": (part.starts + _LEAD_IN) * MICROSECOND_NS,
        "deadline_ns": (part.ends - _MARGIN) * MICROSECOND_NS,
    }


def _reflector_arguments(part: PartContext) -> dict[str, object]:
    return {
        "address": part.parties[_DEST].address,
        "sender": part.parties[_SOURCE].address,
        "deadline_ns": (part.ends - _MARGIN) * MICROSECOND_NS,
    }


class _Tally:
    """The answers, sorted into those in time, late, duplicate and out of order."""

    def __init__(self, answers: Sequence[_Answer], timeout_ns: int) -> None:
        self.in_time: dict[int, _Answer] = {}
        self.late = 0
        self.duplicates_forward = 0
        self.duplicates_backward = 0
        self.reordered = 0
        seen: set[int] = set()
        reflected: set[int] = set()
        highest = -1
        for answer in answers:
            sequence, number = answer[0], answer[4]
            if number in reflected:
                self.duplicates_backward += 1
                continue
            # RFC 4737: a packet is out of order if its number is smaller than an earlier one.
            self.reordered += number < highest
            highest = max(highest, number)
            reflected.add(number)
            if sequence in seen:
                self.duplicates_forward += 1
                continue
            seen.add(sequence)
            if sum(answer[1:4]) > timeout_ns:
                self.late += 1
            else:
                self.in_time[sequence] = answer


def _tally(spec: LatencySpec | ClockSpec, output: _SenderOutput) -> _Tally:
    if output.sent + output.unsent != spec.count:
        raise ToolOutputError(f"STAMP sender reports {output.sent} packets of {spec.count}")
    tally = _Tally(output.answers, spec.timeout * MICROSECOND_NS)
    _check(tally, output)
    return tally


def _comparing_part(spec: ClockSpec, output: _SenderOutput) -> ComparingPart:
    """Return the clocks' offset by the best answer, computed as in RFC 5905 section 8.

    With equal delays both ways it is half of what the way there seems to take longer; at worst the
    whole round trip was spent in one direction, so it is wrong by at most half a round trip.
    """
    in_time = _tally(spec, output).in_time.values()
    best = min(in_time, key=lambda answer: answer[1] + answer[3], default=None)
    offsets_ms = [(answer[1] - answer[3]) / 2e6 for answer in in_time]
    return ComparingPart(
        sent=output.sent,
        received=len(in_time),
        unreachable=output.unreachable,
        offset_ms=None if best is None else round((best[1] - best[3]) / 2e6, 6),
        round_trip_ms=None if best is None else round((best[1] + best[3]) / 1e6, 6),
        offset_median_ms=round(statistics.median(offsets_ms), 6) if offsets_ms else None,
        clock=output.clock.clock,
    )


def _source_part(spec: LatencySpec, output: _SenderOutput) -> SourcePart:
    tally = _tally(spec, output)
    first = next(iter(tally.in_time.values()), None)
    ways = {at: (answer[1], answer[3]) for at, answer in tally.in_time.items()}
    delays, jitters = delays_and_jitter(ways)
    return SourcePart(
        sent=output.sent,
        unsent=output.unsent,
        received_back=len(tally.in_time),
        late=tally.late,
        unreachable=output.unreachable,
        duplicates_forward=tally.duplicates_forward,
        duplicates_backward=tally.duplicates_backward,
        reordered_backward=tally.reordered,
        delay_ms=delays,
        jitter_ms=jitters,
        hops_forward=_TTL_SENT - first[5] if first else None,
        hops_backward=_TTL_SENT - first[6] if first else None,
        clock=output.clock.clock,
        histogram=histograms(ways) if spec.histogram else None,
    )


def _check(tally: _Tally, output: _SenderOutput) -> None:
    """Refuse impossible figures: round trips below zero, more answers than packets."""
    if any(answer[1] + answer[3] < 0 or answer[2] < 0 for answer in tally.in_time.values()):
        stepped_ms = milliseconds(round(output.clock.stepped_ns))
        raise ToolOutputError(
            "a round trip took less than zero time: a clock was set during the run"
            f" (the sender's by {stepped_ms:.3f} ms)"
        )
    if len(tally.in_time) + tally.late > output.sent:
        raise ToolOutputError("STAMP sender reports more answers than packets")


TOOL = StampTool()
