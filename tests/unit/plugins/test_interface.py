"""Counters of an interface: parsing the kernel's files, and the results of the test."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from node.model.errors import ToolOutputError
from node.model.intervals import Interval, Rhythm
from node.model.times import HOUR, MINUTE
from node.plugins.contracts import Part
from node.plugins.tests.interface import TEST
from node.plugins.tools.procnet import TOOL
from node.plugins.tools.programs.interface_counters import (
    counters,
    default_interface,
    difference,
    differences,
)
from tests.unit.plugins.parts import STARTS, context, printed, spec
from tests.unit.plugins.records import SPEC, counted, reading

DEVICES = """\
Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo
    lo: 1296 16 0 0 0 0 0 0 1296 16 0 0 0 0 0 0
  eth0:15113 110 1 2 0 0 0 0 9000 90 3 4 0 0 0 0
br-a:b: 1 2 3 4 0 0 0 0 5 6 7 8 0 0 0 0
"""
ROUTES = """\
Iface Destination Gateway Flags RefCnt Use Metric Mask MTU Window IRTT
eth1 00000000 0102A8C0 0003 0 0 200 00000000 0 0 0
eth0 00000000 0101A8C0 0003 0 0 100 00000000 0 0 0
eth2 00000000 0101A8C0 0000 0 0 0 00000000 0 0 0
eth0 0001A8C0 00000000 0001 0 0 0 00FFFFFF 0 0 0
"""
ANYWHERE = "0" * 32
ROUTES_6 = (
    f"{ANYWHERE} 00 {ANYWHERE} 00 fe80 00000400 00000001 00000000 00000003 eth6\n"
    f"{ANYWHERE} 00 {ANYWHERE} 00 {ANYWHERE} ffffffff 00000001 00000000 00200200 lo\n"
)


def test_the_kernels_file_is_read() -> None:
    """Names may contain colons, figures may follow without a space, and headings are ignored."""
    by_interface = counters(DEVICES)
    assert list(by_interface) == ["lo", "eth0", "br-a:b"]
    assert by_interface["eth0"]["received"] == {
        "bytes": 15113,
        "packets": 110,
        "errors": 1,
        "drops": 2,
    }
    assert by_interface["eth0"]["sent"] == {"bytes": 9000, "packets": 90, "errors": 3, "drops": 4}


def test_the_default_route_names_the_interface() -> None:
    """The best usable default route counts, IPv4's first; there may be none."""
    assert default_interface(ROUTES, ROUTES_6) == "eth0"
    assert default_interface(ROUTES.splitlines()[0], ROUTES_6) == "eth6"
    assert default_interface("", ROUTES_6.splitlines()[1]) is None


@given(st.sampled_from([2**32, 2**64]), st.data())
def test_counters_that_begin_again(size: int, data: st.DataObject) -> None:
    """An increase by less than half the range is measured even if the counter wraps."""
    before = data.draw(st.integers(size // 2, size - 1))
    grown = data.draw(st.integers(0, size // 2 - 1))
    assert difference(before, (before + grown) % size) == grown


@given(st.integers(0, 2**31 - 1), st.integers(0, 2**31 - 1))
def test_counters_that_were_reset(one: int, other: int) -> None:
    """A counter that shrinks without having been near its maximum was reset."""
    before, after = max(one, other) + 1, min(one, other)
    assert difference(before, after) is None or before >= 2**31
    here = {"received": {"bytes": before}}
    assert differences(here, here) == {"received": {"bytes": 0}}
    if before < 2**31:
        assert differences(here, {"received": {"bytes": after}}) is None


def test_the_arguments_of_the_program() -> None:
    """The program counts from the start of the run to its end."""
    command = TOOL.command(context("interface", interface="eth0"))
    params = json.loads(command.argv[4])
    assert params["first_ns"] == STARTS * 1000
    assert (
        params["intervals"] * params["each_ns"]
        == HOUR * 1000
        == TOOL.duration(spec("interface")) * 1000
    )
    assert params["interface"] == "eth0"
    assert command.streams
    assert TEST.rhythm(spec("interface")) == Rhythm(MINUTE, 60)
    assert not TOOL.needs_port(spec("interface"), 0)


@pytest.mark.parametrize(
    "name", ["-oX", "$(id)", "../../etc", "eth0;id", "", "a" * 16, "ethé", "eth 0", "eth0\n", "."]
)
def test_names_that_are_none(name: str) -> None:
    """Words that could be an option, a path or shell syntax are not interface names."""
    with pytest.raises(ValidationError):
        spec("interface", interface=name)


def test_the_interface_it_is_bound_to() -> None:
    """The bound interface is read, unless the spec names another."""
    for fields, wanted in (({}, "eth1"), ({"interface": "eth0"}, "eth0")):
        part = context("interface", **SPEC | fields)
        there = replace(part, parties=[replace(part.parties[0], device="eth1")])
        assert json.loads(TOOL.command(there).argv[-1])["interface"] == wanted


def test_an_interval() -> None:
    """Counts become rates per second; bytes become bits."""
    interval = counted(reading(4, took_ns=2 * 10**9))
    result = interval.result or {}
    assert (interval.number, result["interface"], result["duration_ms"]) == (4, "eth0", 2000)
    assert (result["received"]["rate_bps"], result["received"]["packet_rate"]) == (4000, 5)
    assert (result["sent"]["bytes"], result["sent"]["rate_bps"]) == (250, 1000)
    merged = TEST.merge_interval(spec("interface"), [Part(0, "a", interval.result)])
    assert merged.result == interval.result
    assert TEST.interval_summary(result) == "eth0: 4.00 kb/s in, 1.00 kb/s out"


def test_a_gap_has_its_reason() -> None:
    """Reset counters, or a missing interface, make a gap with that reason."""
    record = {"interval": 2, "told": {"reason": "the counters of eth0 were reset"}}
    assert counted(record) == Interval(2, None, "the counters of eth0 were reset")
    parts = [Part(0, "a", None, "the counters of eth0 were reset")]
    assert TEST.merge_interval(spec("interface"), parts).reason == f"a: {parts[0].reason}"


@pytest.mark.parametrize(
    "changes",
    [
        {"took_ns": 0},
        {"took_ns": -5},
        {"interface": "-x"},
        {"received": {"bytes": -1, "packets": 0, "errors": 0, "drops": 0}},
        {"received": {"bytes": 2**62, "packets": 0, "errors": 0, "drops": 0}},
        {"sent": None},
    ],
)
def test_records_that_cannot_be(changes: dict[str, Any]) -> None:
    """Negative or impossible counts are refused."""
    with pytest.raises(ToolOutputError):
        counted(reading(**changes))


def test_another_interface_is_refused() -> None:
    """Counters of an interface other than the spec's are refused."""
    part = context("interface", interface="eth1")
    with pytest.raises(ToolOutputError, match="counters of eth0, not of eth1"):
        TOOL.read_interval(part, json.dumps(reading()).encode())


def test_the_run_is_the_sum_of_its_intervals() -> None:
    """Totals add up, rates are means of the measured time, and the busiest interval is kept."""
    busy = {"bytes": 9000, "packets": 10, "errors": 1, "drops": 2}
    every = [counted(reading(0)), counted(reading(1, received=busy)), Interval(2, None, "gone")]
    result = TEST.total(spec("interface", **SPEC), every)
    assert (result["intervals"], result["gaps"], result["duration_ms"]) == (2, 1, 2000)
    received = result["received"]
    assert (received["bytes"], received["rate_bps"], received["peak_bps"]) == (
        10_000,
        40_000,
        72_000,
    )
    line = "eth0: 40.0 kb/s in, 2.00 kb/s out, 1 error, 2 drops; 2 of 3 intervals"
    assert TEST.summary(result) == line
    metrics = TEST.metrics(result)
    assert (metrics[0].name, metrics[0].value, metrics[0].unit) == ("rate_bps", 40_000, "bit/s")


def test_the_end_of_the_program() -> None:
    """At its end the program reports the number of intervals, or which interfaces exist instead."""
    part = context("interface")
    assert TOOL.read(part, printed({"intervals": 60})) == {"intervals": 60}
    with pytest.raises(ToolOutputError, match="there is no interface x; there are lo"):
        TOOL.read(part, printed({"error": "there is no interface x; there are lo"}, 1))
