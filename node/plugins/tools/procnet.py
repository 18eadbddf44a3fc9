"""The kernel's counters of an interface, from ``/proc/net/dev``, by a program of ours. Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any

from pydantic import Field, ValidationError

from node.model.errors import ToolOutputError
from node.model.intervals import Interval
from node.model.times import SECOND
from node.model.wire.fields import Document
from node.plugins.contracts import Command, Output, PartContext, Result
from node.plugins.fields import CountField
from node.plugins.figures import milliseconds
from node.plugins.outline import ClientTool
from node.plugins.ownprograms import MICROSECOND_NS, own_program
from node.plugins.participation import first_fault
from node.plugins.reading import record_of
from node.plugins.sendrecords import stream_end
from node.plugins.tests.interface import (
    InterfaceInterval,
    InterfaceName,
    InterfaceSpec,
    traffic_of,
)

_OVERTIME = 2 * SECOND
"""The last reading is at the booked end; its record may take this long."""

_Nanoseconds = Annotated[int, Field(ge=1, le=10**18)]


class _Counts(Document):
    bytes: CountField
    packets: CountField
    errors: CountField
    drops: CountField


class _Reading(Document):
    interface: InterfaceName
    took_ns: _Nanoseconds
    received: _Counts
    sent: _Counts


class _Gap(Document):
    reason: Annotated[str, Field(min_length=1, max_length=200)]


class _Record(Document):
    interval: CountField
    told: _Reading | _Gap


class ProcNetTool(ClientTool):
    """``/proc/net/dev``."""

    name = "procnet"
    tests: tuple[str, ...] = ("interface",)
    binds = frozenset({"interface"})

    def duration(self, spec: InterfaceSpec) -> int:
        """Return the spec's duration in microseconds: the next run begins when this one ends."""
        return spec.duration

    def command(self, part: PartContext) -> Command:
        """Return our program."""
        spec: InterfaceSpec = part.spec
        arguments: dict[str, Any] = {
            "interface": spec.interface or part.parties[part.participant].device,
            "first_ns": part.starts * MICROSECOND_NS,
            "each_ns": spec.each * MICROSECOND_NS,
            "intervals": spec.duration // spec.each,
        }
        program = own_program("interface_counters.py", arguments)
        return replace(program, streams=True, overtime=_OVERTIME)

    def read_interval(self, part: PartContext, record: bytes) -> Interval:
        """Read the counts of one interval.

        :raises ToolOutputError: it is not a record, or of another interface.
        """
        interval = record_of(record, "the reader of counters", _Record)
        reading = interval.told
        if isinstance(reading, _Gap):
            return Interval(interval.interval, None, reading.reason)
        if part.spec.interface not in (None, reading.interface):
            raise ToolOutputError(f"counters of {reading.interface}, not of {part.spec.interface}")
        return Interval(interval.interval, _figures(reading))

    def read(self, part: PartContext, output: Output) -> Result:
        """Return how many intervals it reported.

        :raises ToolOutputError: the program says that it cannot, or the output is wrong.
        """
        return stream_end(output, "the reader of counters", prefix="")


def _figures(reading: _Reading) -> Result:
    took_ms = milliseconds(reading.took_ns)
    try:
        result = InterfaceInterval(
            interface=reading.interface,
            duration_ms=round(took_ms, 3),
            received=traffic_of(reading.received.model_dump(), took_ms),
            sent=traffic_of(reading.sent.model_dump(), took_ms),
        )
    except ValidationError as fault:
        raise ToolOutputError(f"the counts are impossible: {first_fault(fault)}") from None
    return result.model_dump(mode="json")


TOOL = ProcNetTool()
