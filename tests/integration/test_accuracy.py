"""The comparison of figures with the truth: one WAN of each kind, and the resulting table."""

from __future__ import annotations

from dataclasses import replace

import pytest

from node.cli.lab.wan import WanSettings
from node.plugins import registry
from node.plugins.contracts import Merged
from tests.accuracy.__main__ import rows_of
from tests.accuracy.broken import CASES, broken_cases, judged, written_broken
from tests.accuracy.cases import Case, cases
from tests.accuracy.faults import FAULTS
from tests.accuracy.ground import ground
from tests.accuracy.table import Row, written
from tests.integration.host_leftovers import nothing_left

BOUNDS = {"_ms": 5.0, "loss": 0.0, "_mbps": 0.1}
"""Tolerances on a busy machine: milliseconds, fraction, share of the rate."""


def chosen(test: str) -> Case:
    """Return a short case of a test over a WAN with 10 % loss."""
    case = next(case for case in cases() if case.test == test)
    return replace(case, wan=WanSettings(delay_ms=20, loss=0.1))


@pytest.mark.needs("root", "ip")
@pytest.mark.parametrize("test", [pytest.param("rtt", marks=pytest.mark.needs("ping")), "latency"])
@pytest.mark.nightly
async def test_figures_are_compared_with_what_happened(test: str) -> None:
    """Delays are close to those of the WAN, and loss equals what it lost."""
    with nothing_left():
        async with ground() as place:
            rows = await rows_of(place, chosen(test))
    assert len(rows) >= 2
    for row in rows:
        bound = next(bound for end, bound in BOUNDS.items() if row.figure.endswith(end))
        assert row.reason is None
        assert abs(row.reported - row.truth) <= bound + 1e-6, row
    assert any(row.truth > 0 for row in rows if row.figure.endswith("loss"))


@pytest.mark.nightly
def test_the_table_names_the_worst() -> None:
    """The table lists each figure's largest difference first, and reasons for missing results."""
    rows = [
        Row("rtt", "ping", "20 ms", "rtt_median_ms", 40.0, 40.25),
        Row("rtt", "ping", "0 ms", "rtt_median_ms", 0.0, 0.125),
        Row("throughput", "iperf3", "1 Mb/s", "rate_mbps", 0.5, 0.25),
        Row("throughput", "iperf3", "500 Mb/s", "rate_mbps", 400.0, 392.0),
        Row("throughput", "iperf3", "9 Mb/s", "no result", 0, 0, reason="connection refused"),
    ]
    text = written(rows, ["ping 1"])
    assert "| rtt | ping | rtt median | 2 | +0.250 ms | 20 ms |" in text
    assert "| throughput | iperf3 | rate | 2 | -50.0 % | 1 Mb/s |" in text
    assert "| 500 Mb/s | rate | 400 Mb/s | 392 Mb/s | -2.0 % |" in text
    assert "| 9 Mb/s | no result |  |  | connection refused |" in text


def test_every_test_is_tried_on_every_broken_path() -> None:
    """Each has a demand for each fault."""
    assert all(len(musts) == len(FAULTS) for *_, musts in CASES)
    assert {test for test, *_ in CASES} >= registry.tests().keys() - {
        "idle", "idlebg", "interface", "simplestream", "snmp",
    }  # fmt: skip


def test_what_is_not_told_of_a_broken_path_stands_out() -> None:
    """An outcome that hides the fault is marked, and so is a figure that cannot be true."""
    case = next(each for each in broken_cases() if each.name == "throughput (udp) by nuttcp")
    test = registry.tests()["throughput"]
    moved = {"bytes": 1000, "duration_ms": 1000.0, "rate_bps": 8000}
    result = {
        "protocol": "udp", "reverse": False, "streams": 1, "congestion": None, "omitted_ms": 0,
        "rate_bps": 8000, "sent": {**moved, "retransmits": None}, "received": moved,
        "datagrams": {"packets": 1, "lost": 0, "loss": 0, "jitter_ms": None, "out_of_order": None},
        "rtt_ms": None, "cpu": {"source": None, "dest": None}, "intervals": [],
    }  # fmt: skip
    hidden = judged(test, case, Merged(result))
    assert hidden.fault == "is not what must be told"
    assert judged(test, case, Merged(None, "a: no answer")).fault is None
    lies = {"packets": 1, "lost": 137, "loss": 1, "jitter_ms": None, "out_of_order": None}
    odd = judged(test, case, Merged({**result, "datagrams": lies}, "a: odd"))
    assert (odd.fault or "").startswith("cannot be: .datagrams")
    assert "| **is not what must be told**: 8.00 kb/s, loss 0 % |" in written_broken([hidden])
