"""pScheduler's trace: the path to a host, hop by hop. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from node.model.times import SECOND
from node.plugins.tests.trace import TEST
from node.pscheduler import times
from node.pscheduler.tests import members as types
from node.pscheduler.tests.contract import Document, Outcome
from node.pscheduler.tests.language import Language
from node.pscheduler.tests.markup import table
from node.pscheduler.tests.members import Member
from node.pscheduler.tests.options import integer, off, on, text

_HOPS = 30
_PROBES = types.one_of("icmp", "udp", "tcp")
_NAMES = 2 * SECOND
_AUTONOMOUS_SYSTEMS = 4 * SECOND
_SLACK = 2 * SECOND

_ERRORS = {
    "!N": "net-unreachable",
    "!H": "host-unreachable",
    "!P": "protocol-unreachable",
    "!F": "fragmentation-needed-and-df-set",
    "!S": "source-route-failed",
    "!X": "communication-administratively-prohibited",
    "!V": "host-precedence-violation",
    "!C": "precedence-cutoff-in-effect",
    "!<3>": "port-unreachable",
    "!<6>": "destination-network-unknown",
    "!<7>": "destination-host-unknown",
    "!<8>": "source-host-isolated",
    "!<9>": "destination-network-administratively-prohibited",
    "!<10>": "destination-host-administratively-prohibited",
    "!<11>": "network-unreachable-for-type-of-service",
    "!<12>": "icmp-destination-host-unreachable-tos",
    "!<13>": "communication-administratively-prohibited",
}
"""The reasons as traceroute prints them, and their names."""


class TraceLanguage(Language):
    """The path to a host."""

    name = "trace"
    ours = TEST
    description = "Trace the path to a host, hop by hop"
    options = (
        text("--algorithm", "Algorithm of the trace"),
        on("--as", "Look up the autonomous systems of hops"),
        off("--no-as", "Leave autonomous systems alone", "as"),
        text("-d --dest", "Host at the end of the path"),
        integer("--ip-version", "Version of the Internet Protocol: 4 or 6"),
        integer("--length", "Bytes of each packet"),
        text("--probe-type", "Packets to send: icmp, udp or tcp"),
        on("--fragment", "Allow packets to be fragmented"),
        off("--no-fragment", "Forbid packets to be fragmented", "fragment"),
        integer("--first-ttl", "Number of the first hop to ask"),
        integer("--flow-label", "Flow label of IPv6 packets"),
        text("-s --source", "Host or address that asks"),
        text("--source-node", "Node that asks, if it has another name than the source"),
        integer("--hops", "Number of the last hop to ask"),
        integer("--queries", "Packets for each hop"),
        on("--hostnames", "Look up the names of addresses"),
        off("--no-hostnames", "Leave addresses as they are", "hostnames"),
        integer("--dest-port", "Port to send to, for UDP and TCP"),
        text("--wait", "Time after which a packet counts as lost"),
        text("--sendwait", "Time from one packet to the next"),
        integer("--ip-tos", "Octet of the type of service"),
    )
    members = {
        "dest": Member(types.host, required=True, ours="dest"),
        "source": Member(types.host, ours="source"),
        "source-node": Member(types.host_and_port),
        "algorithm": Member(types.one_of("paris-traceroute")),
        "as": Member(types.boolean, ours="as_numbers", default=False),
        "dest-port": Member(types.port, ours="port"),
        "first-ttl": Member(types.cardinal),
        "flow-label": Member(types.cardinal_or_zero, since=2),
        "fragment": Member(types.boolean),
        "hops": Member(types.cardinal, ours="hops_max", default=_HOPS),
        "hostnames": Member(types.boolean, ours="names", default=False),
        "ip-tos": Member(types.octet),
        "ip-version": Member(types.ip_version, ours="ip_version"),
        "length": Member(types.cardinal, ours="length"),
        "probe-type": Member(_PROBES, ours="protocol", default="udp"),
        "queries": Member(types.cardinal, ours="probes"),
        "sendwait": Member(types.duration),
        "wait": Member(types.duration, ours="wait"),
    }
    highest = 2
    is_open = True
    without_counterpart = {
        "first-ttl": "the tools here begin with the first hop",
        "flow-label": "no tool here sets a flow label",
        "fragment": "no tool here forbids or forces fragmentation",
        "ip-tos": "no tool here sets the type of service",
        "sendwait": "no tool here waits between two packets",
    }
    harmless = {"first-ttl": (1,), "ip-tos": (0,), "sendwait": ("P0D", "PT0S")}

    def duration(self, spec: Document) -> int:
        """Return the time of all packets, of the last answer, and of looking up the hops."""
        hops: int = spec.get("hops", _HOPS)
        total = times.parse_duration(spec.get("sendwait", "P0D")) * hops
        total += times.parse_duration(spec.get("wait", "P0D")) + _SLACK
        total += _NAMES if spec.get("hostnames", True) else 0
        return total + (_AUTONOMOUS_SYSTEMS if spec.get("as", True) else 0)

    def our_spec(self, spec: Document, hosts: Sequence[str]) -> Document:
        """Return the spec of our trace, with one packet per hop unless told otherwise.

        The wait is the tool's own. Autonomous systems are looked up only if the spec says so: in
        public registries.
        """
        protocol = spec.get("probe-type", "udp")
        return {
            **super().our_spec(spec, hosts),
            "protocol": protocol,
            # Ours takes a port for TCP alone, and pScheduler has none for ICMP either.
            "port": None if protocol == "icmp" else spec.get("dest-port"),
            "hops_max": spec.get("hops", _HOPS),
            "probes": spec.get("queries", 1),
            # The tool for Paris looks up none.
            "names": spec.get("hostnames", "algorithm" not in spec),
            "as_numbers": spec.get("as", False),
        }

    def our_tools(self, spec: Document) -> tuple[str, ...]:
        """Return the tool for Paris, if the spec asks for it."""
        return ("scamper",) if "algorithm" in spec else ()

    def figures(self, spec: Document, result: Mapping[str, Any], outcome: Outcome) -> Document:
        """Return a path for each packet per hop; hops that did not answer are empty."""
        answers = {hop["ttl"]: list(_answers(hop)) for hop in result["hops"]}
        last = max(answers, default=0) if result["reached"] else result["hops_tried"]
        paths = range(max(1, spec.get("queries", 1)))
        return {
            "paths": [
                [_at(answers.get(ttl, []), path) for ttl in range(1, last + 1)] for path in paths
            ]
        }

    def plain_text(self, spec: Document, result: Document) -> str:
        """Return a line per hop, below the number of the path if there are several."""
        paths = result.get("paths", [])
        lines: list[str] = []
        for at, path in enumerate(paths, 1):
            lines += [f"Path {at}:", "", ""] if len(paths) > 1 else []
            lines += [_line(number, hop) for number, hop in enumerate(path, 1)]
        return "\n".join(lines).strip("\n")

    def html_text(self, spec: Document, result: Document) -> str:
        """Return a table per path."""
        head = ("TTL", "Address", "Host", "RTT (ms)", "AS", "Operator", "MTU", "Error")
        return "\n".join(
            table((_row(number, hop) for number, hop in enumerate(path, 1)), head)
            for path in result.get("paths", [])
        )


def _answers(hop: Mapping[str, Any]) -> Iterator[Document]:
    """Yield an entry for each answer of a hop."""
    for address in hop["addresses"]:
        common: Document = {"ip": address["address"]}
        if address.get("name"):
            common["hostname"] = address["name"]
        if address.get("as_numbers"):
            common["as"] = {"number": address["as_numbers"][-1]}
        if address.get("said") in _ERRORS:
            common["error"] = _ERRORS[address["said"]]
        for rtt_ms in address["rtts_ms"]:
            yield {**common, "rtt": times.format_milliseconds(rtt_ms)}


def _at(answers: list[Document], path: int) -> Document:
    return answers[path] if path < len(answers) else {}


def _ms(hop: Document) -> str:
    if "rtt" not in hop:
        return ""
    return f"{times.parse_milliseconds(hop['rtt']):.1f}"


def _line(number: int, hop: Document) -> str:
    if "ip" not in hop:
        return f"{number:<8}No Response"
    pieces = [f"{hop.get('hostname', hop['ip'])} ({hop['ip']})"]
    pieces += [f"{_ms(hop)} ms"] if "rtt" in hop else []
    pieces += [f"mtu {hop['mtu']}"] if "mtu" in hop else []
    pieces += [hop["error"]] if "error" in hop else []
    line = f"{number:<8}{' '.join(pieces)}"
    system = hop.get("as", {})
    if "number" not in system:
        return line
    return f"{line}\n          AS{system['number']} {system.get('owner', '')}".rstrip()


def _row(number: int, hop: Document) -> tuple[object, ...]:
    system = hop.get("as", {})
    return (
        number,
        hop.get("ip", "No Response"),
        hop.get("hostname"),
        _ms(hop),
        system.get("number"),
        system.get("owner"),
        hop.get("mtu"),
        hop.get("error"),
    )
