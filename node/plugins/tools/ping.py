"""Round-trip time by the ping of iputils. Pure.

The lines of the single answers give median, percentile and jitter; the summary gives minimum, mean
and maximum to the microsecond. The lines are coarser: 0.1 ms from 10 ms on, 1 ms from 100 ms on.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from node.model.errors import ToolOutputError
from node.model.times import MILLISECOND, SECOND
from node.plugins import iputils
from node.plugins.binding import EITHER, binding_arguments, version_of
from node.plugins.contracts import Command, Output, PartContext, Requirement, Result
from node.plugins.figures import KnownDelays, delay_figures, jitter, share
from node.plugins.outline import ClientTool
from node.plugins.plausibility import Sieve
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
_ANSWER = re.compile(r"\d{1,6} .{1,300}?: icmp_seq=(?P<sequence>\d{1,6})(?P<told>.*)")
_TIME = re.compile(r" [^\s=<]{1,20}[=<](?P<rtt_ms>\S+) ms")
_REFUSAL = re.compile(r"From (?P<router>\S{1,253}).{0,300}? icmp_seq=\d{1,6} (?P<said>.{1,200})")
_BEFORE_SUMMARY = re.compile(r"--- .{1,300} ---")
_COUNT = re.compile(r"(?<!\S)[-+]?\d[^\s,]{0,40}")
_RTT = re.compile(
    r".{3,40} = ([^/\s]{1,400})/([^/\s]{1,400})/([^/\s]{1,400})/([^/\s]{1,400}) \S{1,3}"
)
_ERRORS_MAX = 10
_COUNTS_LEAST = 3
"""The summary has the packets sent, those received, and the share lost."""
_COARSE_MS = 1.0
"""Distance that the lines, which are rounded, may have from the summary."""


@dataclass
class _Answers:
    """The answers, in the order in which they were printed."""

    rtt_ms: dict[int, float | None] = field(default_factory=dict)
    """Sequence number → time of its first answer, None without one that can be true."""
    duplicates: int = 0
    reordered: int = 0
    highest: int = 0
    truncated: int = 0
    corrupted: int = 0

    @property
    def count(self) -> int:
        return len(self.rtt_ms)

    @property
    def times_ms(self) -> dict[int, float]:
        return {at: rtt_ms for at, rtt_ms in self.rtt_ms.items() if rtt_ms is not None}

    def add(self, sequence: int, rtt_ms: float | None) -> None:
        if sequence in self.rtt_ms:
            self.duplicates += 1
            return
        if sequence < self.highest:  # RFC 4737: smaller than the next one expected
            self.reordered += 1
        self.highest = max(self.highest, sequence)
        self.rtt_ms[sequence] = rtt_ms


@dataclass(frozen=True)
class _Summary:
    """The last lines; times are minimum, mean, maximum and deviation, None if they are unknown."""

    sent: int | None
    received: int | None
    times_ms: tuple[float, float, float, float] | None


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

        :raises ToolOutputError: ping could not send, was ended early, or its counts cannot be.
        """
        spec: RttSpec = part.spec
        lines = text_of(output, "ping").splitlines()
        header = next(filter(None, map(_HEADER.match, lines)), None)
        sieve = Sieve()
        summary = _summary(sieve, lines, spec.longest_ms)
        bounds_ms = summary.times_ms if summary else None
        answers = _answers(sieve, lines, spec.longest_ms, bounds_ms)
        if header is None or (summary is None and answers.count < spec.count):
            raise failure(output, "ping", "it printed no summary")
        sent, received = _counts(sieve, spec, answers, summary)
        in_time = {
            at: rtt_ms
            for at, rtt_ms in answers.times_ms.items()
            if rtt_ms <= spec.timeout / MILLISECOND
        }
        late = len(answers.times_ms) - len(in_time)
        result = RttResult(
            address=header["address"],
            sent=sent,
            received=received - late,
            late=late,
            loss=share(sent - received + late, sent),
            rtt_ms=_figures(sieve, spec, answers, in_time, received, summary),
            jitter_ms=jitter(in_time),
            duplicates=answers.duplicates,
            reordered=answers.reordered,
            errors=_error_messages(lines, complaint(output, "ping")),
            notes=sieve.notes,
        )
        return result.model_dump(mode="json")


def _lateness(interval: int) -> int:
    """Return how late ping may send each packet, in microseconds."""
    return max(_TICK, interval // _LATE_SHARE)


def _seconds(duration: int) -> str:
    return f"{duration / SECOND:.6f}".rstrip("0").rstrip(".")


def _answers(
    sieve: Sieve,
    lines: Iterable[str],
    longest_ms: float,
    bounds_ms: tuple[float, float, float, float] | None,
) -> _Answers:
    """Return the answers with the times that can be true, also beside those of the summary.

    A truncated one has no time, and one with a wrong checksum counts as none.
    """
    least, most = 0.0, longest_ms
    if bounds_ms is not None:
        least, most = max(0.0, bounds_ms[0] - _COARSE_MS), bounds_ms[2] + _COARSE_MS
    answers = _Answers()
    for answer in filter(None, map(_ANSWER.match, lines)):
        if "CHECKSUM" in answer["told"]:
            answers.corrupted += 1
            continue
        answers.truncated += "(truncated)" in answer["told"]
        time = _TIME.search(answer["told"])
        rtt_ms = sieve.number("the time of an answer", time and time["rtt_ms"], least, most)
        answers.add(int(answer["sequence"]), rtt_ms)
    if answers.truncated:
        sieve.say(f"{answers.truncated} replies were truncated, so ping printed no time for them")
    if answers.corrupted:
        sieve.say(f"{answers.corrupted} replies were corrupted; they count as lost")
    return answers


def _counts(
    sieve: Sieve, spec: RttSpec, answers: _Answers, summary: _Summary | None
) -> tuple[int, int]:
    """Return how many packets were sent, and how many of them were answered.

    :raises ToolOutputError: that cannot be known.
    """
    sent = spec.count if summary is None else summary.sent
    received = None if summary is None else summary.received
    if summary is None:
        sieve.say("ping's summary is missing")
    told = f"{sent} sent, {received} received, {answers.count} answers of {spec.count}"
    if not sent or not answers.count <= sent <= spec.count or answers.highest > spec.count:
        raise ToolOutputError(f"ping contradicts itself: it reports {told}")
    if received is None or not answers.count <= received <= sent:
        if summary is not None:
            sieve.say(f"the answers are those of the lines: {told}")
        return sent, answers.count
    if received > answers.count:
        sieve.say(f"ping printed {answers.count} of {received} answers")
    return sent, received


def _error_messages(lines: Iterable[str], complaint_line: str) -> tuple[str, ...]:
    """Return the error messages, each once, routers' before the host's own."""
    refusals = filter(None, map(_REFUSAL.match, lines))
    errors = [f"{refusal['said'].strip()} (from {refusal['router']})" for refusal in refusals]
    errors += [complaint_line] if complaint_line else []
    return tuple(error[:300] for error in dict.fromkeys(errors))[:_ERRORS_MAX]


def _summary(sieve: Sieve, lines: Sequence[str], longest_ms: float) -> _Summary | None:
    """Return what the last lines tell, in whatever language; None if they are missing."""
    heads = [at for at, line in enumerate(lines) if _BEFORE_SUMMARY.fullmatch(line.rstrip())]
    last = lines[heads[-1] + 1 :] if heads else lines
    found = map(_COUNT.findall, last)
    counts = next((each for each in found if len(each) >= _COUNTS_LEAST), None)
    if counts is None or (not heads and "%" not in "".join(counts)):
        return None
    times = next(filter(None, map(_RTT.match, last)), None)
    return _Summary(
        sent=sieve.count("sent", counts[0]),
        received=sieve.count("received", counts[1]),
        times_ms=None if times is None else _times(sieve, times.groups(), longest_ms),
    )


def _times(
    sieve: Sieve, printed: Sequence[str], longest_ms: float
) -> tuple[float, float, float, float] | None:
    """Return minimum, mean, maximum and deviation; None if they cannot be true."""
    values = [sieve.number("a time of ping's summary", it, most=longest_ms) for it in printed]
    known = [value for value in values if value is not None]
    if len(known) < len(values):
        return None
    least, mean, most, deviation = known
    if not sieve.ordered("ping's summary of times", least, mean, most):
        return None
    if deviation > most - least + _COARSE_MS:
        sieve.leave_out("ping's summary of times", f"{deviation:g} ms is no deviation of them")
        return None
    return least, mean, most, deviation


def _figures(
    sieve: Sieve,
    spec: RttSpec,
    answers: _Answers,
    in_time: Mapping[int, float],
    received: int,
    summary: _Summary | None,
) -> KnownDelays | None:
    """Return the times of the answers that were in time.

    The summary has more decimals, but also counts duplicates and late answers. Median and
    percentile are known if most answers have a time.
    """
    figures: KnownDelays | None = delay_figures(list(in_time.values()))
    late = len(answers.times_ms) - len(in_time)
    times_ms = summary.times_ms if summary else None
    if times_ms is None or answers.duplicates or late:
        if late + len(in_time) < received:
            sieve.say(f"times are those of {len(in_time)} of {received} answers")
        return figures
    least, mean, most, deviation = times_ms
    if most > spec.timeout / MILLISECOND and len(in_time) < received:
        sieve.say("some answers whose time is not known were late")
    known = figures is not None and 2 * len(in_time) >= received
    return KnownDelays(
        min=least,
        # The lines are rounded: without the bounds a median could lie below the minimum.
        median=min(most, max(least, figures.median or 0)) if figures and known else None,
        mean=mean,
        p95=min(most, max(least, figures.p95 or 0)) if figures and known else None,
        max=most,
        stdev=deviation,
    )


TOOL = PingTool()
