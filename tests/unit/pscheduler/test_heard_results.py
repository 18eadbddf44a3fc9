"""Results of tasks that hosts of pScheduler lead, read as parts of our tests."""

from __future__ import annotations

from typing import Any

import pytest

from node.plugins.registry import tests as all_tests
from node.pscheduler.leading.results import heard_of

RTT = {"dest": "192.0.2.7", "count": 3}
TRIPS = [
    {"seq": 1, "length": 64, "ip": "192.0.2.7", "ttl": 64, "rtt": "PT0.001S"},
    {"seq": 2, "length": 64, "ip": "192.0.2.7", "ttl": 64, "rtt": "PT0.003S"},
    {"seq": 3, "error": "Destination Host Unreachable"},
]


def hop(address: str | None) -> dict[str, Any]:
    """Return an answer of a hop in 10 ms, or none."""
    return {} if address is None else {"ip": address, "rtt": "PT0.01S"}


def test_round_trips_become_figures() -> None:
    """Counts are those of the result, and the distribution is that of its round trips."""
    result = {"succeeded": True, "roundtrips": TRIPS, "loss": 1 / 3, "sent": 3, "received": 2}
    heard = heard_of("rtt", RTT, result)
    assert heard.result is not None, heard.reason
    figures = all_tests()["rtt"].result_model.model_validate(heard.result).model_dump()
    assert (figures["sent"], figures["received"], figures["address"]) == (3, 2, "192.0.2.7")
    assert figures["rtt_ms"]["median"] == 2.0
    assert figures["jitter_ms"] == 2.0
    assert figures["errors"] == ("Destination Host Unreachable",)


def test_paths_become_hops() -> None:
    """A hop without an answer is a gap, and who answered at the end is the destination."""
    paths = [[hop("192.0.2.1"), hop(None), hop("192.0.2.7")]]
    heard = heard_of("trace", {"dest": "192.0.2.7"}, {"succeeded": True, "paths": paths})
    assert heard.result is not None, heard.reason
    assert heard.result["reached"] is True
    assert heard.result["path"] == ["192.0.2.1", None, "192.0.2.7"]


@pytest.mark.parametrize(
    ("test", "result", "reason"),
    [
        ("rtt", {"succeeded": False, "error": "No route to host"}, "No route to host"),
        ("rtt", None, "it has no result"),
        ("rtt", {"succeeded": True, "roundtrips": "many"}, "its result is not understood"),
        ("rtt", {"succeeded": True, "roundtrips": [{"seq": 1, "rtt": "soon"}]}, "not understood"),
        ("trace", {"succeeded": True, "paths": [[{"ip": "here"}]]}, "its result is not understood"),
        ("idle", {"succeeded": True}, "its result is not understood"),
    ],
)
def test_what_is_no_result_has_a_reason(test: str, result: Any, reason: str) -> None:
    """A failed result keeps its error; one that cannot be read is told as such."""
    heard = heard_of(test, {"dest": "b.example", "duration": "PT1S"}, result)
    assert heard.result is None
    assert reason in str(heard.reason)
