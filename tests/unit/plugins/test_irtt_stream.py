"""A stream by irtt: its command lines, and what real ones told of each interval."""

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
    """What our program is told."""
    told: dict[str, Any] = json.loads(command.argv[-1])
    return told


def client(record: dict[str, Any]) -> Interval:
    """As the source's node reads it."""
    part = context("latencybg", SOURCE, **SPEC)
    return TOOL.read_interval(part, json.dumps(record).encode())


def recorded(case: str, end: int, **fields: Any) -> list[Interval]:
    """What one end told in a recorded run of two intervals."""
    part = context("latencybg", end, **RECORDED | fields)
    lines = output("irtt-stream", f"{case}-{('client', 'server')[end]}").stdout.splitlines()
    records = [line[1:] for line in lines if line.startswith(b"\x1e")]
    return [TOOL.read_interval(part, record) for record in records]


def merged(case: str, **fields: Any) -> list[Interval]:
    """A recorded run, both ends merged."""
    given, found = spec("latencybg", **RECORDED | fields), []
    pairs = zip(*(recorded(case, end, **fields) for end in (SOURCE, DEST)), strict=True)
    for number, pair in enumerate(pairs):
        parts = [Part(at, "ab"[at], told.result, told.reason) for at, told in enumerate(pair)]
        outcome = TEST.merge_interval(given, parts)
        found.append(Interval(number, outcome.result, outcome.reason))
    return found


def test_a_client_for_each_interval() -> None:
    """It sends four packets more than are counted; our program says for how long, and when."""
    told = asked(TOOL.command(context("latencybg", SOURCE)))
    assert " ".join(told["argv"]) == (
        "irtt client -Q -o - -i 100000000ns -l 44 --stats=both --tstamp=both --clock=wall"
        f" --wait=1000000000ns --timeouts=500ms,500ms --local=192.0.2.1 -- 192.0.2.2:{PORT}"
    )
    assert (told["packets"], told["extra"], told["intervals"]) == (600, 4, 60)
    assert told["first_ns"] == (STARTS + LEAD_IN) * 1000


def test_one_server_for_the_run() -> None:
    """It listens from the start until the last answer can have come."""
    part = context("latencybg", DEST, length=100)
    command = TOOL.command(part)
    told = asked(command)
    assert " ".join(told["argv"]) == (
        f"irtt server -b 192.0.2.2:{PORT} -i 0 -l 100 --timeout=70000000000ns"
    )
    assert told["at_ns"] == STARTS * 1000
    assert part.ends < told["until_ns"] / 1000 < part.ends + command.overtime - SECOND // 4
    assert command.streams
    assert command.waits_itself


def test_runs_take_turns_with_two_ports() -> None:
    """The server of one run still listens when that of the next one begins."""
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
def test_what_is_under_way_at_the_end_is_waited_for(interval: str) -> None:
    """The programs may take longer than booked, but end before the lead gives their parts up."""
    given = spec("latencybg", timeout="PT5S", each="PT30S", interval=interval)
    assert 6 * SECOND < overtime(given) < 10 * SECOND
    assert TOOL.can(given) is None
    assert TOOL.duration(given) == given.duration


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
def test_what_it_cannot(fields: dict[str, Any], words: str) -> None:
    """Whoever asks for what a client for each interval cannot do is told why, beforehand."""
    given = spec("latencybg", **fields)
    refusal = TOOL.can(given) or ""
    assert refusal.startswith("irtt ")
    assert words in refusal
    told = explain_choice(
        "latencybg", "stampbg", (), given, [ToolOffer("b", accepted=True, tools=())]
    )
    assert told == "the best tool for latencybg"
    told = explain_choice("latencybg", "stampbg", ("irtt", "stampbg"), given, [])
    assert told == f"irtt is requested before it, but {refusal}"


def test_why_it_is_irtt() -> None:
    """Our own program is preferred; a host that lacks it is told of."""
    lacking = ToolOffer("b", accepted=True, tools=("irtt",), lacks={"stampbg": "no Python"})
    told = explain_choice("latencybg", "irtt", (), spec("latencybg"), [lacking])
    assert told == "stampbg is better, but b: no Python"


def test_loss_each_way() -> None:
    """Of 100 packets that count the emulator lost 6 there and 3 on the way back."""
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


def test_what_irtt_cannot_know_is_null() -> None:
    """Nothing is made up, neither of an interval nor of the run."""
    intervals = merged("lossy")
    for each in ((intervals[0].result or {}), TEST.total(spec("latencybg"), intervals)):
        assert each["duplicates"] == {"forward": None, "backward": 0}
        assert each["reordered"] == {"forward": None, "backward": 0}
        assert each["unreachable"] is None
    assert (intervals[0].result or {})["hops"] == {"forward": None, "backward": None}


def test_late_packets_are_lost() -> None:
    """Round trips of 40 ms with a timeout of 30, over IPv6."""
    intervals = merged("late", timeout="PT0.03S", ip_version=6, length=200)
    for each in intervals:
        result = each.result or {}
        assert (result["late"], result["received_back"], result["received_at_dest"]) == (50, 0, 50)
    assert TEST.interval_summary(intervals[0].result or {}) == (
        "no packet came back, loss 0 % / 100 %"
    )


def test_a_server_that_never_answers() -> None:
    """Nothing was sent, so nothing was lost: a gap, with irtt's own reason."""
    for each in recorded("silent", SOURCE):
        assert each.result is None
        assert (each.reason or "").startswith("no packet could be sent: irtt: read udp4 ")
        assert (each.reason or "").endswith("connection refused")


def test_a_server_that_is_killed() -> None:
    """What was measured until then is a result, and the reason says what is missing."""
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
    """A record that contradicts itself is no result."""
    with pytest.raises(ToolOutputError, match=words):
        client(record)


def test_a_packet_that_was_skipped_is_no_fault() -> None:
    """That a busy host sends a packet less only counts, and what irtt complains of is told."""
    nothing = {name: silence()[name] for name in ("received_back", "delay_ms", "jitter_ms")}
    nothing["histogram_us"] = silence()["histogram_us"]
    fewer = clients_record(sent=9, unsent=1, received_at_dest=0, **nothing)
    told = client(fewer)
    assert told.reason is None
    assert (told.result or {})["sent"] == 9
    told = client(fewer | {"complaint": "irtt: [OpenTimeout] no reply from server"})
    assert told.reason == "irtt: [OpenTimeout] no reply from server; 1 of 10 packets were not sent"


def test_the_end_of_the_programs() -> None:
    """At the end they say how many intervals they told of, or why they could not measure."""
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
