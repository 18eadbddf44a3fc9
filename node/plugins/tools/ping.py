"""Round-trip time by the ping of iputils. Pure.

The lines of the single answers give median, percentile and jitter; the summary gives minimum, mean
and maximum with more decimals than the lines have from 10 ms on.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from node.model.errors import ToolOutputError
from node.model.times import MILLISECOND, SECOND
from node.plugins.contracts import Command, Output, PartContext, Requirement, Result
from node.plugins.figures import DelayFigures, delay_figures, jitter, share
from node.plugins.reading import complaint, failure, text_of
from node.plugins.tests.rtt import RttResult, RttSpec

_SET_UP = 200 * MILLISECOND
_WRAP_UP = SECOND // 2  # the launcher ends what still runs 250 ms before the booked end
_LOOK_UP = SECOND
"""For the name service, should dest be a name; the program does not tell us beforehand."""
_TICK = 10 * MILLISECOND
"""ping waits in the kernel's ticks: 4 ms more per packet were measured (250 Hz), 10 at 100 Hz."""

_HEADER = re.compile(r"PING \S+ ?\((?P<address>[^)\s]{1,253})\)", re.ASCII)
_ANSWER = re.compile(
    r"\d{1,6} bytes from .{1,300}?: icmp_seq=(?P<sequence>\d{1,6}) ttl=\d{1,3}"
    r" time=(?P<rtt_ms>\d{1,9}(?:\.\d{1,6})?) ms",
    re.ASCII,
)
_REFUSAL = re.compile(r"From (?P<router>\S{1,253}).{0,300}? icmp_seq=\d{1,6} (?P<said>.{1,200})")
_SUMMARY = re.compile(r"(?P<sent>\d{1,9}) packets transmitted, (?P<received>\d{1,9}) received,")
_NUMBER = r"(\d{1,9}(?:\.\d{1,6})?)"
_RTT = re.compile(rf"rtt min/avg/max/mdev = {_NUMBER}/{_NUMBER}/{_NUMBER}/{_NUMBER} ms", re.ASCII)
_ERRORS_MAX = 10


@dataclass
class _Answers:
    """What the lines say, in the order in which they were printed."""

    rtt_ms: dict[int, float] = field(default_factory=dict)
    """Sequence number → time of its first answer."""
    duplicates: int = 0
    reordered: int = 0
    highest: int = 0

    def add(self, sequence: int, rtt_ms: float) -> None:
        if sequence in self.rtt_ms:
            self.duplicates += 1
            return
        if sequence < self.highest:  # RFC 4737: smaller than the next one expected
            self.reordered += 1
        self.highest = max(self.highest, sequence)
        self.rtt_ms[sequence] = rtt_ms


class PingTool:
    """The ping of iputils."""

    name = "ping"
    tests: tuple[str, ...] = ("rtt",)
    preference = 0
    requirement: Requirement | None = Requirement(program="ping", package="iputils-ping")

    def duration(self, spec: RttSpec) -> int:
        """Set-up, all packets, the last one's timeout and wrap-up, in microseconds."""
        packets = spec.count * (spec.interval + _TICK)
        return _SET_UP + _LOOK_UP + packets + spec.timeout + _WRAP_UP

    def needs_port(self, spec: RttSpec, participant: int) -> bool:  # noqa: ARG002 - contract
        """Never: ICMP has no ports."""
        return False

    def command(self, part: PartContext) -> Command:
        """``ping -n -c 10 -i 0.2 -W 1 -s 56 -- ADDRESS``."""
        spec: RttSpec = part.spec
        options = ["-n", "-c", str(spec.count), "-i", _seconds(spec.interval)]
        options += ["-W", _seconds(spec.timeout), "-s", str(spec.length)]
        if spec.ttl is not None:
            options += ["-t", str(spec.ttl)]
        if spec.ip_version is not None:
            options.append(f"-{spec.ip_version}")
        return Command(argv=("ping", *options, "--", part.addresses.get(spec.dest, spec.dest)))

    def read(self, part: PartContext, output: Output) -> Result:
        """Times and loss; that nobody answered (exit code 1) is a result as well.

        :raises ToolOutputError: ping could not even ask, was ended early, or contradicts itself.
        """
        lines = text_of(output, "ping").splitlines()
        header = next(filter(None, map(_HEADER.match, lines)), None)
        summary = next(filter(None, map(_SUMMARY.match, lines)), None)
        if header is None or summary is None or output.ended_by != "itself":
            raise failure(output, "ping", "it printed no summary")
        sent, received = int(summary["sent"]), int(summary["received"])
        answers = _answers(lines)
        _check(part.spec, answers, sent, received)
        errors = _errors(lines, complaint(output, "ping"))
        figures = _figures(answers, lines)
        return _result(part.spec, header["address"], sent, answers, figures, errors)


def _seconds(duration: int) -> str:
    return f"{duration / SECOND:.6f}".rstrip("0").rstrip(".")


def _answers(lines: Iterable[str]) -> _Answers:
    answers = _Answers()
    for answer in filter(None, map(_ANSWER.match, lines)):
        answers.add(int(answer["sequence"]), float(answer["rtt_ms"]))
    return answers


def _check(spec: RttSpec, answers: _Answers, sent: int, received: int) -> None:
    if received != len(answers.rtt_ms):
        told = f"{len(answers.rtt_ms)} answers, its summary {received}"
        raise ToolOutputError(f"ping contradicts itself: its lines tell of {told}")
    if not (received <= sent <= spec.count and 0 < sent and answers.highest <= spec.count):
        raise ToolOutputError(f"ping says {sent} sent, {received} received of {spec.count} asked")


def _errors(lines: Iterable[str], complained: str) -> tuple[str, ...]:
    """What was said instead of an answer, each once, routers' words before the host's own."""
    refusals = filter(None, map(_REFUSAL.match, lines))
    said = [f"{refusal['said'].strip()} (from {refusal['router']})" for refusal in refusals]
    said += [complained] if complained else []
    return tuple(error[:300] for error in dict.fromkeys(said))[:_ERRORS_MAX]


def _figures(answers: _Answers, lines: Iterable[str]) -> DelayFigures | None:
    """The figures of all answers, sharpened by the summary's decimals.

    The summary counts duplicates in, so with duplicates the lines alone are used.
    """
    figures = delay_figures(list(answers.rtt_ms.values()))
    summary = next(filter(None, map(_RTT.match, lines)), None)
    if figures is None or summary is None or answers.duplicates:
        return figures
    least, mean, most, deviation = (float(number) for number in summary.groups())
    if not least <= mean <= most:
        raise ToolOutputError(f"ping contradicts itself: {summary[0]}")
    return DelayFigures(
        min=least,
        # The lines are rounded: without the bounds a median could lie below the minimum.
        median=min(most, max(least, figures.median)),
        mean=mean,
        p95=min(most, max(least, figures.p95)),
        max=most,
        stdev=deviation,
    )


def _result(  # noqa: PLR0913, PLR0917 - one argument for each thing read
    spec: RttSpec,
    address: str,
    sent: int,
    answers: _Answers,
    figures: DelayFigures | None,
    errors: tuple[str, ...],
) -> Result:
    timeout_ms = spec.timeout / MILLISECOND
    in_time = {at: rtt_ms for at, rtt_ms in answers.rtt_ms.items() if rtt_ms <= timeout_ms}
    late = len(answers.rtt_ms) - len(in_time)
    result = RttResult(
        address=address,
        sent=sent,
        received=len(in_time),
        late=late,
        loss=share(sent - len(in_time), sent),
        rtt_ms=delay_figures(list(in_time.values())) if late else figures,
        jitter_ms=jitter(in_time),
        duplicates=answers.duplicates,
        reordered=answers.reordered,
        errors=errors,
    )
    return result.model_dump(mode="json")


TOOL = PingTool()
