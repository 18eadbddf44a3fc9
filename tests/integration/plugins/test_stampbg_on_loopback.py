"""The running programs of a STAMP stream: on loopback, run after run, on one port."""

from __future__ import annotations

import signal
import time

import pytest

from node.model.times import SECOND
from node.plugins.tests.latencybg import TEST
from node.plugins.tools.stampbg import LEAD_IN, SLACK, TOOL
from tests.integration.plugins.streams import (
    run_after_run,
    soon,
    spec_of,
    start,
    stream,
    told,
    wait_until,
)
from tests.support.loopback import free_port


@pytest.mark.nightly
def test_no_packet_is_lost_between_two_runs() -> None:
    """Two consecutive runs on the same port lose no packet between them."""
    for intervals in run_after_run(TOOL):
        assert [(each.number, each.reason) for each in intervals] == [(0, None), (1, None)]
        for each in intervals:
            result = each.result or {}
            names = ("sent", "received_at_dest", "strays")
            assert [result[name] for name in names] == [100, 100, 0]
            assert result["received_back"] + result["late"] == 100  # late on a busy host
            assert result["reordered"] == {"forward": 0, "backward": 0}
        total = TEST.total(spec_of(2), intervals)
        assert 0 < total["delay_ms"]["round_trip"]["median"] < 50


@pytest.mark.nightly
def test_a_source_that_is_stopped_for_a_while_makes_no_burst() -> None:
    """Packets whose time has long passed are not sent, and do not count as lost."""
    parts = stream(TOOL, soon(), free_port(), 3, each="PT3S")
    reflector, sender = start(TOOL, parts[1]), start(TOOL, parts[0])
    stopped_at = parts[0].starts + LEAD_IN + SECOND // 2
    wait_until(stopped_at)
    sender.send_signal(signal.SIGSTOP)
    wait_until(stopped_at + SECOND * 3 // 2)
    sender.send_signal(signal.SIGCONT)
    [interval] = told(TOOL, parts[0], sender)
    told(TOOL, parts[1], reflector)
    result = interval.result or {}
    assert result["sent"] < 270
    assert result["received_back"] + result["late"] == result["sent"]


@pytest.mark.nightly
def test_a_source_that_is_stopped_for_longer_than_an_interval_records_each() -> None:
    """Packets of intervals that are over when the source goes on are told as not sent."""
    parts = stream(TOOL, soon(), free_port(), 5)
    reflector, sender = start(TOOL, parts[1]), start(TOOL, parts[0])
    first = parts[0].starts + LEAD_IN
    wait_until(first + SECOND // 2)
    sender.send_signal(signal.SIGSTOP)
    # A busy host may have stopped it in a later interval than in the first.
    begun = 1 + (time.time_ns() // 1000 - first) // SECOND
    wait_until(parts[0].ends + LEAD_IN + parts[0].spec.timeout + SLACK)
    sender.send_signal(signal.SIGCONT)
    intervals = told(TOOL, parts[0], sender)
    assert len(told(TOOL, parts[1], reflector)) == 5
    assert {each.reason for each in intervals[begun:]} == {"no packet could be sent"}
    measured = [each.result for each in intervals[:begun] if each.result]
    assert 0 < sum(each["sent"] for each in measured) < begun * 100
    # What was answered while it stood waited for it in the socket, with the time of its arrival.
    assert all(each["received_back"] + each["late"] == each["sent"] for each in measured)


@pytest.mark.nightly
def test_a_host_without_a_reflector_is_loss_and_is_told() -> None:
    """Without a reflector all packets are lost, and the ICMP errors are counted."""
    parts = stream(TOOL, soon(), free_port(), 1)
    [interval] = told(TOOL, parts[0], start(TOOL, parts[0]))
    result = interval.result or {}
    assert (result["sent"], result["received_back"]) == (100, 0)
    assert result["unreachable"] > 50
