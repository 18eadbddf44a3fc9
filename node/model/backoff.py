"""Pauses that grow while nothing comes of asking, drawn so that many do not come in step. Pure."""

from __future__ import annotations

import random

_DOUBLINGS_MAX = 40
_LEAST, _MOST = 0.5, 1.5


def pause(failures: int, first: int, most: int) -> int:
    """The pause (µs) after so many failures in a row: doubled with each, none after a success."""
    if failures == 0:
        return 0
    return min(most, first << min(failures - 1, _DOUBLINGS_MAX))


def drawn(failures: int, first: int, most: int, rng: random.Random) -> int:
    """The same, drawn between half of it and one and a half."""
    return round(pause(failures, first, most) * rng.uniform(_LEAST, _MOST))
