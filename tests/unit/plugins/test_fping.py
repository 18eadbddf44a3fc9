"""Round-trip times by fping: its command line, and what real fpings printed."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from node.model.errors import ToolOutputError
from node.model.times import SECOND
from node.plugins.contracts import Output, Privilege
from node.plugins.tests.rtt import TEST
from node.plugins.tools.fping import TOOL
from tests.golden.recorded import output
from tests.unit.plugins.parts import context, spec


def read(case: str, **fields: Any) -> dict[str, Any]:
    """The part read from a recorded case."""
    return TOOL.read(context("rtt", **fields), output("fping", case))


def line(sequence: int, told: str) -> str:
    """A line of fping's."""
    return f"192.0.2.2 : [{sequence}], {told} (1.00 avg, 0% loss)\n"


def printed(*lines: str, stderr: str = "") -> Output:
    """What an fping printed."""
    return Output(0, "".join(lines).encode(), stderr.encode())


def test_the_command_line() -> None:
    """The time-out is always told, a second longer than asked; ``--`` comes before dest."""
    plain = TOOL.command(context("rtt")).argv
    assert " ".join(plain) == "fping -A -C 10 -p 200 -t 2000 -b 56 -- 192.0.2.2"
    full = TOOL.command(context("rtt", interval="PT0.0025S", ttl=3, ip_version=6))
    assert " ".join(full.argv) == "fping -A -C 10 -p 2.5 -t 2000 -b 56 -H 3 -6 -- 192.0.2.2"


def test_it_comes_after_ping_and_needs_raw_sockets() -> None:
    """With the kernel's own sockets for echo requests it loses all."""
    assert TOOL.requirement is not None
    assert TOOL.requirement.privilege(spec("rtt")) is Privilege.RAW
    assert TOOL.preference < 0


def test_the_booked_time_holds_a_late_answer() -> None:
    """Set-up, name service, packets each late, the time-out and a second more, wrap-up."""
    asked = spec("rtt")
    assert TOOL.duration(asked) == 200_000 + SECOND + 10 * 250_000 + SECOND + SECOND + 500_000


def test_all_answered() -> None:
    """Ten answers on loopback are ten round-trip times."""
    part = read("loopback")
    assert (part["sent"], part["received"], part["loss"], part["late"]) == (10, 10, 0, 0)
    assert part["address"] == "127.0.0.1"
    assert part["rtt_ms"]["min"] <= part["rtt_ms"]["median"] <= part["rtt_ms"]["max"]
    assert read("ipv6")["address"] == "fd00:99:3::2"
    assert read("names", count=3)["address"] == "10.99.3.2"


@pytest.mark.parametrize(
    ("case", "summary"),
    [
        ("all-lost", "no answer, loss 100 %"),
        ("time-exceeded", "no answer, loss 100 % (Time Exceeded (from 10.99.2.2))"),
        ("net-unreachable", "no answer, loss 100 % (Network Unreachable (from 10.99.2.2))"),
    ],
)
def test_nobody_answers(case: str, summary: str) -> None:
    """Complete loss is a result, with what routers said."""
    assert TEST.summary(read(case, count=3)) == summary


def test_late_duplicate_and_reordered_answers() -> None:
    """What is late is lost, doubles are counted beside, order is that of the lines."""
    told = printed(
        line(1, "64 bytes, 5.5 ms"),
        line(0, "64 bytes, 1500 ms"),
        line(2, "timed out"),
        stderr="192.0.2.2 : duplicate for [1], 64 bytes, 0.05 ms\n",
    )
    part = TOOL.read(context("rtt", count=3), told)
    assert (part["received"], part["late"], part["duplicates"], part["reordered"]) == (1, 1, 1, 1)
    assert part["rtt_ms"]["max"] == 5.5


@pytest.mark.parametrize(
    ("case", "sentence"),
    [
        ("unknown-host", "fping: unknown.invalid: Temporary failure in name resolution"),
        ("wrong-family", "fping: ::1: Address family for hostname not supported"),
        ("terminated", "fping had not finished at the end of the run"),
    ],
)
def test_failures_say_their_cause(case: str, sentence: str) -> None:
    """An fping that could not ask or was ended is no result, and its own words come first."""
    with pytest.raises(ToolOutputError) as failure:
        read(case, count=50)
    assert failure.value.detail == sentence


@pytest.mark.parametrize(
    "lines",
    [
        [line(0, "timed out")],
        [line(0, "timed out"), line(0, "timed out")],
        [line(0, "timed out"), line(2, "timed out")],
    ],
)
def test_contradictions_are_refused(lines: list[str]) -> None:
    """Each packet is told of once, and none that was not asked for."""
    with pytest.raises(ToolOutputError, match="fping reports"):
        TOOL.read(context("rtt", count=2), printed(*lines))


def test_what_was_finished_counts() -> None:
    """An fping that had told of all packets when the launcher came has a result."""
    ended = dataclasses.replace(output("fping", "loopback"), ended_by="end")
    assert TOOL.read(context("rtt"), ended) == read("loopback")
