"""Round-trip time by fping, for hosts that have no ping. Pure.

In its counting mode fping uses the interval as the timeout unless another is set, so that every
slower answer is lost (schweikert/fping, issues 156 and 266); we always set it. It is set longer
than the spec's timeout, so that late answers are seen and counted as late.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from node.model.errors import ToolOutputError
from node.model.times import MILLISECOND, SECOND
from node.plugins.binding import EITHER, binding_arguments, version_of
from node.plugins.contracts import Command, Output, PartContext, Privilege, Requirement, Result
from node.plugins.figures import delay_figures, jitter, share
from node.plugins.hops import address_in
from node.plugins.outline import ClientTool
from node.plugins.reading import TEXT_BYTES_MAX, failure, text_of
from node.plugins.tests.rtt import RttResult, RttSpec

_SET_UP = 200 * MILLISECOND
_WRAP_UP = SECOND // 2
_LOOK_UP = SECOND
_TICK = 10 * MILLISECOND
_LATE_SHARE = 4
"""It may send each packet this much later than asked: a tick, or a quarter of the interval."""
_LATER = SECOND
"""Answers are seen, and counted as late, for this long after the timeout."""

_LINE = re.compile(
    r"(?P<address>\S{1,100}) +: \[(?P<sequence>\d{1,6})\], "
    r"(?:timed out|\d{1,6} bytes, (?P<rtt_ms>\d{1,9}(?:\.\d{1,6})?) ms) \(",
    re.ASCII,
)
_DUPLICATE = re.compile(r"\S{1,100} +: duplicate for \[\d{1,6}\], ", re.ASCII)
_REFUSAL = re.compile(r"ICMP (?P<said>.{1,200}) from (?P<router>\S{1,100}) for ICMP Echo sent to ")
_ERRORS_MAX = 10


class FpingTool(ClientTool):
    """The fping by Schemers and Schweikert."""

    name = "fping"
    tests: tuple[str, ...] = ("rtt",)
    preference = -1
    binds = EITHER
    requirement: Requirement | None = Requirement(
        # With the kernel's sockets for echo requests, version 5.1 loses every answer.
        "fping",
        "fping",
        ("fping", "--version"),
        privilege=lambda _: Privilege.RAW,
        connects=lambda _: False,
    )
    tried: tuple[str, ...] = ("5.1",)

    def can(self, spec: RttSpec) -> str | None:
        """Refuse a flow label."""
        return "fping sets no flow label" if spec.flow_label else None

    def duration(self, spec: RttSpec) -> int:
        """Return set-up, all packets, the extended timeout and wrap-up, in microseconds."""
        late = max(_TICK, spec.interval // _LATE_SHARE)
        packets = spec.count * (spec.interval + late)
        return _SET_UP + _LOOK_UP + packets + spec.timeout + _LATER + _WRAP_UP

    def command(self, part: PartContext) -> Command:
        """Return ``fping -A -C 10 -p 200 -t 2000 -b 56 -- ADDRESS``."""
        spec: RttSpec = part.spec
        options = ["-A", "-C", str(spec.count), "-p", f"{spec.interval / MILLISECOND:g}"]
        options += ["-t", f"{(spec.timeout + _LATER) / MILLISECOND:g}", "-b", str(spec.length)]
        if spec.ttl is not None:
            options += ["-H", str(spec.ttl)]
        options += ["-O", str(spec.tos)] if spec.tos else []
        options += ["-M"] if spec.dont_fragment else []
        options += binding_arguments(part, "-I", "-S")
        if (version := version_of(part)) is not None:
            options.append(f"-{version}")
        return Command(argv=("fping", *options, "--", part.addresses.get(spec.dest, spec.dest)))

    def read(self, part: PartContext, output: Output) -> Result:
        """Read times and loss; a silent target (exit code 1) is a result as well.

        :raises ToolOutputError: it could not send, was ended early, or contradicts itself.
        """
        spec: RttSpec = part.spec
        lines = list(filter(None, map(_LINE.match, text_of(output, "fping").splitlines())))
        sequences = {int(line["sequence"]) for line in lines}
        if not lines or (output.ended_by != "itself" and len(sequences) < spec.count):
            raise failure(output, "fping", "it reported no packet")
        if len(sequences) < len(lines) or sequences != set(range(spec.count)):
            raise ToolOutputError(
                f"fping reports {len(lines)} packets, {len(sequences)} different, of {spec.count}"
            )
        # The lines are in the order of the answers.
        answers = {int(line["sequence"]): float(line["rtt_ms"]) for line in lines if line["rtt_ms"]}
        timeout_ms = spec.timeout / MILLISECOND
        in_time = {at: rtt_ms for at, rtt_ms in answers.items() if rtt_ms <= timeout_ms}
        complaints = output.stderr[:TEXT_BYTES_MAX].decode(errors="replace").splitlines()
        result = RttResult(
            address=address_in(lines[0]["address"], "fping"),
            sent=spec.count,
            received=len(in_time),
            late=len(answers) - len(in_time),
            loss=share(spec.count - len(in_time), spec.count),
            rtt_ms=delay_figures(list(in_time.values())),
            jitter_ms=jitter(in_time),
            duplicates=sum(_DUPLICATE.match(line) is not None for line in complaints),
            reordered=_reordered_count(answers),
            errors=_error_messages(complaints),
        )
        return result.model_dump(mode="json")


def _reordered_count(sequences: Iterable[int]) -> int:
    """Count the answers with a smaller number than an earlier one (RFC 4737)."""
    highest, count = -1, 0
    for sequence in sequences:
        count += sequence < highest
        highest = max(highest, sequence)
    return count


def _error_messages(complaints: Iterable[str]) -> tuple[str, ...]:
    """Return routers' error messages, each once."""
    refusals = filter(None, map(_REFUSAL.match, complaints))
    errors = [f"{refusal['said']} (from {refusal['router']})" for refusal in refusals]
    return tuple(error[:300] for error in dict.fromkeys(errors))[:_ERRORS_MAX]


TOOL = FpingTool()
