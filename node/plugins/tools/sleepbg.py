"""Idling interval by interval, by a program of our own. Pure."""

from __future__ import annotations

from dataclasses import replace

from node.model.intervals import Interval
from node.model.times import SECOND
from node.model.wire.fields import Document
from node.plugins.binding import EITHER
from node.plugins.contracts import Command, Output, PartContext, Result
from node.plugins.fields import CountField
from node.plugins.figures import milliseconds
from node.plugins.outline import ClientTool
from node.plugins.ownprograms import MICROSECOND_NS, own_program
from node.plugins.reading import record_of
from node.plugins.sendrecords import stream_end
from node.plugins.tests.idlebg import IdleBgSpec, IdleInterval

_WRAP_UP = SECOND
"""Time for the output of the last interval, which ends with the booked time."""


class _Record(Document):
    interval: CountField
    slept_ns: CountField


class SleepBgTool(ClientTool):
    """Our own sleeper."""

    name = "sleepbg"
    tests: tuple[str, ...] = ("idlebg",)
    binds = EITHER  # it sends nothing anywhere

    def duration(self, spec: IdleBgSpec) -> int:
        """Return the spec's duration, in microseconds: the next run begins when this one ends."""
        return spec.duration

    def command(self, part: PartContext) -> Command:
        """Return our sleeper."""
        spec: IdleBgSpec = part.spec
        arguments = {
            "begin_ns": part.starts * MICROSECOND_NS,
            "each_ns": spec.each * MICROSECOND_NS,
            "intervals": spec.duration // spec.each,
        }
        return replace(own_program("sleepbg.py", arguments), streams=True, overtime=_WRAP_UP)

    def read_interval(self, part: PartContext, record: bytes) -> Interval:
        """Read how long it slept in one interval.

        :raises node.model.errors.ToolOutputError: it is not a record of it.
        """
        told = record_of(record, "sleepbg", _Record)
        slept = IdleInterval(slept_ms=milliseconds(told.slept_ns))
        return Interval(told.interval, slept.model_dump(mode="json"))

    def read(self, part: PartContext, output: Output) -> Result:
        """Return how many intervals it told.

        :raises node.model.errors.ToolOutputError: it was ended, or the output is wrong.
        """
        return stream_end(output, "sleepbg")


TOOL = SleepBgTool()
