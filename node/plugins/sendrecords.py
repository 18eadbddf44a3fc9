"""The records that our sending programs print for each interval, whatever they send with. Pure.

See :func:`node.plugins.distribution.both_ways` for the figures.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from pydantic import Field

from node.model.errors import ToolOutputError
from node.model.wire.fields import Document
from node.plugins.contracts import Output, Result
from node.plugins.distribution import BUCKETS_MAX
from node.plugins.fields import CountField, ForeignText
from node.plugins.figures import DelayFigures, milliseconds
from node.plugins.oneway import (
    DelaysBothWays,
    DestPart,
    Histogram,
    HistogramsBothWays,
    JitterBothWays,
    histogram_of,
)
from node.plugins.outline import StreamEnd
from node.plugins.ownprograms import ClockOutput, result_of, told_failure
from node.plugins.reading import document_of, failure
from node.plugins.tests.latencybg import SourceInterval

_Ticks = Annotated[int, Field(ge=-(2**62), le=2**62)]


class _Histogram(Document):
    width: Annotated[int, Field(ge=1, le=2**62)]
    buckets: Annotated[tuple[tuple[_Ticks, CountField], ...], Field(max_length=BUCKETS_MAX)]

    @property
    def histogram(self) -> Histogram:
        """The same as results have it."""
        return histogram_of(self.width, dict(self.buckets))


class _Histograms(Document):
    forward: _Histogram
    backward: _Histogram
    round_trip: _Histogram


class SenderRecord(Document):
    """A sender's record of the packets of one interval."""

    interval: CountField
    sent: CountField
    unsent: CountField
    received_back: CountField
    late: CountField
    reordered_backward: CountField
    delay_ms: DelaysBothWays
    jitter_ms: JitterBothWays
    histogram_us: _Histograms
    complaint: ForeignText
    clock: ClockOutput


class ReflectorCounts(Document):
    """The counts of a reflector of ours, of a run or of an interval."""

    received: CountField
    duplicates: CountField
    reordered: CountField
    unsent: CountField
    strays: CountField
    clock: ClockOutput

    def checked_part(self, packets: int) -> Result:
        """Return the part of dest.

        :raises ToolOutputError: it counts more than ``packets``.
        """
        if self.received > packets:
            raise ToolOutputError(f"STAMP reflector counts {self.received} packets, too many")
        return result_of(DestPart, self, clock=self.clock.clock)


def check(record: SenderRecord, packets: int, sender: str) -> None:
    """Refuse an impossible record: counts that do not fit ``packets``, or contradictory figures.

    :raises ToolOutputError: says which, with the name of the ``sender``.
    """
    if record.sent + record.unsent != packets:
        total = record.sent + record.unsent
        raise ToolOutputError(f"{sender} reports {total} packets, not {packets}")
    if record.received_back + record.late > record.sent:
        raise ToolOutputError(f"{sender} reports more answers than packets")
    delays: tuple[DelayFigures | None, ...] = (
        record.delay_ms.forward,
        record.delay_ms.backward,
        record.delay_ms.round_trip,
    )
    if any((each is None) == bool(record.received_back) for each in delays):
        raise ToolOutputError(f"{sender}'s delays and counts contradict each other")
    round_trip = record.delay_ms.round_trip
    if round_trip is not None and round_trip.min < 0:
        stepped_ms = milliseconds(round(record.clock.stepped_ns))
        raise ToolOutputError(
            "a round trip took less than zero time: a clock was set during the interval"
            f" (the sender's by {stepped_ms:.3f} ms)"
        )
    histograms = (
        record.histogram_us.forward,
        record.histogram_us.backward,
        record.histogram_us.round_trip,
    )
    if any(sum(n for _, n in each.buckets) != record.received_back for each in histograms):
        raise ToolOutputError(f"{sender}'s histograms and counts contradict each other")


def explain_unsent(record: SenderRecord) -> str:
    """Return why an interval without a single packet is a gap, and not loss."""
    return "no packet could be sent" + (f": {record.complaint}" if record.complaint else "")


def source_interval(record: SenderRecord, more: Mapping[str, object]) -> SourceInterval:
    """Return the sender's share of an interval; ``more`` is what differs by sender."""
    histograms = record.histogram_us
    return SourceInterval.model_validate(
        {
            "sent": record.sent,
            "unsent": record.unsent,
            "received_back": record.received_back,
            "late": record.late,
            "reordered_backward": record.reordered_backward,
            "delay_ms": record.delay_ms,
            "jitter_ms": record.jitter_ms,
            "clock": record.clock.clock,
            "histogram": HistogramsBothWays(
                forward=histograms.forward.histogram,
                backward=histograms.backward.histogram,
                round_trip=histograms.round_trip.histogram,
            ),
        }
        | dict(more)
    )


def stream_end(output: Output, program: str, prefix: str | None = None) -> Result:
    """Return the number of intervals that a program reported in all.

    :raises ToolOutputError: it says that it could not measure, after ``prefix`` or else its name;
        or the output is wrong.
    """
    if output.exit_code > 0 and output.stdout:
        before = f"{program}: " if prefix is None else prefix
        raise ToolOutputError(f"{before}{told_failure(output, program)}")
    if output.exit_code != 0:
        raise failure(output, program, "it was ended")
    return document_of(output, program, StreamEnd).model_dump(mode="json")
