"""The path from one participant to any host: hop by hop, with round-trip times. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from node.model.times import SECOND
from node.model.wire.fields import Document, Duration, Host
from node.plugins.contracts import Metric, Result
from node.plugins.fields import (
    Asker,
    CountField,
    NonNegative,
    VersionOfDest,
    between,
    flag_field,
    whole_field,
)
from node.plugins.figures import delay_text, metric
from node.plugins.outline import TargetTest
from node.plugins.plausibility import Notes

HOPS_MAX = 64
PROBES_MAX = 10
PROBES_DEFAULT = 3
WAIT_DEFAULT = 2 * SECOND
TCP_PORT_DEFAULT = 80
_LENGTH_USUAL = 60

Protocol = Literal["udp", "icmp", "tcp"]
Address = Annotated[str, Field(max_length=100)]
Ttl = Annotated[int, Field(ge=1, le=255)]


class TraceSpec(Document):
    """The destination, the packets to send, and how long to wait for answers."""

    source: Asker = None
    dest: Host = Field(description="The host at the end of the path; any host, not only a node.")
    protocol: Protocol = Field(
        default="udp", description="What is sent: UDP to unused ports, ICMP echo, or TCP SYN."
    )
    port: int | None = whole_field(None, 1, 65_535, "TCP's port; by default 80.")
    hops_max: int = whole_field(30, 1, HOPS_MAX, "Maximum number of hops.")
    probes: int | None = whole_field(
        None,
        1,
        PROBES_MAX,
        "Packets per hop; by default three, or one if the tool supports nothing else.",
    )
    wait: Annotated[Duration, between(SECOND, 10 * SECOND)] | None = Field(
        default=None,
        description="A packet not answered after this is lost, PT1S to PT10S; "
        "by default PT2S, or the tool's own default.",
    )
    length: int | None = whole_field(
        None, 60, 9000, "Bytes of each packet with all headers; by default the tool's own default."
    )
    names: bool = flag_field("Whether to look up the names of the hops.")
    as_numbers: bool = flag_field(
        "Whether to look up the autonomous systems of the hops in public registries."
    )
    ip_version: VersionOfDest = None

    @model_validator(mode="after")
    def _check_fields(self) -> TraceSpec:
        if self.port is not None and self.protocol != "tcp":
            raise ValueError(f"port applies only to tcp, not to {self.protocol}")
        if self.length is not None and self.protocol == "tcp":
            raise ValueError("a TCP SYN carries no data; leave out length")
        return self


class HopAddress(Document):
    """An address that answered at a hop."""

    address: Address = Field(description="The address that answered.")
    name: str | None = Field(None, max_length=253, description="Its name, if looked up.")
    as_numbers: tuple[int, ...] = Field(
        (), max_length=20, description="The autonomous systems that announce it, if looked up."
    )
    rtts_ms: tuple[NonNegative, ...] = Field(
        max_length=100, description="The round-trip time of each answer, in milliseconds."
    )
    said: str | None = Field(
        None,
        max_length=20,
        description="Why it forwards no further, as traceroute prints it: !N network unreachable, "
        "!H host, !P protocol, !X prohibited, !F too long, !<13> an ICMP code.",
    )


class Hop(Document):
    """The answers of one hop."""

    ttl: Ttl = Field(description="The number of the hop, from 1.")
    addresses: tuple[HopAddress, ...] = Field(
        max_length=100, description="The addresses that answered; several where paths diverge."
    )
    lost: CountField = Field(description="Packets without an answer.")


class TraceResult(Document):
    """The path as far as it was visible."""

    address: Address = Field(description="The address at the end of the path.")
    protocol: Protocol = Field(description="The protocol of the packets.")
    reached: bool = Field(description="Whether dest itself answered.")
    paris: bool = Field(
        description="Whether routers that balance load by flow saw all packets as one, so that "
        "the hops are those of one path."
    )
    hops: tuple[Hop, ...] = Field(
        max_length=255, description="The hops in order, up to the last one that answered."
    )
    hops_tried: CountField = Field(description="The farthest hop that packets were sent to.")
    path: tuple[Address | None, ...] = Field(
        max_length=255,
        description="For comparisons: the address of each hop that answered most, or null.",
    )
    notes: Notes = ()


class TraceTest(TargetTest):
    """The path to a host."""

    name = "trace"
    title = "Path, hop by hop"
    example: Mapping[str, Any] = {"dest": "192.0.2.7"}
    spec_model: type[Document] = TraceSpec
    result_model: type[Document] = TraceResult
    part_models: tuple[type[Document], ...] = (TraceResult,)

    def inward(self, spec: TraceSpec) -> str | None:
        """Return the names that the host's own resolvers have for hops, if they are looked up."""
        return "the names that this host's own resolvers have for hops" if spec.names else None

    def expected_bytes(self, spec: TraceSpec, mbps: int | None) -> int:
        """Return the packets to all hops that it may ask, and as much for their answers."""
        return 2 * spec.hops_max * (spec.probes or PROBES_DEFAULT) * (spec.length or _LENGTH_USUAL)

    def summary(self, result: Result) -> str:
        """Return ``3 hops to 192.0.2.1, 20.41 ms`` or ``stops after hop 4 (192.0.2.9)``."""
        trace = TraceResult.model_validate(result)
        if not trace.hops:
            return f"no hop answered, {_hops_text(trace.hops_tried)} tried"
        last = trace.hops[-1]
        said = next((each.said for each in last.addresses if each.said), None)
        if trace.reached:
            rtt_ms = _rtt_ms(last)
            took = "" if rtt_ms is None else f", {delay_text(rtt_ms)}"
            refusal = f", which says {said}" if said else ""
            return f"{_hops_text(last.ttl)} to {trace.address}{took}{refusal}"
        error = f" says {said}" if said else ""
        return f"stops after hop {last.ttl} ({trace.path[-1]}{error})"

    def metrics(self, result: Result) -> tuple[Metric, ...]:
        """Return the number of hops, the round-trip time, and whether dest was reached."""
        trace = TraceResult.model_validate(result)
        last = trace.hops[-1] if trace.hops else None
        rtt_ms = _rtt_ms(last) if last is not None and trace.reached else None
        return (
            *metric("hops", None if last is None else last.ttl, "hops"),
            *metric("rtt_median_ms", rtt_ms, "ms"),
            *metric("reached", float(trace.reached), "1"),
        )


def _hops_text(hops: int) -> str:
    return "1 hop" if hops == 1 else f"{hops} hops"


def _rtt_ms(hop: Hop) -> float | None:
    """Return the median of all answers, in milliseconds."""
    rtts_ms = [rtt_ms for each in hop.addresses for rtt_ms in each.rtts_ms]
    return statistics.median(rtts_ms) if rtts_ms else None


TEST = TraceTest()
