"""Our STAMP programs as a tool, and the parts that latency merges."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from node.model.errors import ToolOutputError
from node.model.times import SECOND
from node.plugins.contracts import Merged, Output, Part
from node.plugins.tests.latency import TEST, LatencySpec
from node.plugins.tools.stamp import TOOL
from tests.unit.plugins.parts import PORT, STARTS, context, printed, spec

SOURCE, DEST = 0, 1
CLOCK = {"synchronised": True, "error_bound_ns": 2_000_000, "stepped_ns": 1000, "identity": "aa"}
MS = 1_000_000


def answer(sequence: int, number: int, there_ms: float = 20, back_ms: float = 1) -> list[int]:
    """Return one answer as the sender prints it, with five routers there and three back."""
    return [sequence, int(there_ms * MS), MS // 10, int(back_ms * MS), number, 250, 252]


def sender(answers: list[list[int]], **changes: Any) -> dict[str, Any]:
    """Return the sender's output."""
    document = {"sent": 5, "unsent": 0, "unreachable": 0, "answers": answers, "clock": CLOCK}
    return document | changes


def reflector(**changes: Any) -> dict[str, Any]:
    """Return the reflector's output."""
    counts = {"received": 5, "duplicates": 0, "reordered": 0, "strays": 0, "unsent": 0}
    return counts | {"clock": CLOCK | {"identity": "bb"}} | changes


def read(participant: int, document: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """Return a participant's part of a run of five packets."""
    return TOOL.read(context("latency", participant, **{"count": 5} | fields), printed(document))


def merged(source: dict[str, Any], dest: dict[str, Any]) -> Merged:
    """Return both outputs, read and merged."""
    parts = [Part(SOURCE, "a", read(SOURCE, source)), Part(DEST, "b", read(DEST, dest))]
    return TEST.merge(spec("latency", count=5), parts)


def arguments(participant: int, **fields: Any) -> dict[str, Any]:
    """Return the arguments of a program."""
    told: dict[str, Any] = json.loads(
        TOOL.command(context("latency", participant, **fields)).argv[4]
    )
    return told


def test_the_programs_start_alone() -> None:
    """Both programs exist, run without site packages, and wait for their instant themselves."""
    for participant in (SOURCE, DEST):
        command = TOOL.command(context("latency", participant))
        assert command.argv[:3] == (sys.executable, "-I", "-S")
        assert Path(command.argv[3]).is_absolute()
        assert Path(command.argv[3]).is_file()
        assert command.waits_itself


def test_the_arguments_of_the_sender() -> None:
    """The sender gets the reflector, its own address and the instant of the first packet."""
    params = arguments(SOURCE, length=100)
    assert (params["reflector"], params["source"], params["port"]) == (
        "192.0.2.2",
        "192.0.2.1",
        PORT,
    )
    assert (params["count"], params["interval_ns"], params["timeout_ns"]) == (
        100,
        100 * MS,
        1000 * MS,
    )
    assert params["first_ns"] == (STARTS + 200_000) * 1000
    assert params["deadline_ns"] == (STARTS + TOOL.duration(spec("latency")) - 450_000) * 1000
    assert params["length"] == 100


def test_the_arguments_of_the_reflector() -> None:
    """The reflector gets the sender's address, and an instant to stop before the booked end."""
    params = arguments(DEST)
    assert (params["address"], params["sender"], params["port"]) == ("192.0.2.2", "192.0.2.1", PORT)
    assert params["deadline_ns"] == (STARTS + TOOL.duration(spec("latency")) - 450_000) * 1000


def test_both_ends_agree_on_the_session() -> None:
    """The session id is the same at both ends, and never zero."""
    assert arguments(SOURCE)["session"] == arguments(DEST)["session"] > 0


def test_ports_are_given_out_unless_named() -> None:
    """The reflector's node assigns a port, unless the spec names one."""
    assert [TOOL.needs_port(spec("latency"), end) for end in (SOURCE, DEST)] == [False, True]
    assert not TOOL.needs_port(spec("latency", port=8620), DEST)
    assert arguments(SOURCE, port=8620)["port"] == arguments(DEST, port=8620)["port"] == 8620


def test_the_booked_time() -> None:
    """The booked time is lead-in, packets, timeout and wrap-up."""
    assert TOOL.duration(spec("latency")) == 200_000 + 10 * SECOND + SECOND + SECOND


def test_a_clean_run() -> None:
    """Delays come from the sender, counts from both ends."""
    outcome = merged(sender([answer(at, at, 20 + at) for at in range(5)]), reflector())
    assert outcome.succeeded
    result = outcome.result or {}
    assert (result["sent"], result["received_at_dest"], result["received_back"]) == (5, 5, 5)
    assert result["delay_ms"]["forward"] == {
        "min": 20,
        "median": 22,
        "mean": 22,
        "p95": 24,
        "max": 24,
        "stdev": 1.4142,
    }
    assert result["delay_ms"]["round_trip"]["median"] == 23
    assert result["jitter_ms"] == {"forward": 1, "backward": 0, "round_trip": 1}
    assert result["hops"] == {"forward": 5, "backward": 3}
    assert TEST.summary(result) == "22.00 ms there, 1.00 ms back, loss 0 % / 0 %, jitter 1.00 ms"
    series = {(it.name, it.labels.get("direction")): it.value for it in TEST.metrics(result)}
    assert series["delay_median_ms", "forward"] == 22
    assert series["delay_median_ms", "backward"] == 1
    assert series["loss", "round_trip"] == 0


def test_loss_is_told_apart() -> None:
    """Packets that did not arrive were lost there, those that did not come back on the way back."""
    result = merged(sender([answer(0, 0), answer(3, 2)]), reflector(received=4)).result or {}
    assert result["loss"] == {"forward": 0.2, "backward": 0.5, "round_trip": 0.6}
    assert result["jitter_ms"]["forward"] is None
    assert TEST.summary(result) == "20.00 ms there, 1.00 ms back, loss 20 % / 50 %"


def test_late_answers_are_lost() -> None:
    """An answer after the timeout is lost, and counted as late."""
    part = read(SOURCE, sender([answer(0, 0, 990), answer(1, 1, 999)]))
    assert (part["received_back"], part["late"]) == (1, 1)


def test_duplicates_and_order() -> None:
    """The reflector's numbers show where a packet was duplicated or overtaken."""
    answers = [answer(0, 0), answer(2, 2), answer(1, 1), answer(1, 1), answer(1, 3)]
    result = merged(sender(answers), reflector(received=3, duplicates=1, reordered=0)).result or {}
    assert result["duplicates"] == {"forward": 1, "backward": 1}
    assert result["reordered"] == {"forward": 0, "backward": 1}
    assert result["received_back"] == 3


def test_one_way_delays_may_be_negative() -> None:
    """Different clocks can make a one-way delay negative, which is accepted."""
    outcome = merged(sender([answer(0, 0, -5, 30)]), reflector(received=1))
    assert outcome.succeeded
    assert (outcome.result or {})["delay_ms"]["forward"]["min"] == -5


@pytest.mark.parametrize(
    ("source", "dest", "error_ms"),
    [
        ({}, {"error_bound_ns": 500_000}, 2.5),
        ({"synchronised": False, "error_bound_ns": None}, {}, None),
        ({"synchronised": None, "error_bound_ns": None}, {}, None),
        ({"synchronised": False, "error_bound_ns": None}, {"identity": "aa"}, 0),
    ],
)
def test_how_far_clocks_are_trusted(
    source: dict[str, Any], dest: dict[str, Any], error_ms: float | None
) -> None:
    """The bounds add up; a shared clock has no error; an unsynchronised one has no bound."""
    there = CLOCK | source
    back = CLOCK | {"identity": "bb"} | dest
    outcome = merged(sender([answer(0, 0)], clock=there), reflector(received=1, clock=back))
    result = outcome.result or {}
    assert result["clock_error_ms"] == error_ms
    assert result["clocks_synchronised"] == (error_ms is not None)
    assert TEST.summary(result).endswith(" (clocks not synchronised)") == (error_ms is None)


def test_all_lost_is_a_result() -> None:
    """Complete loss is a result, with a summary of its own."""
    outcome = merged(sender([]), reflector(received=5))
    assert outcome.succeeded
    assert TEST.summary(outcome.result or {}) == "no packet came back, loss 0 % / 100 %"


def test_without_the_reflector_it_is_partial() -> None:
    """Without the reflector's part the run has failed, but the round trips are kept."""
    source = Part(SOURCE, "a", read(SOURCE, sender([answer(0, 0)])))
    outcome = TEST.merge(spec("latency", count=5), [source, Part(DEST, "b", None, "it crashed")])
    assert outcome.reason == "b: it crashed"
    result = outcome.result or {}
    assert result["loss"] == {"forward": None, "backward": None, "round_trip": 0.8}
    assert result["received_at_dest"] is None
    assert TEST.summary(result).startswith("20.00 ms there, 1.00 ms back, loss 80 %")


def test_without_the_sender_there_is_nothing() -> None:
    """Without the sender's part there is no result."""
    dest = Part(DEST, "b", read(DEST, reflector()))
    outcome = TEST.merge(spec("latency"), [Part(SOURCE, "a", None, "it crashed"), dest])
    assert outcome == Merged(None, "a: it crashed")


def test_a_closed_port_is_a_failure() -> None:
    """If ICMP says that nothing listens and nothing arrived, the run has failed."""
    outcome = merged(sender([], unreachable=5), reflector(received=0))
    assert str(outcome.reason).startswith("dest's port was unreachable")


def test_counts_must_agree() -> None:
    """More packets out of a direction than into it are refused."""
    outcome = merged(sender([answer(0, 0), answer(1, 1)]), reflector(received=1))
    assert outcome.reason == (
        "the participants' counts contradict each other: 5 sent, 1 at dest, 2 back"
    )


@pytest.mark.parametrize(
    ("document", "sentence"),
    [
        (sender([], sent=4), "reports 4 packets of 5"),
        (sender([answer(0, 0, -30, 1)], clock=CLOCK | {"stepped_ns": -30 * MS}), "by -30.000 ms"),
        (sender([answer(at, at) for at in range(6)]), "more answers than packets"),
        (sender([[0, 1, 2]]), "answers.0.3: Field required"),
        ({"sent": 5}, "Field required"),
        (sender([], clock=CLOCK | {"stepped_ns": "x"}), "clock.stepped_ns"),
    ],
)
def test_impossible_output_is_refused(document: dict[str, Any], sentence: str) -> None:
    """Impossible output of a sender is refused."""
    with pytest.raises(ToolOutputError, match=sentence):
        read(SOURCE, document)


def test_a_reflector_cannot_see_more_than_was_sent() -> None:
    """A reflector with more different packets than the session has is refused."""
    with pytest.raises(ToolOutputError, match="counts 6 packets"):
        read(DEST, reflector(received=6))


@pytest.mark.parametrize(
    ("output", "sentence"),
    [
        (
            printed({"error": "no route to b port 1: No route to host"}, 1),
            "STAMP: no route to b port",
        ),
        (Output(-15, b"", b"", "end"), "STAMP had not finished at the end of the run"),
        (
            Output(1, b"", b"Traceback (most recent call last):\n  File x\nKeyError: 'count'\n"),
            "STAMP: KeyError: 'count'",
        ),
        (Output(0, b"", b""), r"STAMP sender: it printed nothing \(exit code 0\)"),
    ],
)
def test_failures_say_their_cause(output: Output, sentence: str) -> None:
    """A program that could not measure is not a result, and its own reason comes first."""
    with pytest.raises(ToolOutputError, match=sentence):
        TOOL.read(context("latency", SOURCE), output)


@pytest.mark.parametrize(
    "wrong",
    [
        {"count": 0},
        {"count": 36_001},
        {"count": 36_000, "interval": "PT0.2S"},
        {"interval": "PT0.0005S"},
        {"interval": 5.5},
        {"timeout": "PT2M"},
        {"length": 43},
        {"length": 46},
        {"ip_version": 5},
        {"port": 80},
        {"source": "b"},
    ],
)
def test_specs_outside_the_limits_are_refused(wrong: dict[str, Any]) -> None:
    """Packets that cannot be sent, or take more than an hour, are refused."""
    with pytest.raises(ValidationError):
        LatencySpec.model_validate({"dest": "b"} | wrong)
