"""Round-trip time and loss from one participant to any host, by ICMP echo. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field, model_validator

from node.model.times import MILLISECOND, MINUTE, SECOND
from node.model.wire.fields import Document, Duration, Host
from node.plugins.contracts import Metric, Result
from node.plugins.fields import (
    Asker,
    CountField,
    Fraction,
    NonNegative,
    VersionOfDest,
    between,
    check_packet_total,
    duration_field,
    flag_field,
    whole_field,
)
from node.plugins.figures import (
    KnownDelays,
    delay_metrics,
    delay_text,
    metric,
    percent_text,
    traffic,
)
from node.plugins.outline import TargetTest
from node.plugins.plausibility import Notes

_WITH_FLOWS = 6
_LONGER_MS = 60_000
"""The time by which a run may be longer than its packets take."""


class RttSpec(Document):
    """The packets to send: to whom, how many, how often, and how long to wait."""

    source: Asker = None
    dest: Host = Field(description="The host that answers; any host, not only a node.")
    count: int = whole_field(10, 1, 10_000, "The number of packets.")
    interval: Annotated[Duration, between(2 * MILLISECOND, MINUTE)] = duration_field(
        200 * MILLISECOND,
        # ping refuses unprivileged users anything below 2 ms.
        "The time from one packet to the next, PT0.002S to PT1M.",
    )
    timeout: Annotated[Duration, between(10 * MILLISECOND, MINUTE)] = duration_field(
        SECOND, "A packet not answered after this is lost, PT0.01S to PT1M."
    )
    # With fewer than 16, ping has no room for its time stamp and prints no time.
    length: int = whole_field(
        56, 16, 8952, "The data bytes of each packet; with the ICMP header, eight more."
    )
    ttl: int | None = whole_field(None, 1, 255, "The hop limit; by default the host's.")
    ip_version: VersionOfDest = None
    dont_fragment: bool = flag_field(
        "Whether packets that are too long are dropped instead of fragmented.", later=True
    )
    tos: int | None = whole_field(
        None, 0, 255, "The octet of IP's type of service; DSCP 46 is 184.", later=True
    )
    flow_label: int | None = whole_field(
        None, 1, 1_048_575, "The flow label of IPv6; needs ip_version 6.", later=True
    )

    @model_validator(mode="after")
    def _check_fields(self) -> RttSpec:
        if self.flow_label and self.ip_version != _WITH_FLOWS:
            raise ValueError("only IPv6 has flow labels; set ip_version to 6")
        check_packet_total(self.count, self.interval)
        return self

    @property
    def longest_ms(self) -> float:
        """The time that no answer of a run can take, in milliseconds."""
        return (2 * self.count * self.interval + self.timeout) / MILLISECOND + _LONGER_MS


class RttResult(Document):
    """Round-trip times and loss."""

    address: str = Field(max_length=253, description="The address of dest.")
    sent: CountField = Field(description="Packets sent.")
    received: CountField = Field(description="Different packets answered in time.")
    late: CountField = Field(description="Answers after the timeout; they are lost.")
    loss: Fraction = Field(description="Packets not answered in time, as a fraction, 0 to 1.")
    rtt_ms: KnownDelays | None = Field(description="Round-trip times in milliseconds.")
    jitter_ms: NonNegative | None = Field(
        description="Mean absolute variation of consecutive packets (RFC 3393), milliseconds."
    )
    duplicates: CountField = Field(description="Answers that came more than once.")
    reordered: CountField = Field(description="Answers that came out of order (RFC 4737).")
    errors: tuple[Annotated[str, Field(max_length=300)], ...] = Field(
        max_length=10, description="Errors from routers or the host instead of an answer."
    )
    notes: Notes = ()


class RttTest(TargetTest):
    """Round-trip time and loss."""

    name = "rtt"
    title = "Round-trip time and loss"
    example: Mapping[str, Any] = {"dest": "192.0.2.7"}
    resources: tuple[str, ...] = ("mbps",)
    spec_model: type[Document] = RttSpec
    result_model: type[Document] = RttResult
    part_models: tuple[type[Document], ...] = (RttResult,)

    def needs(self, spec: RttSpec) -> Mapping[str, int | None]:
        """Return the payload rate of its packets."""
        return traffic(spec.length * 8, spec.interval)

    def expected_bytes(self, spec: RttSpec, mbps: int | None) -> int:
        """Return its packets and their answers."""
        return 2 * spec.count * spec.length

    def shortfall(self, spec: RttSpec, result: RttResult) -> str | None:
        """Return which counts contradict each other; None if none do."""
        if result.received + result.late <= result.sent <= spec.count and result.sent:
            return None
        counts = f"{result.sent} sent, {result.received} received, {result.late} late"
        return f"its counts contradict each other: {counts} of {spec.count}"

    def summary(self, result: Result) -> str:
        """Return ``20.41 ms, loss 1 %, jitter 0.20 ms``."""
        figures = RttResult.model_validate(result)
        loss = f"loss {percent_text(figures.loss)}"
        error = f" ({figures.errors[0]})" if figures.errors else ""
        if figures.rtt_ms is None:
            text = "answers without a time" if figures.received else "no answer"
            return f"{text}, {loss}{error}"
        median_ms = figures.rtt_ms.median
        usual = f"mean {delay_text(figures.rtt_ms.mean)}"
        text = f"{usual if median_ms is None else delay_text(median_ms)}, {loss}"
        if figures.jitter_ms is not None:
            text += f", jitter {delay_text(figures.jitter_ms)}"
        return text

    def metrics(self, result: Result) -> tuple[Metric, ...]:
        """Return round-trip times, loss and jitter."""
        figures = RttResult.model_validate(result)
        return (
            *delay_metrics("rtt", figures.rtt_ms),
            *metric("loss", figures.loss, "1"),
            *metric("jitter_ms", figures.jitter_ms, "ms"),
        )


TEST = RttTest()
