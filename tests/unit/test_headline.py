"""The headline of a task or a run, and whether a run lost everything."""

from __future__ import annotations

from typing import Any

import pytest

from node.model.headline import headline
from node.model.wire.seats import SeatRequest


@pytest.mark.parametrize(
    ("test", "names", "spec", "wanted"),
    [
        ("rtt", ["a"], {"dest": "192.0.2.7"}, "rtt  a → 192.0.2.7"),
        ("rtt", ["a"], {"source": "a", "dest": "b", "port": None}, "rtt  a → b"),
        ("tls", ["a"], {"dest": "2001:db8::1", "port": 443}, "tls  a → [2001:db8::1]:443"),
        ("http", ["a"], {"url": "https://b/x"}, "http  a → https://b/x"),
        ("dns", ["a"], {"name": "b.example", "type": "A", "port": 53}, "dns  a → b.example"),
        (
            "dns",
            ["a"],
            {"name": "b.example", "type": "MX", "server": "192.0.2.53"},
            "dns  a → b.example MX @192.0.2.53",
        ),
        ("interface", ["a"], {"host": "a", "interface": "eth0"}, "interface  a (eth0)"),
        ("interface", ["a"], {"host": None, "interface": None}, "interface  a"),
        ("latency", ["a", "b"], {"source": "a", "dest": "b", "port": 9000}, "latency  a → b"),
        ("throughput", ["a", "b"], {"dest": "b", "reverse": True}, "throughput  a ← b"),
        ("idle", ["a", "b"], {"participants": ["a", "b"]}, "idle  a, b"),
        ("idle", ["a", "b", "c"], {}, "idle  a, b, c"),
        ("idle", [], {}, "idle"),
    ],
)
def test_names_test_and_ends(
    test: str, names: list[str], spec: dict[str, Any], wanted: str
) -> None:
    """The headline has the test, then where from and where to, with port, question, interface."""
    assert headline(test, names, spec) == wanted


def test_names_the_pool_of_a_task_whose_nodes_are_chosen_later() -> None:
    """A pool task has as many nodes of its pool as an end."""
    three = SeatRequest(pool="europe", k=3)
    assert headline("rtt", [], {"dest": "b"}, three) == "rtt  3 nodes of europe → b"
    there = SeatRequest(pool="europe", k=1, field="dest")
    assert headline("rtt", [], {"source": "a"}, there) == "rtt  a → 1 node of europe"
    assert headline("idle", [], {}, three) == "idle  3 nodes of europe"
