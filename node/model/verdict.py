"""The verdict on a result: clean, suspicious or contaminated, and why. Pure.

*Suspicious*: something happened that may have changed the figures. *Contaminated*: something
happened that did change them, or that makes them measure something else. The thresholds:

Clock. CLOCK_REALTIME and CLOCK_MONOTONIC are slewed alike, so their difference moves only when
the clock is set; reading both is accurate to 0.1 ms here. A step of :data:`STEP_MS` shifts one-way
values by the same amount: such a test is contaminated. Other tests only measure spans with it:
suspicious. One-way values need clocks that are synchronised, or one and the same clock.

Start. The tools tolerate a participant that is 200 ms late (STAMP's lead-in); when it is a second
late, the others have gone on without it (iperf3's client starts then). A test with one participant
is disturbed by neither.

Processors. With a share ``p`` of them busy, a program that becomes ready finds on average
``p / (1 - p)`` others before it (M/M/1): one at 50 %, nine at 90 %, each for a time slice of about
3 ms, which exceeds any delay that is measured. From 90 % on a result is suspicious whatever the
cause, because the processor may have been the bottleneck; it is contaminated if programs other than
this run's took that much. Ticks are 10 ms, so no judgement is made below 200 ms.

Foreign traffic on the measured interface. The run's own traffic is subtracted: its payload plus 5 %
(retransmissions, TCP options), and the headers of all packets, counted at their minimum (54 octets:
Ethernet, IPv4, TCP). A test that fills the path shares it: with a foreign part ``f`` of what it
moved in that direction, its rate is wrong by up to ``f``: suspicious from 5 % on, contaminated from
20 %. For all other tests the queue matters, as with processors: suspicious from half of the
interface's speed on, contaminated from four fifths (four packets wait on average). If the speed is
unknown, a gigabit is assumed, and the result is never called contaminated.

Other runs of this node. Classes that may not overlap contaminate each other, should it happen
(clocks, a late end). A background run overlaps all others by design: an exclusive run, which fills
the path, makes it suspicious; no other does.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import combinations

from node.model.classes import SchedulingClass, blockers
from node.model.clocks import combined_bound_ms
from node.model.wire.circumstances import Circumstances, InterfaceLoad, Neighbour, Traffic

STEP_MS = 1.0
LATE_MS = 200.0
TOO_LATE_MS = 1000.0
BUSY = 0.9
PROCESSORS_OBSERVED_MS = 200.0
FOREIGN_SHARE = 0.05
FOREIGN_SHARE_MOST = 0.2
UTILISATION = 0.5
UTILISATION_MOST = 0.8
SPEED_ASSUMED_MBPS = 1000
FOREIGN_LEAST_BPS = 50_000
"""Below this rate (bit/s) foreign traffic is ignored: nodes' own messages, or a shell session."""

OWN_ALLOWANCE = 1.05
HEADER_BYTES = 54
REASONS_MAX = 20
_BACKGROUND = frozenset({SchedulingClass.BACKGROUND, SchedulingClass.BACKGROUND_MULTI})


class Level(StrEnum):
    """The levels of trust in a result, best first."""

    CLEAN = "clean"
    SUSPICIOUS = "suspicious"
    CONTAMINATED = "contaminated"

    @property
    def rank(self) -> int:
        """The position among the levels; 0 is the best."""
        return list(Level).index(self)


@dataclass(frozen=True)
class Verdict:
    """The verdict on a result; ``reasons`` are sentences, the worst first, none if clean."""

    level: Level
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True)
class PartEvidence:
    """One participant's part: ``late_ms`` is actual minus agreed start, None if it did not start.

    ``circumstances`` is None if the node did not report any.
    """

    name: str
    late_ms: float | None
    circumstances: Circumstances | None


@dataclass(frozen=True)
class MeasurementTraits:
    """Traits of a measurement: its class, and whether its result has one-way values."""

    scheduling_class: SchedulingClass
    one_way: bool


Finding = tuple[Level, str]


def judge(
    measured: MeasurementTraits, parts: Sequence[PartEvidence], doubts: Sequence[str] = ()
) -> Verdict:
    """Judge a result. ``doubts`` are the test's own, one sentence each; they make it suspicious."""
    findings: list[Finding] = [(Level.SUSPICIOUS, doubt) for doubt in doubts]
    for part in parts:
        findings += _start_findings(part, alone=len(parts) == 1)
        if part.circumstances is None:
            findings.append((Level.SUSPICIOUS, f"{part.name} did not report its circumstances"))
            continue
        findings += _clock_findings(part.name, part.circumstances, measured)
        findings += _processor_findings(part.name, part.circumstances)
        findings += _traffic_findings(part.name, part.circumstances, measured.scheduling_class)
        findings += _neighbour_findings(part.name, part.circumstances, measured.scheduling_class)
    if measured.one_way:
        findings += _clock_pair_findings(parts)
    worst = sorted(dict.fromkeys(findings), key=lambda finding: -finding[0].rank)
    level = worst[0][0] if worst else Level.CLEAN
    return Verdict(level, tuple(sentence for _, sentence in worst[:REASONS_MAX]))


def _start_findings(part: PartEvidence, *, alone: bool) -> Iterator[Finding]:
    late_ms = part.late_ms
    if alone or late_ms is None or late_ms < LATE_MS:
        return
    level = Level.SUSPICIOUS if late_ms < TOO_LATE_MS else Level.CONTAMINATED
    yield level, f"started {late_ms:.0f} ms late at {part.name}"


def _clock_findings(
    name: str, circumstances: Circumstances, measured: MeasurementTraits
) -> Iterator[Finding]:
    stepped_ms = circumstances.clock.stepped_ms
    if abs(stepped_ms) >= STEP_MS:
        level = Level.CONTAMINATED if measured.one_way else Level.SUSPICIOUS
        yield level, f"clock of {name} stepped by {stepped_ms:.3g} ms"


def _clock_pair_findings(parts: Sequence[PartEvidence]) -> Iterator[Finding]:
    """Yield a finding for each pair of clocks between which one-way values are meaningless."""
    clocks = [(it.name, it.circumstances.clock) for it in parts if it.circumstances is not None]
    for (name, clock), (other_name, other) in combinations(clocks, 2):
        if combined_bound_ms(clock, other) is None:
            loose = [n for n, c in ((name, clock), (other_name, other)) if not c.synchronised]
            verb = "clock is" if len(loose) == 1 else "clocks are"
            whose = " and ".join(f"{n}'s" for n in loose)
            yield Level.SUSPICIOUS, f"{whose} {verb} not synchronised"


def _processor_findings(name: str, circumstances: Circumstances) -> Iterator[Finding]:
    load = circumstances.processors
    if load.busy is None or load.busy < BUSY or circumstances.observed_ms < PROCESSORS_OBSERVED_MS:
        return
    own = load.own or 0.0
    level = Level.CONTAMINATED if load.busy - own >= BUSY else Level.SUSPICIOUS
    sentence = f"{name}'s processors were {100 * load.busy:.0f} % busy"
    if load.own:
        sentence += f", {100 * own:.0f} % with this run"
    yield level, sentence


def _traffic_findings(
    name: str, circumstances: Circumstances, of_class: SchedulingClass
) -> Iterator[Finding]:
    load, own_traffic = circumstances.interface, circumstances.own_traffic
    if load is None or own_traffic is None or circumstances.observed_ms < 1:
        return  # no rate can be computed, or the run's own part of it is unknown
    own_sent, own_received = _own_bits(own_traffic, load)
    ways = [("sent", load.sent_bytes, load.sent_packets, own_sent)]
    if not load.loopback:  # on loopback, every packet sent is also received
        ways.append(("received", load.received_bytes, load.received_packets, own_received))
    for verb, octets, packets, own in ways:
        foreign = max(0.0, octets - HEADER_BYTES * packets - OWN_ALLOWANCE * own)
        bps = foreign * 8 / (circumstances.observed_ms / 1000)
        if bps < FOREIGN_LEAST_BPS:
            continue
        if of_class is SchedulingClass.EXCLUSIVE and own > 0:
            level = _graded_level(foreign / own, FOREIGN_SHARE, FOREIGN_SHARE_MOST)
        else:
            level = _crowding_level(bps, load.speed_mbps)
        if level is not Level.CLEAN:
            yield (
                level,
                f"{name} {verb} {_rate_text(bps)} over {load.name} that were not this test's",
            )


def _own_bits(own: Traffic, load: InterfaceLoad) -> tuple[int, int]:
    if load.loopback:
        both = own.sent_bytes + own.received_bytes
        return both, both
    return own.sent_bytes, own.received_bytes


def _graded_level(share: float, least: float, most: float) -> Level:
    if share >= most:
        return Level.CONTAMINATED
    return Level.SUSPICIOUS if share >= least else Level.CLEAN


def _crowding_level(bps: float, speed_mbps: int | None) -> Level:
    utilisation = bps / 1e6 / (speed_mbps or SPEED_ASSUMED_MBPS)
    level = _graded_level(utilisation, UTILISATION, UTILISATION_MOST)
    if speed_mbps is None and level is Level.CONTAMINATED:
        return Level.SUSPICIOUS
    return level


def _neighbour_findings(
    name: str, circumstances: Circumstances, of_class: SchedulingClass
) -> Iterator[Finding]:
    for neighbour in circumstances.neighbours:
        level = _neighbour_level(of_class, neighbour)
        if level is not Level.CLEAN:
            what = f"run {str(neighbour.run)[:8]} ({neighbour.test}) of {name}"
            yield level, f"{what} overlapped by {_span_text(neighbour.overlap_ms)}"


def _neighbour_level(of_class: SchedulingClass, neighbour: Neighbour) -> Level:
    if neighbour.scheduling_class in blockers(of_class):
        return Level.CONTAMINATED
    if of_class in _BACKGROUND and neighbour.scheduling_class is SchedulingClass.EXCLUSIVE:
        return Level.SUSPICIOUS
    return Level.CLEAN


def _rate_text(bps: float) -> str:
    for size, unit in ((1e9, "Gb/s"), (1e6, "Mb/s")):
        if bps >= size:
            return f"{bps / size:.3g} {unit}"
    return f"{bps / 1e3:.3g} kb/s"


def _span_text(milliseconds: float) -> str:
    return f"{milliseconds / 1000:.1f} s" if milliseconds >= 1000 else f"{milliseconds:.0f} ms"  # noqa: PLR2004 - to the next unit
