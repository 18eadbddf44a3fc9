"""The path by mtr, a few rounds over all hops: UDP, ICMP or TCP. Pure.

We parse its raw output, the only one that reports each packet. It does not say why a router refuses
to forward (``!N``), and it takes such a refusal for the answer of the probed hop.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace

from node.model.errors import ToolOutputError
from node.model.times import MILLISECOND, SECOND
from node.plugins.binding import binding_arguments
from node.plugins.contracts import Command, Output, PartContext, Privilege, Requirement, Result
from node.plugins.hops import Probe, address_in, assemble_path, port_of, probes_of, time_of, wait_of
from node.plugins.outline import ClientTool
from node.plugins.ownprograms import ADDRESS, resolving_command, split_address
from node.plugins.plausibility import Sieve
from node.plugins.reading import failure
from node.plugins.tests.trace import TraceSpec

_SET_UP = 300 * MILLISECOND
_WRAP_UP = SECOND // 2
_LOOK_UP = SECOND
_ROUND = SECOND
"""The shortest time per round that mtr allows users other than root."""
_FIRST_HOPS = 10
"""Each packet gets a tenth of the round's time until the number of hops is known."""

_LINE = re.compile(
    r"(?P<kind>[xhdp]) (?P<hop>\d{1,3}) (?P<word>\S{1,400})(?: (?P<sequence>\d{1,9}))?"
)

_KNOWN = re.compile(r"[xhdp] ")


class MtrTool(ClientTool):
    """The mtr by Roger Wolff."""

    name = "mtr"
    tests: tuple[str, ...] = ("trace",)
    preference = 1
    binds = frozenset({"address"})  # its -I uses the address of an interface, but not its route
    requirement: Requirement | None = Requirement(
        "mtr",
        "mtr-tiny",
        ("mtr", "--version"),
        privilege=lambda _: Privilege.RAW,
        privileged="mtr-packet",
        connects=lambda spec: spec.protocol == "tcp",
    )
    tried: tuple[str, ...] = ("0.95",)

    def can(self, spec: TraceSpec) -> str | None:
        """Refuse AS numbers, which it does not report packet by packet."""
        return "mtr does not report AS numbers" if spec.as_numbers else None

    def duration(self, spec: TraceSpec) -> int:
        """Return all rounds, the last packet's wait and the look-ups, in microseconds."""
        rounds = probes_of(spec) * max(_ROUND, spec.hops_max * _ROUND // _FIRST_HOPS)
        return _SET_UP + _LOOK_UP * (1 + spec.names) + rounds + wait_of(spec) + _WRAP_UP

    def command(self, part: PartContext) -> Command:
        """Return ``mtr --raw -n -c 3 -i 1 -G 2 -Z 2 -m 30 -U 30 -- ADDRESS``."""
        spec: TraceSpec = part.spec
        wait_s = -(-wait_of(spec) // SECOND)
        argv = ["mtr", "--raw", *([] if spec.names else ["-n"]), "-c", str(probes_of(spec))]
        argv += ["-i", "1", "-G", str(wait_s), "-Z", str(wait_s)]
        argv += ["-m", str(spec.hops_max), "-U", str(spec.hops_max)]
        argv += binding_arguments(part, "", "-a")
        if spec.protocol == "udp":
            argv.append("-u")
        if spec.protocol == "tcp":
            argv += ["-T", "-P", str(port_of(spec))]
        if spec.length is not None:
            argv += ["-s", str(spec.length)]
        return resolving_command(part, [*argv, "--", ADDRESS])

    def read(self, part: PartContext, output: Output) -> Result:
        """Read the path; a path that ends early is a result as well.

        :raises ToolOutputError: it could not send, was ended early, or contradicts itself.
        """
        dest, lines = split_address(output, "mtr")
        sieve = Sieve()
        probes = _probes(sieve, lines)
        if not probes or output.exit_code != 0 or output.ended_by != "itself":
            raise failure(output, "mtr", "it printed no path")
        seen = _without_refusals(dest, probes)
        return assemble_path("mtr", part.spec, dest, seen, paris=False, sieve=sieve)


def _probes(sieve: Sieve, lines: Iterable[str]) -> list[Probe]:
    """Parse the packets: ``x HOP NUMBER`` is sent, ``p HOP MICROSECONDS NUMBER`` answered.

    ``h HOP ADDRESS`` precedes the first answer from there, ``d HOP NAME`` a later one.
    """
    sent: dict[str, Probe] = {}
    addresses: dict[int, str] = {}
    names: dict[int, str] = {}
    for line in _matching_lines(lines):
        ttl, word, sequence = int(line["hop"]) + 1, line["word"], line["sequence"]
        if line["kind"] == "x":
            sent[word] = Probe(ttl)
        elif line["kind"] == "h":
            addresses[ttl] = address_in(word, "mtr")
            names.pop(ttl, None)
        elif line["kind"] == "d":
            names[ttl] = word
        elif sequence not in sent or sent[sequence].ttl != ttl or ttl not in addresses:
            raise ToolOutputError(f"mtr reports an answer to a packet it did not send: {line[0]}")
        else:
            sent[sequence] = Probe(ttl, addresses[ttl], time_of(sieve, word, MILLISECOND))
    return [replace(probe, name=names.get(probe.ttl)) for probe in sent.values()]


def _matching_lines(lines: Iterable[str]) -> Iterator[re.Match[str]]:
    for line in filter(_KNOWN.match, lines):
        match = _LINE.fullmatch(line)
        if match is None:
            raise ToolOutputError(f"mtr prints an unknown line: {line[:60]}")
        yield match


def _without_refusals(dest: str, probes: list[Probe]) -> list[Probe]:
    """Drop a router's refusals, which answer the probes of all hops behind it.

    They are the hops at the end whose single address is the same as that of the hop before.
    """
    responders: dict[int, set[str]] = {}
    for probe in probes:
        if probe.address is not None:
            responders.setdefault(probe.ttl, set()).add(probe.address)
    last = max(responders, default=0)
    refuser = responders.get(last, set())
    if len(refuser) != 1 or any(dest in addresses for addresses in responders.values()):
        return probes
    while responders.get(last - 1) == refuser:
        last -= 1
    return [Probe(probe.ttl) if probe.ttl > last else probe for probe in probes]


TOOL = MtrTool()
