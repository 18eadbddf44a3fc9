"""pScheduler's throughput: bits per second from one host to another. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from node.model.times import MILLISECOND, SECOND
from node.plugins.tests.throughput import TEST, USUAL_CONTROL, ThroughputPart
from node.pscheduler import times
from node.pscheduler.dialects.iperf3 import flat_document, printed_by_iperf3, summed_streams
from node.pscheduler.tests import members as types
from node.pscheduler.tests.contract import Document, Outcome, ParleyTest, Participants
from node.pscheduler.tests.language import (
    Language,
    diagnostics,
    our_test,
    single_participant,
    source_and_dest,
)
from node.pscheduler.tests.members import Member
from node.pscheduler.tests.options import (
    integer,
    milliseconds_duration,
    on,
    seconds_duration,
    text,
)

_CLIENT, _SERVER = 0, 1
_DURATION = "PT10S"
_LINK_RTT = 200 * MILLISECOND
_ROUND_TRIPS_PER_S = 50 * MILLISECOND
"""Setting up takes a second for each of these in the round-trip time."""
_SETUP_LEAST = SECOND
_CLIENT_DELAY = 3 * SECOND
_FINISH = 2 * SECOND
_FIRST_CONTROLS = frozenset({"bbr", "bic", "cubic", "htcp", "reno", "vegas", "westwood", "yeah"})
_SPECIAL = {
    "mss": "mss_bytes",
    "buffer-length": "buffer_bytes",
    "no-delay": "no_delay",
    "zero-copy": "zero_copy",
    "fq-rate": "pacing_bps",
    "ip-tos": "tos",
    "flow-label": "flow_label",
}
"""Members that iperf3 alone knows, and ours."""
_RECEIVED = "receiver-throughput-bits"
_COLUMN = 15
_UNKNOWN = "Not Reported"


_NOTHING_IF_ZERO = frozenset({"flow-label", "ip-tos", "omit", "single-ended-port"})
"""Members that options set to zero or nothing are as good as not given."""


class ThroughputLanguage(Language):
    """Bits per second from one host to another."""

    name = "throughput"
    ours = TEST
    description = "Measure the throughput from one host to another"
    scheduling_class = "exclusive"
    options = (
        text("-s --source", "Host or address that sends"),
        text("--source-node", "Node that sends, if it has another name than the source"),
        text("-d --destination --dest", "Host or address that receives"),
        text("--dest-node", "Node that receives, if it has another name than the dest"),
        text("-t --duration", "How long to measure", read=seconds_duration),
        text("-i --interval", "Length of the intervals in the result", read=seconds_duration),
        text("--link-rtt", "Round-trip time, for setting up", read=milliseconds_duration),
        integer("-P --parallel", "Number of parallel streams"),
        on("-u --udp", "Measure with UDP instead of TCP"),
        text("-b --bandwidth", "Bits per second of each stream", read=types.si_value),
        on("--bandwidth-strict", "Never send faster to make up for lost time"),
        text("--burst-size", "Number of packets sent at once", read=types.si_value),
        text("--fq-rate", "Bits per second, paced by the kernel", read=types.si_value),
        text("-w --window-size", "Bytes of the socket buffers", read=types.si_value),
        integer("-m --mss", "Maximum segment size of TCP"),
        integer("-l --buffer-length", "Bytes that are written or read at once"),
        integer("--ip-tos", "Octet of the type of service"),
        integer("--ip-version", "Version of the Internet Protocol: 4 or 6"),
        text("-B --local-address", "Address to measure from"),
        text("-O --omit", "How long to send before measuring", read=seconds_duration),
        on("--no-delay", "Send small packets at once"),
        text("--congestion", "Congestion control of TCP"),
        on("--zero-copy", "Send without copying"),
        integer("--flow-label", "Flow label of IPv6 packets; implies IPv6"),
        integer("--client-cpu-affinity", "Processor of the client"),
        integer("--server-cpu-affinity", "Processor of the server"),
        on("--single-ended", "Measure to a server that is already running"),
        integer("--single-ended-port", "Port of that server"),
        on("--reverse", "Let the dest send to the source"),
        on("--reverse-connections", "Let the dest connect to the source"),
        on("--loopback", "Measure within one host"),
    )
    members = {
        "dest": Member(types.host, required=True, ours="dest"),
        "source": Member(types.host, ours="source"),
        "source-node": Member(types.host_and_port),
        "dest-node": Member(types.host_and_port),
        "duration": Member(types.duration, ours="duration", default=_DURATION),
        "interval": Member(types.duration),
        "link-rtt": Member(types.duration, since=3),
        "parallel": Member(types.cardinal, ours="streams"),
        "udp": Member(types.boolean),
        "bandwidth": Member(types.si_number, ours="rate_bps"),
        "bandwidth-strict": Member(types.boolean, since=4),
        "burst-size": Member(types.si_number, since=4),
        "fq-rate": Member(types.si_number, since=7),
        "window-size": Member(types.si_number, ours="window_bytes"),
        "mss": Member(types.cardinal),
        "buffer-length": Member(types.cardinal),
        "ip-tos": Member(types.octet),
        "ip-version": Member(types.ip_version, ours="ip_version"),
        "local-address": Member(types.host),
        "omit": Member(types.duration),
        "no-delay": Member(types.boolean),
        "congestion": Member(types.text, since=lambda value: 1 if value in _FIRST_CONTROLS else 4),
        "zero-copy": Member(types.boolean),
        "flow-label": Member(types.cardinal_or_zero),
        "client-cpu-affinity": Member(types.integer),
        "server-cpu-affinity": Member(types.integer),
        "single-ended": Member(types.boolean, since=2, ours="single_ended"),
        "single-ended-port": Member(types.port, since=2, ours="port"),
        "reverse": Member(types.boolean, ours="reverse"),
        "reverse-connections": Member(types.boolean, since=6),
        "loopback": Member(types.boolean, since=5),
    }
    highest = 7
    without_counterpart = {
        "loopback": "a node does not measure against itself here",
        "reverse-connections": "the source connects here",
        "bandwidth-strict": "no tool here is told never to catch up",
        "burst-size": "no tool here sets the size of bursts",
        "client-cpu-affinity": "no tool here is bound to a processor",
        "server-cpu-affinity": "no tool here is bound to a processor",
    }
    harmless = {
        "loopback": (False,),
        "reverse-connections": (False,),
        "bandwidth-strict": (False,),
    }

    without_difference = {
        "interval": "results tell each second",
        "link-rtt": "it is for booking time alone",
    }

    def completed_spec(self, spec: Document) -> Document:
        """Leave out what asks for nothing, and imply IPv6 by a flow label."""
        given = {name: each for name, each in spec.items() if each or name not in _NOTHING_IF_ZERO}
        return {**given, "ip-version": 6} if "flow-label" in given else given

    def participants(self, spec: Document) -> Participants:
        """Return source and dest; the source alone if dest is no node, or is the same host."""
        if "single-ended" in spec or "loopback" in spec:
            return single_participant(spec, "source", "No source specified")
        return source_and_dest(spec)

    def duration(self, spec: Document) -> int:
        """Return the time to set up, which depends on the distance, and all times of the spec."""
        link_rtt = _parsed_duration(spec, "link-rtt", _LINK_RTT)
        setup = max(link_rtt * SECOND // _ROUND_TRIPS_PER_S, _SETUP_LEAST)
        measured = times.parse_duration(spec.get("duration", _DURATION))
        return setup + _parsed_duration(spec, "omit", 0) + measured + _CLIENT_DELAY + _FINISH

    def translated_test(self, spec: Document, hosts: Sequence[str]) -> ParleyTest:
        """Return our throughput, with the defaults of iperf3 where the spec names nothing."""
        alone = bool(spec.get("single-ended"))
        dest = types.host_of(str(spec["dest"] if alone else spec.get("dest-node", spec["dest"])))
        far = dest if alone or len(hosts) == 1 else hosts[1]
        nodes = hosts[:1] if alone else (hosts[0], far)
        rate = types.si_value(spec.get("bandwidth", 0))
        window = types.si_value(spec.get("window-size", 0))
        members: dict[str, Any] = {
            **self.our_spec(spec, hosts),
            "dest": far,
            "port": spec.get("single-ended-port") if alone else None,
            "duration": spec.get("duration", _DURATION),
            "omit": spec.get("omit", "PT0S"),
            "protocol": "udp" if spec.get("udp") else "tcp",
            "rate_bps": rate or None,
            "congestion": "host" if spec.get("udp") else spec.get("congestion", "host"),
            "window_bytes": window or None,
            **_iperf3_members(spec),
        }
        addresses = [spec.get("local-address", spec.get("source")), spec["dest"]]
        return our_test(TEST, members, nodes, addresses)

    def their_spec(self, spec: Document) -> Document:
        """Return the spec of our throughput; what we omit by default is said.

        The usual congestion control is left to the host there, which may allow its own alone; our
        result doubts a run that another one controlled.
        """
        udp = spec.get("protocol") == "udp"
        congestion = spec.get("congestion", USUAL_CONTROL)
        return {
            **(super().their_spec(spec) or {}),
            "omit": spec.get("omit") or _omitted_duration(spec),
            "udp": True if udp else None,
            "congestion": None if udp or congestion in {"host", USUAL_CONTROL} else congestion,
            "reverse": True if spec.get("reverse") else None,
            "single-ended": True if spec.get("single_ended") else None,
            **{theirs: spec.get(ours) or None for theirs, ours in _SPECIAL.items()},
        }

    def figures(self, spec: Document, result: Mapping[str, Any], outcome: Outcome) -> Document:
        """Return intervals and totals of each stream, from what iperf3 printed.

        Without that, as of other tools or if it was cut, there is one stream: all of them together.
        """
        shown = _printed_figures(spec, outcome) or summed_streams(_result_as_part(result))
        if "window-size" in spec:
            shown["requested-tcp-window-size"] = types.si_value(spec["window-size"])
        return {"diags": diagnostics(outcome), **shown}

    def plain_text(self, spec: Document, result: Document) -> str:
        """Return a table for each stream, and the totals."""
        udp = bool(spec.get("udp"))
        lines: list[str] = []
        for stream, course in _intervals_by_stream(result).items():
            lines += [f"* Stream ID {stream}", *_table(course, udp=udp), ""]
        summary = result["summary"]
        if len(summary["streams"]) > 1:
            for total in summary["streams"]:
                lines.append(f"* Stream ID {total.get('stream-id')} Summary")
                lines += [*_table([total], udp=udp, total=True), ""]
        return "\n".join([*lines, "Summary", *_table([summary["summary"]], udp=udp, total=True)])

    def html_text(self, spec: Document, result: Document) -> None:
        """Return None: the test has no such form."""
        return


def _iperf3_members(spec: Document) -> dict[str, Any]:
    """Return the members that iperf3 alone knows, by our names; zero is nothing special."""
    told = {ours: spec.get(theirs) for theirs, ours in _SPECIAL.items()}
    if told["pacing_bps"] is not None:
        told["pacing_bps"] = types.si_value(told["pacing_bps"])
    return {name: value for name, value in told.items() if value}


def _parsed_duration(spec: Document, member: str, otherwise: int) -> int:
    return times.parse_duration(spec[member]) if member in spec else otherwise


def _omitted_duration(spec: Document) -> str:
    """Return how long (ISO 8601) our test sends by default before it measures."""
    model = TEST.spec_model.model_validate(spec)
    return times.format_duration(getattr(model, "omitted", 0))


def _printed_figures(spec: Document, outcome: Outcome) -> Document | None:
    """Return the figures that iperf3 printed; None without its whole output.

    The sender's intervals tell more, and the client also knows what the receiver has got.
    """
    if outcome.tool != "iperf3":
        return None
    printed = [printed_by_iperf3(part.output) for part in outcome.parts]
    client, server = (*printed, None, None)[:2]
    reverse = bool(spec.get("reverse"))
    if client is None:
        return None
    shown = flat_document(client, place=_CLIENT, sends=not reverse)
    if not reverse or server is None:
        return shown
    sent = flat_document(server, place=_SERVER, sends=True)
    sent["summary"] = _with_received(sent["summary"], shown["summary"])
    return sent


def _with_received(sent: Document, received: Document) -> Document:
    """Return a sender's totals with the rates that the receiver has seen."""
    total = _sum_of_both(sent["summary"], received["summary"])
    streams = sent["streams"]
    if len(streams) == len(received["streams"]):
        # Both ends list the streams in the order in which they were opened.
        streams = [
            _sum_of_both(*each) for each in zip(sent["streams"], received["streams"], strict=True)
        ]
    return {"streams": streams, "summary": total}


def _sum_of_both(sent: Document, received: Document) -> Document:
    rate = received.get(_RECEIVED, received.get("throughput-bits"))
    return sent if rate is None else {**sent, _RECEIVED: rate}


def _result_as_part(result: Mapping[str, Any]) -> ThroughputPart:
    """Return the merged figures of our result as one part, as if one end had all of them."""
    names = ("sent", "received", "datagrams", "rtt_ms", "congestion", "intervals")
    return ThroughputPart.model_validate({**{name: result[name] for name in names}, "cpu": None})


def _intervals_by_stream(result: Document) -> dict[object, list[Document]]:
    """Return the intervals of each stream, omitted ones first."""
    courses: dict[object, list[Document]] = {}
    for interval in result["intervals"]:
        for stream in interval["streams"]:
            courses.setdefault(stream.get("stream-id"), []).append(stream)
    for course in courses.values():
        course.sort(key=lambda each: (not each.get("omitted"), each.get("start", 0)))
    return dict(sorted(courses.items(), key=lambda each: str(each[0]).rjust(9)))


def _table(entries: Iterable[Document], *, udp: bool, total: bool = False) -> list[str]:
    head = ["Interval", "Throughput", "Lost / Sent" if udp else "Retransmits"]
    head += [] if udp or total else ["Current Window"]
    head += ["Receiver Throughput"] if total else []
    rows = [_row(entry, udp=udp, total=total) for entry in entries]
    return ["".join(each.ljust(_COLUMN) for each in row).rstrip() for row in [head, *rows]]


def _row(entry: Document, *, udp: bool, total: bool) -> list[str]:
    cells = [
        f"{entry.get('start', 0):.1f} - {entry.get('end', 0):.1f}",
        f"{_si(entry.get('throughput-bits'))}bps",
    ]
    if udp:
        cells.append(_datagrams(entry))
    else:
        cells.append(str(entry.get("retransmits", _UNKNOWN)))
    if not udp and not total:
        window = entry.get("tcp-window-size")
        cells.append(_UNKNOWN if window is None else f"{_si(window)}Bytes")
    if total:
        received = entry.get(_RECEIVED)
        cells.append(_UNKNOWN if received is None else f"{_si(received)}bps")
    if entry.get("jitter") is not None:
        cells.append(f"Jitter: {entry['jitter']} ms")
    return [*cells, "(omitted)"] if entry.get("omitted") else cells


def _datagrams(entry: Document) -> str:
    sent, lost = entry.get("sent"), entry.get("lost")
    if sent is None:
        return _UNKNOWN
    return f"{sent} sent" if lost is None else f"{lost} / {sent}"


def _si(value: float | None) -> str:
    """Return a number in steps of a thousand, such as ``1.76 G``."""
    number = float(value or 0)
    for factor, unit in ((1e9, "G"), (1e6, "M"), (1e3, "K")):
        if number > factor:
            return f"{number / factor:.2f} {unit}"
    return f"{number:.2f} "
