"""Retries of participants that do not answer."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from lead.planning.unreachable import (
    PAUSE_FIRST,
    PAUSE_MAX,
    UnreachablePeriod,
    after_unanswered_question,
    align_retries,
    jittered_pause,
)
from node.model import times
from tests.support.clocks import START

AWAY = "b cannot be reached: connection refused"


def _lasting(questions: int, rng: random.Random) -> list[UnreachablePeriod]:
    """Return an unreachable period after questions that were each sent as soon as allowed."""
    result: list[UnreachablePeriod] = []
    now = START
    for _ in range(questions):
        result.append(
            after_unanswered_question(result[-1] if result else None, "b", AWAY, now, now + 1, rng)
        )
        now = result[-1].ask_at
    return result


@given(st.integers())
def test_pauses_grow_and_are_jittered(seed: int) -> None:
    """Each pause lies between half of the doubled one and all of it, at most five minutes."""
    for number, silence in enumerate(_lasting(16, random.Random(seed))):
        pause = min(PAUSE_MAX, PAUSE_FIRST * 2**number)
        assert pause // 2 <= silence.ask_at - silence.failed_at <= pause
        assert silence.since == START


@given(st.integers(0, 10**6), st.integers(), st.integers(1, times.MINUTE))
def test_questions_in_flight_together_count_once(failures: int, seed: int, late: int) -> None:
    """A question sent before the failure was noticed changes nothing when it fails, too."""
    before = UnreachablePeriod("b", START, AWAY, failures, START + late, START + late + 1)
    rng = random.Random(seed)
    after = START + 2 * times.MINUTE
    assert after_unanswered_question(before, "b", "another", START + late, after, rng) is before
    assert (
        after_unanswered_question(before, "b", AWAY, START + late + 1, after, rng).failures
        == failures + 1
    )


@given(st.integers(0, 10**9), st.integers())
def test_a_pause_never_exceeds_the_maximum(failures: int, seed: int) -> None:
    """The pause stays within its bounds, however often the participant failed."""
    assert 5 <= jittered_pause(10, 1000, failures, random.Random(seed)) <= 1000


def test_the_description_of_a_period_does_not_change() -> None:
    """The reason names the beginning and the first cause, not those of later questions."""
    first, second = _lasting(2, random.Random(1))
    assert first.why() == second.why()
    figures = {"name": "b", "since": START, "cause": "connection refused"}
    assert (first.why().code, first.why().figures) == ("unreachable", figures)


def test_an_invalid_answer_is_described_as_such() -> None:
    """A participant with an invalid answer is not described as unreachable."""
    rng = random.Random(1)
    silence = after_unanswered_question(
        None, "b", "b answered 500 without a reason", START, START, rng
    )
    assert silence.why().code == "no-valid-answer"


@given(
    st.integers(0, 10**9),
    st.lists(st.integers(PAUSE_MAX // 2, PAUSE_MAX), min_size=8, max_size=8),
    st.integers(1, PAUSE_MAX // 2 - 1),
    st.integers(0, times.MINUTE),
)
def test_long_pauses_end_at_common_instants(
    since: int, pauses: list[int], short: int, phase: int
) -> None:
    """A retry is no earlier than the pause, and at most a step later; long ones coincide."""
    now = START + since
    for pause in (*pauses, short):
        assert now + pause <= align_retries(now, pause, phase) < now + 2 * pause
    assert {align_retries(now, pause, phase) % (PAUSE_MAX // 2) for pause in pauses} == {phase}
