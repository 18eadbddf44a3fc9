"""Continuous delay, loss and delay variation each way, with a result per interval. Pure.

Like :mod:`.latency`, but a run sends packets for as long as it is booked, which is as long as the
period of its schedule: the last packet of one run is followed by the first of the next.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any

from pydantic import Field, model_validator

from node.model.intervals import Interval
from node.model.times import DAY, HOUR, MILLISECOND, MINUTE, SECOND, duration_text
from node.model.wire.fields import Document, Duration
from node.plugins import oneway
from node.plugins.contracts import Merged, Metric, Part, Result
from node.plugins.distribution import DECIMALS, add_up, quantile
from node.plugins.fields import CountField, NonNegative, between, duration_field
from node.plugins.figures import DelayFigures, metric
from node.plugins.oneway import (
    LENGTH_BASE,
    CountsBothWays,
    DelaysBothWays,
    Histogram,
    HistogramsBothWays,
    JitterBothWays,
    LossBothWays,
    OneWayResult,
    SourcePart,
    histogram_of,
    loss_of,
)
from node.plugins.outline import IntervalTest, check_multiple, gaps_text

PACKETS_MAX = 36_000
"""Maximum packets of one interval: their figures are computed between two packets."""

_WAYS = ("forward", "backward", "round_trip")
_BOTH_WAYS = ("forward", "backward")
_MICROSECONDS_PER_MS = 1000


class LatencyBgSpec(Document):
    """The packets to send, and the length of the intervals."""

    source: oneway.Source = None
    dest: oneway.Dest = None
    duration: Annotated[Duration, between(5 * SECOND, DAY)] = duration_field(
        HOUR, "How long a run lasts, PT5S to P1D; if repeated as often, the stream has no gaps."
    )
    each: Annotated[Duration, between(SECOND, HOUR)] = duration_field(
        MINUTE, "The length of an interval, PT1S to PT1H; divides `duration`."
    )
    interval: Annotated[Duration, between(10 * MILLISECOND, 10 * SECOND)] = duration_field(
        100 * MILLISECOND, "The time from one packet to the next, PT0.01S to PT10S."
    )
    timeout: Annotated[Duration, between(10 * MILLISECOND, 5 * SECOND)] = duration_field(
        SECOND, "A packet that is not back after this is lost, PT0.01S to PT5S."
    )
    length: oneway.Length = LENGTH_BASE
    ip_version: oneway.Version = None
    port: oneway.DestPort = None
    responder: oneway.Responder = "node"

    @model_validator(mode="after")
    def _check_fields(self) -> LatencyBgSpec:
        oneway.check_packets(self)
        check_multiple("duration", self.duration, "each", self.each)
        check_multiple("each", self.each, "interval", self.interval)
        if self.each // self.interval > PACKETS_MAX:
            each, interval = duration_text(self.each), duration_text(self.interval)
            raise ValueError(f"a packet each {interval} is more than {PACKETS_MAX} in {each}")
        return self


class SourceInterval(SourcePart):
    """The sending participant's part of one interval."""

    histogram: HistogramsBothWays


class LatencyInterval(OneWayResult):
    """Delay, loss and delay variation, each way, in one interval."""

    histogram: HistogramsBothWays = Field(description="The number of packets by delay.")


class LatencyBgResult(Document):
    """Delay, loss and delay variation, each way, over all intervals of a run."""

    intervals: CountField = Field(description="Intervals reported by both participants.")
    partial: CountField = Field(
        description="Intervals reported by source alone: they count if there are no others."
    )
    gaps: CountField = Field(description="Intervals without a result.")
    sent: CountField = Field(description="Packets sent by source.")
    received_at_dest: CountField = Field(
        description="Different packets that reached dest, in intervals in which dest counted."
    )
    received_back: CountField = Field(description="Different packets that came back in time.")
    late: CountField = Field(description="Packets that came back after the timeout; they are lost.")
    loss: LossBothWays = Field(description="Lost packets as fractions, 0 to 1.")
    delay_ms: DelaysBothWays = Field(
        description="Delays in milliseconds; median and p95 are exact to a bucket of the histogram."
    )
    jitter_ms: JitterBothWays = Field(
        description="Mean absolute delay variation of consecutive packets (RFC 3393), milliseconds."
    )
    duplicates: CountsBothWays = Field(description="Packets that arrived more than once.")
    reordered: CountsBothWays = Field(description="Packets that arrived out of order (RFC 4737).")
    unreachable: CountField | None = Field(
        description="ICMP errors: nothing listened at dest; null if the tool lacks the count."
    )
    histogram: HistogramsBothWays = Field(description="The number of packets by delay.")
    clocks_synchronised: bool = Field(
        description="Whether both clocks were synchronised, or the same clock, in each interval."
    )
    clock_error_ms: NonNegative | None = Field(
        description="The largest bound of the one-way delays' error, ms; null if unknown."
    )


class LatencyBgTest(IntervalTest, oneway.OneWayTest):
    """Delay, loss and delay variation, each way, interval by interval."""

    name = "latencybg"
    title = "One-way and round-trip delay, loss and jitter, without end"
    example: Mapping[str, Any] = {"dest": "b.example", "duration": "PT10S", "each": "PT5S"}
    spec_model: type[Document] = LatencyBgSpec
    result_model: type[Document] = LatencyBgResult
    interval_model: type[Document] = LatencyInterval
    share_models: tuple[type[Document], ...] = (SourceInterval, oneway.DestPart)

    def expected_bytes(self, spec: LatencyBgSpec, mbps: int | None) -> int:
        """Return its packets and their answers."""
        return 2 * (spec.duration // spec.interval) * spec.length

    def merge_interval(self, spec: LatencyBgSpec, parts: Sequence[Part]) -> Merged:
        """Merge source's delays and both ends' counts; source alone gives a partial result."""
        source, dest, reason = oneway.parts_of(spec, parts, SourceInterval)
        if source is None:
            return Merged(None, reason)
        return Merged(oneway.merge_ends(source, dest).model_dump(mode="json"), reason)

    def interval_summary(self, result: Result) -> str:
        """Return ``20.41 ms there, 0.21 ms back, loss 1 % / 0 %, jitter 0.20 ms``."""
        return oneway.summary_text(LatencyInterval.model_validate(result))

    def interval_metrics(self, result: Result) -> tuple[Metric, ...]:
        """Return delay, loss and jitter of each direction, and of the round trip."""
        return oneway.both_ways_metrics(LatencyInterval.model_validate(result))

    def total(self, spec: LatencyBgSpec, intervals: Sequence[Interval]) -> Result:
        """Return the sums of the counts, and the delays of all packets from the histograms.

        Intervals without dest's part are used only if there are no others: that nothing came back
        while dest was absent is not loss of the network.
        """
        measured = [each for each in intervals if each.result]
        whole = [each for each in measured if not each.reason]
        used = [LatencyInterval.model_validate(each.result) for each in whole or measured]
        counted = [each for each in used if each.received_at_dest is not None]
        loss = loss_of(
            sum(each.sent for each in counted),
            sum(each.received_at_dest or 0 for each in counted),
            sum(each.received_back for each in counted),
        )
        sent, back = sum(e.sent for e in used), sum(e.received_back for e in used)
        errors = [each.clock_error_ms for each in used]
        result = LatencyBgResult(
            intervals=len(whole),
            partial=len(measured) - len(whole),
            gaps=len(intervals) - len(measured),
            sent=sent,
            received_at_dest=sum(each.received_at_dest or 0 for each in counted),
            received_back=back,
            late=sum(each.late for each in used),
            loss=LossBothWays(
                forward=loss.forward if counted else None,
                backward=loss.backward if counted else None,
                round_trip=loss_of(sent, None, back).round_trip,
            ),
            delay_ms=DelaysBothWays(**{way: _combined_delays(used, way) for way in _WAYS}),
            jitter_ms=JitterBothWays(**{way: _jitter(used, way) for way in _WAYS}),
            duplicates=_counts(each.duplicates for each in used),
            reordered=_counts(each.reordered for each in used),
            unreachable=_sum_of_known(each.unreachable for each in used),
            histogram=HistogramsBothWays(**{way: _histogram(used, way) for way in _WAYS}),
            clocks_synchronised=all(each.clocks_synchronised for each in used),
            clock_error_ms=max((e for e in errors if e is not None), default=None)
            if None not in errors
            else None,
        )
        return result.model_dump(mode="json")

    def summary(self, result: Result) -> str:
        """Return the text of an interval, with the numbers of intervals and of gaps."""
        figures = LatencyBgResult.model_validate(result)
        gaps = gaps_text(figures.intervals, figures.partial + figures.gaps)
        return f"{oneway.summary_text(figures)}; {gaps}"

    def metrics(self, result: Result) -> tuple[Metric, ...]:
        """Return delay, loss and jitter of each direction, and of the round trip."""
        figures = LatencyBgResult.model_validate(result)
        return oneway.both_ways_metrics(figures) + metric("gaps", figures.gaps, "intervals")


def _counts(counts: Iterable[CountsBothWays]) -> CountsBothWays:
    every = list(counts)
    return CountsBothWays(
        **{way: _sum_of_known(getattr(each, way) for each in every) for way in _BOTH_WAYS}
    )


def _sum_of_known(counts: Iterable[int | None]) -> int | None:
    present = [count for count in counts if count is not None]
    return sum(present) if present else None


def _jitter(intervals: Sequence[LatencyInterval], way: str) -> float | None:
    """Return the mean of the intervals' jitter, weighted by their packets."""
    weighted = [
        (jitter, each.received_back)
        for each in intervals
        if (jitter := getattr(each.jitter_ms, way)) is not None
    ]
    weight = sum(packets for _, packets in weighted)
    if not weight:
        return None
    return round(math.fsum(jitter * packets for jitter, packets in weighted) / weight, DECIMALS)


def _summed_histogram(intervals: Sequence[LatencyInterval], way: str) -> tuple[int, dict[int, int]]:
    histograms = []
    for each in intervals:
        histogram: Histogram = getattr(each.histogram, way)
        width = max(1, round(histogram.width_ms * _MICROSECONDS_PER_MS))
        histograms.append((width, dict(histogram.buckets)))
    return add_up(histograms)


def _histogram(intervals: Sequence[LatencyInterval], way: str) -> Histogram:
    width, buckets = _summed_histogram(intervals, way)
    return histogram_of(width, buckets)


def _combined_delays(intervals: Sequence[LatencyInterval], way: str) -> DelayFigures | None:
    """Combine the intervals: min, max, mean and deviation exactly, the rest from histograms."""
    weighted = [
        (delays, each.received_back)
        for each in intervals
        if (delays := getattr(each.delay_ms, way)) is not None and each.received_back
    ]
    if not weighted:
        return None
    count = sum(packets for _, packets in weighted)
    mean = math.fsum(delays.mean * packets for delays, packets in weighted) / count
    # The variance of all is the mean of the variances plus the variance of the means.
    squares = math.fsum(
        (delays.stdev**2 + (delays.mean - mean) ** 2) * packets for delays, packets in weighted
    )
    least = min(delays.min for delays, _ in weighted)
    most = max(delays.max for delays, _ in weighted)
    width, buckets = _summed_histogram(intervals, way)
    middle, high = (
        min(most, max(least, (quantile(width, buckets, part) or 0) / _MICROSECONDS_PER_MS))
        for part in (0.5, 0.95)
    )
    return DelayFigures(
        min=least,
        median=round(middle, DECIMALS),
        mean=round(mean, DECIMALS),
        p95=round(high, DECIMALS),
        max=most,
        stdev=round(math.sqrt(squares / count), DECIMALS),
    )


TEST = LatencyBgTest()
