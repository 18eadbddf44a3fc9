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
from node.plugins.plausibility import Sieve
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
    r"(?:timed out|(?P<bytes>\d{1,6}) bytes, (?P<rtt_ms>\S{1,400}) ms) \(",
    re.ASCII,
)
_TOTAL = re.compile(r"(?P<address>\S{1,100}) +: (?P<told>\S.*)", re.ASCII)
_COUNTS = re.compile(
    r"xmt/rcv/%loss = (?P<sent>[^/\s]{1,40})/(?P<received>[^/\s]{1,40})/", re.ASCII
)
_LOST = "-"
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
        least="4.0",  # earlier ones are two programs, one for each version of IP
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
        complaints = output.stderr[:TEXT_BYTES_MAX].decode(errors="replace").splitlines()
        total = next(filter(None, map(_TOTAL.fullmatch, complaints)), None)
        sequences = {int(line["sequence"]) for line in lines}
        whole = total is not None and _is_total(total["told"], spec.count)
        told = lines[0] if lines else total if whole else None
        if told is None or (output.ended_by != "itself" and len(sequences) < spec.count):
            raise failure(output, "fping", "it reported no packet")
        missing = set(range(spec.count)) - sequences
        if (
            len(sequences) < len(lines)
            or not sequences <= set(range(spec.count))
            or (missing and not whole)
        ):
            raise ToolOutputError(
                f"fping reports {len(lines)} packets, {len(sequences)} different, of {spec.count}"
            )
        sieve = Sieve()
        answers = _answers(sieve, spec, lines)
        if missing and total is not None:
            _add_untold(sieve, spec, answers, missing, total["told"])
        times = {at: rtt_ms for at, rtt_ms in answers.items() if rtt_ms is not None}
        in_time = {at: it for at, it in times.items() if it <= spec.timeout / MILLISECOND}
        late = len(times) - len(in_time)
        result = RttResult(
            address=address_in(told["address"], "fping"),
            sent=spec.count,
            received=len(answers) - late,
            late=late,
            loss=share(spec.count - len(answers) + late, spec.count),
            rtt_ms=delay_figures(list(in_time.values())),
            jitter_ms=jitter(in_time),
            duplicates=sum(_DUPLICATE.match(line) is not None for line in complaints),
            reordered=_reordered_count(answers),
            errors=_error_messages(complaints),
            notes=sieve.notes,
        )
        return result.model_dump(mode="json")


_Times = dict[int, float | None]
"""The answers in their order: sequence number → milliseconds, None if that cannot be true."""


def _answers(sieve: Sieve, spec: RttSpec, lines: Iterable[re.Match[str]]) -> _Times:
    """Return the answers of the lines, which are in the order of the answers."""
    return {
        int(line["sequence"]): _time(sieve, spec, line["rtt_ms"])
        for line in lines
        if line["rtt_ms"]
    }


def _time(sieve: Sieve, spec: RttSpec, printed: str) -> float | None:
    return sieve.number("the time of an answer", printed, most=spec.longest_ms)


def _is_total(told: str, count: int) -> bool:
    """Return whether a line of standard error tells of each packet, or counts them."""
    return _COUNTS.match(told) is not None or len(told.split()) == count


def _add_untold(
    sieve: Sieve, spec: RttSpec, answers: _Times, missing: Iterable[int], total: str
) -> None:
    """Add the answers that only the last line tells of; before version 5 lost ones have no line."""
    counts = _COUNTS.match(total)
    if counts is None:
        words = total.split()
        told = [at for at in sorted(missing) if words[at] != _LOST]
        answers |= {at: _time(sieve, spec, words[at]) for at in told}
        if told:
            sieve.say(f"{len(told)} answers are those of fping's last line")
        return
    received = sieve.count("received", counts["received"], spec.count)
    if received is None or received < len(answers):
        raise ToolOutputError(f"fping reports {len(answers)} answers, and counts {total[:60]}")
    told = sorted(missing)[: received - len(answers)]
    answers |= dict.fromkeys(told)
    if told:
        sieve.say(f"fping printed {len(answers) - len(told)} of {received} answers")


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
