"""The bytes that a run is expected to move on each participant."""

from __future__ import annotations

from typing import Any

import pytest

from node.plugins import registry
from node.plugins.contracts import TrafficReporting
from tests.unit.plugins.parts import spec

MEGABYTE = 1_000_000


@pytest.mark.parametrize(
    ("test", "fields", "mbps", "expected"),
    [
        ("throughput", {"rate_bps": 8 * MEGABYTE, "duration": "PT10S", "omit": "PT0S"}, None, 10),
        ("throughput", {"rate_bps": 8 * MEGABYTE, "duration": "PT10S"}, 1, 12),
        ("throughput", {"rate_bps": 4 * MEGABYTE, "streams": 4, "omit": "PT0S"}, None, 20),
        ("throughput", {"protocol": "udp", "duration": "PT16S", "omit": "PT0S"}, None, 2),
        ("throughput", {"duration": "PT8S", "omit": "PT2S"}, 800, 1000),
        ("throughput", {}, None, None),
        ("rtt", {"count": 10_000, "length": 1000}, None, 20),
        ("latency", {"count": 10_000, "length": 1000, "interval": "PT0.001S"}, None, 20),
        ("latencybg", {"duration": "PT1H", "interval": "PT0.1S", "length": 1000}, None, 72),
        ("http", {"bytes_max": 3 * MEGABYTE}, None, 3),
        ("http", {"method": "HEAD"}, None, 0),
        ("idle", {}, 1000, 0),
        ("interface", {}, 1000, 0),
    ],
)
def test_a_test_states_what_it_moves(
    test: str, fields: dict[str, Any], mbps: int | None, expected: int | None
) -> None:
    """Bytes sent and received count; TCP without a rate fills the slowest node, if stated."""
    known = registry.tests()[test]
    moved = known.expected_bytes(spec(test, **fields), mbps)
    assert moved == (None if expected is None else expected * MEGABYTE)


@pytest.mark.parametrize("test", sorted(registry.tests()))
def test_only_a_path_that_is_filled_is_unknown(test: str) -> None:
    """Every test but TCP without a rate has an expectation, small where it sends little."""
    moved = registry.tests()[test].expected_bytes(spec(test), None)
    assert (moved is None) == (test == "throughput")
    assert moved is None or 0 <= moved <= MEGABYTE or test == "latencybg"


def test_http_reports_what_it_read() -> None:
    """The body that was read is what an HTTP run moved."""
    test = registry.tests()["http"]
    assert isinstance(test, TrafficReporting)
