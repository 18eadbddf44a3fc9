"""The common parts of one-way delay tests: each end's part, and how both are merged. Pure.

The source sends numbered packets, and dest sends each one back. The counts of both ends show how
many packets were lost on the way there and how many on the way back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final, Literal, Protocol, Self, TypeVar

from pydantic import Field

from node.model.clocks import combined_bound_ms
from node.model.wire.fields import Document, Host, is_absent
from node.plugins.contracts import Metric, Part
from node.plugins.distribution import both_ways
from node.plugins.fields import CountField, Finite, Fraction, IpVersion, NonNegative, Port
from node.plugins.figures import (
    DelayFigures,
    delay_figures,
    delay_metrics,
    delay_text,
    jitter,
    metric,
    milliseconds,
    percent_text,
    share,
    traffic,
)
from node.plugins.outline import BetweenTwo, PairTest, check_two
from node.plugins.participation import joined_reasons, part_of

_MICROSECONDS_PER_MS = 1000

LENGTH_BASE = 44  # octets of a STAMP packet without extensions, RFC 8762 section 4
LENGTH_LEAST_PADDED = 48  # padding is a TLV with a header of four octets, RFC 8972 section 4.1

OWAMP: Final = "owamp"
OWAMP_PORT = 861
_NODE: Final = "node"

Source = Annotated[
    Host | None, Field(description="The host that sends; by default the lead itself.")
]
Dest = Annotated[
    Host | None,
    Field(description="The host that reflects; required here or in `participants`."),
]
Responder = Annotated[
    Literal["node", "owamp"],
    Field(
        description="What answers at dest: `node`, a node that takes part; `owamp`, a server of "
        "OWAMP (RFC 4656) that is none, such as owampd.",
        exclude_if=lambda responder: responder == _NODE,
    ),
]
Length = Annotated[
    int,
    Field(
        ge=LENGTH_BASE,
        le=8952,
        strict=True,
        description="The UDP payload in bytes: 44, or 48 to 8952 with padding (RFC 8972).",
    ),
]
Version = Annotated[
    IpVersion | None, Field(description="4 or 6; by default the version of the addresses.")
]
DestPort = Annotated[
    Port | None,
    Field(
        description="The UDP port of dest; by default assigned by its node. Of a server of OWAMP "
        "the TCP port at which it is asked; by default 861."
    ),
]

_UNREACHABLE = "dest's port was unreachable: a firewall, or the reflector was not running then"


class _Sending(BetweenTwo, Protocol):
    @property
    def responder(self) -> str: ...

    @property
    def port(self) -> int | None: ...

    @property
    def length(self) -> int: ...

    @property
    def interval(self) -> int: ...


class HostClock(Document):
    """The state of a host's clock, as its kernel reports it."""

    synchronised: bool | None = Field(
        description="Whether the kernel considers its clock synchronised; null if not reported."
    )
    error_bound_ms: NonNegative | None = Field(
        description="The kernel's bound of the clock's error in milliseconds, if synchronised."
    )
    stepped_ms: Finite | None = Field(
        description="By how much the clock moved against steady time during the run, milliseconds; "
        "null of a host that is no node."
    )
    identity: str = Field(
        max_length=64, description="Equal on two participants that share one and the same clock."
    )


class DelaysBothWays(Document):
    """Delays of the packets that came back in time, in milliseconds."""

    forward: DelayFigures | None = Field(description="From source to dest.")
    backward: DelayFigures | None = Field(description="From dest to source.")
    round_trip: DelayFigures | None = Field(
        description="There and back, without the time spent in dest."
    )


class JitterBothWays(Document):
    """Mean absolute inter-packet delay variation (RFC 3393, RFC 5481 section 4.1), milliseconds."""

    forward: NonNegative | None = Field(description="From source to dest.")
    backward: NonNegative | None = Field(description="From dest to source.")
    round_trip: NonNegative | None = Field(description="There and back.")


class CountsBothWays(Document):
    """Numbers of packets; null for a direction whose counting end is missing."""

    forward: CountField | None = Field(description="On the way from source to dest.")
    backward: CountField | None = Field(description="On the way from dest to source.")


class LossBothWays(Document):
    """Lost packets as fractions, 0 to 1."""

    forward: Fraction | None = Field(description="Of those sent: did not reach dest.")
    backward: Fraction | None = Field(description="Of those that reached dest: did not come back.")
    round_trip: Fraction = Field(description="Of those sent: did not come back in time.")


class Histogram(Document):
    """The number of packets by delay."""

    width_ms: NonNegative = Field(description="The width of the buckets, milliseconds.")
    buckets: tuple[tuple[Annotated[int, Field(ge=-(2**62), le=2**62)], CountField], ...] = Field(
        max_length=100,
        description="Pairs of a bucket's lower bound divided by the width, and its packets.",
    )


class HistogramsBothWays(Document):
    """Histograms of the delays of the packets that came back in time."""

    forward: Histogram = Field(description="From source to dest.")
    backward: Histogram = Field(description="From dest to source.")
    round_trip: Histogram = Field(description="There and back.")


class SourcePart(Document):
    """The sending participant's part; null is what its tool cannot know.

    ``received_at_dest`` is what dest reported in its answers, for tools whose dest part lacks it;
    ``reordered_forward`` and ``dest_clock`` are what a dest told that is no node.
    """

    sent: CountField
    unsent: CountField
    received_back: CountField
    received_at_dest: CountField | None = None
    late: CountField
    unreachable: CountField | None
    duplicates_forward: CountField | None
    duplicates_backward: CountField | None
    reordered_forward: CountField | None = Field(default=None, exclude_if=is_absent)
    reordered_backward: CountField | None
    delay_ms: DelaysBothWays
    jitter_ms: JitterBothWays
    hops_forward: CountField | None
    hops_backward: CountField | None
    clock: HostClock
    dest_clock: HostClock | None = Field(default=None, exclude_if=is_absent)
    histogram: HistogramsBothWays | None = Field(default=None, exclude_if=is_absent)


class DestPart(Document):
    """The reflecting participant's part; null is what its tool cannot know."""

    received: CountField | None
    duplicates: CountField | None
    reordered: CountField | None
    strays: CountField | None
    unsent: CountField | None
    clock: HostClock

    @classmethod
    def without_figures(cls, clock: HostClock) -> Self:
        """Return the part of a dest whose server prints no figures: only its clock."""
        return cls(
            received=None,
            duplicates=None,
            reordered=None,
            strays=None,
            unsent=None,
            clock=clock,
        )


class Clocks(Document):
    """The clocks of both participants."""

    source: HostClock = Field(description="The clock of source.")
    dest: HostClock | None = Field(description="The clock of dest; null if its part is missing.")


class OneWayResult(Document):
    """Delay, loss and delay variation, each way."""

    sent: CountField = Field(description="Packets sent by source.")
    received_at_dest: CountField | None = Field(description="Different packets that reached dest.")
    received_back: CountField = Field(description="Different packets that came back in time.")
    late: CountField = Field(description="Packets that came back after the timeout; they are lost.")
    loss: LossBothWays = Field(description="Lost packets as fractions, 0 to 1.")
    delay_ms: DelaysBothWays = Field(description="Delays in milliseconds.")
    jitter_ms: JitterBothWays = Field(
        description="Mean absolute delay variation of consecutive packets (RFC 3393), milliseconds."
    )
    duplicates: CountsBothWays = Field(description="Packets that arrived more than once.")
    reordered: CountsBothWays = Field(description="Packets that arrived out of order (RFC 4737).")
    hops: CountsBothWays = Field(description="Routers passed, from the packets' TTL of 255.")
    unreachable: CountField | None = Field(
        description="ICMP errors: nothing listened at dest; null if the tool does not tell."
    )
    strays: CountField | None = Field(description="Packets at dest that were not of this run.")
    clocks: Clocks = Field(description="How far the one-way delays can be trusted.")
    clocks_synchronised: bool = Field(
        description="Whether both clocks are synchronised, or are the same clock."
    )
    clock_error_ms: NonNegative | None = Field(
        description="The bound of the one-way delays' error in milliseconds; null if unknown."
    )
    histogram: HistogramsBothWays | None = Field(
        default=None,
        exclude_if=is_absent,
        description="The number of packets by delay, in at most 50 buckets each way.",
    )


def delays_and_jitter(
    ways_ns: Mapping[int, tuple[int, int]],
) -> tuple[DelaysBothWays, JitterBothWays]:
    """Return the figures of packets: their numbers map to the nanoseconds there and back."""
    forward = {at: milliseconds(there) for at, (there, _) in ways_ns.items()}
    backward = {at: milliseconds(back) for at, (_, back) in ways_ns.items()}
    round_trip = {at: delay_ms + backward[at] for at, delay_ms in forward.items()}
    delays = DelaysBothWays(
        forward=delay_figures(list(forward.values())),
        backward=delay_figures(list(backward.values())),
        round_trip=delay_figures(list(round_trip.values())),
    )
    jitters = JitterBothWays(
        forward=jitter(forward), backward=jitter(backward), round_trip=jitter(round_trip)
    )
    return delays, jitters


def histogram_of(width_us: int, buckets: Mapping[int, int]) -> Histogram:
    """Return a histogram of microseconds as results have it."""
    return Histogram(
        width_ms=width_us / _MICROSECONDS_PER_MS, buckets=tuple(sorted(buckets.items()))
    )


def histograms(ways_ns: Mapping[int, tuple[int, int]]) -> HistogramsBothWays:
    """Return the number of packets by delay: their numbers map to the nanoseconds there and back.

    As in intervals of streams, delays are cut to microseconds, and buckets widened if need be.
    """
    counted = both_ways(ways_ns)["histogram_us"]
    return HistogramsBothWays(
        **{way: histogram_of(each["width"], dict(each["buckets"])) for way, each in counted.items()}
    )


class Figures(Protocol):
    """The two-way figures of a result."""

    @property
    def delay_ms(self) -> DelaysBothWays:
        """Delays in milliseconds."""
        ...

    @property
    def loss(self) -> LossBothWays:
        """Lost packets as fractions."""
        ...

    @property
    def jitter_ms(self) -> JitterBothWays:
        """Delay variation in milliseconds."""
        ...

    @property
    def clocks_synchronised(self) -> bool:
        """True if the one-way delays are meaningful."""
        ...

    @property
    def clock_error_ms(self) -> float | None:
        """The bound of their error in milliseconds."""
        ...


def summary_text(figures: Figures) -> str:
    """Return ``20.41 ms there, 0.21 ms back, loss 1 % / 0 %, jitter 0.20 ms``."""
    lost = _loss_text(figures.loss)
    there, back = figures.delay_ms.forward, figures.delay_ms.backward
    if there is None or back is None:
        return f"no packet came back, {lost}"
    text = f"{delay_text(there.median)} there, {delay_text(back.median)} back, {lost}"
    if figures.jitter_ms.forward is not None:
        text += f", jitter {delay_text(figures.jitter_ms.forward)}"
    return text if figures.clocks_synchronised else f"{text} (clocks not synchronised)"


def both_ways_metrics(figures: Figures) -> tuple[Metric, ...]:
    """Return delay, loss and jitter by direction, and the bound of the one-way delays' error."""
    metrics: tuple[Metric, ...] = ()
    for direction in ("forward", "backward", "round_trip"):
        labels = {"direction": direction}
        metrics += delay_metrics("delay", getattr(figures.delay_ms, direction), labels)
        metrics += metric("loss", getattr(figures.loss, direction), "1", labels)
        metrics += metric("jitter_ms", getattr(figures.jitter_ms, direction), "ms", labels)
    return metrics + metric("clock_error_ms", figures.clock_error_ms, "ms")


def find_contradiction(source: SourcePart | None, dest: DestPart | None) -> str | None:
    """Return why the counts of two parts contradict each other; ``None`` if they do not.

    A part may be missing. A source alone is judged if it has the counts of a dest that is no node.
    """
    if source is None or (dest is None and source.dest_clock is None):
        return None
    arrived = _arrived_count(source, dest)
    if arrived is None:
        return None
    return contradicting_counts(source.sent, arrived, source.received_back) or explain_no_packets(
        source.unreachable, arrived
    )


def contradicting_counts(sent: int, arrived: int, back: int) -> str | None:
    """Return why these packet counts are impossible; None if they are possible."""
    if back <= arrived <= sent:
        return None
    counts = f"{sent} sent, {arrived} at dest, {back} back"
    return f"the participants' counts contradict each other: {counts}"


def explain_no_packets(unreachable: int | None, arrived: int) -> str | None:
    """Return why no packet reached dest, if ICMP errors (``unreachable``) tell."""
    return _UNREACHABLE if unreachable and not arrived else None


def _arrived_count(source: SourcePart, dest: DestPart | None) -> int | None:
    """Return how many different packets reached dest, as it counted or as it told source."""
    if dest is None or dest.received is None:
        return source.received_at_dest
    return dest.received


def merge_ends(source: SourcePart, dest: DestPart | None) -> OneWayResult:
    """Merge what both ends saw, or the source alone if dest's part is missing."""
    arrived = _arrived_count(source, dest)
    dest_clock = dest.clock if dest else source.dest_clock
    error_ms = combined_bound_ms(source.clock, dest_clock) if dest_clock else None
    return OneWayResult(
        sent=source.sent,
        received_at_dest=arrived,
        received_back=source.received_back,
        late=source.late,
        loss=loss_of(source.sent, arrived, source.received_back),
        delay_ms=source.delay_ms,
        jitter_ms=source.jitter_ms,
        duplicates=CountsBothWays(
            # The reflector also counts the duplicates whose answers were lost on the way back.
            forward=dest.duplicates if dest else source.duplicates_forward,
            backward=source.duplicates_backward,
        ),
        reordered=CountsBothWays(
            forward=dest.reordered if dest else source.reordered_forward,
            backward=source.reordered_backward,
        ),
        hops=CountsBothWays(forward=source.hops_forward, backward=source.hops_backward),
        unreachable=source.unreachable,
        strays=dest.strays if dest else None,
        clocks=Clocks(source=source.clock, dest=dest_clock),
        clocks_synchronised=error_ms is not None,
        clock_error_ms=error_ms,
        histogram=source.histogram,
    )


def loss_of(sent: int, arrived: int | None, back: int) -> LossBothWays:
    """Return lost packets by direction; the number that arrived at dest may be unknown."""
    return LossBothWays(
        forward=None if arrived is None else share(sent - arrived, sent),
        backward=None if arrived is None else share(arrived - back, arrived),
        round_trip=share(sent - back, sent),
    )


def _loss_text(loss: LossBothWays) -> str:
    if loss.forward is None or loss.backward is None:
        return f"loss {percent_text(loss.round_trip)}"
    return f"loss {percent_text(loss.forward)} / {percent_text(loss.backward)}"


SentPart = TypeVar("SentPart", bound=SourcePart)


def parts_of(
    spec: _Sending, parts: Sequence[Part], model: type[SentPart]
) -> tuple[SentPart | None, DestPart | None, str | None]:
    """Return the part of source, that of dest if it takes part, and the reason against them."""
    source, source_reason = part_of(parts, 0, model)
    dest, dest_reason = part_of(parts, 1, DestPart) if is_node(spec) else (None, None)
    return (
        source,
        dest,
        joined_reasons(source_reason, dest_reason, find_contradiction(source, dest)),
    )


def is_node(spec: _Sending) -> bool:
    """Return whether dest takes part, and is no mere target."""
    return spec.responder == _NODE


def not_between_nodes(tool: str, spec: Any) -> str | None:
    """Return why a tool that measures between nodes cannot measure this spec; None if it can."""
    responder = getattr(spec, "responder", _NODE)
    if responder == _NODE:
        return None
    return f"{tool} measures between nodes, and dest answers {responder} only"


def check_packets(spec: _Sending) -> None:
    """Refuse packets that source cannot send to dest.

    :raises ValueError: both are the same host, or no packet has this length.
    """
    check_two(spec)
    if LENGTH_BASE < spec.length < LENGTH_LEAST_PADDED:
        raise ValueError(f"length is 44 or at least 48, not {spec.length}")


class OneWayTest(PairTest):
    """The half of a one-way delay test that does not depend on how long it lasts."""

    resources: tuple[str, ...] = ("mbps",)
    unprompted = True

    def places_of(self, spec: _Sending) -> tuple[str, ...]:
        """Return source, and dest unless it is a mere target."""
        return self.places if is_node(spec) else self.places[:1]

    def target_port(self, spec: _Sending) -> int | None:
        """Return the port at which a server that is no node is asked."""
        return None if is_node(spec) else spec.port or OWAMP_PORT

    def telling(self, spec: _Sending) -> str | None:
        """Return None: results do not tell what a target sends."""
        return None

    def needs(self, spec: _Sending) -> Mapping[str, int | None]:
        """Return the payload rate of its packets."""
        return traffic(spec.length * 8, spec.interval)
