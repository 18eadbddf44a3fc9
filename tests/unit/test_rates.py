"""The rate that each caller must keep."""

from __future__ import annotations

from node.model.rates import CALLERS_MAX, RateLimit
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


def test_callers_without_end_take_no_memory() -> None:
    """A limit remembers so many callers, and of more those that it has met last."""
    limit = RateLimit(SECOND, 1)
    for number in range(2 * CALLERS_MAX):
        limit.wait(str(number), 0)
    assert len(limit._due) <= CALLERS_MAX
    assert limit.wait(str(2 * CALLERS_MAX - 1), 0) == SECOND
    limit.wait("later", 5 * SECOND)
    assert limit.wait("later", 5 * SECOND) == SECOND


def test_what_counts_as_many_is_waited_for_the_longer() -> None:
    """An event of many is in order while anything is left, and takes what would come after it."""
    limit = RateLimit(SECOND, 4)
    assert [limit.wait("a", 0, 3), limit.wait("a", 0, 9), limit.wait("a", 0)] == [0, 0, 9 * SECOND]
    assert limit.wait("a", 9 * SECOND) == 0
