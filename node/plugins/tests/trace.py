"""The path from one participant to any host: hop by hop, with round-trip times. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from node.model.times import SECOND
from node.model.wire.fields import Document, Duration, Host
from node.plugins.contracts import Merged, Metric, Part, Result
from node.plugins.fields import CountField, IpVersion, NonNegative, between
from node.plugins.figures import delay_text, metric
from node.plugins.participation import part_of
from node.plugins.single_participant import LoneTestOfDest

HOPS_MAX = 64
PROBES_MAX = 10
PROBES_DEFAULT = 3
WAIT_DEFAULT = 2 * SECOND
TCP_PORT_DEFAULT = 80

Protocol = Literal["udp", "icmp", "tcp"]
Address = Annotated[str, Field(max_length=100)]
Ttl = Annotated[int, Field(ge=1, le=255)]


class TraceSpec(Document):
    """Whither, with which packets, and how long to wait for the answers."""

    source: Host | None = Field(
        default=None, description="The host that asks; left out, the lead itself."
    )
    dest: Host = Field(description="The host at the end of the path; any host, not only a node.")
    protocol: Protocol = Field(
        default="udp", description="What is sent: UDP to unused ports, ICMP echo, or TCP SYN."
    )
    port: int | None = Field(
        default=None, ge=1, le=65_535, strict=True, description="TCP's port; left out, 80."
    )
    hops_max: int = Field(
        default=30, ge=1, le=HOPS_MAX, strict=True, description="How many hops to try at most."
    )
    probes: int | None = Field(
        default=None,
        ge=1,
        le=PROBES_MAX,
        strict=True,
        description="Packets for each hop; left out, three, or one if the tool knows no other way.",
    )
    wait: Annotated[Duration, between(SECOND, 10 * SECOND)] | None = Field(
        default=None,
        description="A packet not answered after this is lost, PT1S to PT10S; "
        "left out, PT2S, or what the tool is made for.",
    )
    length: int | None = Field(
        default=None,
        ge=60,
        le=9000,
        strict=True,
        description="Bytes of each packet with all headers; left out, what the tool sends.",
    )
    names: bool = Field(
        default=False, strict=True, description="Whether to look up the names of the hops."
    )
    as_numbers: bool = Field(
        default=False,
        strict=True,
        description="Whether to look up the autonomous systems of the hops in public registries.",
    )
    ip_version: IpVersion | None = Field(
        default=None, description="4 or 6; left out, what dest's address is."
    )

    @model_validator(mode="after")
    def _is_sound(self) -> TraceSpec:
        if self.port is not None and self.protocol != "tcp":
            raise ValueError(f"a port is for tcp, not for {self.protocol}")
        if self.length is not None and self.protocol == "tcp":
            raise ValueError("a TCP SYN carries no data, so tcp takes no length")
        return self


class HopAddress(Document):
    """An address that answered at a hop."""

    address: Address = Field(description="The address that answered.")
    name: str | None = Field(None, max_length=253, description="Its name, if that was looked up.")
    as_numbers: tuple[int, ...] = Field(
        (), max_length=20, description="The autonomous systems it is registered for, if looked up."
    )
    rtts_ms: tuple[NonNegative, ...] = Field(
        max_length=100, description="The round-trip time of each answer, in milliseconds."
    )
    said: str | None = Field(
        None,
        max_length=20,
        description="Why it forwards nothing, as traceroute writes it: !N no way to the network, "
        "!H to the host, !P protocol, !X forbidden, !F too long, !<13> an ICMP code.",
    )


class Hop(Document):
    """What is known of one hop."""

    ttl: Ttl = Field(description="The number of the hop, from 1.")
    addresses: tuple[HopAddress, ...] = Field(
        max_length=100, description="Who answered; more than one where paths part."
    )
    lost: CountField = Field(description="Packets that nobody answered.")


class TraceResult(Document):
    """The path as far as it could be seen."""

    address: Address = Field(description="The address at the end of the path.")
    protocol: Protocol = Field(description="What was sent.")
    reached: bool = Field(description="Whether dest itself answered.")
    paris: bool = Field(
        description="Whether all packets looked alike to routers that share load by flows, so that "
        "the hops are those of one path."
    )
    hops: tuple[Hop, ...] = Field(
        max_length=255, description="The hops in order; up to the last one that answered."
    )
    hops_tried: CountField = Field(description="The hop up to which packets were sent.")
    path: tuple[Address | None, ...] = Field(
        max_length=255,
        description="For comparing: for each hop the address that answered most; null is none.",
    )


class TraceTest(LoneTestOfDest):
    """The path to a host."""

    name = "trace"
    title = "Path, hop by hop"
    example: Mapping[str, Any] = MappingProxyType({"dest": "192.0.2.7"})
    spec_model: type[Document] = TraceSpec
    result_model: type[Document] = TraceResult

    def merge(self, spec: TraceSpec, parts: Sequence[Part]) -> Merged:  # noqa: ARG002 - contract
        """The one part is the result; a path that ends early is one, too."""
        part, reason = part_of(parts, 0, TraceResult)
        return Merged(part.model_dump(mode="json") if part else None, reason)

    def summary(self, result: Result) -> str:
        """``3 hops to 192.0.2.1, 20.41 ms`` or ``stops after hop 4 (192.0.2.9)``."""
        trace = TraceResult.model_validate(result)
        if not trace.hops:
            return f"no hop answered, {_counted(trace.hops_tried)} tried"
        last = trace.hops[-1]
        if trace.reached:
            rtt_ms = _rtt_ms(last)
            took = "" if rtt_ms is None else f", {delay_text(rtt_ms)}"
            return f"{_counted(last.ttl)} to {trace.address}{took}"
        said = next((each.said for each in last.addresses if each.said), None)
        says = f" says {said}" if said else ""
        return f"stops after hop {last.ttl} ({trace.path[-1]}{says})"

    def metrics(self, result: Result) -> tuple[Metric, ...]:
        """How far it is, how long that takes, and whether it was reached."""
        trace = TraceResult.model_validate(result)
        last = trace.hops[-1] if trace.hops else None
        rtt_ms = _rtt_ms(last) if last is not None and trace.reached else None
        return (
            *metric("hops", None if last is None else last.ttl, "hops"),
            *metric("rtt_median_ms", rtt_ms, "ms"),
            *metric("reached", float(trace.reached), "1"),
        )


def _counted(hops: int) -> str:
    return "1 hop" if hops == 1 else f"{hops} hops"


def _rtt_ms(hop: Hop) -> float | None:
    """The median of all answers, in milliseconds."""
    rtts_ms = [rtt_ms for each in hop.addresses for rtt_ms in each.rtts_ms]
    return statistics.median(rtts_ms) if rtts_ms else None


TEST = TraceTest()
