"""A stream by irtt: its command lines, and recorded intervals of real ones."""

from __future__ import annotations

import json
from typing import Any

import pytest

from node.model.errors import ToolOutputError
from node.model.intervals import Interval
from node.model.times import SECOND
from node.plugins.choice import ToolOffer, explain_choice
from node.plugins.contracts import Command, Output, Part
from node.plugins.irttstream import LEAD_IN, overtime
from node.plugins.tests.latencybg import TEST
from node.plugins.tools.irtt import TOOL
from tests.golden.recorded import output
from tests.unit.plugins.parts import PORT, STARTS, context, printed, spec
from tests.unit.plugins.records import SPEC, clients_record, server_record, silence

SOURCE, DEST = 0, 1
RECORDED: dict[str, Any] = {"duration": "PT10S", "each": "PT5S", "timeout": "PT0.3S"}


def asked(command: Command) -> dict[str, Any]:
    """Return the arguments of our program."""
    told: dict[str, Any] = json.loads(command.argv[-1])
    return told


def client(record: dict[str, Any]) -> Interval:
    """Return an interval as the source's node reads it."""
    part = context("latencybg", SOURCE, **SPEC)
    return TOOL.read_interval(part, json.dumps(record).encode())


def recorded(case: str, end: int, **fields: Any) -> list[Interval]:
    """Return the records of one end in a recorded run of two intervals."""
    part = context("latencybg", end, **RECORDED | fields)
    lines = output("irtt-stream", f"{case}-{('client', 'server')[end]}").stdout.splitlines()
    records = [line[1:] for line in lines if line.startswith(b"\x1e")]
    return [TOOL.read_interval(part, record) for record in records]


def merged(case: str, **fields: Any) -> list[Interval]:
    """Return a recorded run, both ends merged."""
    task_spec, intervals = spec("latencybg", **RECORDED | fields), []
    pairs = zip(*(recorded(case, end, **fields) for end in (SOURCE, DEST)), strict=True)
    for number, pair in enumerate(pairs):
        parts = [Part(at, "ab"[at], told.result, told.reason) for at, told in enumerate(pair)]
        outcome = TEST.merge_interval(task_spec, parts)
        intervals.append(Interval(number, outcome.result, outcome.reason))
    return intervals


def test_a_client_for_each_interval() -> None:
    """Each client sends four packets more than are counted; our program times it."""
    params = asked(TOOL.command(context("latencybg", SOURCE)))
    assert " ".join(params["argv"]) == (
        "irtt client -Q -o - -i 100000000ns -l 44 --stats=both --tstamp=both --clock=wall"
        f" --wait=1000000000ns --timeouts=500ms,500ms --local=192.0.2.1 -- 192.0.2.2:{PORT}"
    )
    assert (params["packets"], params["extra"], params["intervals"]) == (600, 4, 60)
    assert params["first_ns"] == (STARTS + LEAD_IN) * 1000


def test_one_server_for_the_run() -> None:
    """The server listens from the start until the last answer can have come."""
    part = context("latencybg", DEST, length=100)
    command = TOOL.command(part)
    params = asked(command)
    assert " ".join(params["argv"]) == (
        f"irtt server -b 192.0.2.2:{PORT} -i 0 -l 100 --timeout=70000000000ns"
    )
    assert params["at_ns"] == STARTS * 1000
    assert part.ends < params["until_ns"] / 1000 < part.ends + command.overtime - SECOND // 4
    assert command.streams
    assert command.waits_itself


def test_runs_take_turns_with_two_ports() -> None:
    """Runs alternate between two ports, because one server still listens when the next starts."""
    part = context("latencybg", SOURCE)
    length = TOOL.duration(part.spec)
    ports = []
    for starts in (STARTS, STARTS + length, STARTS + 2 * length):
        run = part.__class__(part.spec, SOURCE, part.parties, starts, starts + length)
        ports.append(int(asked(TOOL.command(run))["argv"][-1].rsplit(":")[-1]))
    assert ports == [PORT, PORT + 1, PORT]
    assert TOOL.needs_port(part.spec, DEST)
    assert not TOOL.needs_port(spec("latencybg", port=9000), DEST)


@pytest.mark.parametrize("interval", ["PT0.01S", "PT0.1S", "PT0.6S", "PT2S"])
def test_late_packets_are_awaited_after_the_end(interval: str) -> None:
    """The programs may take longer than booked, but end before the lead gives up on their parts."""
    task_spec = spec("latencybg", timeout="PT5S", each="PT30S", interval=interval)
    assert 6 * SECOND < overtime(task_spec) < 10 * SECOND
    assert TOOL.can(task_spec) is None
    assert TOOL.duration(task_spec) == task_spec.duration


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"each": "PT2M", "interval": "PT0.01S"}, "more than 9000 packets in each"),
        ({"interval": "PT3S"}, "at least one packet each PT2S"),
        ({"each": "PT4S", "duration": "PT20S"}, "each is at least PT5S"),
        ({"each": "PT5S", "duration": "PT5S"}, "duration PT10S"),
        ({"port": 65_535}, "the port after the one in the spec"),
    ],
)
def test_unsupported_specs(fields: dict[str, Any], words: str) -> None:
    """Specs that a client for each interval cannot measure are refused with the reason."""
    task_spec = spec("latencybg", **fields)
    refusal = TOOL.can(task_spec) or ""
    assert refusal.startswith("irtt ")
    assert words in refusal
    sentence = explain_choice(
        "latencybg", "stampbg", (), task_spec, [ToolOffer("b", accepted=True, tools=())]
    )
    assert sentence == "the best tool for latencybg"
    sentence = explain_choice("latencybg", "stampbg", ("irtt", "stampbg"), task_spec, [])
    assert sentence == f"irtt is requested before it, but {refusal}"


def test_the_choice_of_irtt_is_explained() -> None:
    """Our own program is preferred; the reason for irtt names the host that lacks it."""
    lacking = ToolOffer("b", accepted=True, tools=("irtt",), lacks={"stampbg": "no Python"})
    sentence = explain_choice("latencybg", "irtt", (), spec("latencybg"), [lacking])
    assert sentence == "stampbg is better, but b: no Python"


def test_loss_each_way() -> None:
    """The loss each way is the emulator's: 6 of 100 packets there and 3 on the way back."""
    intervals = merged("lossy")
    assert [each.reason for each in intervals] == [None, None]
    counts = [
        [(each.result or {})[name] for name in ("sent", "received_at_dest", "received_back")]
        for each in intervals
    ]
    assert counts == [[50, 48, 47], [50, 46, 44]]
    total = TEST.total(spec("latencybg", **RECORDED), intervals)
    assert total["loss"] == {"forward": 0.06, "backward": 0.031915, "round_trip": 0.09}
    assert 20 < total["delay_ms"]["forward"]["median"] < 20.5
    assert 20 < total["delay_ms"]["backward"]["median"] < 20.5
    assert TEST.summary(total).startswith("20.")
    assert TEST.metrics(total)


def test_figures_unknown_to_irtt_are_null() -> None:
    """Unknown figures are null, both of an interval and of the run."""
    intervals = merged("lossy")
    for each in ((intervals[0].result or {}), TEST.total(spec("latencybg"), intervals)):
        assert each["duplicates"] == {"forward": None, "backward": 0}
        assert each["reordered"] == {"forward": None, "backward": 0}
        assert each["unreachable"] is None
    assert (intervals[0].result or {})["hops"] == {"forward": None, "backward": None}


def test_late_packets_are_lost() -> None:
    """Round trips of 40 ms with a timeout of 30 ms are late, and count as lost, over IPv6."""
    intervals = merged("late", timeout="PT0.03S", ip_version=6, length=200)
    for each in intervals:
        result = each.result or {}
        assert (result["late"], result["received_back"], result["received_at_dest"]) == (50, 0, 50)
    assert TEST.interval_summary(intervals[0].result or {}) == (
        "no packet came back, loss 0 % / 100 %"
    )


def test_a_server_that_never_answers() -> None:
    """An interval without any sent packet is a gap with irtt's own reason, not loss."""
    for each in recorded("silent", SOURCE):
        assert each.result is None
        assert (each.reason or "").startswith("no packet could be sent: irtt: read udp4 ")
        assert (each.reason or "").endswith("connection refused")


def test_a_server_that_is_killed() -> None:
    """The intervals until the server was killed are kept, and the reason says what is missing."""
    first, second = recorded("cut", SOURCE)
    assert first.reason == "irtt ended after 28 packets; 22 of 50 packets were not sent"
    assert (first.result or {})["sent"] == 28
    assert (first.result or {})["received_at_dest"] is None
    assert second.result is None
    with pytest.raises(ToolOutputError, match="irtt: its server ended"):
        TOOL.read(context("latencybg", DEST), output("irtt-stream", "cut-server"))


@pytest.mark.parametrize(
    ("record", "words"),
    [
        (clients_record(sent=11), "11 packets, not 10"),
        (clients_record(received_at_dest=11), "more packets back than there"),
        (clients_record(received_at_dest=9), "more packets back than there"),
        (clients_record(received_back=9), "histograms and counts contradict"),
        (clients_record(late=-1), "late"),
        (clients_record(late=float("nan")), "late"),
        (clients_record(unreachable=0), "unreachable"),
        (silence(), "a record is not valid"),
    ],
)
def test_records_that_cannot_be(record: dict[str, Any], words: str) -> None:
    """A record that contradicts itself is refused."""
    with pytest.raises(ToolOutputError, match=words):
        client(record)


def test_a_packet_that_was_skipped_is_no_fault() -> None:
    """A packet that a busy host skipped is only counted, and irtt's error message is kept."""
    nothing = {name: silence()[name] for name in ("received_back", "delay_ms", "jitter_ms")}
    nothing["histogram_us"] = silence()["histogram_us"]
    fewer = clients_record(sent=9, unsent=1, received_at_dest=0, **nothing)
    interval = client(fewer)
    assert interval.reason is None
    assert (interval.result or {})["sent"] == 9
    interval = client(fewer | {"complaint": "irtt: [OpenTimeout] no reply from server"})
    assert (
        interval.reason == "irtt: [OpenTimeout] no reply from server; 1 of 10 packets were not sent"
    )


def test_the_end_of_the_programs() -> None:
    """At their end the programs report the number of intervals, or why they could not measure."""
    part = context("latencybg", SOURCE)
    assert TOOL.read(part, printed({"intervals": 60})) == {"intervals": 60}
    with pytest.raises(ToolOutputError, match="irtt: irtt: No such file"):
        TOOL.read(part, printed({"error": "irtt: No such file or directory"}, exit_code=1))
    taken = Output(1, b'{"error":"its server ended"}', b"Error: bind: address already in use")
    with pytest.raises(ToolOutputError, match="irtt: bind: address already in use"):
        TOOL.read(context("latencybg", DEST), taken)
    served = TOOL.read_interval(context("latencybg", DEST), json.dumps(server_record(3)).encode())
    assert served.number == 3
    assert (served.result or {})["received"] is None
