"""One-way and round-trip delay, loss and delay variation between two participants. Pure.

Participant 0 (``source``) sends numbered packets, participant 1 (``dest``) sends each one back.
The counts of both ends show how many packets were lost on the way there and how many on the way
back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from pydantic import model_validator

from node.model.classes import SchedulingClass
from node.model.times import MILLISECOND, SECOND
from node.model.wire.fields import Document, Duration
from node.plugins import oneway
from node.plugins.contracts import Merged, Metric, Part, Result
from node.plugins.fields import between, check_packet_total, duration_field, flag_field, whole_field
from node.plugins.oneway import LENGTH_BASE, OneWayResult, SourcePart


class LatencySpec(Document):
    """The packets to send: how many, how often, and how long to wait for them."""

    source: oneway.Source = None
    dest: oneway.Dest = None
    count: int = whole_field(100, 1, 36_000, "The number of packets.")
    interval: Annotated[Duration, between(MILLISECOND, 10 * SECOND)] = duration_field(
        100 * MILLISECOND, "The time from one packet to the next, PT0.001S to PT10S."
    )
    timeout: Annotated[Duration, between(10 * MILLISECOND, 60 * SECOND)] = duration_field(
        SECOND, "A packet that is not back after this is lost, PT0.01S to PT1M."
    )
    length: oneway.Length = LENGTH_BASE
    ip_version: oneway.Version = None
    port: oneway.DestPort = None
    responder: oneway.Responder = "node"
    histogram: bool = flag_field(
        "Whether to count the packets by delay, in the result's `histogram`.", default=True
    )

    @model_validator(mode="after")
    def _check_fields(self) -> LatencySpec:
        oneway.check_packets(self)
        check_packet_total(self.count, self.interval)
        return self


class LatencyResult(OneWayResult):
    """Delay, loss and delay variation, each way."""


class LatencyTest(oneway.OneWayTest):
    """Delay, loss and delay variation, each way."""

    name = "latency"
    title = "One-way and round-trip delay, loss and jitter"
    # Throughput tests disturb it, other normal runs do not.
    run_class = SchedulingClass.NORMAL
    example: Mapping[str, Any] = {"dest": "b.example"}
    spec_model: type[Document] = LatencySpec
    result_model: type[Document] = LatencyResult
    part_models: tuple[type[Document], ...] = (SourcePart, oneway.DestPart)

    def expected_bytes(self, spec: LatencySpec, mbps: int | None) -> int:
        """Return its packets and their answers."""
        return 2 * spec.count * spec.length

    def merge(self, spec: LatencySpec, parts: Sequence[Part]) -> Merged:
        """Merge source's delays and both ends' counts; source alone gives a partial result."""
        source, dest, reason = oneway.parts_of(spec, parts, SourcePart)
        result = oneway.merge_ends(source, dest) if source else None
        return Merged(result.model_dump(mode="json") if result else None, reason)

    def summary(self, result: Result) -> str:
        """Return ``20.41 ms there, 0.21 ms back, loss 1 % / 0 %, jitter 0.20 ms``."""
        return oneway.summary_text(LatencyResult.model_validate(result))

    def metrics(self, result: Result) -> tuple[Metric, ...]:
        """Return delay, loss and jitter of each direction, and of the round trip."""
        return oneway.both_ways_metrics(LatencyResult.model_validate(result))


TEST = LatencyTest()
