"""pScheduler's rtt: round-trip times and loss. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from node.model.times import MILLISECOND, SECOND
from node.plugins.tests.rtt import TEST
from node.pscheduler import times
from node.pscheduler.tests import members as types
from node.pscheduler.tests.contract import Document, Outcome
from node.pscheduler.tests.language import Language
from node.pscheduler.tests.markup import table
from node.pscheduler.tests.members import Member
from node.pscheduler.tests.options import integer, off, on, text
from node.pscheduler.times import format_milliseconds, parse_milliseconds

_COUNT = 5
_INTERVAL = "PT1S"
_WAIT = "PT1S"
_WAIT_BOOKED = "PT2S"
_NAMES = 2 * SECOND
"""Time that is booked for looking up the names of who answered."""
_SLACK = 2 * SECOND

_PING = re.compile(
    r"(?P<length>\d{1,6}) bytes from (?:\S{1,253} \()?(?P<ip>[0-9A-Fa-f:.]{2,45})[^:\s]*?\)?: "
    r"icmp_seq=(?P<seq>\d{1,6}) ttl=(?P<ttl>\d{1,3}) time=(?P<ms>\d{1,9}(?:\.\d{1,6})?) ms",
    re.ASCII,
)
_FPING = re.compile(
    r"(?P<ip>[0-9A-Fa-f:.]{2,45}) +: \[(?P<seq>\d{1,6})\], (?P<length>\d{1,6}) bytes, "
    r"(?P<ms>\d{1,9}(?:\.\d{1,6})?) ms \(",
    re.ASCII,
)
_REFUSED = re.compile(
    r"From (?P<ip>[0-9A-Fa-f:.]{2,45})\S{0,20} icmp_seq=(?P<seq>\d{1,6}) (?P<said>.{1,200})",
    re.ASCII,
)
_ERRORS = {
    "Destination Net Unreachable": "net-unreachable",
    "Destination Host Unreachable": "host-unreachable",
    "Destination Protocol Unreachable": "protocol-unreachable",
    "Destination Port Unreachable": "port-unreachable",
    "Source Route Failed": "source-route-failed",
    "Packet filtered": "communication-administratively-prohibited",
    "Frag needed and DF set": "fragmentation-needed-and-df-set",
}
_FIGURES = {"min": "min", "max": "max", "mean": "mean", "stddev": "stdev"}
_KNOWN_PROTOCOLS = ("icmp", "twamp")


class RttLanguage(Language):
    """Round-trip times and loss."""

    name = "rtt"
    ours = TEST
    description = "Measure the round-trip time and loss of packets to a host"
    options = (
        integer("-c --count", "Number of packets to send"),
        text("-d --dest", "Host that answers"),
        integer("--flow-label", "Flow label of IPv6 packets"),
        on("--fragment", "Allow packets to be fragmented"),
        off("--no-fragment", "Forbid packets to be fragmented", "fragment"),
        on("--hostnames", "Look up the names of addresses"),
        off("--no-hostnames", "Leave addresses as they are", "hostnames"),
        text("-i --interval", "Time from one packet to the next"),
        integer("--ip-version", "Version of the Internet Protocol: 4 or 6"),
        text("-s --source", "Host or address that asks"),
        text("--source-node", "Node that asks, if it has another name than the source"),
        on("--suppress-loopback", "Keep multicast packets from coming back"),
        off("--no-suppress-loopback", "Let multicast packets come back", "suppress-loopback"),
        integer("--ip-tos", "Octet of the type of service"),
        integer("--length", "Bytes of data in each packet"),
        integer("--ttl", "Number of hops after which packets are dropped"),
        text("--deadline", "Time after which no answer is awaited any more"),
        text("--timeout", "Time after which a packet counts as lost"),
        integer("--port", "Port, for protocols that have one"),
        text("--protocol", "Protocol to measure with"),
    )
    members = {
        "dest": Member(types.host, required=True, ours="dest"),
        "count": Member(types.cardinal, ours="count", default=10),
        "flow-label": Member(types.cardinal_or_zero, ours="flow_label"),
        "fragment": Member(types.boolean, since=3),
        "hostnames": Member(types.boolean),
        "interval": Member(types.duration, ours="interval", default="PT0.2S"),
        "ip-version": Member(types.ip_version, ours="ip_version"),
        "source": Member(types.host, ours="source"),
        "source-node": Member(types.host_and_port),
        "suppress-loopback": Member(types.boolean),
        "ip-tos": Member(types.octet, ours="tos"),
        "length": Member(types.cardinal, ours="length"),
        "ttl": Member(types.cardinal, ours="ttl"),
        "deadline": Member(types.duration),
        "timeout": Member(types.duration, ours="timeout", default="PT1S"),
        "port": Member(types.port, since=4),
        "protocol": Member(types.text, since=lambda value: 2 if value in _KNOWN_PROTOCOLS else 4),
    }
    highest = 4
    without_counterpart = {
        "port": "the tools here measure by ICMP, which has no ports",
        "protocol": "the tools here measure by ICMP only",
    }
    harmless = {"protocol": ("icmp",)}
    without_difference = {
        "hostnames": "the tools here look up no names of who answered",
        "suppress-loopback": "hosts are not measured by multicast here",
    }

    def duration(self, spec: Document) -> int:
        """Return the time of all packets and of the last one's answer, or else the deadline."""
        if "deadline" in spec:
            total = times.parse_duration(spec["deadline"])
        else:
            interval = times.parse_duration(spec.get("interval", _INTERVAL))
            total = (spec.get("count", _COUNT) - 1) * interval
            total += times.parse_duration(spec.get("timeout", _WAIT_BOOKED))
        return total + _SLACK + (_NAMES if spec.get("hostnames", True) else 0)

    def our_spec(self, spec: Document, hosts: Sequence[str]) -> Document:
        """Return the spec of our rtt; the names of who answered are not looked up."""
        return {
            **super().our_spec(spec, hosts),
            "count": _count(spec),
            "interval": spec.get("interval", _INTERVAL),
            "timeout": _timeout(spec),
            "dont_fragment": True if spec.get("fragment") is False else None,
            "tos": spec.get("ip-tos") or None,
            "flow_label": spec.get("flow-label") or None,
        }

    def their_spec(self, spec: Document) -> Document:
        """Return the spec of our rtt, with our defaults."""
        fragment = False if spec.get("dont_fragment") else None
        return {**(super().their_spec(spec) or {}), "fragment": fragment}

    def figures(self, spec: Document, result: Mapping[str, Any], outcome: Outcome) -> Document:
        """Return the counts and times of our result, and each round trip from the raw output."""
        trips = list(_roundtrips(spec, outcome))
        answered = len({trip["seq"] for trip in trips if "rtt" in trip})
        figures = {
            "roundtrips": trips,
            "loss": result["loss"],
            "sent": result["sent"],
            "received": result["received"],
            "lost": result["sent"] - result["received"],
            "duplicates": result["duplicates"],
            "reorders": result["reordered"],
        }
        delays = result.get("rtt_ms") or {}
        figures |= {
            name: format_milliseconds(value)
            for name, ours_ in _FIGURES.items()
            if (value := delays.get(ours_)) is not None
        }
        if answered < result["received"]:
            missing = result["received"] - answered
            figures["diags"] = (
                f"{missing} of {result['received']} round trips are not listed: the output that "
                "was kept does not have them. All of them are in the counts and times."
            )
        return figures

    def plain_text(self, spec: Document, result: Document) -> str:
        """Return a line per round trip, and the loss and the times."""
        lines = [_line(at, trip) for at, trip in enumerate(result.get("roundtrips", ()), 1)]
        lines += ["", _summary(result)]
        return "\n".join(lines).strip("\n")

    def html_text(self, spec: Document, result: Document) -> str:
        """Return a row per round trip, and the loss and the times."""
        rows = [
            (
                at,
                trip.get("ip"),
                trip.get("hostname"),
                trip.get("length"),
                trip.get("ttl"),
                f"{parse_milliseconds(trip['rtt']):.4f}"
                if "rtt" in trip
                else trip.get("error", "No Response"),
            )
            for at, trip in enumerate(result.get("roundtrips", ()), 1)
        ]
        head = ("Packet", "Address", "Host", "Bytes", "TTL", "RTT (ms)")
        return f"{table(rows, head)}\n<p>{_summary(result)}</p>"


def _count(spec: Document) -> int:
    """Return how many packets are sent: those until the deadline, if there is one."""
    count: int = spec.get("count", _COUNT)
    interval = times.parse_duration(spec.get("interval", _INTERVAL))
    if "deadline" not in spec or not interval:
        return count
    return min(count, 1 + times.parse_duration(spec["deadline"]) // interval)


def _timeout(spec: Document) -> str:
    """Return how long an answer is awaited: no longer than until the deadline."""
    wait = spec.get("timeout", _WAIT)
    deadline = spec.get("deadline")
    if deadline is None:
        return str(wait)
    return str(min((wait, deadline), key=times.parse_duration))


def _roundtrips(spec: Document, outcome: Outcome) -> Iterator[Document]:
    """Yield the answers in time, and the errors, in the order in which they came."""
    timeout_ms = times.parse_duration(_timeout(spec)) / MILLISECOND
    for line in (outcome.parts[0].output or "").splitlines() if outcome.parts else ():
        if answer := _PING.match(line) or _FPING.match(line):
            if float(answer["ms"]) <= timeout_ms:
                yield _answer(answer)
        elif error := _REFUSED.match(line):
            yield _error(error)


def _answer(answer: re.Match[str]) -> Document:
    figures = answer.groupdict()
    from_zero = "ttl" not in figures  # fping counts from 0, and tells no TTL
    trip: Document = {
        "seq": int(answer["seq"]) + from_zero,
        "length": int(answer["length"]),
        "ip": answer["ip"],
        "rtt": format_milliseconds(float(answer["ms"])),
    }
    return trip if from_zero else {**trip, "ttl": int(answer["ttl"])}


def _error(error: re.Match[str]) -> Document:
    trip: Document = {"seq": int(error["seq"]), "ip": error["ip"]}
    said = next(
        (ours_ for text_, ours_ in _ERRORS.items() if error["said"].startswith(text_)), None
    )
    return trip if said is None else {**trip, "error": said}


def _line(at: int, trip: Document) -> str:
    line = f"{at:<8}"
    if "error" in trip or "ip" not in trip:
        return line + str(trip.get("error", "No Response"))
    line += f"{trip.get('hostname', trip['ip'])} ({trip['ip']})"
    if "length" in trip:
        line += f"  {trip['length']} Bytes"
    if "ttl" in trip:
        line += f"  TTL {trip['ttl']}"
    return f"{line}  RTT {parse_milliseconds(trip['rtt']):.4f} ms" if "rtt" in trip else line


def _summary(result: Document) -> str:
    names = ("min", "mean", "max", "stddev")
    figures = [
        f"{parse_milliseconds(result[name]):.4f}" if name in result else "None" for name in names
    ]
    loss = int(100 * result.get("loss", 0))
    return f"{loss}% Packet Loss  RTT Min/Mean/Max/StdDev = {'/'.join(figures)} ms"
