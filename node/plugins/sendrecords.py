"""What a program of ours that sends a stream tells of each interval, whatever it sends with. Pure.

See :func:`node.plugins.distribution.both_ways` for the figures.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from node.model.errors import ToolOutputError
from node.model.wire.fields import Document
from node.plugins.attendance import ClockOutput
from node.plugins.contracts import Output, Result
from node.plugins.distribution import BUCKETS_MAX
from node.plugins.fields import CountField, ForeignText
from node.plugins.figures import DelayFigures, milliseconds
from node.plugins.oneway import DelaysBothWays, JitterBothWays
from node.plugins.reading import document_of, failure
from node.plugins.streaming import StreamEnd
from node.plugins.tests.latencybg import (
    Histogram,
    HistogramsBothWays,
    SourceInterval,
    histogram_of,
)

_Ticks = Annotated[int, Field(ge=-(2**62), le=2**62)]


class _Histogram(Document):
    width: Annotated[int, Field(ge=1, le=2**62)]
    buckets: Annotated[tuple[tuple[_Ticks, CountField], ...], Field(max_length=BUCKETS_MAX)]

    @property
    def histogram(self) -> Histogram:
        """As results have it."""
        return histogram_of(self.width, dict(self.buckets))


class _Histograms(Document):
    forward: _Histogram
    backward: _Histogram
    round_trip: _Histogram


class SenderRecord(Document):
    """What every sender tells of the packets of one interval."""

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


class _Failed(Document):
    error: str


def check(told: SenderRecord, packets: int, sender: str) -> None:
    """Refuse what cannot be: other counts than of so many ``packets``, figures of other packets.

    :raises ToolOutputError: says which, by the name of the ``sender``.
    """
    if told.sent + told.unsent != packets:
        raise ToolOutputError(f"{sender} tells of {told.sent + told.unsent} packets, not {packets}")
    if told.received_back + told.late > told.sent:
        raise ToolOutputError(f"{sender} tells of more answers than packets")
    delays: tuple[DelayFigures | None, ...] = (
        told.delay_ms.forward,
        told.delay_ms.backward,
        told.delay_ms.round_trip,
    )
    if any((each is None) == bool(told.received_back) for each in delays):
        raise ToolOutputError(f"{sender}'s delays and counts contradict each other")
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
        raise ToolOutputError(f"{sender}'s histograms and counts contradict each other")


def explain_unsent(told: SenderRecord) -> str:
    """Why an interval without a single packet is a gap, and no loss."""
    return "no packet could be sent" + (f": {told.complaint}" if told.complaint else "")


def source_interval(told: SenderRecord, more: dict[str, int | None]) -> SourceInterval:
    """The sender's share of an interval; ``more`` are the counts that senders differ in."""
    histograms = told.histogram_us
    return SourceInterval.model_validate(
        {
            "sent": told.sent,
            "unsent": told.unsent,
            "received_back": told.received_back,
            "late": told.late,
            "reordered_backward": told.reordered_backward,
            "delay_ms": told.delay_ms,
            "jitter_ms": told.jitter_ms,
            "clock": told.clock.clock,
            "histogram": HistogramsBothWays(
                forward=histograms.forward.histogram,
                backward=histograms.backward.histogram,
                round_trip=histograms.round_trip.histogram,
            ),
        }
        | more
    )


def stream_end(output: Output, program: str) -> Result:
    """How many intervals a program told of in all.

    :raises ToolOutputError: it says that it could not measure, or the output is wrong.
    """
    if output.exit_code > 0 and output.stdout:
        raise ToolOutputError(f"{program}: {document_of(output, program, _Failed).error}")
    if output.exit_code != 0:
        raise failure(output, program, "it was ended")
    return document_of(output, program, StreamEnd).model_dump(mode="json")
