"""pScheduler's idlebgm in its words and ours."""

from __future__ import annotations

import pytest

from node.model.times import SECOND
from node.pscheduler.refusals import Refusal
from node.pscheduler.tests.contract import Outcome
from node.pscheduler.tests.registry import LANGUAGES

IDLEBGM = LANGUAGES["idlebgm"]
SPEC = {"schema": 1, "duration": "PT10S", "interval": "PT2S"}


def test_it_is_our_idle_with_intervals_and_back() -> None:
    """The duration has whole intervals, and the longest run is a day."""
    assert IDLEBGM.parse(["-d", "PT10S", "-i", "PT2S"]) == SPEC
    assert IDLEBGM.duration(SPEC) == 11 * SECOND
    nobody = {"participants": [None], "reason": "No source specified"}
    assert IDLEBGM.participants(SPEC).document() == nobody
    ours = IDLEBGM.to_parley(SPEC, ["a"])
    assert (ours.type, ours.repeat) == ("idlebg", None)
    assert ours.spec == {"source": "a", "duration": "PT10S", "each": "PT2S"}
    assert IDLEBGM.from_parley("idlebg", ours.spec) == {**SPEC, "host": "a"}
    week = IDLEBGM.to_parley({**SPEC, "duration": "P7D", "interval": "PT1H"}, ["a"])
    assert (week.spec["duration"], week.repeat, week.max_runs) == ("P1D", "P1D", 7)
    with pytest.raises(Refusal, match="the interval is longer than the duration"):
        IDLEBGM.to_parley({**SPEC, "interval": "PT20S"}, ["a"])


def test_each_interval_is_a_result() -> None:
    """The result of an interval is the time that the host slept."""
    result = IDLEBGM.result(SPEC, Outcome("sleepbg", {"slept_ms": 2000.0}))
    assert result == {"schema": 1, "succeeded": True, "time-slept": "PT2S"}
    assert IDLEBGM.text(SPEC, result) == "Time Slept ... PT2S"
    assert "<td>PT2S</td>" in str(IDLEBGM.html(SPEC, result))
