"""Retry pauses: exponential backoff with jitter, so that clients do not retry in step. Pure."""

from __future__ import annotations

import random

_DOUBLINGS_MAX = 40
_LEAST, _MOST = 0.5, 1.5


def pause(failures: int, first: int, most: int) -> int:
    """Return the pause (µs) after ``failures`` in a row: doubled with each, 0 after a success."""
    if failures == 0:
        return 0
    return min(most, first << min(failures - 1, _DOUBLINGS_MAX))


def jittered_pause(failures: int, first: int, most: int, rng: random.Random) -> int:
    """Return :func:`pause` with jitter: a random value between 0.5 and 1.5 times the pause."""
    return round(pause(failures, first, most) * rng.uniform(_LEAST, _MOST))
