"""The path by mtr, a few rounds over all hops: UDP, ICMP or TCP. Pure.

Its raw output is read, which alone tells of each packet. It does not tell why a router refuses to
forward (``!N``), and it takes such a refusal for the answer of the hop that was asked.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace

from node.model.errors import ToolOutputError
from node.model.times import MILLISECOND, SECOND
from node.plugins.binding import binding_arguments
from node.plugins.contracts import Command, Output, PartContext, Privilege, Requirement, Result
from node.plugins.hops import Probe, address_in, assembled, port_of, probes_of, wait_of
from node.plugins.reading import failure
from node.plugins.resolving import ADDRESS, resolved, resolving
from node.plugins.single_participant import LoneTool
from node.plugins.tests.trace import TraceSpec

_SET_UP = 300 * MILLISECOND
_WRAP_UP = SECOND // 2
_LOOK_UP = SECOND
_ROUND = SECOND
"""The shortest time for a round that mtr allows users other than root."""
_FIRST_HOPS = 10
"""Of the round's time each packet gets a tenth, until it is known how many hops there are."""

_LINE = re.compile(
    r"(?P<kind>[xhdp]) (?P<hop>\d{1,3}) (?P<word>\S{1,253})(?: (?P<sequence>\d{1,9}))?"
)

_KNOWN = re.compile(r"[xhdp] ")
_TIME = re.compile(r"\d{1,12}", re.ASCII)


class MtrTool(LoneTool):
    """The mtr of Roger Wolff."""

    name = "mtr"
    tests: tuple[str, ...] = ("trace",)
    preference = 1
    binds = frozenset({"address"})  # its -I takes the address of an interface, not its way
    requirement: Requirement | None = Requirement(
        "mtr",
        "mtr-tiny",
        ("mtr", "--version"),
        privilege=lambda _: Privilege.RAW,
        privileged="mtr-packet",
    )
    tried: tuple[str, ...] = ("0.95",)

    def can(self, spec: TraceSpec) -> str | None:
        """No numbers of autonomous systems, as it does not tell them packet by packet."""
        return "mtr tells no AS numbers" if spec.as_numbers else None

    def duration(self, spec: TraceSpec) -> int:
        """All rounds, the last packet's wait and the look-ups, in microseconds."""
        rounds = probes_of(spec) * max(_ROUND, spec.hops_max * _ROUND // _FIRST_HOPS)
        return _SET_UP + _LOOK_UP * (1 + spec.names) + rounds + wait_of(spec) + _WRAP_UP

    def command(self, part: PartContext) -> Command:
        """``mtr --raw -n -c 3 -i 1 -G 2 -Z 2 -m 30 -U 30 -- ADDRESS``."""
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
        return resolving(part, [*argv, "--", ADDRESS])

    def read(self, part: PartContext, output: Output) -> Result:
        """The path; that it ends early is a result as well.

        :raises ToolOutputError: it could not even ask, was ended early, or says what cannot be.
        """
        dest, lines = resolved(output, "mtr")
        probes = _probes(lines)
        if not probes or output.exit_code != 0 or output.ended_by != "itself":
            raise failure(output, "mtr", "it printed no path")
        return assembled("mtr", part.spec, dest, _without_refusals(dest, probes), paris=False)


def _probes(lines: Iterable[str]) -> list[Probe]:
    """The packets: ``x HOP NUMBER`` is sent, ``p HOP MICROSECONDS NUMBER`` answered.

    ``h HOP ADDRESS`` stands before the first answer from there, ``d HOP NAME`` before one after it.
    """
    sent: dict[str, Probe] = {}
    addresses: dict[int, str] = {}
    names: dict[int, str] = {}
    for line in _matched(lines):
        ttl, word, sequence = int(line["hop"]) + 1, line["word"], line["sequence"]
        if line["kind"] == "x":
            sent[word] = Probe(ttl)
        elif line["kind"] == "h":
            addresses[ttl] = address_in(word, "mtr")
            names.pop(ttl, None)
        elif line["kind"] == "d":
            names[ttl] = word
        elif sequence not in sent or sent[sequence].ttl != ttl or ttl not in addresses:
            raise ToolOutputError(f"mtr tells of an answer to what it has not sent: {line[0]}")
        elif not _TIME.fullmatch(word):
            raise ToolOutputError(f"mtr tells of an answer after {word} microseconds")
        else:
            sent[sequence] = Probe(ttl, addresses[ttl], int(word) / MILLISECOND)
    return [replace(probe, name=names.get(probe.ttl)) for probe in sent.values()]


def _matched(lines: Iterable[str]) -> Iterator[re.Match[str]]:
    for line in filter(_KNOWN.match, lines):
        found = _LINE.fullmatch(line)
        if found is None:
            raise ToolOutputError(f"mtr tells what cannot be: {line[:60]}")
        yield found


def _without_refusals(dest: str, probes: list[Probe]) -> list[Probe]:
    """Without the answers of a router to all that lies behind it: it says that there is no way.

    Such are the hops at the end that the same single address answers as the hop before.
    """
    heard: dict[int, set[str]] = {}
    for probe in probes:
        if probe.address is not None:
            heard.setdefault(probe.ttl, set()).add(probe.address)
    last = max(heard, default=0)
    refuser = heard.get(last, set())
    if len(refuser) != 1 or any(dest in addresses for addresses in heard.values()):
        return probes
    while heard.get(last - 1) == refuser:
        last -= 1
    return [Probe(probe.ttl) if probe.ttl > last else probe for probe in probes]


TOOL = MtrTool()
