"""The path, and its largest packet, by the tracepath of iputils: UDP only. Pure.

Hop by hop it sends the largest packet that is known to fit, until there is an answer, at most three
times and a second each; so it also finds where the limit is.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from node.model.errors import ToolOutputError
from node.model.times import MILLISECOND, SECOND
from node.plugins import iputils
from node.plugins.contracts import Command, Output, PartContext, Requirement, Result
from node.plugins.hops import Probe, address_in, assemble_path, time_of
from node.plugins.outline import ClientTool
from node.plugins.ownprograms import ADDRESS, resolving_command, split_address
from node.plugins.plausibility import Sieve
from node.plugins.reading import failure
from node.plugins.tests.mtu import MtuLimit, MtuResult, MtuSpec
from node.plugins.tests.trace import TraceSpec

_SET_UP = 300 * MILLISECOND
_WRAP_UP = SECOND // 2
_LOOK_UP = SECOND
_SILENT_HOP = 3 * SECOND
_ITS_WAIT = SECOND
_MTU_MAX = 65_535

_ANSWER = re.compile(
    r" ?(?P<ttl>\d{1,3})\??: {1,2}(?P<who>\S{1,253})(?: \((?P<address>\S{1,100})\))? +"
    r"(?P<rtt_ms>[-+]?(?:\d[\d.,eE+-]{0,400}|nan|inf))ms ?(?P<told>.{0,60})",
    re.ASCII,
)
_OWN = re.compile(
    r" ?\d{1,3}\?: {1,2}\[LOCALHOST\] +(?:\d{1,9}\.\d{3}ms )?pmtu (?P<mtu>\d{1,6})", re.ASCII
)
_LINE = re.compile(r" ?\d{1,3}\??: ")
_SILENT = re.compile(r" ?(?P<ttl>\d{1,3}): {1,2}no reply", re.ASCII)
_PMTU = re.compile(r"(?:asymm +\d{1,3} +)?pmtu (\d{1,6})", re.ASCII)
_RESUME = re.compile(r" +Resume: pmtu (?P<mtu>\d{1,6}).{0,60}", re.ASCII)
_SAID = re.compile(r"(?:asymm +\d{1,3} +)?(?P<said>![NHPA])", re.ASCII)
_MEANT = {"!A": "!X"}
"""Traceroute's codes for the same errors."""


class TracepathTool(ClientTool):
    """The tracepath of iputils."""

    name = "tracepath"
    tests: tuple[str, ...] = ("mtu", "trace")
    requirement: Requirement | None = Requirement(
        "tracepath",
        "iputils-tracepath",
        ("tracepath", "-V"),
        iputils.VERSION,
        connects=lambda _: False,
    )
    tried: tuple[str, ...] = iputils.TRIED

    def can(self, spec: TraceSpec | MtuSpec) -> str | None:
        """Refuse all but UDP with one answer per hop, its own wait and its own lengths."""
        if spec.wait not in {None, _ITS_WAIT}:
            return "tracepath always waits one second"
        return _trace_refusal(spec) if isinstance(spec, TraceSpec) else None

    def duration(self, spec: TraceSpec | MtuSpec) -> int:
        """Return the time if all hops are silent, with the look-ups, in microseconds."""
        look_ups = 1 + (spec.hops_max if isinstance(spec, TraceSpec) and spec.names else 0)
        return _SET_UP + look_ups * _LOOK_UP + spec.hops_max * _SILENT_HOP + _WRAP_UP

    def command(self, part: PartContext) -> Command:
        """Return ``tracepath -n -m 30 -- ADDRESS``."""
        named = isinstance(part.spec, TraceSpec) and part.spec.names
        options = ["-b" if named else "-n", "-m", str(part.spec.hops_max)]
        if isinstance(part.spec, MtuSpec) and part.spec.mtu_max_bytes is not None:
            options += ["-l", str(part.spec.mtu_max_bytes)]
        return resolving_command(part, ["tracepath", *options, "--", ADDRESS])

    def read(self, part: PartContext, output: Output) -> Result:
        """Read the path, or its largest packet; a path that ends early is a result as well.

        :raises ToolOutputError: it could not send, was ended early, or contradicts itself.
        """
        dest, lines = split_address(output, "tracepath")
        _check(lines)
        resume = next(filter(None, map(_RESUME.fullmatch, lines)), None)
        if resume is None or output.exit_code != 0:
            raise failure(output, "tracepath", "it printed no result")
        if isinstance(part.spec, MtuSpec):
            return _mtu(dest, lines, _parse_bytes(resume["mtu"]))
        sieve = Sieve()
        probes = _probes(sieve, lines)
        return assemble_path("tracepath", part.spec, dest, list(probes), paris=False, sieve=sieve)


def _trace_refusal(spec: TraceSpec) -> str | None:
    if spec.protocol != "udp":
        return f"tracepath cannot send {spec.protocol.upper()}"
    if spec.as_numbers:
        return "tracepath does not report AS numbers"
    if spec.length is not None:
        return "tracepath chooses the length of its packets itself"
    if spec.probes not in {None, 1}:
        return f"tracepath probes each hop until it answers once, not {spec.probes} times"
    return None


def _check(lines: Iterable[str]) -> None:
    """Refuse unknown lines about a hop: skipping one would make the result wrong."""
    forms = (_ANSWER, _OWN, _SILENT)
    for line in lines:
        if _LINE.match(line) and not any(form.fullmatch(line) for form in forms):
            raise ToolOutputError(f"tracepath reports an unknown hop: {line.strip()[:60]}")


def _probes(sieve: Sieve, lines: Iterable[str]) -> Iterator[Probe]:
    """Yield the answers of hops, without those that only report a length."""
    for line in lines:
        if silent := _SILENT.fullmatch(line):
            yield Probe(int(silent["ttl"]))
        elif (answer := _ANSWER.fullmatch(line)) and not _PMTU.fullmatch(answer["told"]):
            error = _SAID.match(answer["told"])
            message = error and _MEANT.get(error["said"], error["said"])
            address = address_in(answer["address"] or answer["who"], "tracepath")
            name = answer["who"] if answer["address"] else None
            yield Probe(
                int(answer["ttl"]), address, time_of(sieve, answer["rtt_ms"]), message, name
            )


def _mtu(dest: str, lines: list[str], mtu: int) -> Result:
    limits = []
    last = None
    for line in lines:
        answer = _ANSWER.fullmatch(line)
        if own := _OWN.fullmatch(line):
            limits.append(MtuLimit(address=None, mtu_bytes=_parse_bytes(own["mtu"])))
        elif answer and (limit := _PMTU.fullmatch(answer["told"])):
            address = address_in(answer["who"], "tracepath")
            limits.append(MtuLimit(address=address, mtu_bytes=_parse_bytes(limit[1])))
        elif answer:
            last = address_in(answer["who"], "tracepath")
    reached = last == dest
    if mtu > min((limit.mtu_bytes for limit in limits), default=mtu):
        raise ToolOutputError(f"tracepath contradicts itself: {mtu} bytes pass a smaller limit")
    return MtuResult(
        address=dest,
        mtu_bytes=mtu,
        reached=reached,
        confirmed_to=last,
        limits=tuple(limits),
        black_hole=None,
    ).model_dump(mode="json")


def _parse_bytes(text: str) -> int:
    """Parse the length of a packet.

    :raises ToolOutputError: no packet can have this length.
    """
    if not 1 <= int(text) <= _MTU_MAX:
        raise ToolOutputError(f"tracepath reports packets of {text} bytes")
    return int(text)


TOOL = TracepathTool()
