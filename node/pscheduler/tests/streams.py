"""Streams of pScheduler that last longer than a run of ours. Pure."""

from __future__ import annotations

from dataclasses import replace

from node.model.times import DAY
from node.pscheduler import times
from node.pscheduler.tests.contract import ParleyTest

STREAM_LONGEST = DAY
"""The longest run of a stream of ours."""


def with_consecutive_runs(test: ParleyTest, asked: int | None, length: int) -> ParleyTest:
    """Return a test repeated in runs of ``length`` for as long as ``asked`` (µs; None: no end)."""
    if asked is not None and asked <= STREAM_LONGEST:
        return test
    runs = None if asked is None else -(-asked // length)
    return replace(test, repeat=times.format_duration(length), max_runs=runs)


def fitted_to_interval(test: ParleyTest, interval: int | None) -> ParleyTest:
    """Return a test whose runs are no longer than the interval at which they are repeated.

    Only a run that stands for a part of a longer one is cut, to a multiple of its own intervals.
    """
    if test.repeat is None or interval is None:
        return test
    each = times.parse_duration(test.spec["each"])
    length = min(times.parse_duration(test.spec["duration"]), interval)
    length -= length % each
    if not length:
        return test
    spec = {**test.spec, "duration": times.format_duration(length)}
    return replace(test, spec=spec, repeat=None, max_runs=None)
