"""The path by scamper, whose packets look alike to routers that balance load (Paris). Pure.

Augustin et al., "Avoiding traceroute anomalies with Paris traceroute", IMC 2006. It probes one
packet after the other.

If it could not send, it says so on standard error, or only by its stop reason: it sends TCP as
whole frames, and prints no error if the interface has none (TUN, some tunnels).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Annotated

from pydantic import BaseModel, Field, ValidationError

from node.model.errors import ToolOutputError
from node.model.times import MILLISECOND, SECOND
from node.plugins.binding import binding_arguments
from node.plugins.contracts import Command, Output, PartContext, Privilege, Requirement, Result
from node.plugins.hops import Probe, address_in, assemble_path, port_of, probes_of, time_of, wait_of
from node.plugins.outline import ClientTool
from node.plugins.ownprograms import ADDRESS, resolving_command, split_address
from node.plugins.participation import first_fault
from node.plugins.plausibility import Sieve
from node.plugins.reading import failure
from node.plugins.tests.trace import TraceSpec

_SET_UP = 300 * MILLISECOND
_WRAP_UP = SECOND // 2
_LOOK_UP = SECOND
_PER_SECOND = 50
_SILENT_HOPS = 5
"""It stops after this many silent hops: probing on takes minutes where nothing answers."""

_METHODS = {
    "udp": ("udp-paris", "udp"),  # in version 20211212, udp-paris over IPv6 gets no answers
    "icmp": ("icmp-paris", "icmp-paris"),
    "tcp": ("tcp", "tcp"),  # SYNs are matched by their IP header, so that the flow is the same
}
_PARIS = frozenset({"udp-paris", "icmp-echo-paris", "tcp"})
_UNREACHABLE = {4: 3, 6: 1}
_SAID = {
    4: {0: "!N", 1: "!H", 2: "!P", 4: "!F", 9: "!X", 10: "!X", 13: "!X"},
    6: {0: "!N", 1: "!X", 3: "!H"},
}
_PORT_UNREACHABLE = {4: 3, 6: 4}
_TRACE = re.compile(r'\{"type":"trace"')
_MADE = frozenset({"COMPLETED", "UNREACH", "ICMP", "LOOP", "GAPLIMIT", "HOPLIMIT"})
"""Stop reasons of measured paths; the other reasons are scamper's own failures."""
_WHERE = re.compile(rb"^\[[\d:]+\] \w+: (?:connect to dst failed for )?", re.MULTILINE)
"""The time and function name before a message on standard error."""


class _Hop(BaseModel):
    addr: Annotated[str, Field(max_length=100)]
    probe_ttl: Annotated[int, Field(ge=1, le=255)]
    probe_id: Annotated[int, Field(ge=1, le=255)]
    rtt: float | int | None = None
    icmp_type: Annotated[int, Field(ge=0, le=255)] | None = None
    icmp_code: Annotated[int, Field(ge=0, le=255)] | None = None


class _Trace(BaseModel):
    method: Annotated[str, Field(max_length=40)]
    dst: Annotated[str, Field(max_length=100)]
    stop_reason: Annotated[str, Field(pattern=r"^[A-Z-]{1,40}$")]
    hop_count: Annotated[int, Field(ge=0, le=255)]
    hops: Annotated[tuple[_Hop, ...], Field(max_length=10_000)] = ()


class ScamperTool(ClientTool):
    """The scamper by CAIDA and Matthew Luckie."""

    name = "scamper"
    tests: tuple[str, ...] = ("trace",)
    preference = 3
    binds = frozenset({"address"})
    requirement: Requirement | None = Requirement(
        "scamper",
        "scamper",
        ("scamper", "-v"),
        r"version (\d+[a-z]?)",
        privilege=lambda _: Privilege.ROOT,
    )
    tried: tuple[str, ...] = ("20211212",)

    def can(self, spec: TraceSpec) -> str | None:
        """Refuse names, AS numbers, and lengths."""
        if spec.names:
            return "scamper does not report names of hops"
        if spec.as_numbers:
            return "scamper does not report AS numbers"
        return None if spec.length is None else "scamper cannot set the length"

    def duration(self, spec: TraceSpec) -> int:
        """Return the time if all packets are lost, one after the other, in microseconds."""
        packets = spec.hops_max * probes_of(spec)
        return _SET_UP + _LOOK_UP + packets * (wait_of(spec) + SECOND // _PER_SECOND) + _WRAP_UP

    def command(self, part: PartContext) -> Command:
        """Return ``scamper -O json -p 50 -c "trace -P udp-paris -Q -q 3 -w 2 …" -i ADDRESS``.

        Scamper itself parses the text after ``-c``; it contains only our own words and numbers.
        """
        spec: TraceSpec = part.spec
        options = f"-Q -q {probes_of(spec)} -w {-(-wait_of(spec) // SECOND)}"
        options += f" -m {spec.hops_max} -g {_SILENT_HOPS}"
        options = " ".join([options, *binding_arguments(part, "", "-S")])
        if spec.protocol == "tcp":
            options += f" -d {port_of(spec)}"
        four, six = (
            ["scamper", "-O", "json", "-p", str(_PER_SECOND), "-c", f"trace -P {method} {options}"]
            for method in _METHODS[spec.protocol]
        )
        return resolving_command(part, [*four, "-i", ADDRESS], [*six, "-i", ADDRESS])

    def read(self, part: PartContext, output: Output) -> Result:
        """Read the path; a path that ends early is a result as well.

        :raises ToolOutputError: it could not send, was ended early, or contradicts itself.
        """
        dest, lines = split_address(output, "scamper")
        document = next((line for line in lines if _TRACE.match(line)), None)
        if document is None:
            raise _output_error(output, "it printed no path")
        try:
            trace = _Trace.model_validate_json(document, strict=True)
        except ValidationError as fault:
            raise _output_error(output, first_fault(fault)) from None
        if trace.stop_reason not in _MADE:
            raise _output_error(output, _unsent_reason(part.spec, trace))
        if address_in(trace.dst, "scamper") != dest:
            raise ToolOutputError(f"scamper traced {trace.dst}, not {dest}")
        sieve = Sieve()
        probes = list(_probes(sieve, trace, probes_of(part.spec)))
        paris = trace.method in _PARIS
        return assemble_path("scamper", part.spec, dest, probes, paris=paris, sieve=sieve)


def _output_error(output: Output, otherwise: str) -> ToolOutputError:
    return failure(replace(output, stderr=_WHERE.sub(b"", output.stderr)), "scamper", otherwise)


def _unsent_reason(spec: TraceSpec, trace: _Trace) -> str:
    reason = f"it stopped with {trace.stop_reason} after hop {trace.hop_count}"
    if spec.protocol == "tcp" and not trace.hop_count:
        reason += "; it cannot send TCP without Ethernet, as others can (traceroute)"
    return reason


def _probes(sieve: Sieve, trace: _Trace, per_hop: int) -> Iterator[Probe]:
    """Yield the answered packets, and each hop's unanswered ones."""
    answered = {(hop.probe_ttl, hop.probe_id) for hop in trace.hops}
    for hop in trace.hops:
        address, rtt_ms = address_in(hop.addr, "scamper"), time_of(sieve, hop.rtt)
        yield Probe(hop.probe_ttl, address, rtt_ms, _refusal_code(hop))
    for ttl in range(1, trace.hop_count + 1):
        for number in range(1, per_hop + 1):
            if (ttl, number) not in answered:
                yield Probe(ttl)


def _refusal_code(hop: _Hop) -> str | None:
    """Return ``!N`` and the like, as traceroute prints it; None from routers and from dest."""
    version = 6 if ":" in hop.addr else 4
    code = hop.icmp_code
    if hop.icmp_type != _UNREACHABLE[version] or code == _PORT_UNREACHABLE[version]:
        return None
    return _SAID[version].get(code or 0, f"!<{code}>")


TOOL = ScamperTool()
