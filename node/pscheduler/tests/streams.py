"""Streams of pScheduler that last longer than a run of ours. Pure."""

from __future__ import annotations

from dataclasses import replace

from node.model.times import DAY
from node.pscheduler import times
from node.pscheduler.tests.contract import ParleyTest

STREAM_LONGEST = DAY
"""The longest run of a stream of ours."""


def followed(test: ParleyTest, asked: int | None, length: int) -> ParleyTest:
    """Return a test of runs of that length that follow each other for as long as is asked.

    Both are in microseconds; what is asked without an end is None.
    """
    if asked is not None and asked <= STREAM_LONGEST:
        return test
    runs = None if asked is None else -(-asked // length)
    return replace(test, repeat=times.format_duration(length), max_runs=runs)
