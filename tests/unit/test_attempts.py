"""Further attempts of slots: their reasons, number, delay, and window."""

from __future__ import annotations

import pytest

from lead.planning.agenda import Limits, PlanningProgress, agenda
from node.model.attempts import MAY_PASS, is_tried_again, last_start, passing_reason
from node.model.reasons import (
    down_at_start,
    no_part_in_time,
    not_measured_or_forgotten,
    plugin_failed,
    started_too_late,
)
from node.model.recurrence import Recurrence
from node.model.times import DAY, HOUR, MINUTE, SECOND
from node.model.wire.tasks import RetryTerms
from tests.support.clocks import START

ONCE = Recurrence(anchor=START, slip=5 * MINUTE)
LIMITS = Limits(horizon=DAY, margin=SECOND, batch=10)


def test_reasons_are_recognised_by_their_sentences() -> None:
    """A reason that another node has sent as a sentence is known by it; others are not."""
    down = down_at_start(START)
    assert passing_reason([None, "connection refused", str(down)]) == down
    assert (
        passing_reason([str(started_too_late(5 * SECOND))])
        == "could not be started in time: 5.0 s late"
    )
    assert passing_reason([str(not_measured_or_forgotten(down))]) is None
    assert passing_reason([str(plugin_failed("sleep", no_part_in_time()))]) is None
    assert passing_reason([None, None]) is None


def test_each_reason_that_may_pass_is_a_sentence_with_figures() -> None:
    """The table has only kinds that can be recognised."""
    assert not [kind.code for kind in MAY_PASS if kind.wrote("")]


@pytest.mark.parametrize(
    ("retry", "attempt", "late", "again"),
    [
        (RetryTerms(), 1, 4 * MINUTE + 50 * SECOND, True),
        (RetryTerms(), 1, 4 * MINUTE + 51 * SECOND, False),
        (RetryTerms(), 2, MINUTE, True),
        (RetryTerms(), 3, MINUTE, False),
        (RetryTerms(times=0), 1, 0, False),
        (RetryTerms(after=MINUTE), 1, 4 * MINUTE, True),
        (RetryTerms(after=MINUTE), 1, 4 * MINUTE + 1, False),
        (RetryTerms(within=MINUTE), 1, 50 * SECOND, True),
        (RetryTerms(within=MINUTE), 1, 51 * SECOND, False),
        (RetryTerms(within=DAY), 1, 5 * MINUTE, False),
    ],
)
def test_a_slot_is_tried_again_within_its_terms(
    retry: RetryTerms, attempt: int, late: int, *, again: bool
) -> None:
    """The number of attempts, their delay, and their window bound them."""
    assert is_tried_again(ONCE, retry, SECOND, (START, attempt), START + late) is again


def test_a_further_attempt_waits_for_its_delay_and_keeps_its_window() -> None:
    """Its window begins after the delay, and ends with the slip or earlier."""
    retry = RetryTerms(after=20 * SECOND, within=2 * MINUTE)
    failed_at = START + 30 * SECOND
    standing = PlanningProgress(
        START, START, [(START, 2)], None, failed_at={START: failed_at}, retry=retry
    )
    [slot] = agenda(ONCE, SECOND, standing, LIMITS, failed_at).slots
    assert (slot.start, slot.end) == (failed_at + 20 * SECOND, START + 2 * MINUTE + SECOND)
    assert slot.again
    assert slot.latest_start(SECOND) == last_start(ONCE, retry, SECOND, START)


def test_a_further_attempt_that_is_too_late_gives_no_run_back() -> None:
    """The slot has used one of the runs of the task, whatever becomes of its next attempt."""
    hourly = Recurrence(anchor=START, repeat=HOUR, slip=5 * MINUTE)
    now = START + 10 * MINUTE
    standing = PlanningProgress(START, START, [(START, 2)], 1, failed_at={START: START + MINUTE})
    done = agenda(hourly, SECOND, standing, LIMITS, now)
    assert [slot.nominal for slot in done.too_late] == [START]
    assert [slot.nominal for slot in done.slots] == [START + HOUR]
