"""Round-trip time by the ping of iputils. Pure.

The lines of the single answers give median, percentile and jitter; the summary gives minimum, mean
and maximum to the microsecond. The lines are coarser: 0.1 ms from 10 ms on, 1 ms from 100 ms on.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from node.model.errors import ToolOutputError
from node.model.times import MILLISECOND, SECOND
from node.plugins import iputils
from node.plugins.binding import EITHER, binding_arguments, version_of
from node.plugins.contracts import Command, Output, PartContext, Requirement, Result
from node.plugins.figures import DelayFigures, delay_figures, jitter, share
from node.plugins.outline import ClientTool
from node.plugins.reading import complaint, failure, text_of
from node.plugins.tests.rtt import RttResult, RttSpec

_SET_UP = 200 * MILLISECOND
_WRAP_UP = SECOND // 2  # the launcher ends what still runs 250 ms before the booked end
_LOOK_UP = SECOND
"""Time for the name service, in case dest is a name, which is not known beforehand."""
_TICK = 10 * MILLISECOND
_LATE_SHARE = 4
"""ping waits by the kernel's timer wheel, which rounds up to a tick (10 ms at 100 Hz) and long
waits to an eighth; measured at 250 Hz: 0.01 s takes 16 ms, on a busy host 20; 0.3 s takes 320 ms.
Booking more costs little: a background run blocks nobody, and its time is free once it has ended.
"""

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
    """The answers, in the order in which they were printed."""

    rtt_ms: dict[int, float] = field(default_factory=dict)
    """Sequence number → time of its first answer."""
    duplicates: int = 0
    reordered: int = 0
    highest: int = 0

    @property
    def count(self) -> int:
        return len(self.rtt_ms)

    def add(self, sequence: int, rtt_ms: float) -> None:
        if sequence in self.rtt_ms:
            self.duplicates += 1
            return
        if sequence < self.highest:  # RFC 4737: smaller than the next one expected
            self.reordered += 1
        self.highest = max(self.highest, sequence)
        self.rtt_ms[sequence] = rtt_ms


class PingTool(ClientTool):
    """The ping by iputils."""

    name = "ping"
    tests: tuple[str, ...] = ("rtt",)
    requirement: Requirement | None = iputils.PING
    tried: tuple[str, ...] = iputils.TRIED
    binds = EITHER

    def duration(self, spec: RttSpec) -> int:
        """Return set-up, all packets, the last one's timeout and wrap-up, in microseconds."""
        packets = spec.count * (spec.interval + _lateness(spec.interval))
        return _SET_UP + _LOOK_UP + packets + spec.timeout + _WRAP_UP

    def command(self, part: PartContext) -> Command:
        """Return ``ping -n -c 10 -i 0.2 -W 1 -s 56 -- ADDRESS``."""
        spec: RttSpec = part.spec
        options = ["-n", "-c", str(spec.count), "-i", _seconds(spec.interval)]
        options += ["-W", _seconds(spec.timeout), "-s", str(spec.length)]
        if spec.ttl is not None:
            options += ["-t", str(spec.ttl)]
        if (version := version_of(part)) is not None:
            options.append(f"-{version}")
        options += ["-Q", str(spec.tos)] if spec.tos else []
        options += ["-F", str(spec.flow_label)] if spec.flow_label else []
        options += ["-M", "do"] if spec.dont_fragment else []
        options += binding_arguments(part, "-I", "-I")
        return Command(argv=("ping", *options, "--", part.addresses.get(spec.dest, spec.dest)))

    def read(self, part: PartContext, output: Output) -> Result:
        """Read times and loss; a silent target (exit code 1) is a result as well.

        :raises ToolOutputError: ping could not send, was ended early, or contradicts itself.
        """
        lines = text_of(output, "ping").splitlines()
        header = next(filter(None, map(_HEADER.match, lines)), None)
        summary = next(filter(None, map(_SUMMARY.match, lines)), None)
        if header is None or summary is None:
            raise failure(output, "ping", "it printed no summary")
        sent, received = int(summary["sent"]), int(summary["received"])
        answers = _answers(lines)
        _check(part.spec, answers, sent, received)
        in_time, figures = _in_time(part.spec, answers, lines)
        result = RttResult(
            address=header["address"],
            sent=sent,
            received=len(in_time),
            late=received - len(in_time),
            loss=share(sent - len(in_time), sent),
            rtt_ms=figures,
            jitter_ms=jitter(in_time),
            duplicates=answers.duplicates,
            reordered=answers.reordered,
            errors=_error_messages(lines, complaint(output, "ping")),
        )
        return result.model_dump(mode="json")


def _lateness(interval: int) -> int:
    """Return how late ping may send each packet, in microseconds."""
    return max(_TICK, interval // _LATE_SHARE)


def _seconds(duration: int) -> str:
    return f"{duration / SECOND:.6f}".rstrip("0").rstrip(".")


def _answers(lines: Iterable[str]) -> _Answers:
    answers = _Answers()
    for answer in filter(None, map(_ANSWER.match, lines)):
        answers.add(int(answer["sequence"]), float(answer["rtt_ms"]))
    return answers


def _check(spec: RttSpec, answers: _Answers, sent: int, received: int) -> None:
    if received != answers.count:
        counts = f"{answers.count} answers, its summary {received}"
        raise ToolOutputError(f"ping contradicts itself: its lines report {counts}")
    if not (received <= sent <= spec.count and sent > 0 and answers.highest <= spec.count):
        raise ToolOutputError(f"ping reports {sent} sent, {received} received of {spec.count}")


def _error_messages(lines: Iterable[str], complaint_line: str) -> tuple[str, ...]:
    """Return the error messages, each once, routers' before the host's own."""
    refusals = filter(None, map(_REFUSAL.match, lines))
    errors = [f"{refusal['said'].strip()} (from {refusal['router']})" for refusal in refusals]
    errors += [complaint_line] if complaint_line else []
    return tuple(error[:300] for error in dict.fromkeys(errors))[:_ERRORS_MAX]


def _in_time(
    spec: RttSpec, answers: _Answers, lines: Iterable[str]
) -> tuple[dict[int, float], DelayFigures | None]:
    """Return the answers within the timeout (sequence number → ms), and their figures.

    The summary has more decimals, but also counts duplicates and late answers.
    """
    timeout_ms = spec.timeout / MILLISECOND
    in_time = {at: rtt_ms for at, rtt_ms in answers.rtt_ms.items() if rtt_ms <= timeout_ms}
    figures = delay_figures(list(in_time.values()))
    summary = _summary_line(lines)
    if figures is None or summary is None or answers.duplicates or len(in_time) < answers.count:
        return in_time, figures
    return in_time, _with_summary(figures, summary)


def _summary_line(lines: Iterable[str]) -> re.Match[str] | None:
    """Return the last line, with minimum, mean, maximum and deviation; None without answers.

    :raises ToolOutputError: it is there, but malformed.
    """
    line = next((line for line in lines if line.startswith("rtt ")), None)
    summary = line and _RTT.match(line)
    if line and not summary:
        raise ToolOutputError(f"ping prints malformed times: {line[:100]}")
    return summary or None


def _with_summary(figures: DelayFigures, summary: re.Match[str]) -> DelayFigures:
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


TOOL = PingTool()
