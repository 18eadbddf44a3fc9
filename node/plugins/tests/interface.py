"""Bytes, packets, errors and drops of a host's network interface, interval by interval. Pure.

The counters are the kernel's: they count all traffic, whoever sent it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from pydantic import Field, StringConstraints, model_validator

from node.model.intervals import Interval
from node.model.times import DAY, HOUR, MILLISECOND, MINUTE, SECOND
from node.model.wire.fields import Document, Duration, Host
from node.plugins.contracts import Metric, Result
from node.plugins.fields import CountField, NonNegative, between, duration_field
from node.plugins.figures import rate_text
from node.plugins.outline import IntervalTest, check_multiple, gaps_text

InterfaceName = Annotated[
    # Linux allows more (net/core/dev.c, dev_valid_name); the rest is never used, and a name must
    # not look like an option or a path. "@" and ":" are parts of how tools print names.
    str,
    StringConstraints(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,14}$", strict=True),
]

_WAYS = ("received", "sent")


class InterfaceSpec(Document):
    """The interface to watch, and the length of the intervals."""

    host: Host | None = Field(
        default=None, description="The node that has the interface; by default the lead itself."
    )
    interface: InterfaceName | None = Field(
        default=None,
        description="The name of the interface, such as eth0; by default the default route's.",
    )
    duration: Annotated[Duration, between(SECOND, DAY)] = duration_field(
        HOUR, "How long a run lasts, PT1S to P1D; if repeated as often, the task has no gaps."
    )
    each: Annotated[Duration, between(SECOND, HOUR)] = duration_field(
        MINUTE, "The length of an interval, PT1S to PT1H; divides `duration`."
    )

    @model_validator(mode="after")
    def _check_fields(self) -> InterfaceSpec:
        check_multiple("duration", self.duration, "each", self.each)
        return self


class InterfaceTraffic(Document):
    """The traffic in one direction."""

    rate_bps: NonNegative = Field(description="Bits per second, as the interface counts octets.")
    packet_rate: NonNegative = Field(description="Packets per second.")
    error_rate: NonNegative = Field(description="Packets with errors per second.")
    drop_rate: NonNegative = Field(description="Dropped packets per second.")
    bytes: CountField = Field(description="Bytes.")
    packets: CountField = Field(description="Packets.")
    errors: CountField = Field(description="Packets with errors.")
    drops: CountField = Field(description="Dropped packets: no room, or no receiver.")


class InterfaceInterval(Document):
    """The traffic of an interface in one interval."""

    interface: str = Field(max_length=15, description="The name of the interface.")
    duration_ms: NonNegative = Field(description="From one reading to the next, milliseconds.")
    received: InterfaceTraffic = Field(description="Incoming traffic.")
    sent: InterfaceTraffic = Field(description="Outgoing traffic.")


class TotalTraffic(InterfaceTraffic):
    """The traffic in one direction over all intervals."""

    peak_bps: NonNegative = Field(description="Bits per second in the busiest interval.")


class InterfaceResult(Document):
    """The traffic of an interface during a run."""

    interface: str = Field(max_length=15, description="The name of the interface.")
    intervals: CountField = Field(description="Intervals with a result; the figures cover these.")
    gaps: CountField = Field(description="Intervals without a result.")
    duration_ms: NonNegative = Field(description="The measured time, milliseconds.")
    received: TotalTraffic = Field(description="Incoming traffic.")
    sent: TotalTraffic = Field(description="Outgoing traffic.")


class InterfaceTest(IntervalTest):
    """The traffic of a network interface of a host."""

    name = "interface"
    title = "Bytes, packets, errors and drops of a network interface"
    example: Mapping[str, Any] = {"duration": "PT2S", "each": "PT1S"}
    spec_model: type[Document] = InterfaceSpec
    result_model: type[Document] = InterfaceResult
    interval_model: type[Document] = InterfaceInterval
    places = ("host",)
    share_models: tuple[type[Document], ...] = (InterfaceInterval,)

    def inward(self, spec: InterfaceSpec) -> str:
        """Return the traffic of the host: all that others send and receive by it."""
        return "all traffic of this host"

    def interval_summary(self, result: Result) -> str:
        """Return ``eth0: 12.0 Mb/s in, 3.10 Mb/s out``, with errors and drops if there are any."""
        figures = InterfaceInterval.model_validate(result)
        return _interval_text(figures.interface, figures.received, figures.sent)

    def interval_metrics(self, result: Result) -> tuple[Metric, ...]:
        """Return rates by direction, and the errors and drops."""
        figures = InterfaceInterval.model_validate(result)
        return tuple(
            each
            for way in _WAYS
            for each in _metrics(getattr(figures, way), _labels(way, figures.interface))
        )

    def total(self, spec: InterfaceSpec, intervals: Sequence[Interval]) -> Result:
        """Return sums, mean rates of the measured time, and the busiest interval."""
        measured = [
            InterfaceInterval.model_validate(each.result) for each in intervals if each.result
        ]
        took_ms = math.fsum(each.duration_ms for each in measured)
        result = InterfaceResult(
            interface=measured[-1].interface,
            intervals=len(measured),
            gaps=len(intervals) - len(measured),
            duration_ms=round(took_ms, 3),
            received=_total([each.received for each in measured], took_ms),
            sent=_total([each.sent for each in measured], took_ms),
        )
        return result.model_dump(mode="json")

    def summary(self, result: Result) -> str:
        """Return the text of an interval, with the numbers of intervals and of gaps."""
        figures = InterfaceResult.model_validate(result)
        text = _interval_text(figures.interface, figures.received, figures.sent)
        return f"{text}; {gaps_text(figures.intervals, figures.gaps)}"

    def metrics(self, result: Result) -> tuple[Metric, ...]:
        """Return rates by direction, and the errors and drops."""
        figures = InterfaceResult.model_validate(result)
        metrics: list[Metric] = []
        for way in _WAYS:
            traffic: TotalTraffic = getattr(figures, way)
            labels = _labels(way, figures.interface)
            rate, *others = _metrics(traffic, labels)
            metrics += [rate, Metric("peak_bps", traffic.peak_bps, "bit/s", labels), *others]
        return tuple(metrics)


def _labels(way: str, interface: str) -> dict[str, str]:
    return {"direction": way, "interface": interface}


def _metrics(traffic: InterfaceTraffic, labels: Mapping[str, str]) -> tuple[Metric, ...]:
    return (
        Metric("rate_bps", traffic.rate_bps, "bit/s", labels),
        Metric("bytes", traffic.bytes, "bytes", labels),
        Metric("packets", traffic.packets, "packets", labels),
        Metric("errors", traffic.errors, "packets", labels),
        Metric("drops", traffic.drops, "packets", labels),
    )


def traffic_of(counts: Mapping[str, int], took_ms: float) -> InterfaceTraffic:
    """Return the traffic of ``took_ms`` milliseconds; ``counts`` are by the counters' names."""
    seconds = took_ms * MILLISECOND / SECOND or 1e-9  # avoids dividing by zero
    return InterfaceTraffic(
        rate_bps=round(8 * counts["bytes"] / seconds, 3),
        packet_rate=round(counts["packets"] / seconds, 3),
        error_rate=round(counts["errors"] / seconds, 3),
        drop_rate=round(counts["drops"] / seconds, 3),
        **counts,
    )


def _total(intervals: Sequence[InterfaceTraffic], took_ms: float) -> TotalTraffic:
    sums = {
        what: min(2**63 - 1, sum(getattr(each, what) for each in intervals))
        for what in ("bytes", "packets", "errors", "drops")
    }
    figures = traffic_of(sums, took_ms).model_dump()
    return TotalTraffic(**figures, peak_bps=max(each.rate_bps for each in intervals))


def _interval_text(interface: str, received: InterfaceTraffic, sent: InterfaceTraffic) -> str:
    text = f"{interface}: {rate_text(received.rate_bps)} in, {rate_text(sent.rate_bps)} out"
    errors, drops = received.errors + sent.errors, received.drops + sent.drops
    for count, what in ((errors, "error"), (drops, "drop")):
        if count:
            text += f", {count} {what}" + ("" if count == 1 else "s")
    return text


TEST = InterfaceTest()
