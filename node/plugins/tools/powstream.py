"""A stream to and from a server of OWAMP (RFC 4656) that is no node, with figures per interval.

Pure. Each interval is an exchange of its own, as with perfSONAR's powstream: a server that is away
or busy for a while costs intervals, and no run (:mod:`node.plugins.owamp`). A run's packets are
sent for exactly as long as it is booked, but later by the time to agree on its first interval.
"""

from __future__ import annotations

from dataclasses import replace

from node.model.intervals import Interval
from node.model.reason import Reason
from node.model.times import SECOND
from node.plugins import owamp
from node.plugins.contracts import Command, Output, PartContext, Result
from node.plugins.sendrecords import stream_end
from node.plugins.tests.latencybg import LatencyBgSpec

_WRAP_UP = SECOND


class PowstreamTool(owamp.OwampTool):
    """Our own client of OWAMP, interval by interval."""

    name = "powstream"
    tests: tuple[str, ...] = ("latencybg",)

    def duration(self, spec: LatencyBgSpec) -> int:
        """Return the spec's duration in microseconds: the next run begins when this one ends."""
        return spec.duration

    def command(self, part: PartContext) -> Command:
        """Return our client."""
        spec: LatencyBgSpec = part.spec
        packets, intervals = spec.each // spec.interval, spec.duration // spec.each
        overtime = owamp.OPENING + spec.timeout + owamp.CLOSING + _WRAP_UP
        started = owamp.command(part, part.starts + owamp.OPENING, packets, intervals)
        return replace(started, streams=True, overtime=overtime)

    def read_interval(self, part: PartContext, record: bytes) -> Interval:
        """Read the figures of one interval, or why there are none.

        :raises ToolOutputError: it is not a record, or is impossible.
        """
        packets = part.spec.each // part.spec.interval
        number, told = owamp.read_record(part.spec, record, packets)
        if isinstance(told, Reason):
            return Interval(number, None, told)
        return Interval(number, told.model_dump(mode="json"))

    def read(self, part: PartContext, output: Output) -> Result:
        """Return how many intervals it reported.

        :raises ToolOutputError: the program crashed, or printed something else.
        """
        return stream_end(output, owamp.PROGRAM)


TOOL = PowstreamTool()
