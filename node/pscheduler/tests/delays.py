"""pScheduler's latency and latencybg: one-way delays and loss, once or without end. Pure.

Both measure one way, from source to dest. Ours measure both ways at once, so that the way from
source to dest is told, of the packets whose answers came back. Two nodes measure with STAMP; a dest
that is no node is asked by OWAMP, as perfSONAR's owping and powstream do it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from node.model.times import SECOND
from node.plugins.oneway import LENGTH_BASE, LENGTH_LEAST_PADDED, OWAMP
from node.plugins.tests.latency import TEST as LATENCY
from node.plugins.tests.latencybg import TEST as LATENCYBG
from node.pscheduler import times
from node.pscheduler.refusals import impossible
from node.pscheduler.tests import members as types
from node.pscheduler.tests.contract import Document, Outcome, ParleyTest, Participants
from node.pscheduler.tests.language import (
    STREAM_LONGEST,
    Language,
    our_test,
    runs_of_stream,
    single_participant,
    with_consecutive_runs,
)
from node.pscheduler.tests.members import Member
from node.pscheduler.tests.options import Option, integer, number, on, seconds_duration, text
from node.pscheduler.times import parse_duration

INTERVAL_S = 0.1
_COUNT, _COUNT_EACH = 100, 600
"""Packets of a latency, and of an interval of a latencybg."""
_OVERHEAD = 1.1
"""Sending takes this much longer than planned."""
_READ_PER_S = 50_000
_CONTROL_S = 5
_BUCKET_S = 0.001
_DECIMALS = 2
_WIDTH = 22
_QUANTILES = (25, 75, 95)
_TOOLS = {"owamp": "stamp", "stamp": "stamp", "irtt": "irtt"}
"""Our tool between two nodes by the protocol that is asked for."""


def data_ports(value: Any) -> str | None:
    """Return a complaint unless the value is a range of ports."""
    ends = ("lower", "upper")
    if isinstance(value, dict) and value.keys() == set(ends):
        return next(filter(None, (types.port(value[end]) for end in ends)), None)
    return "must be an object with the ports lower and upper"


def port_range(told: str) -> Document:
    """Return first and last port of a text like ``8760-9960``, as pScheduler's spec has them.

    :raises ValueError: it is no range.
    """
    lower, _, upper = told.partition("-")
    if not (lower.isdecimal() and upper.isdecimal()):
        raise ValueError(f"'{told}' is not a range of ports; write 8760-9960")
    return {"lower": int(lower), "upper": int(upper)}


def positive(below: float = math.inf) -> types.Check:
    """Return a check that accepts numbers above zero and below ``below``."""
    limit = "" if below == math.inf else f" and below {below:g}"

    def check(value: Any) -> str | None:
        if types.number(value) is None and 0 < value < below:
            return None
        return f"must be a number above 0{limit}"

    return check


def not_negative(value: Any) -> str | None:
    """Return a complaint unless the value is a number from zero on."""
    return None if types.number(value) is None and value >= 0 else "must be a number of at least 0"


ENDS: tuple[Option, ...] = (
    text("-s --source", "Host or address that sends"),
    text("--source-node", "Node that sends, if it has another name than the source"),
    text("-d --dest", "Host or address that receives"),
    text("--dest-node", "Node that receives, if it has another name than the dest"),
    text("--protocol", "Protocol to measure with"),
    integer("-c --packet-count", "Number of packets"),
)
PACKETS: tuple[Option, ...] = (
    number("-i --packet-interval", "Seconds from one packet to the next"),
    number("-L --packet-timeout", "Seconds after which a packet counts as lost"),
    integer("-p --packet-padding", "Bytes that are added to each packet"),
    integer("-C --ctrl-port", "Port of the control connection"),
    text("-P --data-ports", "Ports of the packets, such as 8760-9960", read=port_range),
    integer("-T --ip-tos", "Octet of the type of service"),
    integer("--ip-version", "Version of the Internet Protocol: 4 or 6"),
    number("-b --bucket-width", "Seconds that a step of the histogram stands for"),
    on("-f --flip", "Begin at the dest instead of the source"),
)
RAW = on("-R --output-raw", "Tell each packet")

MEMBERS: Mapping[str, Member] = {
    "dest": Member(types.host, required=True, ours="dest"),
    "source": Member(types.host, ours="source"),
    "source-node": Member(types.host_and_port),
    "dest-node": Member(types.host_and_port),
    "packet-count": Member(types.cardinal),
    "packet-interval": Member(positive()),
    "packet-timeout": Member(not_negative),
    "packet-padding": Member(types.cardinal_or_zero),
    "ctrl-port": Member(types.port),
    "data-ports": Member(data_ports),
    "ip-tos": Member(types.octet),
    "ip-version": Member(types.ip_version, ours="ip_version"),
    "bucket-width": Member(positive(1)),
    "output-raw": Member(types.boolean),
    "flip": Member(types.boolean),
}


@dataclass(frozen=True)
class Ends:
    """The hosts of a measurement: node and address of each, in the order of the packets' way."""

    nodes: tuple[str, str]
    addresses: tuple[str | None, str | None]


class DelayLanguage(Language):
    """One-way delays, of one run or of its intervals."""

    without_counterpart = {"ip-tos": "no tool here sets the type of service"}
    harmless = {"ip-tos": (0,)}
    tools_between_nodes = {"owping": "stamp", "powstream": "stampbg"}
    without_difference = {
        "output-raw": "the tools here keep no single packets",
        "ctrl-port": "between two nodes no control connection is needed",
        "data-ports": "each node assigns ports from its own range",
        "traverse-nat": "answers return to where packets come from",
    }

    def words(self, spec: Document) -> list[str]:
        """Return the words, with the range of ports as a text."""
        ports = spec.get("data-ports")
        told = {"data-ports": f"{ports['lower']}-{ports['upper']}"} if ports else {}
        return super().words({**spec, **told})

    def participants(self, spec: Document) -> Participants:
        """Return the one that begins: the source, or the dest with ``flip``."""
        return single_participant(spec, "dest" if spec.get("flip") else "source", self.null_reason)

    def figures(self, spec: Document, result: Mapping[str, Any], outcome: Outcome) -> Document:
        """Return the counts of the way from source to dest, and the histogram of its delays."""
        received, measured = result["received_at_dest"], result["received_back"]
        received = measured if received is None else received
        figures: Document = {
            "packets-sent": result["sent"],
            "packets-received": received,
            "packets-lost": result["sent"] - received,
            "packets-duplicated": result["duplicates"]["forward"],
            "packets-reordered": result["reordered"]["forward"],
            "max-clock-error": result["clock_error_ms"],
        }
        figures = {name: value for name, value in figures.items() if value is not None}
        remarks = list(_remark_lines(spec, result, received))
        if result.get("histogram") is not None:
            figures["histogram-latency"] = _histogram(spec, result["histogram"]["forward"])
        return {**figures, "diags": "\n".join(remarks)} if remarks else figures

    def plain_text(self, spec: Document, result: Document) -> str:
        """Return the counts, the statistics of the delays, and the histogram."""
        counts = ("sent", "received", "lost", "duplicated", "reordered")
        lines = ["", "Packet Statistics", "-----------------"]
        lines += [
            _line(f"Packets {name.capitalize()}", result.get(f"packets-{name}"), " packets")
            for name in counts
        ]
        lines += ["", "One-way Latency Statistics", "--------------------------"]
        step_ms = spec.get("bucket-width", _BUCKET_S) * 1000
        lines += list(_statistics(result, step_ms))
        if "diags" in result:
            lines += ["", result["diags"]]
        return "\n".join(lines)

    def html_text(self, spec: Document, result: Document) -> None:
        """Return None: the test has no such form."""
        return

    def ends(self, spec: Document, hosts: Sequence[str]) -> Ends:
        """Return the nodes at both ends; the one that is no participant there is named as written.

        :raises Refusal: 422, nothing names the source of a measurement that dest begins.
        """
        source, dest = spec.get("source"), spec["dest"]
        if spec.get("flip"):
            named = spec.get("source-node", source)
            if named is None:
                raise impossible(f"{self.name}: with flip, the source must be named")
            nodes = (types.host_of(str(named)), hosts[0])
        else:
            nodes = (hosts[0], types.host_of(str(spec.get("dest-node", dest))))
        if spec.get("reverse"):
            return Ends((nodes[1], nodes[0]), (dest, source))
        return Ends(nodes, (source, dest))

    def translated_test(self, spec: Document, hosts: Sequence[str]) -> ParleyTest:
        """Return our test, in which dest takes part, too."""
        ends = self.ends(spec, hosts)
        members = self.our_spec(spec, ends.nodes)
        return our_test(self.ours, members, ends.nodes, ends.addresses, self.our_tools(spec))

    def test_of_target(self, spec: Document, hosts: Sequence[str]) -> ParleyTest:
        """Return our test of a dest that runs OWAMP and is no node.

        :raises Refusal: 422, the packets would have to come from there, or another protocol is
            wanted.
        """
        if spec.get("reverse") or spec.get("flip"):
            msg = (
                f"{self.name}: {spec['dest']} is no node here, so its packets are not measured here"
            )
            raise impossible(f"{msg}; leave out reverse and flip, or post the task there")
        if spec.get("protocol", OWAMP) != OWAMP:
            raise impossible(f"{self.name}: a host that is no node is asked by owamp only")
        plain = {name: it for name, it in spec.items() if name != "protocol"}
        test = self.translated_test(plain, hosts)
        dest, port = types.host_of(str(spec["dest"])), spec.get("ctrl-port")
        target = {"dest": dest, "responder": OWAMP, **({"port": port} if port else {})}
        where = {name: at for name, at in test.addresses.items() if name == hosts[0]}
        return replace(
            test,
            spec={**test.spec, **target},
            participants=test.participants[:1],
            addresses=where,
            tools=(),
        )

    def our_spec(self, spec: Document, hosts: Sequence[str]) -> Document:
        """Return the spec of our test; ``hosts`` are the nodes at both ends."""
        timeout_s = spec.get("packet-timeout", 0)
        return {
            **super().our_spec(spec, hosts),
            "dest": hosts[1],
            "interval": times.format_duration(_interval(spec)),
            "timeout": times.format_duration(round(timeout_s * SECOND)) if timeout_s else None,
            "length": _length(spec),
        }

    def our_tools(self, spec: Document) -> tuple[str, ...]:
        """Return our tool for the protocol of a spec; none in particular if it names none.

        :raises Refusal: 422, no tool speaks it.
        """
        protocol = spec.get("protocol")
        if protocol is None:
            return ()
        if protocol not in _TOOLS:
            said = str(protocol)[:40]
            raise impossible(f"{self.name}: no tool here speaks {said}; use owamp or stamp")
        return (_TOOLS[protocol],)

    def their_spec(self, spec: Document) -> Document:
        """Return the spec of our test, of which only the way to dest is measured then."""
        return {
            **(super().their_spec(spec) or {}),
            "packet-interval": _seconds(spec.get("interval", "PT0.1S")),
            "packet-timeout": _seconds(spec.get("timeout", "PT1S")),
            "packet-padding": _padding(spec.get("length")),
        }


class LatencyLanguage(DelayLanguage):
    """One-way delays and loss."""

    name = "latency"
    ours = LATENCY
    description = "Measure the one-way delay and loss of packets between two hosts"
    scheduling_class = "normal"
    options = (
        *ENDS,
        *PACKETS,
        on("-r --reverse", "Measure from the dest to the source"),
        on("--traverse-nat", "Let packets pass through translated addresses"),
        RAW,
    )
    members = {
        **MEMBERS,
        "packet-count": Member(types.cardinal, ours="count", default=_COUNT),
        "reverse": Member(types.boolean, since=2),
        "traverse-nat": Member(types.boolean, since=3),
        "protocol": Member(types.text, since=4),
    }
    highest = 4

    def duration(self, spec: Document) -> int:
        """Return the time of all packets and a tenth of it, of reading them, and of the rest."""
        count, interval = spec.get("packet-count", _COUNT), _interval(spec) / SECOND
        sending = _OVERHEAD * interval * count + count / _READ_PER_S
        return int(sending + spec.get("packet-timeout", 0) + _CONTROL_S) * SECOND

    def our_spec(self, spec: Document, hosts: Sequence[str]) -> Document:
        """Return the spec of our latency, which counts the packets by delay."""
        count = spec.get("packet-count", _COUNT)
        return {**super().our_spec(spec, hosts), "count": count, "histogram": True}


class LatencyBgLanguage(DelayLanguage):
    """One-way delays and loss without end."""

    name = "latencybg"
    ours = LATENCYBG
    description = "Measure the one-way delay and loss of packets between two hosts without end"
    scheduling_class = "background-multi"
    options = (
        *ENDS,
        text("-t --duration", "How long to measure", read=seconds_duration),
        *PACKETS,
        RAW,
    )
    members = {
        **MEMBERS,
        "duration": Member(types.duration, ours="duration", default="PT1H"),
        "protocol": Member(types.text, since=2),
    }
    highest = 2
    is_open = True

    def duration(self, spec: Document) -> int:
        """Return the length of a run; without one, and beyond a day, a day."""
        return min(STREAM_LONGEST, _duration(spec) or STREAM_LONGEST)

    def translated_test(self, spec: Document, hosts: Sequence[str]) -> ParleyTest:
        """Return our latencybg; runs of a day follow each other for longer ones."""
        return with_consecutive_runs(super().translated_test(spec, hosts), *_stream(spec))

    def our_spec(self, spec: Document, hosts: Sequence[str]) -> Document:
        """Return the spec of our latencybg, whose duration is a multiple of its intervals.

        :raises Refusal: 422, the duration is shorter than an interval.
        """
        length, _ = _stream(spec)
        told = times.format_duration(_each(spec))
        if not length:
            raise impossible(f"{self.name}: an interval of {told} is longer than the duration")
        own = super().our_spec(spec, hosts)
        return {**own, "duration": times.format_duration(length), "each": told}

    def our_tools(self, spec: Document) -> tuple[str, ...]:
        """Return our tool for the protocol of a spec."""
        return tuple({"stamp": "stampbg"}.get(it, it) for it in super().our_tools(spec))

    def their_spec(self, spec: Document) -> Document:
        """Return the spec of our latencybg, whose intervals are told as numbers of packets."""
        interval = parse_duration(spec.get("interval", "PT0.1S"))
        count = parse_duration(spec.get("each", "PT1M")) // interval
        return {**super().their_spec(spec), "packet-count": count}


def _length(spec: Document) -> int:
    """Return the length (bytes) of our packets with the padding that a spec asks for."""
    padding: int = spec.get("packet-padding", 0)
    return max(LENGTH_BASE + padding, LENGTH_LEAST_PADDED) if padding else LENGTH_BASE


def _padding(length: int | None) -> int | None:
    """Return the padding (bytes) of packets of ours with this length; None if there is none."""
    return None if length is None or length <= LENGTH_BASE else length - LENGTH_BASE


def _interval(spec: Document) -> int:
    """Return the time from one packet to the next, in microseconds."""
    interval_s: float = spec.get("packet-interval", INTERVAL_S)
    return round(interval_s * SECOND)


def _seconds(duration: str) -> float:
    return parse_duration(duration) / SECOND


def _duration(spec: Document) -> int | None:
    """Return the length of the measurement in microseconds; None if it has no end."""
    return parse_duration(spec["duration"]) if "duration" in spec else None


def _each(spec: Document) -> int:
    """Return the length of an interval of a latencybg, in microseconds."""
    count: int = spec.get("packet-count", _COUNT_EACH)
    return count * _interval(spec)


def _stream(spec: Document) -> tuple[int, int | None]:
    """Return the length of the runs of a latencybg in microseconds, and how many it takes."""
    return runs_of_stream(_duration(spec), _each(spec))


def _remark_lines(spec: Document, result: Mapping[str, Any], received: int) -> Iterator[str]:
    """Yield what a reader of the result should know."""
    if result.get("histogram") is None:
        yield "The delays of the packets were not counted."
    elif (unknown := received - result["received_back"]) > 0:
        yield f"The delay of {unknown} of the packets is not known: answers to them were lost."
    if spec.get("output-raw"):
        yield "Single packets are not told: the tools here keep none."


def _histogram(spec: Document, counted: Mapping[str, Any]) -> dict[str, int]:
    """Return packets by delay, in steps of the bucket width with two decimals.

    A bucket of ours that is wider than that is told by its middle.
    """
    step_ms = spec.get("bucket-width", _BUCKET_S) * 1000
    hundredth = 10**_DECIMALS
    steps: dict[str, int] = {}
    for bucket, packets in counted["buckets"]:
        value = (bucket + 0.5) * counted["width_ms"] / step_ms
        key = f"{math.floor(value * hundredth) / hundredth:.{_DECIMALS}f}"
        steps[key] = steps.get(key, 0) + packets
    return steps


def _line(label: str, value: object, unit: str = "") -> str:
    dotted = f"{label} ...".ljust(_WIDTH, ".")
    return f"{dotted} Not Reported" if value is None else f"{dotted} {value}{unit}"


def _statistics(result: Document, step_ms: float) -> Iterator[str]:
    """Yield the lines about delays, from a histogram of steps."""
    histogram: Mapping[str, int] = result.get("histogram-latency", {})
    clock_error = _line("Max Clock Error", result.get("max-clock-error"), " ms")
    values = sorted((float(step) * step_ms, packets) for step, packets in histogram.items())
    total = sum(packets for _, packets in values)
    if not total:
        yield from (_line("Delay Median", None), clock_error)
        return
    mean = math.fsum(value * packets for value, packets in values) / total
    variance = math.fsum((value - mean) ** 2 * packets for value, packets in values) / total
    most = max(packets for _, packets in values)
    modes = " ".join(f"{value:.2f} ms" for value, packets in values if packets == most)
    median = _quantile(values, total, 50)
    quarter, three_quarters, high = (_quantile(values, total, part) for part in _QUANTILES)
    yield _line("Delay Median", f"{median:.2f} ms")
    yield _line("Delay Minimum", f"{values[0][0]:.2f} ms")
    yield _line("Delay Maximum", f"{values[-1][0]:.2f} ms")
    yield _line("Delay Mean", f"{mean:.2f} ms")
    yield _line("Delay Mode", modes)
    for part, value in zip(_QUANTILES, (quarter, three_quarters, high), strict=True):
        yield _line(f"Delay {part}th Percentile", f"{value:.2f} ms")
    yield clock_error
    yield "Common Jitter Measurements:"
    yield _line("    P95 - P50", f"{high - median:.2f} ms")
    yield _line("    P75 - P25", f"{three_quarters - quarter:.2f} ms")
    yield _line("    Variance", f"{variance:.2f} ms")
    yield _line("    Std Deviation", f"{math.sqrt(variance):.2f} ms")
    yield "Histogram:"
    for step in sorted(histogram, key=float):
        yield f"    {step} ms: {histogram[step]} packets"


def _quantile(values: Sequence[tuple[float, int]], total: int, percent: int) -> float:
    """Return a percentile, interpolated between neighbours at rank p (n + 1)."""
    rank = percent / 100 * (total + 1)
    below = max(1, min(total, math.floor(rank)))
    above = min(total, below + 1)
    low, high = _value_of_rank(values, below), _value_of_rank(values, above)
    return low + (high - low) * max(0.0, min(1.0, rank - below))


def _value_of_rank(values: Sequence[tuple[float, int]], rank: int) -> float:
    for value, packets in values:
        rank -= packets
        if rank <= 0:
            return value
    return values[-1][0]
