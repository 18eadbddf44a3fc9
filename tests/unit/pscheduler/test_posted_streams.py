"""Posted tasks whose runs are longer than ours: several runs, one after the other."""

from __future__ import annotations

from typing import Any

import pytest

from node.model.times import DAY, HOUR, SECOND, parse_instant
from node.pscheduler.posted import read, schedule_of_runs
from node.pscheduler.refusals import Refusal
from node.pscheduler.tests.registry import LANGUAGES

NOW = parse_instant("2026-11-22T08:10:05Z")
SPEC = {"schema": 1, "source": "a", "dest": "b"}


def planned(spec: dict[str, Any], **schedule: str) -> tuple[int | None, int | None, Any]:
    """Return the interval, the number of runs and the end of our task."""
    task = {"test": {"type": "latencybg", "spec": {**SPEC, **spec}}, "schedule": schedule}
    posted = read(task, NOW)
    runs = schedule_of_runs(posted, LANGUAGES["latencybg"].to_parley(posted.spec, ["a"]))
    return runs.repeat, runs.max_runs, runs.until


def test_a_stream_without_end_is_a_run_each_day() -> None:
    """Runs of a day follow each other until the end of the task."""
    assert planned({}) == (DAY, None, None)
    assert planned({"duration": "P3D"}) == (DAY, 3, None)


@pytest.mark.parametrize(
    ("until", "runs"),
    [
        ("2026-11-22T08:10:12Z", 1),
        ("2026-11-23T08:10:02Z", 1),
        ("2026-11-23T09:00:00Z", 2),
        ("2026-11-30T00:00:00Z", 8),
    ],
)
def test_the_last_run_may_outlast_the_end(until: str, runs: int) -> None:
    """Runs start before the end of the task, which an agent computed before it posted the task."""
    assert planned({}, until=until) == (DAY, runs, None)
    assert planned({"duration": "P30D"}, until=until) == (DAY, runs, None)


def test_a_run_has_no_more_intervals_than_one_may_have() -> None:
    """A day of short intervals becomes several runs of equal length."""
    assert planned({"packet-count": 100, "duration": "P1D"}) == (8 * HOUR, 3, None)
    assert planned({"packet-count": 100}) == (10 * HOUR, None, None)
    assert planned({"packet-count": 70, "duration": "P1D"}) == (6 * HOUR - 5 * SECOND, 4, None)


def test_a_schedule_that_repeats_stays() -> None:
    """The schedule of a shorter stream, or of one that repeats, is what was posted."""
    assert planned({"duration": "PT1H"}) == (None, None, None)
    assert planned({}, repeat="PT2H")[0] == DAY // 12


@pytest.mark.parametrize("spec", [{"duration": "PT0S"}, {"duration": "PT5S", "interval": "PT0S"}])
def test_a_stream_without_length_is_refused(spec: dict[str, Any]) -> None:
    """A duration or an interval of nothing leaves nothing to measure."""
    with pytest.raises(Refusal):
        LANGUAGES["idlebgm"].to_parley({"schema": 1, **spec}, ["a"])
