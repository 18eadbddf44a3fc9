"""Posted tasks whose runs are longer than ours: several runs, one after the other."""

from __future__ import annotations

from typing import Any

from node.model.times import DAY, parse_instant
from node.pscheduler.posted import read, schedule_of_runs
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
    until = "2026-11-30T00:00:00Z"
    assert planned({}, until=until) == (DAY, None, parse_instant(until))
    assert planned({"duration": "P3D"}) == (DAY, 3, None)


def test_a_schedule_that_repeats_stays() -> None:
    """The schedule of a shorter stream, or of one that repeats, is what was posted."""
    assert planned({"duration": "PT1H"}) == (None, None, None)
    assert planned({}, repeat="PT2H")[0] == DAY // 12
