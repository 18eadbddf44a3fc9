"""Whether a result can be trusted: clean, suspicious or contaminated, and why. Pure.

*Suspicious*: something happened that may have changed the figures. *Contaminated*: something
happened that did change them, or by which they measure something else. The thresholds:

Clock. CLOCK_REALTIME and CLOCK_MONOTONIC are slewed alike, so their difference moves only when
somebody sets the clock; reading both is good for 0.1 ms here. A step of :data:`STEP_MS` shifts
one-way values by as much: such a test is contaminated. Others only measure spans with it:
suspicious. One-way values need clocks that are synchronised, or one and the same.

Start. The tools allow for a participant that is late by 200 ms (STAMP's lead-in); by a second the
others have gone on without it (iperf3's client starts then). A test with one participant is
disturbed by neither.

Processors. With a share ``p`` of them busy, a program that becomes ready finds on average
``p / (1 - p)`` others before it (M/M/1): one at 50 %, nine at 90 %, each for a time slice of 3 ms
or so, beyond any delay that is measured. From 90 % on it is suspicious whoever took them, because
the processor may have been the bottleneck; contaminated if others than this run's program did.
Ticks are 10 ms, so nothing is said of less than 200 ms.

Foreign traffic on the interface measured over. What the run itself moved is taken off: its payload
and 5 % more (retransmissions, TCP options), with the headers of all packets, which are reckoned at
the least (54 octets: Ethernet, IPv4, TCP). A test that fills the path shares it: with a foreign
part ``f`` of what it moved in that direction, its rate is wrong by up to ``f``: suspicious from 5 %
on, contaminated from 20 %. For all others the queue counts, as with processors: suspicious from
half of the interface's speed on, contaminated from four fifths (four packets wait on average).
Where the speed is not known a gigabit is assumed, and it is never called contaminated.

Other runs of this node. Classes that may not overlap contaminate each other, should it happen
(clocks, a late end). A background run overlaps all by design: an exclusive one, which fills the
path, makes it suspicious, and no other does.
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
"""What the nodes say to each other, and a shell session, are not worth a word."""

OWN_ALLOWANCE = 1.05
HEADER_BYTES = 54
REASONS_MAX = 20
_BACKGROUND = frozenset({SchedulingClass.BACKGROUND, SchedulingClass.BACKGROUND_MULTI})


class Level(StrEnum):
    """How far a result can be trusted, best first."""

    CLEAN = "clean"
    SUSPICIOUS = "suspicious"
    CONTAMINATED = "contaminated"

    @property
    def rank(self) -> int:
        """0 is the best."""
        return list(Level).index(self)


@dataclass(frozen=True)
class Verdict:
    """What to think of a result; ``reasons`` are sentences, the worst first, none if clean."""

    level: Level
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True)
class PartEvidence:
    """One participant's part: ``late_ms`` is actual minus agreed start, None if it did not start.

    ``circumstances`` is None if the node told of none.
    """

    name: str
    late_ms: float | None
    circumstances: Circumstances | None


@dataclass(frozen=True)
class MeasurementTraits:
    """What was measured: its class, and whether there are one-way values in the result."""

    scheduling_class: SchedulingClass
    one_way: bool


Finding = tuple[Level, str]


def judge(
    measured: MeasurementTraits, witnesses: Sequence[PartEvidence], doubts: Sequence[str] = ()
) -> Verdict:
    """The verdict on a result. ``doubts`` are the test's own, each one sentence: suspicious."""
    findings: list[Finding] = [(Level.SUSPICIOUS, doubt) for doubt in doubts]
    for witness in witnesses:
        findings += _start(witness, alone=len(witnesses) == 1)
        if witness.circumstances is None:
            findings.append((Level.SUSPICIOUS, f"{witness.name} told nothing of its circumstances"))
            continue
        told = witness.circumstances
        findings += _clock(witness.name, told, measured)
        findings += _processors(witness.name, told)
        findings += _traffic(witness.name, told, measured.scheduling_class)
        findings += _neighbours(witness.name, told, measured.scheduling_class)
    if measured.one_way:
        findings += _clocks(witnesses)
    worst = sorted(dict.fromkeys(findings), key=lambda finding: -finding[0].rank)
    level = worst[0][0] if worst else Level.CLEAN
    return Verdict(level, tuple(sentence for _, sentence in worst[:REASONS_MAX]))


def _start(witness: PartEvidence, *, alone: bool) -> Iterator[Finding]:
    late_ms = witness.late_ms
    if alone or late_ms is None or late_ms < LATE_MS:
        return
    level = Level.SUSPICIOUS if late_ms < TOO_LATE_MS else Level.CONTAMINATED
    yield level, f"started {late_ms:.0f} ms late at {witness.name}"


def _clock(name: str, told: Circumstances, measured: MeasurementTraits) -> Iterator[Finding]:
    stepped_ms = told.clock.stepped_ms
    if abs(stepped_ms) >= STEP_MS:
        level = Level.CONTAMINATED if measured.one_way else Level.SUSPICIOUS
        yield level, f"clock of {name} stepped by {stepped_ms:.3g} ms"


def _clocks(witnesses: Sequence[PartEvidence]) -> Iterator[Finding]:
    """Pairs of clocks between which one-way values mean nothing."""
    told = [(it.name, it.circumstances.clock) for it in witnesses if it.circumstances is not None]
    for (name, clock), (other_name, other) in combinations(told, 2):
        if combined_bound_ms(clock, other) is None:
            loose = [n for n, c in ((name, clock), (other_name, other)) if not c.synchronised]
            verb = "clock is" if len(loose) == 1 else "clocks are"
            whose = " and ".join(f"{n}'s" for n in loose)
            yield Level.SUSPICIOUS, f"{whose} {verb} not synchronised"


def _processors(name: str, told: Circumstances) -> Iterator[Finding]:
    load = told.processors
    if load.busy is None or load.busy < BUSY or told.observed_ms < PROCESSORS_OBSERVED_MS:
        return
    own = load.own or 0.0
    level = Level.CONTAMINATED if load.busy - own >= BUSY else Level.SUSPICIOUS
    sentence = f"{name}'s processors were {100 * load.busy:.0f} % busy"
    if load.own:
        sentence += f", {100 * own:.0f} % with this run"
    yield level, sentence


def _traffic(name: str, told: Circumstances, of_class: SchedulingClass) -> Iterator[Finding]:
    load = told.interface
    if load is None or told.own_traffic is None or told.observed_ms < 1:
        return  # no rate can be told, or not whose
    own_sent, own_received = _own(told.own_traffic, load)
    ways = [("sent", load.sent_bytes, load.sent_packets, own_sent)]
    if not load.loopback:  # where what is sent is what is received
        ways.append(("received", load.received_bytes, load.received_packets, own_received))
    for verb, octets, packets, own in ways:
        foreign = max(0.0, octets - HEADER_BYTES * packets - OWN_ALLOWANCE * own)
        bps = foreign * 8 / (told.observed_ms / 1000)
        if bps < FOREIGN_LEAST_BPS:
            continue
        if of_class is SchedulingClass.EXCLUSIVE and own > 0:
            level = _graded(foreign / own, FOREIGN_SHARE, FOREIGN_SHARE_MOST)
        else:
            level = _crowded(bps, load.speed_mbps)
        if level is not Level.CLEAN:
            yield level, f"{name} {verb} {_rate(bps)} over {load.name} that were not this test's"


def _own(own: Traffic, load: InterfaceLoad) -> tuple[int, int]:
    if load.loopback:
        both = own.sent_bytes + own.received_bytes
        return both, both
    return own.sent_bytes, own.received_bytes


def _graded(share: float, least: float, most: float) -> Level:
    if share >= most:
        return Level.CONTAMINATED
    return Level.SUSPICIOUS if share >= least else Level.CLEAN


def _crowded(bps: float, speed_mbps: int | None) -> Level:
    utilisation = bps / 1e6 / (speed_mbps or SPEED_ASSUMED_MBPS)
    level = _graded(utilisation, UTILISATION, UTILISATION_MOST)
    if speed_mbps is None and level is Level.CONTAMINATED:
        return Level.SUSPICIOUS
    return level


def _neighbours(name: str, told: Circumstances, of_class: SchedulingClass) -> Iterator[Finding]:
    for neighbour in told.neighbours:
        level = _beside(of_class, neighbour)
        if level is not Level.CLEAN:
            what = f"run {str(neighbour.run)[:8]} ({neighbour.test}) of {name}"
            yield level, f"{what} overlapped by {_span(neighbour.overlap_ms)}"


def _beside(of_class: SchedulingClass, neighbour: Neighbour) -> Level:
    if neighbour.scheduling_class in blockers(of_class):
        return Level.CONTAMINATED
    if of_class in _BACKGROUND and neighbour.scheduling_class is SchedulingClass.EXCLUSIVE:
        return Level.SUSPICIOUS
    return Level.CLEAN


def _rate(bps: float) -> str:
    for size, unit in ((1e9, "Gb/s"), (1e6, "Mb/s")):
        if bps >= size:
            return f"{bps / size:.3g} {unit}"
    return f"{bps / 1e3:.3g} kb/s"


def _span(milliseconds: float) -> str:
    return f"{milliseconds / 1000:.1f} s" if milliseconds >= 1000 else f"{milliseconds:.0f} ms"  # noqa: PLR2004 - to the next unit
