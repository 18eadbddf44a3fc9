"""The spec of ntp, the command of its tool, and the parsing of its output."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import ValidationError

from node.model.errors import ToolOutputError
from node.model.times import SECOND
from node.plugins.contracts import Part
from node.plugins.plausibility import find_endless_time
from node.plugins.tests.ntp import TEST, NtpSpec
from node.plugins.tools.ntpclient import TOOL
from tests.unit.plugins.parts import context, printed, spec

MS = 1_000_000
CLOCK = {"synchronised": True, "error_bound_ns": 3 * MS, "stepped_ns": 0, "identity": "0a"}
SERVER = {
    "leap": 0,
    "stratum": 2,
    "reference": "c0000201",
    "root_delay_ns": 4 * MS,
    "root_dispersion_ns": MS,
    "precision_ns": 953.67,
}
ANSWERED = {
    "address": "192.0.2.7",
    "sent": 4,
    "answers": [[2 * MS, 30 * MS], [-MS, 10 * MS], [3 * MS, 20 * MS]],
    "server": SERVER,
    "kiss": None,
    "clock": CLOCK,
}


@pytest.mark.parametrize(
    "wrong",
    [{"interval": "PT0.5S"}, {"count": 101}, {"port": 0}, {"timeout": "PT0S"}, {"dest": ""}],
)
def test_specs_outside_the_limits_are_refused(wrong: dict[str, Any]) -> None:
    """Packets that follow too fast, and hosts that are none, are refused."""
    with pytest.raises(ValidationError):
        NtpSpec.model_validate({"dest": "ntp.example"} | wrong)


def test_the_arguments_of_the_program() -> None:
    """The program gets the server's address, its pace, and the instant, all in one argument."""
    part = context("ntp", dest="b.example", count=2)
    command = TOOL.command(part)
    arguments = json.loads(command.argv[-1])
    assert (arguments["host"], arguments["port"], arguments["count"]) == ("192.0.2.2", 123, 2)
    assert arguments["interval_ns"] == 2_000 * MS
    assert arguments["first_ns"] == part.starts * 1000
    assert command.waits_itself


def test_the_booked_time() -> None:
    """The booked time is set-up, the name, all packets, the last timeout, and wrap-up."""
    assert TOOL.duration(spec("ntp", count=3, interval="PT5S", timeout="PT2S")) == 15 * SECOND


def test_the_shortest_round_trip_decides() -> None:
    """The offset is that of the packet with the shortest round trip, half of which is its bound."""
    result = TOOL.read(context("ntp"), printed(ANSWERED))
    assert (result["offset_ms"], result["bound_ms"], result["offset_median_ms"]) == (-1, 5, 2)
    assert (result["received"], result["loss"]) == (3, 0.25)
    assert result["root_distance_ms"] == 3
    assert result["round_trip_ms"]["max"] == 30
    assert result["clock"]["error_bound_ms"] == 3
    assert TEST.summary(result) == "-1.000 ms ± 5.000 ms, stratum 2"
    assert [(it.name, it.value) for it in TEST.metrics(result)] == [
        ("offset_ms", -1),
        ("bound_ms", 5),
        ("round_trip_median_ms", 20),
        ("round_trip_min_ms", 10),
        ("round_trip_p95_ms", 30),
        ("loss", 0.25),
        ("stratum", 2),
        ("root_distance_ms", 3),
    ]


def test_a_clock_may_be_years_off() -> None:
    """An offset of years is a figure; a round trip of years is none."""
    off = TOOL.read(context("ntp"), printed(ANSWERED | {"answers": [[10**18, 10 * MS]]}))
    assert (off["offset_ms"], find_endless_time(off)) == (10**12, None)
    slow = TOOL.read(context("ntp"), printed(ANSWERED | {"answers": [[0, 10**18]]}))
    assert find_endless_time(slow) is not None


@pytest.mark.parametrize(
    ("document", "reason"),
    [
        (
            {"address": "192.0.2.7", "sent": 4},
            "192.0.2.7 port 123 answered none of 4 packets",
        ),
        (
            {"address": "192.0.2.7", "sent": 1, "kiss": "DENY"},
            "192.0.2.7 port 123 refuses to tell the time: DENY",
        ),
        ({"failure": "no address was found for x"}, "no address was found for x"),
        (
            ANSWERED | {"server": SERVER | {"leap": 3}},
            "192.0.2.7 port 123 says that its own clock is not synchronised",
        ),
    ],
)
def test_what_fails_a_run_is_said(document: dict[str, Any], reason: str) -> None:
    """Silence, a refusal, and a clock that follows nothing are failures with a result."""
    part = context("ntp")
    result = TOOL.read(part, printed({"clock": CLOCK} | document))
    merged = TEST.merge(part.spec, [Part(0, "a", result)])
    assert merged.reason == reason
    assert merged.result is not None


@pytest.mark.parametrize(
    "wrong",
    [
        {"sent": 2},
        {"sent": 5},
        {"server": None},
        {"server": SERVER | {"leap": 4}},
        {"server": SERVER | {"stratum": -1}},
        {"answers": [[2**63, 1]]},
        {"answers": [[1]]},
        {"clock": None},
        {"surprise": 1},
    ],
)
def test_impossible_output_is_refused(wrong: dict[str, Any]) -> None:
    """An impossible answer is refused."""
    with pytest.raises(ToolOutputError):
        TOOL.read(context("ntp"), printed(ANSWERED | wrong))
