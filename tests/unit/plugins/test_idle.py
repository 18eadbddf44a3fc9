"""Idling: exactly as long, and in the class, that the spec says."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from node.model.classes import SchedulingClass
from node.model.errors import ToolOutputError
from node.model.times import HOUR, MINUTE
from node.plugins.contracts import Output, Part
from node.plugins.tests.idle import TEST, IdleSpec
from node.plugins.tools.sleep import TOOL
from tests.unit.plugins.parts import context, spec


@pytest.mark.parametrize("scheduling_class", list(SchedulingClass))
def test_the_class_is_the_one_asked_for(scheduling_class: SchedulingClass) -> None:
    """Idle runs in each scheduling class, which is called ``class`` in JSON."""
    task_spec = spec("idle", **{"class": scheduling_class.value})
    assert TEST.scheduling_class(task_spec) is scheduling_class
    assert task_spec.model_dump(mode="json")["class"] == scheduling_class.value


def test_twenty_runs_of_three_minutes_fill_an_hour() -> None:
    """The booked time is the duration of the spec to the microsecond."""
    assert TOOL.duration(spec("idle", duration="PT3M")) * 20 == HOUR
    assert TOOL.duration(spec("idle", duration="PT1.234567S")) == 1_234_567


def test_it_ends_before_it_is_ended() -> None:
    """The program sleeps half a second less than is booked."""
    assert TOOL.command(context("idle", duration="PT3M")).argv == ("sleep", "179.500000")
    assert TOOL.command(context("idle", duration="PT1S")).argv == ("sleep", "0.500000")


@pytest.mark.parametrize("duration", ["PT0.999999S", "P1DT1S", "PT0S", "P1M", "ten", True])
def test_durations_outside_the_limits_are_refused(duration: object) -> None:
    """Less than a second, more than a day or no duration at all is refused."""
    with pytest.raises(ValidationError):
        IdleSpec.model_validate({"duration": duration})


def test_all_must_idle() -> None:
    """A run has idled when all parts have, and says for how long."""
    task_spec = spec("idle", duration="PT3M", participants=["a", "b"])
    slept = TOOL.read(context("idle", duration="PT3M"), Output(0, b"", b""))
    merged = TEST.merge(task_spec, [Part(0, "a", slept), Part(1, "b", slept)])
    assert merged.succeeded
    assert merged.result == {"participants": 2, "duration_ms": 3 * MINUTE / 1000}
    assert TEST.summary(merged.result) == "occupied for 3 min on 2 hosts"
    one = TEST.merge(spec("idle"), [Part(0, "a", slept)])
    assert TEST.summary(one.result or {}) == "occupied for 1 s"
    assert not TEST.merge(task_spec, [Part(0, "a", slept), Part(1, "b", None, "died")]).succeeded


@pytest.mark.parametrize(
    ("output", "sentence"),
    [
        (Output(-15, b"", b""), r"sleep: it did not sleep to the end \(exit code -15\)"),
        (Output(1, b"", b"sleep: out of bed\n"), "sleep: out of bed"),
        (Output(-9, b"", b""), r"sleep: it did not sleep to the end \(exit code -9\)"),
    ],
)
def test_a_disturbed_sleep_is_no_result(output: Output, sentence: str) -> None:
    """A sleep that was ended or failed is not a result, and says why."""
    with pytest.raises(ToolOutputError, match=sentence):
        TOOL.read(context("idle"), output)


def test_a_sleep_ended_with_its_run_has_idled() -> None:
    """A sleep that started late and is ended at the booked end has idled as long as it could."""
    ended = TOOL.read(context("idle", duration="PT3M"), Output(-15, b"", b"", "end"))
    assert ended == {"slept_ms": 179_500}
