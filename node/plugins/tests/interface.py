"""What passes a network interface of a host: bytes, packets, errors and drops, again and again.

The counters are the kernel's: they count all that passes, whoever sent it. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Annotated, Any

from pydantic import Field, StringConstraints, model_validator

from node.model.classes import SchedulingClass
from node.model.intervals import Interval, Rhythm
from node.model.times import DAY, HOUR, MILLISECOND, MINUTE, SECOND
from node.model.wire.fields import Document, Duration, Host
from node.plugins.contracts import Merged, Metric, Part, Result
from node.plugins.fields import CountField, NonNegative, between, duration_field
from node.plugins.figures import rate_text
from node.plugins.participation import fill, part_of
from node.plugins.streaming import StreamEnd, check_completeness, gaps_text, is_whole

InterfaceName = Annotated[
    # What Linux allows (net/core/dev.c, dev_valid_name) is more; nobody uses the rest, and a name
    # must not look like an option or a path. "@" and ":" are parts of how tools print names.
    str,
    StringConstraints(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,14}$", strict=True),
]

_WAYS = ("received", "sent")


class InterfaceSpec(Document):
    """Which interface to look at, and how often to tell."""

    host: Host | None = Field(
        default=None, description="The node whose interface it is; left out, the lead itself."
    )
    interface: InterfaceName | None = Field(
        default=None,
        description="The name of the interface, such as eth0; left out, that of the default route.",
    )
    duration: Annotated[Duration, between(SECOND, DAY)] = duration_field(
        HOUR, "How long a run lasts, PT1S to P1D; repeated as often, it has no end."
    )
    each: Annotated[Duration, between(SECOND, HOUR)] = duration_field(
        MINUTE, "There is a result each time this is over, PT1S to PT1H; a part of `duration`."
    )

    @model_validator(mode="after")
    def _is_sound(self) -> InterfaceSpec:
        is_whole("duration", self.duration, "each", self.each)
        return self


class InterfaceTraffic(Document):
    """What passed in one direction."""

    rate_bps: NonNegative = Field(description="Bits per second, as the interface counts octets.")
    packet_rate: NonNegative = Field(description="Packets per second.")
    error_rate: NonNegative = Field(description="Packets with errors per second.")
    drop_rate: NonNegative = Field(description="Dropped packets per second.")
    bytes: CountField = Field(description="Bytes.")
    packets: CountField = Field(description="Packets.")
    errors: CountField = Field(description="Packets with errors.")
    drops: CountField = Field(description="Dropped packets: no room, or nobody wanted them.")


class InterfaceInterval(Document):
    """What passed an interface in one interval."""

    interface: str = Field(max_length=15, description="The name of the interface.")
    duration_ms: NonNegative = Field(description="From one reading to the next, milliseconds.")
    received: InterfaceTraffic = Field(description="What came in.")
    sent: InterfaceTraffic = Field(description="What went out.")


class TotalTraffic(InterfaceTraffic):
    """What passed in one direction over all intervals."""

    peak_bps: NonNegative = Field(description="Bits per second in the busiest interval.")


class InterfaceResult(Document):
    """What passed an interface during a run."""

    interface: str = Field(max_length=15, description="The name of the interface.")
    intervals: CountField = Field(description="Intervals with a result; the figures are of these.")
    gaps: CountField = Field(description="Intervals without a result.")
    duration_ms: NonNegative = Field(description="The time that was measured, milliseconds.")
    received: TotalTraffic = Field(description="What came in.")
    sent: TotalTraffic = Field(description="What went out.")


class InterfaceTest:
    """What passes a network interface of a host."""

    name = "interface"
    title = "Bytes, packets, errors and drops of a network interface"
    resources: tuple[str, ...] = ()
    example: Mapping[str, Any] = MappingProxyType({"duration": "PT2S", "each": "PT1S"})
    spec_model: type[Document] = InterfaceSpec
    result_model: type[Document] = InterfaceResult
    interval_model: type[Document] = InterfaceInterval

    def scheduling_class(
        self,
        spec: InterfaceSpec,  # noqa: ARG002 - same for all
    ) -> SchedulingClass:
        """Background-multi: it only reads."""
        return SchedulingClass.BACKGROUND_MULTI

    def participants(self, spec: InterfaceSpec) -> tuple[str | None, ...]:
        """The host."""
        return (spec.host,)

    def with_participants(self, spec: InterfaceSpec, names: Sequence[str]) -> InterfaceSpec:
        """The spec with the host filled in.

        :raises ValueError: more than one, or the spec names another.
        """
        return fill(spec, self.name, ("host",), names)

    def hosts(self, spec: InterfaceSpec) -> tuple[str, ...]:
        """The host, if it is named."""
        return (spec.host,) if spec.host is not None else ()

    def needs(self, spec: InterfaceSpec) -> Mapping[str, int | None]:  # noqa: ARG002 - contract
        """Nothing."""
        return {}

    def rhythm(self, spec: InterfaceSpec) -> Rhythm:
        """As many intervals as ``each`` fits into ``duration``."""
        return Rhythm(spec.each, spec.duration // spec.each)

    def merge_interval(self, spec: InterfaceSpec, parts: Sequence[Part]) -> Merged:  # noqa: ARG002
        """What the host counted."""
        found, reason = part_of(parts, 0, InterfaceInterval)
        return Merged(found.model_dump(mode="json") if found else None, reason)

    def interval_summary(self, result: Result) -> str:
        """``eth0: 12.0 Mb/s in, 3.10 Mb/s out``, and errors and drops if there are any."""
        figures = InterfaceInterval.model_validate(result)
        return _in_words(figures.interface, figures.received, figures.sent)

    def interval_metrics(self, result: Result) -> tuple[Metric, ...]:
        """Rates by direction, and the errors and drops."""
        figures = InterfaceInterval.model_validate(result)
        return tuple(
            found
            for way in _WAYS
            for found in _metrics(getattr(figures, way), _labels(way, figures.interface))
        )

    def merge(self, spec: InterfaceSpec, parts: Sequence[Part]) -> Merged:  # noqa: ARG002
        """Whether the host has counted to the end."""
        return check_completeness(parts, 1, StreamEnd)

    def total(self, spec: InterfaceSpec, intervals: Sequence[Interval]) -> Result:  # noqa: ARG002
        """Sums, the mean rates of what was measured, and the busiest interval."""
        found = [InterfaceInterval.model_validate(each.result) for each in intervals if each.result]
        took_ms = math.fsum(each.duration_ms for each in found)
        result = InterfaceResult(
            interface=found[-1].interface,
            intervals=len(found),
            gaps=len(intervals) - len(found),
            duration_ms=round(took_ms, 3),
            received=_total([each.received for each in found], took_ms),
            sent=_total([each.sent for each in found], took_ms),
        )
        return result.model_dump(mode="json")

    def summary(self, result: Result) -> str:
        """As of an interval, with the number of intervals, and of gaps if there are any."""
        figures = InterfaceResult.model_validate(result)
        text = _in_words(figures.interface, figures.received, figures.sent)
        return f"{text}; {gaps_text(figures.intervals, figures.gaps)}"

    def metrics(self, result: Result) -> tuple[Metric, ...]:
        """Rates by direction, and the errors and drops."""
        figures = InterfaceResult.model_validate(result)
        found: list[Metric] = []
        for way in _WAYS:
            traffic: TotalTraffic = getattr(figures, way)
            labels = _labels(way, figures.interface)
            rate, *others = _metrics(traffic, labels)
            found += [rate, Metric("peak_bps", traffic.peak_bps, "bit/s", labels), *others]
        return tuple(found)


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
    """What passed, by name of its counter, in so many milliseconds."""
    seconds = took_ms * MILLISECOND / SECOND or 1e-9  # what took no time at all has no rate
    return InterfaceTraffic(
        rate_bps=round(8 * counts["bytes"] / seconds, 3),
        packet_rate=round(counts["packets"] / seconds, 3),
        error_rate=round(counts["errors"] / seconds, 3),
        drop_rate=round(counts["drops"] / seconds, 3),
        **counts,
    )


def _total(every: Sequence[InterfaceTraffic], took_ms: float) -> TotalTraffic:
    sums = {
        what: min(2**63 - 1, sum(getattr(each, what) for each in every))
        for what in ("bytes", "packets", "errors", "drops")
    }
    figures = traffic_of(sums, took_ms).model_dump()
    return TotalTraffic(**figures, peak_bps=max(each.rate_bps for each in every))


def _in_words(interface: str, received: InterfaceTraffic, sent: InterfaceTraffic) -> str:
    text = f"{interface}: {rate_text(received.rate_bps)} in, {rate_text(sent.rate_bps)} out"
    errors, drops = received.errors + sent.errors, received.drops + sent.drops
    for count, what in ((errors, "error"), (drops, "drop")):
        if count:
            text += f", {count} {what}" + ("" if count == 1 else "s")
    return text


TEST = InterfaceTest()
