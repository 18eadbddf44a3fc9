"""A stream of our STAMP packets as a tool, and the intervals that latencybg merges."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from node.model.errors import ToolOutputError
from node.model.intervals import Interval, Rhythm
from node.model.times import HOUR, MINUTE, SECOND
from node.plugins.contracts import Merged, Output, Part
from node.plugins.tests.latencybg import TEST
from node.plugins.tools.stampbg import TOOL, overtime
from tests.unit.plugins.parts import STARTS, context, printed, spec
from tests.unit.plugins.records import (
    SPEC,
    at_dest,
    at_source,
    reflector_record,
    sender_record,
    silence,
)


def merged(source: Interval | None, dest: Interval | None, why: str = "is away") -> Merged:
    """Merge both parts of an interval; None is a part that is missing."""
    parts = [
        Part(at, name, told.result if told else None, told.reason if told else why)
        for at, (name, told) in enumerate((("a", source), ("b", dest)))
    ]
    return TEST.merge_interval(spec("latencybg", **SPEC), parts)


def whole(number: int, **changes: Any) -> Interval:
    """Return a merged interval."""
    outcome = merged(at_source(sender_record(number, **changes)), at_dest(reflector_record(number)))
    return Interval(number, outcome.result, outcome.reason)


def arguments(participant: int, **fields: Any) -> dict[str, Any]:
    """Return the arguments of a program."""
    told: dict[str, Any] = json.loads(
        TOOL.command(context("latencybg", participant, **fields)).argv[4]
    )
    return told


def test_one_run_follows_the_other() -> None:
    """A run is booked for exactly as long as it sends packets, and the next one can follow."""
    task_spec = spec("latencybg")
    assert TOOL.duration(task_spec) == task_spec.duration == HOUR
    params = arguments(0)
    assert params["intervals"] * params["packets"] * params["interval_ns"] == HOUR * 1000
    assert params["first_ns"] == (STARTS + SECOND // 5) * 1000
    assert TEST.rhythm(task_spec) == Rhythm(MINUTE, 60)


def test_late_packets_are_awaited_after_the_end() -> None:
    """The programs may take longer than booked, but end before the lead gives up on their parts."""
    command = TOOL.command(context("latencybg", 1, timeout="PT5S"))
    assert command.streams
    assert command.waits_itself
    assert 6 * SECOND < command.overtime == overtime(spec("latencybg", timeout="PT5S"))
    assert command.overtime < 10 * SECOND
    assert arguments(1, timeout="PT5S")["deadline_ns"] < (STARTS + HOUR + command.overtime) * 1000


@pytest.mark.parametrize("participant", [0, 1])
def test_the_programs_start_alone(participant: int) -> None:
    """Both programs exist and run without site packages."""
    command = TOOL.command(context("latencybg", participant))
    assert command.argv[:3] == (sys.executable, "-I", "-S")
    assert Path(command.argv[3]).is_file()


def test_ports_are_given_out_unless_named() -> None:
    """The reflector's node assigns a port, unless the spec names one."""
    assert [TOOL.needs_port(spec("latencybg"), end) for end in (0, 1)] == [False, True]
    assert arguments(0, port=8620)["port"] == arguments(1, port=8620)["port"] == 8620
    assert not TOOL.needs_port(spec("latencybg", port=8620), 1)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"duration": "PT1M30S"}, "duration .* is not a multiple of each"),
        ({"each": "PT1.05S", "duration": "PT10.5S"}, "each .* is not a multiple of interval"),
        ({"each": "PT1S", "duration": "PT2H"}, "more than 3600 times"),
        ({"each": "PT1H", "interval": "PT0.01S"}, "more than 36000"),
        ({"interval": "PT0.001S"}, "outside 10 ms to 10 s"),
        ({"timeout": "PT6S"}, "outside 10 ms to 5 s"),
        ({"source": "b.example"}, "the same host"),
        ({"length": 45}, "44 or at least 48"),
        ({"dest": "-oX"}, "dest"),
        ({"dest": "$(reboot)"}, "dest"),
    ],
)
def test_specs_that_cannot_be(fields: dict[str, Any], words: str) -> None:
    """A spec with uneven durations or too many packets is refused with the reason."""
    with pytest.raises(ValidationError, match=words):
        spec("latencybg", **fields)


def test_an_interval_of_both() -> None:
    """Delays come from the source, counts from both; the summary has units."""
    outcome = merged(at_source(sender_record()), at_dest(reflector_record()))
    assert outcome.succeeded
    result = outcome.result or {}
    assert (result["sent"], result["received_at_dest"], result["received_back"]) == (10, 10, 10)
    assert result["delay_ms"]["round_trip"]["min"] == 21
    assert result["hops"] == {"forward": 5, "backward": 3}
    assert sum(count for _, count in result["histogram"]["forward"]["buckets"]) == 10
    line = "20.45 ms there, 1.00 ms back, loss 0 % / 0 %, jitter 0.10 ms"
    assert TEST.interval_summary(result) == line


def test_loss_is_told_by_direction() -> None:
    """Packets that reached dest and did not come back were lost on the way back."""
    outcome = merged(at_source(silence()), at_dest(reflector_record(received=4)))
    assert outcome.succeeded
    loss = (outcome.result or {})["loss"]
    assert loss == {"forward": 0.6, "backward": 1.0, "round_trip": 1.0}
    assert TEST.interval_summary(outcome.result or {}) == "no packet came back, loss 60 % / 100 %"


def test_an_interval_of_the_source_alone_says_what_it_lacks() -> None:
    """Without dest's part there is a result, and a reason that it is incomplete."""
    outcome = merged(at_source(sender_record()), None)
    assert outcome.reason == "b: is away"
    assert (outcome.result or {})["received_at_dest"] is None
    assert merged(None, at_dest(reflector_record())) == Merged(None, "a: is away")


def test_nothing_sent_is_a_gap() -> None:
    """An interval in which no packet could be sent is a gap with the cause, not loss."""
    record = silence(3, sent=0, unsent=10, complaint="Network is unreachable")
    reason = "no packet could be sent: Network is unreachable"
    assert at_source(record) == Interval(3, None, reason)


@pytest.mark.parametrize(
    ("document", "words"),
    [
        (sender_record(sent=11), "11 packets, not 10"),
        (sender_record(late=1), "more answers than packets"),
        (sender_record(received_back=9), "histograms and counts contradict"),
        (silence(received_back=10), "delays and counts contradict"),
        (sender_record(sent=float("nan")), "sent"),
        (sender_record(interval=-1), "interval"),
        (sender_record(extra=1), "extra"),
        ({"error": "x"}, "a record is not valid"),
    ],
)
def test_records_that_cannot_be(document: dict[str, Any], words: str) -> None:
    """A record that contradicts itself is refused."""
    with pytest.raises(ToolOutputError, match=words):
        at_source(document)


def test_a_clock_that_was_set_makes_a_gap() -> None:
    """A round trip below zero makes a gap, and the reason names the clock."""
    record = sender_record()
    record["delay_ms"]["round_trip"]["min"] = -3.0
    with pytest.raises(ToolOutputError, match="a clock was set during the interval"):
        at_source(record)


def test_a_reflector_that_counts_too_many() -> None:
    """A reflector that counts more packets than were to be sent is refused."""
    with pytest.raises(ToolOutputError, match="counts 11 packets"):
        at_dest(reflector_record(received=11))


def test_the_run_is_the_sum_of_its_intervals() -> None:
    """Counts add up, and the figures of equal intervals are those of one."""
    result = TEST.total(spec("latencybg", **SPEC), [whole(0), whole(1), whole(2)])
    assert (result["intervals"], result["gaps"], result["sent"]) == (3, 0, 30)
    one = (whole(0).result or {})["delay_ms"]["forward"]
    forward = result["delay_ms"]["forward"]
    assert {name: forward[name] for name in ("min", "mean", "max", "stdev")} == {
        name: one[name] for name in ("min", "mean", "max", "stdev")
    }
    width = result["histogram"]["forward"]["width_ms"]
    assert abs(forward["p95"] - one["p95"]) <= width
    assert result["jitter_ms"] == (whole(0).result or {})["jitter_ms"]
    assert TEST.summary(result).endswith("loss 0 % / 0 %, jitter 0.10 ms; 3 intervals")


def test_gaps_and_what_is_not_whole_do_not_spoil_the_sum() -> None:
    """Packets that did not come back while dest was absent are not loss of the network."""
    alone = merged(at_source(silence(1)), None)
    every = [whole(0), Interval(1, alone.result, alone.reason), Interval(2, None, "gone")]
    result = TEST.total(spec("latencybg", **SPEC), every)
    assert (result["intervals"], result["partial"], result["gaps"]) == (1, 1, 1)
    assert result["loss"]["round_trip"] == 0
    assert TEST.summary(result).endswith("1 of 3 intervals")
    only = TEST.total(spec("latencybg", **SPEC), every[1:])
    assert only["loss"] == {"forward": None, "backward": None, "round_trip": 1.0}


def test_metrics_are_those_of_latency() -> None:
    """Series of both tests have the same names."""
    result = TEST.total(spec("latencybg", **SPEC), [whole(0)])
    metrics = TEST.metrics(result)
    assert (metrics[0].name, metrics[0].unit, dict(metrics[0].labels)) == (
        "delay_median_ms", "ms", {"direction": "forward"},
    )  # fmt: skip
    assert metrics[-1].name == "gaps"


def test_the_end_of_the_program() -> None:
    """At its end the program reports the number of intervals, or why it could not measure."""
    part = context("latencybg", 0, **SPEC)
    assert TOOL.read(part, printed({"intervals": 10})) == {"intervals": 10}
    with pytest.raises(ToolOutputError, match="STAMP: no route to b"):
        TOOL.read(part, printed({"error": "no route to b"}, exit_code=1))
    with pytest.raises(ToolOutputError, match="had not finished at the end of the run"):
        TOOL.read(part, Output(-15, b"", b"", "end"))
    ends = [Part(0, "a", {"intervals": 10}), Part(1, "b", None, "cancelled")]
    assert TEST.merge(part.spec, ends) == Merged(None, "b: cancelled")
    assert TEST.merge(part.spec, [ends[0], Part(1, "b", {"intervals": 10})]) == Merged(None)
