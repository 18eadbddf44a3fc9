"""The path by Debian's traceroute: UDP, ICMP or TCP, with many packets at once. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from node.model.errors import ToolOutputError
from node.model.times import MILLISECOND, SECOND
from node.plugins.binding import EITHER, binding_arguments, version_of
from node.plugins.contracts import Command, Output, PartContext, Privilege, Requirement, Result
from node.plugins.hops import Probe, address_in, assemble_path, port_of, probes_of, time_of, wait_of
from node.plugins.outline import ClientTool
from node.plugins.plausibility import Sieve
from node.plugins.reading import failure, text_of
from node.plugins.tests.trace import TraceSpec

_AT_ONCE = 16
_SET_UP = 200 * MILLISECOND
_WRAP_UP = SECOND // 2
_LOOK_UP = SECOND
"""Time for the name service: once for dest, and per hop if names or AS numbers are requested. If
name servers take longer than this on average, the run fails."""

_HEADER = re.compile(r"traceroute to \S{1,253} \((?P<address>[^)\s]{1,100})\), \d{1,3} hops max")
_HOP = re.compile(r" ?(?P<ttl>\d{1,3}) {1,2}(?P<rest>\S.*)")
_WORDS = re.compile(
    r"(?P<lost>\*)(?!\S)"
    r"|(?P<rtt_ms>[-+]?(?:\d[\d.,eE+-]{0,400}|nan|inf)) ms(?: (?P<said>!\S{0,10}))?(?!\S)"
    r"|\[(?P<systems>[^]]{0,300})\]"
    r"|(?:(?P<name>\S{1,253}) \()?(?P<address>[0-9A-Fa-f:.]{2,45}(?:%\S{1,20})?)\)?(?!\S)",
    re.ASCII,
)
_AS_NUMBERS_MAX = 20
_AS_NUMBER = re.compile(r"AS(\d{1,10})", re.ASCII)


class TracerouteTool(ClientTool):
    """The traceroute by Dmitry Butskoy."""

    name = "traceroute"
    tests: tuple[str, ...] = ("trace",)
    preference = 2
    binds = EITHER
    requirement: Requirement | None = Requirement(
        "traceroute",
        "traceroute",
        ("traceroute", "--version"),
        least="2.1.0",  # earlier ones wait one time for all packets
        privilege=lambda spec: None if spec.protocol == "udp" else Privilege.RAW,
        connects=lambda spec: spec.protocol == "tcp",
    )
    tried: tuple[str, ...] = ("2.1.2",)

    def duration(self, spec: TraceSpec) -> int:
        """Return the time if all packets are lost, with the look-ups, in microseconds."""
        rounds = -(-spec.hops_max * probes_of(spec) // _AT_ONCE)
        look_ups = 1 + spec.hops_max * (spec.names + spec.as_numbers)
        return _SET_UP + look_ups * _LOOK_UP + rounds * wait_of(spec) + _WRAP_UP

    def command(self, part: PartContext) -> Command:
        """Return ``traceroute -n -q 3 -m 30 -N 16 -w 2,0,0 -- ADDRESS``.

        The two zeros make it wait the full time for each packet, not as long as others took.
        """
        spec: TraceSpec = part.spec
        options = [] if spec.names else ["-n"]
        options += ["-q", str(probes_of(spec)), "-m", str(spec.hops_max), "-N", str(_AT_ONCE)]
        options += ["-w", f"{wait_of(spec) / SECOND:g},0,0"]
        if spec.protocol == "icmp":
            options.append("-I")
        if spec.protocol == "tcp":
            options += ["-T", "-p", str(port_of(spec))]
        if spec.as_numbers:
            options.append("-A")
        options += binding_arguments(part, "-i", "-s")
        if (version := version_of(part)) is not None:
            options.append(f"-{version}")
        length = [] if spec.length is None else [str(spec.length)]
        dest = part.addresses.get(spec.dest, spec.dest)
        return Command(argv=("traceroute", *options, "--", dest, *length))

    def read(self, part: PartContext, output: Output) -> Result:
        """Read the path; a path that ends early is a result as well.

        :raises ToolOutputError: it could not send, was ended early, or contradicts itself.
        """
        lines = text_of(output, "traceroute").splitlines()
        header = next(filter(None, map(_HEADER.match, lines)), None)
        hops = [hop for hop in map(_HOP.fullmatch, lines) if hop is not None]
        if header is None or not hops or output.exit_code != 0:
            raise failure(output, "traceroute", "it printed no path")
        if output.ended_by != "itself" and not _is_complete(part.spec, hops):
            raise failure(output, "traceroute", "it did not finish")
        sieve = Sieve()
        probes = [it for hop in hops for it in _probes(sieve, int(hop["ttl"]), hop["rest"])]
        dest = address_in(header["address"], "traceroute")
        if not _is_complete(part.spec, hops) and not _ends(probes, dest):
            sieve.say("traceroute's output ends before the path does")
        return assemble_path("traceroute", part.spec, dest, probes, paris=False, sieve=sieve)


def _is_complete(spec: TraceSpec, hops: list[re.Match[str]]) -> bool:
    """Return whether the last hop to probe is there, or the path ended before it."""
    return int(hops[-1]["ttl"]) == spec.hops_max


def _ends(probes: Sequence[Probe], dest: str) -> bool:
    """Return whether the last hop is dest, or refuses to forward."""
    last = [each for each in probes if each.ttl == probes[-1].ttl]
    return any(each.address == dest or each.said for each in last)


def _probes(sieve: Sieve, ttl: int, text: str) -> Iterator[Probe]:
    """Parse the packets of one line: ``* name (192.0.2.1) [AS64500]  1.2 ms !N  1.3 ms``.

    :raises ToolOutputError: it is not such a line.
    """
    if strange := _WORDS.sub("", text).split():
        raise ToolOutputError(
            f"traceroute reports an unknown answer of hop {ttl}: {strange[0][:60]}"
        )
    here = Probe(ttl)
    count = 0
    for word in _WORDS.finditer(text):
        if word["address"]:
            here = Probe(ttl, address_in(word["address"], "traceroute"), name=word["name"])
        elif word["systems"] is not None:
            numbers = tuple(int(number) for number in _AS_NUMBER.findall(word["systems"]))
            here = replace(here, as_numbers=numbers[:_AS_NUMBERS_MAX])
        elif word["lost"]:
            count += 1
            yield Probe(ttl)
        elif here.address is not None:
            count += 1
            yield replace(here, rtt_ms=time_of(sieve, word["rtt_ms"]), said=word["said"])
    if not count:
        raise ToolOutputError(f"traceroute reports nothing of hop {ttl}: {text[:100]}")


TOOL = TracerouteTool()
