"""A clock that is set is noticed, and what it says is doubted for a while."""

from __future__ import annotations

import pytest

from node.clock import DOUBT, STEP_MIN, StepWatcher
from node.model.times import HOUR, SECOND
from tests.support.clocks import ManualClock


@pytest.fixture
def clock() -> ManualClock:
    """A clock that the test moves."""
    return ManualClock()


def test_time_that_passes_is_no_step(clock: ManualClock) -> None:
    """Neither time nor a correction within the limit counts."""
    watcher = StepWatcher(clock)
    clock.advance(HOUR)
    clock.step(STEP_MIN - 1)
    assert not watcher.doubtful
    assert (watcher.count, watcher.last) == (0, 0)


@pytest.mark.parametrize("step", [HOUR, -HOUR, STEP_MIN, -STEP_MIN])
def test_a_step_counts_once(clock: ManualClock, step: int) -> None:
    """A step in either direction counts once, and only one forward casts doubt."""
    watcher = StepWatcher(clock)
    clock.step(step)
    assert watcher.doubt == max(0, min(step, DOUBT))
    for _ in range(3):
        clock.advance(SECOND)
        assert watcher.doubtful == (step > SECOND)
    assert (watcher.count, watcher.last) == (1, step)


def test_doubt_ends_when_the_clock_is_right_again(clock: ManualClock) -> None:
    """A clock that is set back by as much is trusted at once."""
    watcher = StepWatcher(clock)
    clock.step(HOUR)
    assert watcher.doubtful
    clock.step(-HOUR // 2)
    assert watcher.doubtful
    clock.step(-HOUR // 2)
    assert not watcher.doubtful
    assert watcher.count == 3


def test_doubt_ends_when_the_clock_stays(clock: ManualClock) -> None:
    """After a minute a clock is believed; a later step casts doubt again."""
    watcher = StepWatcher(clock)
    clock.step(HOUR)
    assert watcher.doubtful
    clock.advance(DOUBT)
    assert not watcher.doubtful
    clock.step(-HOUR)
    assert not watcher.doubtful
    clock.step(HOUR)
    assert watcher.doubtful
