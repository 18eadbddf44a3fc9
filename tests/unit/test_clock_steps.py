"""A clock that is set is noticed, and what it says is doubted for a while."""

from __future__ import annotations

import pytest

from node.model.times import DAY, HOUR, MINUTE, SECOND
from node.runtime.clock import ABSENCE_MAX, DOUBT, STEP_MIN, StepWatcher
from tests.support.clocks import ManualClock


@pytest.fixture
def clock() -> ManualClock:
    """A clock that the test moves."""
    return ManualClock()


def test_time_that_passes_is_no_step(clock: ManualClock) -> None:
    """Neither time nor a correction within the limit counts."""
    watcher = StepWatcher(clock, DOUBT)
    clock.advance(HOUR)
    clock.step(STEP_MIN - 1)
    assert not watcher.doubtful
    assert (watcher.count, watcher.last) == (0, 0)


@pytest.mark.parametrize("step", [HOUR, -HOUR, STEP_MIN, -STEP_MIN])
def test_a_step_counts_once(clock: ManualClock, step: int) -> None:
    """A step in either direction counts once, and only one forward casts doubt on a kept clock."""
    watcher = StepWatcher(clock, DOUBT)
    clock.step(step)
    assert watcher.doubt == max(0, min(step, DOUBT))
    for _ in range(3):
        clock.advance(SECOND)
        assert watcher.doubtful == (step > SECOND)
    assert (watcher.count, watcher.last) == (1, step)


def test_doubt_ends_when_the_clock_is_right_again(clock: ManualClock) -> None:
    """A clock that is set back by as much is trusted at once."""
    watcher = StepWatcher(clock, DOUBT)
    clock.step(HOUR)
    assert watcher.doubtful
    clock.step(-HOUR // 2)
    assert watcher.doubtful
    clock.step(-HOUR // 2)
    assert not watcher.doubtful
    assert watcher.count == 3


def test_doubt_ends_when_the_clock_stays(clock: ManualClock) -> None:
    """After a minute a clock is believed; a later step casts doubt again."""
    watcher = StepWatcher(clock, DOUBT)
    clock.step(HOUR)
    assert watcher.doubtful
    clock.advance(DOUBT)
    assert not watcher.doubtful
    clock.step(-HOUR)
    assert not watcher.doubtful
    clock.step(HOUR)
    assert watcher.doubtful


LONGEST = 10 * MINUTE


def _born(clock: ManualClock, after: int) -> StepWatcher:
    """Return the watcher of a process whose first reading is so long after the last known one."""
    watcher = StepWatcher(clock, LONGEST)
    watcher.begin(clock.now() - after)
    return watcher


@pytest.mark.parametrize("after", [HOUR, DAY, 40 * DAY])
def test_a_first_reading_far_ahead_is_doubted(clock: ManualClock, after: int) -> None:
    """Nothing begins before the longest time of doubt is over, if nothing confirms the clock."""
    clock.confirmed = False
    watcher = _born(clock, after)
    assert (watcher.newborn, watcher.ahead, watcher.doubt) == (True, after, LONGEST)
    clock.advance(LONGEST - 1)
    assert watcher.newborn
    clock.advance(1)
    assert not watcher.newborn
    assert not watcher.doubtful


def test_a_short_absence_is_doubted_for_as_long(clock: ManualClock) -> None:
    """To wait for longer than the host was off would cost more than it saves."""
    clock.confirmed = False
    assert _born(clock, 3 * MINUTE).doubt == 3 * MINUTE


@pytest.mark.parametrize("after", [-ABSENCE_MAX, 0, ABSENCE_MAX])
def test_a_restart_casts_no_doubt(clock: ManualClock, after: int) -> None:
    """The reading that is known may be two minutes old, or of a clock that was a bit ahead."""
    clock.confirmed = False
    assert not _born(clock, after).doubtful


def test_a_new_database_casts_no_doubt(clock: ManualClock) -> None:
    """Nothing contradicts the clock of the first process."""
    clock.confirmed = False
    watcher = StepWatcher(clock, LONGEST)
    watcher.begin(None)
    assert not watcher.doubtful


def test_a_clock_that_becomes_synchronised_is_believed(clock: ManualClock) -> None:
    """Doubt ends with the kernel's word, before its time is over."""
    clock.confirmed = False
    watcher = _born(clock, DAY)
    assert watcher.newborn
    clock.confirmed = True
    assert not watcher.newborn


def test_a_clock_that_is_set_right_is_believed(clock: ManualClock) -> None:
    """The one who sets it back knows the time, whatever is left of the absence."""
    clock.confirmed = False
    watcher = _born(clock, DAY)
    clock.step(-HOUR)
    assert not watcher.doubtful
    assert watcher.set_back == 1


def test_a_step_that_nothing_confirms_is_doubted_for_longer(clock: ManualClock) -> None:
    """A minute is enough for a clock that is synchronised, and not for another one."""
    clock.confirmed = False
    watcher = StepWatcher(clock, LONGEST)
    clock.step(HOUR)
    watcher.look()
    clock.advance(LONGEST - 1)
    assert watcher.doubtful
    assert not watcher.newborn
    clock.advance(1)
    assert not watcher.doubtful


@pytest.mark.parametrize("behind", [3 * MINUTE, HOUR, 40 * DAY])
def test_a_clock_far_behind_is_doubted(clock: ManualClock, behind: int) -> None:
    """At a start or later, for as long as it is behind, or for the longest time."""
    clock.confirmed = False
    born, running = _born(clock, -behind), StepWatcher(clock, LONGEST)
    clock.step(-behind)
    born.confirm()
    born.begin(clock.now() + behind)
    for watcher in (born, running):
        assert (watcher.ahead, watcher.behind) == (0, behind)
        assert watcher.doubt == min(behind, LONGEST)
    clock.advance(LONGEST)
    assert (born.doubtful, running.doubtful, running.behind) == (False, False, 0)


def test_a_clock_behind_is_believed_once_it_is_set_right(clock: ManualClock) -> None:
    """A step to what was known, or later, was made by somebody who knew; half of it is not."""
    clock.confirmed = False
    watcher = _born(clock, -DAY)
    clock.step(DAY // 2)
    assert (watcher.newborn, watcher.behind) == (True, DAY // 2)
    clock.step(-HOUR)
    assert (watcher.newborn, watcher.behind) == (True, DAY // 2 + HOUR)
    clock.step(DAY)
    assert not watcher.doubtful


def test_two_steps_that_undo_each_other_leave_no_doubt(clock: ManualClock) -> None:
    """A clock that was set back too far and then right is as good as before."""
    clock.confirmed = False
    watcher = StepWatcher(clock, LONGEST)
    clock.step(HOUR)
    assert watcher.ahead == HOUR
    clock.step(-DAY)
    assert watcher.behind == DAY - HOUR
    clock.step(DAY - HOUR)
    assert not watcher.doubtful
    assert watcher.count == 3
