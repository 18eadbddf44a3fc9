"""The traffic that a throughput run attributes to itself, from its tools' output."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from node.model.times import SECOND
from node.model.verdict import HEADER_BYTES, OWN_ALLOWANCE
from node.model.wire.circumstances import Traffic
from node.plugins.contracts import Result
from node.plugins.tests.throughput import TEST, Sent, ThroughputInterval, ThroughputPart
from node.plugins.tools.iperf3 import TOOL
from tests.golden.recorded import output
from tests.unit.plugins.parts import context, spec

MEGABYTE = 1_000_000


@pytest.mark.parametrize(
    ("end", "participant", "passed_bytes", "packets"),
    [("client", 0, 2_791_519, 1_879), ("server", 1, 2_760_019, 1_858)],
)
def test_slow_start_is_the_tests_own(
    end: str, participant: int, passed_bytes: int, packets: int
) -> None:
    """On a path that loses 1 %, the omitted beginning is counted as the interface counted it."""
    part = context("throughput", participant, duration="PT5S")
    result = TOOL.read(part, output("iperf3", f"tcp-slow-start-{end}"))
    moved = TEST.moved(part.spec, participant, result)
    assert moved is not None
    own = moved.sent_bytes + moved.received_bytes
    payload = passed_bytes - HEADER_BYTES * packets
    assert payload / OWN_ALLOWANCE < own < payload * OWN_ALLOWANCE


def sender(*intervals: ThroughputInterval, retransmits: int | None = 0) -> Result:
    """Return a sender's part: 8 Mb/s for 5 s, that is 5 MB."""
    return ThroughputPart(
        sent=Sent(
            bytes=5 * MEGABYTE, duration_ms=5000, rate_bps=8 * MEGABYTE, retransmits=retransmits
        ),
        received=None,
        datagrams=None,
        rtt_ms=None,
        congestion="cubic",
        cpu=None,
        intervals=intervals,
    ).model_dump(mode="json")


def interval(mbps: int, *, omitted: bool, retransmits: int | None = 0) -> ThroughputInterval:
    """Return a second at a rate in Mb/s."""
    return ThroughputInterval(
        start_ms=0,
        end_ms=1000,
        rate_bps=mbps * MEGABYTE,
        retransmits=retransmits,
        omitted=omitted,
    )


@pytest.mark.parametrize(
    ("part", "own_bytes"),
    [
        (sender(interval(80, omitted=True), interval(8, omitted=False)), 15 * MEGABYTE),
        (sender(interval(40, omitted=False)), 10 * MEGABYTE),
        (sender(), 6 * MEGABYTE),
        (
            sender(interval(8, omitted=True, retransmits=400), retransmits=600),
            6 * MEGABYTE + 1_448_000,
        ),
        (
            sender(interval(8, omitted=True, retransmits=None), retransmits=None),
            6 * MEGABYTE,
        ),
    ],
)
def test_omitted_and_repeated_traffic_is_counted(part: Result, own_bytes: int) -> None:
    """Omitted seconds count as reported, or at the highest rate if they are not."""
    task_spec = spec("throughput", duration="PT5S")
    assert task_spec.omitted == SECOND
    assert TEST.moved(task_spec, 0, part) == Traffic(sent_bytes=own_bytes, received_bytes=0)


def test_udp_has_no_congestion_control() -> None:
    """A congestion control in a UDP spec is refused instead of being ignored."""
    with pytest.raises(ValidationError, match="UDP has no congestion control, neither bbr nor any"):
        spec("throughput", protocol="udp", congestion="bbr")
    assert spec("throughput", protocol="udp", congestion="host").control is None
