"""The verdict on a result, from the circumstances that its participants report."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from node.model.classes import SchedulingClass
from node.model.verdict import (
    BUSY,
    REASONS_MAX,
    Level,
    MeasurementTraits,
    PartEvidence,
    Verdict,
    judge,
)
from node.model.wire.circumstances import (
    Circumstances,
    ClockCondition,
    InterfaceLoad,
    Neighbour,
    ProcessorLoad,
    Traffic,
)

EXCLUSIVE, NORMAL, BACKGROUND = list(SchedulingClass)[:3]
RUN = UUID("7c1e0000-0000-4000-8000-000000000000")
SECOND_MS = 1000.0


def clock(
    *, stepped_ms: float = 0, bound_ms: float | None = 1, identity: str = ""
) -> ClockCondition:
    """Return a clock, which is synchronised if it has a bound."""
    return ClockCondition(
        synchronised=bound_ms is not None,
        source="chrony",
        error_bound_ms=bound_ms,
        stepped_ms=stepped_ms,
        identity=identity,
    )


def wire(
    sent: int = 0, received: int = 0, *, speed_mbps: int | None = None, loopback: bool = False
) -> InterfaceLoad:
    """Return traffic of this many bytes in packets of 1000."""
    return InterfaceLoad(
        name="lo" if loopback else "eth0",
        loopback=loopback,
        speed_mbps=speed_mbps,
        sent_bytes=sent,
        received_bytes=received,
        sent_packets=0,
        received_packets=0,
        errors=0,
        dropped=0,
    )


NOTHING = Traffic(sent_bytes=0, received_bytes=0)


def told(
    *,
    busy: float | None = 0.1,
    own: float | None = 0,
    of_clock: ClockCondition | None = None,
    interface: InterfaceLoad | None = None,
    traffic: Traffic | None = NOTHING,
    beside: SchedulingClass | None = None,
    observed_ms: float = SECOND_MS,
) -> Circumstances:
    """Return the circumstances of a quiet host, with changes."""
    neighbour = beside and Neighbour(
        run=RUN, task=RUN, test="throughput", scheduling_class=beside, overlap_ms=1200
    )
    return Circumstances(
        tool="ping",
        tool_version="1",
        context=None,
        observed_ms=observed_ms,
        clock=of_clock or clock(),
        processors=ProcessorLoad(count=2, busy=busy, own=own, waiting=None),
        interface=interface,
        own_traffic=traffic,
        neighbours=(neighbour,) if neighbour else (),
        neighbours_count=1 if neighbour else 0,
    )


def of(
    circumstances: Circumstances | None,
    scheduling_class: SchedulingClass = NORMAL,
    *,
    one_way: bool = False,
    late_ms: float | None = 0,
) -> Verdict:
    """Return the verdict for these circumstances of b and a quiet a."""
    witnesses = [PartEvidence("a", 0, told()), PartEvidence("b", late_ms, circumstances)]
    return judge(MeasurementTraits(scheduling_class, one_way), witnesses)


def test_quiet_hosts_give_clean_results() -> None:
    """If nothing happened, the verdict is clean without a reason."""
    assert of(told()) == Verdict(Level.CLEAN)


@pytest.mark.parametrize(
    ("late_ms", "level"),
    [(199, Level.CLEAN), (350, Level.SUSPICIOUS), (1000, Level.CONTAMINATED), (None, Level.CLEAN)],
)
def test_a_late_start_is_told(late_ms: float | None, level: Level) -> None:
    """A start beyond the tools' tolerance is reported, and is worse if the others went on alone."""
    verdict = of(told(), late_ms=late_ms)
    assert verdict.level is level
    if level is not Level.CLEAN:
        assert verdict.reasons == (f"started {late_ms} ms late at b",)


def test_one_participant_alone_is_never_late() -> None:
    """A single participant is never late, because no other one starts without it."""
    witness = PartEvidence("a", 1999, told())
    assert judge(MeasurementTraits(BACKGROUND, one_way=False), [witness]).level is Level.CLEAN


def test_a_step_of_the_clock_is_told() -> None:
    """A step of the clock shifts one-way values, and may have stretched other spans."""
    stepped, reasons = told(of_clock=clock(stepped_ms=-40)), ("clock of b stepped by -40 ms",)
    assert of(stepped, one_way=False) == Verdict(Level.SUSPICIOUS, reasons)
    assert of(stepped, one_way=True) == Verdict(Level.CONTAMINATED, reasons)
    assert of(told(of_clock=clock(stepped_ms=0.9)), one_way=True).level is Level.CLEAN


def test_one_way_values_want_synchronised_clocks() -> None:
    """One-way values need synchronised clocks, unless the clocks are one."""
    loose = told(of_clock=clock(bound_ms=None, identity="x"))
    assert of(loose, one_way=False).level is Level.CLEAN
    assert of(loose, one_way=True).reasons == ("b's clock is not synchronised",)
    shared = [PartEvidence(name, 0, loose) for name in "ab"]
    assert judge(MeasurementTraits(NORMAL, one_way=True), shared).level is Level.CLEAN


@pytest.mark.parametrize(
    ("busy", "own", "level", "reason"),
    [
        (0.89, 0.0, "clean", ""),
        (0.97, 0.0, "contaminated", "b's processors were 97 % busy"),
        (0.97, 0.6, "suspicious", "b's processors were 97 % busy, 60 % with this run"),
        (None, None, "clean", ""),
    ],
)
def test_busy_processors_are_told(
    busy: float | None, own: float | None, level: str, reason: str
) -> None:
    """Busy processors contaminate if others used them, and are suspicious if the run itself did."""
    verdict = of(told(busy=busy, own=own))
    assert verdict == Verdict(Level(level), (reason,) if reason else ())


def test_nothing_is_said_of_a_moment() -> None:
    """Processors are not judged over a moment, because ticks are too coarse."""
    assert of(told(busy=1, observed_ms=199)).level is Level.CLEAN


MEGABYTE = 1_000_000


@pytest.mark.parametrize(
    ("foreign", "level"),
    [(4, Level.CLEAN), (6, Level.SUSPICIOUS), (19, Level.SUSPICIOUS), (25, Level.CONTAMINATED)],
)
def test_what_fills_the_path_shares_it(foreign: int, level: Level) -> None:
    """Foreign traffic falsifies the rate of an exclusive test by its share."""
    own = Traffic(sent_bytes=100 * MEGABYTE, received_bytes=0)
    sent = wire(sent=(105 + foreign) * MEGABYTE)
    assert of(told(interface=sent, traffic=own), EXCLUSIVE).level is level


def test_the_rate_that_was_not_the_tests_is_told() -> None:
    """The sentence has the foreign rate, its direction, and its interface."""
    verdict = of(told(interface=wire(sent=26_500_000, speed_mbps=250)))
    assert verdict.level is Level.CONTAMINATED
    assert verdict.reasons == ("b sent 212 Mb/s over eth0 that were not this test's",)


def test_where_the_own_traffic_is_not_known_no_other_is_told() -> None:
    """Without the run's own traffic, foreign traffic cannot be determined."""
    load = wire(sent=26_500_000, speed_mbps=250)
    assert of(told(interface=load, traffic=None)).level is Level.CLEAN


def test_the_other_direction_of_a_filled_path_has_its_own_queue() -> None:
    """Traffic in the opposite direction of a filled path is judged by its own queue."""
    own = Traffic(sent_bytes=100 * MEGABYTE, received_bytes=0)
    load = wire(sent=105 * MEGABYTE, received=30 * MEGABYTE)
    assert of(told(interface=load, traffic=own), EXCLUSIVE).level is Level.CLEAN


def test_on_loopback_the_own_traffic_of_both_ends_is_taken_off() -> None:
    """On loopback the own traffic of both ends is subtracted, since both use the same interface."""
    own = Traffic(sent_bytes=0, received_bytes=100 * MEGABYTE)
    load = wire(100 * MEGABYTE, 100 * MEGABYTE, loopback=True)
    assert of(told(interface=load, traffic=own), EXCLUSIVE).level is Level.CLEAN


@pytest.mark.parametrize(
    ("speed_mbps", "sent", "level"),
    [
        (100, 6, Level.CLEAN),
        (100, 7, Level.SUSPICIOUS),
        (100, 10, Level.CONTAMINATED),
        (None, 10, Level.CLEAN),
        (None, 1000, Level.SUSPICIOUS),
    ],
)
def test_a_crowded_interface_is_told(speed_mbps: int | None, sent: int, level: Level) -> None:
    """A crowded interface is judged by its speed, and never as contaminated if that is unknown."""
    load = wire(sent=sent * MEGABYTE, speed_mbps=speed_mbps)
    assert of(told(interface=load)).level is level


@pytest.mark.parametrize(
    ("own", "beside", "level"),
    [
        (EXCLUSIVE, EXCLUSIVE, "contaminated"),
        (EXCLUSIVE, NORMAL, "contaminated"),
        (EXCLUSIVE, BACKGROUND, "clean"),
        (NORMAL, EXCLUSIVE, "contaminated"),
        (NORMAL, NORMAL, "clean"),
        (BACKGROUND, EXCLUSIVE, "suspicious"),
        (BACKGROUND, NORMAL, "clean"),
        (BACKGROUND, BACKGROUND, "clean"),
    ],
)
def test_runs_beside_it_are_judged_by_class(
    own: SchedulingClass, beside: SchedulingClass, level: str
) -> None:
    """Runs of conflicting classes contaminate, and one that fills the path is suspicious."""
    verdict = of(told(beside=beside), own)
    assert verdict.level == level
    if level != "clean":
        assert verdict.reasons == ("run 7c1e0000 (throughput) of b overlapped by 1.2 s",)


def test_who_tells_nothing_is_suspicious() -> None:
    """A participant without circumstances is suspicious."""
    assert of(None) == Verdict(Level.SUSPICIOUS, ("b did not report its circumstances",))


def test_a_tests_own_doubts_count() -> None:
    """A test's own doubts count, and the worst reason comes first."""
    busy = [PartEvidence("a", 0, told(busy=1))]
    doubt = "congestion control was bbr, not cubic as requested"
    verdict = judge(MeasurementTraits(NORMAL, one_way=False), busy, (doubt,))
    assert verdict.level is Level.CONTAMINATED
    assert verdict.reasons == ("a's processors were 100 % busy", doubt)


counts = st.integers(0, 2**40)
shares = st.none() | st.floats(0, 1)
circumstances = st.builds(
    Circumstances,
    tool=st.just("ping"),
    tool_version=st.none(),
    context=st.none(),
    observed_ms=st.floats(0, 1e9),
    clock=st.builds(
        ClockCondition,
        synchronised=st.none() | st.booleans(),
        source=st.none(),
        error_bound_ms=st.none() | st.floats(0, 1e6),
        stepped_ms=st.floats(-1e6, 1e6),
        identity=st.sampled_from(["", "x", "y"]),
    ),
    processors=st.builds(
        ProcessorLoad, count=st.integers(0, 9), busy=shares, own=shares, waiting=shares
    ),
    interface=st.none()
    | st.builds(
        InterfaceLoad,
        name=st.just("eth0"),
        loopback=st.booleans(),
        speed_mbps=st.none() | st.integers(1, 100_000),
        sent_bytes=counts,
        received_bytes=counts,
        sent_packets=counts,
        received_packets=counts,
        errors=counts,
        dropped=counts,
    ),
    own_traffic=st.none() | st.builds(Traffic, sent_bytes=counts, received_bytes=counts),
    neighbours=st.lists(
        st.builds(
            Neighbour,
            run=st.uuids(),
            task=st.uuids(),
            test=st.just("idle"),
            scheduling_class=st.sampled_from(SchedulingClass),
            overlap_ms=st.floats(0, 1e9),
        ),
        max_size=5,
    ).map(tuple),
)
witnesses = st.lists(
    st.builds(
        PartEvidence,
        name=st.sampled_from("abc"),
        late_ms=st.none() | st.floats(-1e6, 1e6),
        circumstances=st.none() | circumstances,
    ),
    max_size=3,
)
everything = st.builds(MeasurementTraits, st.sampled_from(SchedulingClass), one_way=st.booleans())


@settings(max_examples=50)
@given(everything, witnesses)
def test_reasons_are_what_makes_it_unclean(
    measured: MeasurementTraits, told_by: list[PartEvidence]
) -> None:
    """A clean verdict has no reason, and each reason names a participant."""
    verdict = judge(measured, told_by)
    assert (verdict.level is Level.CLEAN) == (not verdict.reasons)
    assert len(verdict.reasons) <= REASONS_MAX
    names = {witness.name for witness in told_by}
    assert all(any(name in reason for name in names) for reason in verdict.reasons)


@settings(max_examples=50)
@given(everything, witnesses)
def test_the_order_of_the_participants_is_nothing(
    measured: MeasurementTraits, told_by: list[PartEvidence]
) -> None:
    """The order of the participants does not change the level."""
    assert judge(measured, told_by).level is judge(measured, told_by[::-1]).level


@settings(max_examples=50)
@given(
    everything,
    witnesses,
    st.builds(PartEvidence, st.just("d"), st.none(), st.none() | circumstances),
)
def test_another_witness_makes_nothing_better(
    measured: MeasurementTraits, told_by: list[PartEvidence], another: PartEvidence
) -> None:
    """Another participant's circumstances never improve the verdict."""
    more = judge(measured, [*told_by, another]).level
    assert more.rank >= judge(measured, told_by).level.rank


@settings(max_examples=50)
@given(everything, circumstances, st.floats(BUSY, 1), counts)
def test_more_foreign_load_makes_nothing_better(
    measured: MeasurementTraits, quiet: Circumstances, busy: float, octets: int
) -> None:
    """More foreign load never improves the verdict."""
    before = judge(measured, [PartEvidence("a", 0, quiet)]).level
    load = quiet.processors.model_copy(update={"busy": max(busy, quiet.processors.busy or 0)})
    wires = quiet.interface and quiet.interface.model_copy(
        update={"sent_bytes": quiet.interface.sent_bytes + octets}
    )
    louder = quiet.model_copy(update={"processors": load, "interface": wires})
    assert judge(measured, [PartEvidence("a", 0, louder)]).level.rank >= before.rank
