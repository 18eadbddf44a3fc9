"""Recent work after some time at a constant rate; Parley reads it from the ledger. Pure."""

from __future__ import annotations

from lead.policy.share.recent_work import HALF_LIFE


def decayed(recent: float, rate: float, elapsed: int, half_life: int = HALF_LIFE) -> float:
    """Return the recent work after ``elapsed`` µs at a constant rate; it tends to the rate.

    ``r * 2**(-e/h) + (1 - 2**(-e/h)) * rate``, in the unit of the rate, such as seats in use.
    """
    factor: float = 2.0 ** (-elapsed / half_life)
    return recent * factor + (1.0 - factor) * rate
