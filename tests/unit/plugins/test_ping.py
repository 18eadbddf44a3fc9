"""Round-trip times by ping: its command line, and the recorded output of real ones."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from node.model.errors import ToolOutputError
from node.model.times import MILLISECOND, SECOND
from node.plugins.contracts import Output, Part
from node.plugins.tests.rtt import TEST, RttSpec
from node.plugins.tools.ping import TOOL
from tests.golden.recorded import output
from tests.unit.plugins.parts import context, spec

MANY = {"count": 100, "interval": "PT0.02S"}


def read(case: str, **fields: Any) -> dict[str, Any]:
    """Return the part read from a recorded case."""
    return TOOL.read(context("rtt", **fields), output("ping", case))


def test_the_command_line() -> None:
    """Options come first, then ``--``, then the address of dest."""
    plain = TOOL.command(context("rtt")).argv
    assert " ".join(plain) == "ping -n -c 10 -i 0.2 -W 1 -s 56 -- 192.0.2.2"
    full = TOOL.command(context("rtt", interval="PT0.002S", ttl=3, ip_version=6, length=1400))
    assert " ".join(full.argv) == "ping -n -c 10 -i 0.002 -W 1 -s 1400 -t 3 -6 -- 192.0.2.2"


def test_options_of_ip() -> None:
    """The type of service, the flow label and the ban on fragments are passed on."""
    part = context("rtt", tos=184, flow_label=5, ip_version=6, dont_fragment=True)
    assert " ".join(TOOL.command(part).argv[-9:-2]) == "-6 -Q 184 -F 5 -M do"
    with pytest.raises(ValidationError, match="only IPv6 has flow labels"):
        spec("rtt", flow_label=5)


def test_a_host_that_is_no_node_is_asked_by_name() -> None:
    """A dest that is not a node is passed to ping as written."""
    assert TOOL.command(context("rtt", dest="www.example")).argv[-1] == "www.example"


def test_the_booked_time_holds_a_late_ping() -> None:
    """The booked time covers set-up, name service, late packets, timeout and wrap-up."""
    assert TOOL.duration(spec("rtt")) == 200_000 + SECOND + 10 * 250_000 + SECOND + 500_000
    fast = spec("rtt", interval="PT0.002S", count=1000)
    assert TOOL.duration(fast) == 200_000 + SECOND + 1000 * 12 * MILLISECOND + SECOND + 500_000


def test_all_answered() -> None:
    """Ten answers on loopback are ten round-trip times, with the summary's figures."""
    part = read("loopback")
    assert (part["sent"], part["received"], part["loss"]) == (10, 10, 0)
    assert part["address"] == "127.0.0.1"
    assert part["rtt_ms"]["min"] <= part["rtt_ms"]["median"] <= part["rtt_ms"]["max"]
    assert part["jitter_ms"] >= 0


def test_loss_and_duplicates() -> None:
    """Duplicates are counted separately, and a missing number is a loss."""
    part = read("loss-and-duplicates", **MANY)
    assert (part["sent"], part["received"], part["duplicates"]) == (100, 99, 6)
    assert part["loss"] == 0.01
    assert part["rtt_ms"]["mean"] == pytest.approx(20.365, abs=0.1)


def test_ipv6() -> None:
    """An IPv6 answer is read like any other, and the summary's decimals are kept."""
    part = read("ipv6", count=20)
    assert part["address"] == "fd00:87::2"
    assert part["received"] >= 19
    assert 20 < part["rtt_ms"]["min"] < 21


def test_a_name_is_reported_with_its_address() -> None:
    """A dest given by name is reported with the address that ping found."""
    assert read("named", count=3)["address"] == "127.0.0.1"


def test_complete_loss() -> None:
    """Complete loss (exit code 1) is a result, not a failure."""
    part = read("all-lost", count=3)
    assert (part["sent"], part["received"], part["loss"]) == (3, 0, 1)
    assert part["rtt_ms"] is None
    assert TEST.summary(part) == "no answer, loss 100 %"


@pytest.mark.parametrize(
    ("case", "said"),
    [
        ("net-unreachable", "Destination Net Unreachable (from 10.87.0.2)"),
        ("time-exceeded", "Time to live exceeded (from 10.87.0.2)"),
    ],
)
def test_routers_are_quoted(case: str, said: str) -> None:
    """A router's error is kept, once, and shown."""
    part = read(case, count=4)
    assert part["errors"] == [said]
    assert TEST.summary(part) == f"no answer, loss 100 % ({said})"


def test_late_answers_are_lost() -> None:
    """An answer that took longer than the timeout counts as lost, and as late."""
    part = read("late", count=5)
    assert (part["sent"], part["received"], part["late"], part["loss"]) == (5, 0, 3, 1)
    patient = read("late", count=5, timeout="PT2S")
    assert (patient["received"], patient["late"]) == (3, 0)
    assert patient["rtt_ms"]["mean"] == 1301.842


@pytest.mark.parametrize(
    ("case", "sentence"),
    [
        ("unknown-host", "ping: unknown.invalid: Name or service not known"),
        ("no-route", "ping: connect: Network is unreachable"),
        ("wrong-family", "ping: ::1: Address family for hostname not supported"),
        ("terminated", "ping had not finished at the end of the run"),
    ],
)
def test_failures_say_their_cause(case: str, sentence: str) -> None:
    """A ping that could not send or was ended is not a result, and its own words come first."""
    with pytest.raises(ToolOutputError) as failure:
        read(case, count=100)
    assert failure.value.detail == sentence


HEADER = "PING x (192.0.2.2) 56(84) bytes of data.\n"
ANSWER = "64 bytes from 192.0.2.2: icmp_seq={} ttl=64 time={} ms\n"
SUMMARY = "{} packets transmitted, {} received, 0% packet loss, time 1ms\n"


@pytest.mark.parametrize(
    "text",
    [
        HEADER + ANSWER.format(1, 5) + ANSWER.format(2, 5) + SUMMARY.format(1, 2),
        HEADER + ANSWER.format(11, 5) + SUMMARY.format(10, 1),
        HEADER + SUMMARY.format(11, 0),
        HEADER + SUMMARY.format(0, 0),
    ],
)
def test_contradictions_are_refused(text: str) -> None:
    """Output whose lines and summary contradict each other is refused."""
    with pytest.raises(ToolOutputError, match="ping"):
        TOOL.read(context("rtt"), Output(0, text.encode(), b""))


def read_text(*lines: str, count: int = 5) -> dict[str, Any]:
    """Return the part of a ping that printed these lines after its header."""
    return TOOL.read(
        context("rtt", count=count), Output(0, (HEADER + "".join(lines)).encode(), b"")
    )


TRUNCATED = "76 bytes from 192.0.2.2: icmp_seq={} ttl=117 (truncated)\n"
TIMES = "rtt min/avg/max/mdev = {} ms\n"


def test_truncated_replies_are_answers() -> None:
    """Replies that lack their time stamp have times in the summary only, and the result says so."""
    lines = [TRUNCATED.format(at) for at in range(1, 6)]
    part = read_text(*lines, SUMMARY.format(5, 5), TIMES.format("11.204/11.310/11.502/0.105"))
    assert (part["received"], part["loss"]) == (5, 0)
    assert part["rtt_ms"] == {
        "min": 11.204, "median": None, "mean": 11.31, "p95": None, "max": 11.502, "stdev": 0.105,
    }  # fmt: skip
    assert part["notes"] == ["5 replies were truncated, so ping printed no time for them"]
    assert TEST.summary(part) == "mean 11.31 ms, loss 0 %"
    assert [it.name for it in TEST.metrics(part)] == ["rtt_min_ms", "loss"]


@pytest.mark.parametrize(
    ("lines", "received", "note"),
    [
        (  # lines that were lost on the way
            [ANSWER.format(1, 5), SUMMARY.format(5, 2), TIMES.format("5.0/5.1/5.2/0.1")],
            2,
            "ping printed 1 of 2 answers",
        ),
        (  # a corrupted reply, which ping does not count
            [
                ANSWER.format(1, 5),
                ANSWER.format(2, 5).replace(" ms", " ms (BAD CHECKSUM!)"),
                "5 packets transmitted, 1 received, +1 corrupted, 80% packet loss, time 1ms\n",
            ],
            1,
            "1 replies were corrupted; they count as lost",
        ),
        (  # more received than sent
            [ANSWER.format(1, 5), SUMMARY.format(5, 7)],
            1,
            "the answers are those of the lines: 5 sent, 7 received, 1 answers of 5",
        ),
        (
            [ANSWER.format(1, 5), SUMMARY.format(5, -1)],
            1,
            "received is left out: -1 is below 0",
        ),
        (
            [ANSWER.format(1, -5), SUMMARY.format(5, 1)],
            1,
            "the time of an answer is left out: -5 is below 0",
        ),
        (
            [ANSWER.format(1, 5), SUMMARY.format(1, 1), TIMES.format("5.0/4.0/6.0/0.0")],
            1,
            "ping's summary of times is left out: 5/4/6 are not in order",
        ),
        (
            [ANSWER.format(1, 5), SUMMARY.format(1, 1), TIMES.format("nan/nan/nan/nan")],
            1,
            "a time of ping's summary is left out: nan is no number, and 3 more like it",
        ),
        ([ANSWER.format(at, 5) for at in range(1, 6)], 5, "ping's summary is missing"),
    ],
)
def test_what_can_be_saved_is_saved(lines: list[str], received: int, note: str) -> None:
    """Counts and times that can be true are kept, and what was dropped is named."""
    part = read_text(*lines)
    assert part["received"] == received
    assert note in part["notes"]


def test_other_languages_are_read() -> None:
    """The counts and times are found by their places, with a comma or a point."""
    part = read_text(
        "64 Bytes von 192.0.2.2: icmp_seq=1 ttl=64 Zeit=5,25 ms\n",
        "\n--- x ping-Statistik ---\n5 Pakete übertragen, 1 empfangen, 80% verloren, Zeit 9ms\n",
        "rtt min/avg/max/mdev = 5,250/5,250/5,250/0,000 ms\n",
    )
    assert (part["sent"], part["received"], part["rtt_ms"]["mean"]) == (5, 1, 5.25)
    assert "notes" not in part


def test_answers_out_of_order_are_counted() -> None:
    """An answer with a smaller number than an earlier one is out of order."""
    lines = "".join(ANSWER.format(sequence, 5) for sequence in (1, 3, 2))
    part = TOOL.read(
        context("rtt"), Output(0, (HEADER + lines + SUMMARY.format(3, 3)).encode(), b"")
    )
    assert (part["received"], part["reordered"]) == (3, 1)


def test_one_answer_has_no_jitter() -> None:
    """A single answer has a time but no jitter."""
    text = HEADER + ANSWER.format(1, 5) + SUMMARY.format(1, 1)
    part = TOOL.read(context("rtt", count=1), Output(0, text.encode(), b""))
    assert TEST.summary(part) == "5.00 ms, loss 0 %"


def test_the_part_is_the_result() -> None:
    """The merged result is the one part, and its summary has median, loss and jitter."""
    part = read("ipv6", count=20)
    merged = TEST.merge(spec("rtt", count=20), [Part(0, "a", part)])
    assert merged.succeeded
    assert merged.result == part
    assert TEST.summary(part).startswith(f"{part['rtt_ms']['median']:.2f} ms, loss 0 %, jitter ")


@pytest.mark.parametrize(
    "wrong",
    [
        {"interval": "PT0.001S"},
        {"count": 0},
        {"count": True},
        {"count": 10_000, "interval": "PT1S"},
        {"length": 15},
        {"ttl": 0},
        {"ip_version": 5},
        {"timeout": "PT0S"},
        {"dest": None},
    ],
)
def test_specs_outside_the_limits_are_refused(wrong: dict[str, Any]) -> None:
    """Specs that ping would refuse, or that take more than an hour, are refused."""
    with pytest.raises(ValidationError):
        RttSpec.model_validate({"dest": "b"} | wrong)
