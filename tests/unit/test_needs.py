"""The counted resources that tests need, and nodes that have them as policies see them."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

from lead.planning.node_views import NodeLoad, NodeViewContext, node_loads, node_view_of
from lead.policy.axes.select import ByFunction, Poorest
from lead.policy.episode_figures import Board
from lead.policy.select import linear_function
from lead.policy.view import CampaignView, PostedRun
from node.model import times
from node.model.classes import SchedulingClass
from node.model.predicates import Attributes
from node.plugins import registry
from tests.support.clocks import START
from tests.support.episodes import Host
from tests.support.policy_pools import due, view_of


@pytest.mark.parametrize(
    ("test", "spec", "needs"),
    [
        ("throughput", {"dest": "b"}, {"mbps": None}),
        ("throughput", {"dest": "b", "rate_bps": 1_000_001, "streams": 3}, {"mbps": 4}),
        ("throughput", {"dest": "b", "protocol": "udp"}, {"mbps": 1}),
        ("throughput", {"dest": "b", "rate_bps": 1_000}, {}),
        ("latency", {"dest": "b"}, {}),
        ("latency", {"dest": "b", "length": 1250, "interval": "PT0.001S"}, {"mbps": 10}),
        ("rtt", {"dest": "b"}, {}),
        ("rtt", {"dest": "b", "length": 1250, "interval": "PT0.002S"}, {"mbps": 5}),
        ("idle", {}, {}),
    ],
)
def test_a_test_states_its_needs(test: str, spec: dict[str, Any], needs: Any) -> None:
    """Needs are whole Mb/s, rounded up, none below one; TCP without a rate needs everything."""
    known = registry.tests()[test]
    assert known.needs(known.spec_model.model_validate(spec)) == needs
    assert set(needs) <= set(known.resources)


def test_the_load_of_a_node_is_what_is_booked_there() -> None:
    """A run beside others counts for its lane, and only running runs make a node busy."""
    run = PostedRun("r", "t", "ops", ("a",), START, START + 30 * times.MINUTE, running=True)
    normal = replace(
        run,
        nodes=("a", "b"),
        start=START + 30 * times.MINUTE,
        end=START + 2 * times.HOUR,
        scheduling_class=SchedulingClass.NORMAL,
        running=False,
    )
    background = replace(run, nodes=("c",), scheduling_class=SchedulingClass.BACKGROUND)
    result = node_loads([run, normal, background], {"a": 1, "b": 4, "c": 1}, START)
    assert {name: (float(it.load), it.running_to) for name, it in result.items()} == {
        "a": (1.0, run.end),
        "b": (0.125, 0),
    }


def test_the_statements_of_a_node_come_first() -> None:
    """A node's statements on free time, speed, and busy time replace what this lead has booked."""
    horizon = 4 * times.HOUR
    facts: Attributes = {"mbps": 100, "speed": 2.5, "nat": True, "site": "x", "longitude": 13.5}
    host = Host("a", facts=facts)
    busy = NodeLoad(running_to=START + times.MINUTE)
    when = NodeViewContext(START, horizon, {"mbps", "slots"})
    seen = node_view_of(host, busy, 7, when)
    assert (seen.load, seen.busy_until, seen.used_at) == (0.0, START + times.MINUTE, 7)
    assert (seen.resources, float(seen.speed)) == ({"mbps": 100}, 2.5)
    assert seen.figures == {"mbps": 100, "speed": Fraction(5, 2), "longitude": Fraction(27, 2)}
    assert seen.attributes["nat"] == "true"
    host.shortfall, host.busy_until = times.HOUR, START + times.HOUR
    seen = node_view_of(host, busy, 7, when)
    assert (seen.load, seen.busy_until) == (0.75, START + times.HOUR)


def test_an_uncounted_number_is_not_a_resource() -> None:
    """A number that nothing counts does not affect the ranking, but a function may use it."""
    when = NodeViewContext(START, times.HOUR, {"mbps"})
    facts_by_node: dict[str, Attributes] = {
        "thin": {"mbps": 100, "longitude": 179.5},
        "fat": {"mbps": 1000, "longitude": 1},
    }
    nodes = {
        name: node_view_of(Host(name, facts=it), NodeLoad(), 0, when)
        for name, it in facts_by_node.items()
    }
    wanting = due("t", "ops", nodes)
    board = Board(view_of(nodes, [CampaignView("ops")], [wanting]))
    functions = [linear_function.parse(text) for text in ("longitude", "1 - longitude")]
    for select, best in (
        (Poorest(), "thin"),
        (ByFunction(functions[0]), "thin"),
        (ByFunction(functions[1]), "fat"),
    ):
        ranked = select.for_episode(board).ranking(wanting, list(nodes.values()))
        assert ranked[0].name == best
