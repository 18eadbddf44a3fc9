"""The rate that each caller must keep."""

from __future__ import annotations

from node.model.rates import RateLimit
from node.model.times import SECOND


def test_a_burst_and_then_the_rate() -> None:
    """A burst passes at once, then one event in each interval; a refused one is not counted."""
    limit = RateLimit(SECOND // 10, 3)
    assert [limit.wait("a", 0) for _ in range(5)] == [0, 0, 0, SECOND // 10, SECOND // 10]
    assert limit.wait("a", SECOND // 20) == SECOND // 20
    assert [limit.wait("a", SECOND // 10) for _ in range(2)] == [0, SECOND // 10]
    assert [limit.wait("a", 10 * SECOND) for _ in range(4)] == [0, 0, 0, SECOND // 10]


def test_callers_do_not_share_a_rate() -> None:
    """A caller that asks too often leaves the others alone."""
    limit = RateLimit(SECOND, 1)
    assert [limit.wait("a", 0), limit.wait("a", 0), limit.wait("b", 0)] == [0, SECOND, 0]
