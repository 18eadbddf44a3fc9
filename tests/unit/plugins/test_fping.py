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
    """Return the part read from a recorded case."""
    return TOOL.read(context("rtt", **fields), output("fping", case))


def test_options_of_ip() -> None:
    """The type of service and the ban on fragments are passed on; a flow label is refused."""
    argv = " ".join(TOOL.command(context("rtt", tos=184, dont_fragment=True)).argv)
    assert argv == "fping -A -C 10 -p 200 -t 2000 -b 56 -O 184 -M -- 192.0.2.2"
    assert TOOL.can(spec("rtt", flow_label=5, ip_version=6)) == "fping sets no flow label"


def line(sequence: int, told: str) -> str:
    """Return a line as fping prints it."""
    return f"192.0.2.2 : [{sequence}], {told} (1.00 avg, 0% loss)\n"


def printed(*lines: str, stderr: str = "") -> Output:
    """Return the output of an fping."""
    return Output(0, "".join(lines).encode(), stderr.encode())


def test_the_command_line() -> None:
    """The timeout is always set, a second longer than requested; ``--`` precedes dest."""
    plain = TOOL.command(context("rtt")).argv
    assert " ".join(plain) == "fping -A -C 10 -p 200 -t 2000 -b 56 -- 192.0.2.2"
    full = TOOL.command(context("rtt", interval="PT0.0025S", ttl=3, ip_version=6))
    assert " ".join(full.argv) == "fping -A -C 10 -p 2.5 -t 2000 -b 56 -H 3 -6 -- 192.0.2.2"


def test_it_comes_after_ping_and_needs_raw_sockets() -> None:
    """It ranks after ping and needs raw sockets: with the kernel's it loses everything."""
    assert TOOL.requirement is not None
    assert TOOL.requirement.privilege(spec("rtt")) is Privilege.RAW
    assert TOOL.preference < 0


def test_the_booked_time_holds_a_late_answer() -> None:
    """The booked time covers late packets, the extended timeout, the name service and wrap-up."""
    task_spec = spec("rtt")
    assert TOOL.duration(task_spec) == 200_000 + SECOND + 10 * 250_000 + SECOND + SECOND + 500_000


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
def test_complete_loss(case: str, summary: str) -> None:
    """Complete loss is a result, with the errors of routers."""
    assert TEST.summary(read(case, count=3)) == summary


def test_late_duplicate_and_reordered_answers() -> None:
    """Late packets count as lost, duplicates separately, and the order is that of the lines."""
    output = printed(
        line(1, "64 bytes, 5.5 ms"),
        line(0, "64 bytes, 1500 ms"),
        line(2, "timed out"),
        stderr="192.0.2.2 : duplicate for [1], 64 bytes, 0.05 ms\n",
    )
    part = TOOL.read(context("rtt", count=3), output)
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
    """An fping that could not send or was ended is not a result, and its own words come first."""
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
    """A packet that is reported twice, or was never sent, is refused."""
    with pytest.raises(ToolOutputError, match="fping reports"):
        TOOL.read(context("rtt", count=2), printed(*lines))


FOUR = [line(0, "64 bytes, 5.0 ms"), line(1, "64 bytes, 5.1 ms"), line(3, "64 bytes, 5.3 ms")]


@pytest.mark.parametrize(
    ("total", "received", "note"),
    [
        ("5.0 5.1 - 5.3 -", 3, None),
        ("xmt/rcv/%loss = 5/3/40%, min/avg/max = 5.00/5.20/5.40", 3, None),
        ("5.0 5.1 - 5.3 5.4", 4, "1 answers are those of fping's last line"),
        (
            "xmt/rcv/%loss = 5/4/20%, min/avg/max = 5.00/5.20/5.40",
            4,
            "fping printed 3 of 4 answers",
        ),
    ],
)
def test_version_4_prints_no_line_for_lost_packets(
    total: str, received: int, note: str | None
) -> None:
    """A packet without a line is lost, unless the last line tells of its answer."""
    part = TOOL.read(context("rtt", count=5), printed(*FOUR, stderr=f"\n192.0.2.2 : {total}\n"))
    assert (part["sent"], part["received"]) == (5, received)
    assert part.get("notes", [note]) == [note]


def test_nothing_but_the_last_line() -> None:
    """Version 4 prints only its last line if all were lost."""
    part = TOOL.read(context("rtt", count=2), printed(stderr="192.0.2.2 : - -\n"))
    assert (part["address"], part["received"], part["loss"]) == ("192.0.2.2", 0, 1)


@pytest.mark.parametrize("time", ["-5.0", "nan", "1e9"])
def test_times_that_cannot_be_are_left_out(time: str) -> None:
    """The packet was answered; its time is not known."""
    lines = [line(0, "64 bytes, 5.0 ms"), line(1, f"64 bytes, {time} ms")]
    part = TOOL.read(context("rtt", count=2), printed(*lines))
    assert (part["received"], part["rtt_ms"]["max"]) == (2, 5.0)
    assert len(part["notes"]) == 1


def test_finished_output_counts() -> None:
    """An fping that had reported all packets when the launcher ended it has a result."""
    ended = dataclasses.replace(output("fping", "loopback"), ended_by="end")
    assert TOOL.read(context("rtt"), ended) == read("loopback")
