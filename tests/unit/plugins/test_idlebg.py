"""Idling with intervals: its spec, its results, and its program run for real."""

from __future__ import annotations

import subprocess
import time

import pytest
from pydantic import ValidationError

from node.model.errors import ToolOutputError
from node.model.times import MILLISECOND, SECOND
from node.plugins.contracts import Output, Part, PartContext, Party
from node.plugins.tests.idlebg import TEST
from node.plugins.tools.sleepbg import TOOL
from tests.support.patience import PATIENCE_S
from tests.unit.plugins.parts import context, spec

RS = b"\x1e"


def test_intervals_divide_the_duration() -> None:
    """A run has as many intervals as fit into it, without a rest."""
    assert TEST.rhythm(spec("idlebg", duration="PT10S", each="PT2S")).count == 5
    with pytest.raises(ValidationError, match="is not a multiple of each"):
        spec("idlebg", duration="PT10S", each="PT3S")


@pytest.mark.parametrize("ahead_s", [0, 3])
@pytest.mark.nightly
def test_its_program_tells_each_interval(ahead_s: int) -> None:
    """The program sleeps from the start on, and prints a record after each interval."""
    brief = {"each": 100 * MILLISECOND, "duration": 300 * MILLISECOND}
    starts = time.time_ns() // 1000 + ahead_s * SECOND
    part = PartContext(
        spec("idlebg").model_copy(update=brief),
        0,
        (Party("a", "127.0.0.1"),),
        starts,
        starts + brief["duration"],
    )
    command = TOOL.command(part)
    assert command.streams
    done = subprocess.run(command.argv, capture_output=True, check=True, timeout=PATIENCE_S)
    assert time.time_ns() // 1000 >= part.ends
    *records, end = done.stdout.splitlines()
    intervals = [TOOL.read_interval(part, record.removeprefix(RS)) for record in records]
    assert [each.number for each in intervals] == [0, 1, 2]
    assert TOOL.read(part, Output(0, end, b"")) == {"intervals": 3}
    total = TEST.total(part.spec, intervals)
    assert (total["intervals"], total["gaps"]) == (3, 0)
    assert 250 * (ahead_s > 0) <= total["slept_ms"] < 1000
    assert TEST.metrics(total)[0].value == total["slept_ms"]


def test_its_texts_are_short() -> None:
    """An interval and a run are told in one line each."""
    assert TEST.interval_summary({"slept_ms": 2000.4}) == "occupied for 2 s"
    total = {"intervals": 4, "gaps": 1, "slept_ms": 8000.0}
    assert TEST.summary(total) == "occupied for 8 s; 4 of 5 intervals"


def test_a_sleeper_that_was_ended_is_a_reason() -> None:
    """A program that was ended gives no result, and its part is the reason of the run."""
    with pytest.raises(ToolOutputError, match="sleepbg had not finished"):
        TOOL.read(context("idlebg"), Output(-15, b"", b"", "end"))
    merged = TEST.merge(spec("idlebg"), [Part(0, "a", None, "it was ended")])
    assert merged.reason == "a: it was ended"
