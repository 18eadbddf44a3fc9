"""The memory of nonces, without signatures."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from node.model.spans import Span
from node.model.times import SECOND
from node.trust.nonces import NonceMemory, merged_spans

patient = settings(deadline=None)


@patient
@given(
    st.lists(
        st.tuples(
            st.sampled_from("ab"),
            st.integers(0, 3),
            st.integers(-4, 8) | st.sampled_from([-90, -30, 30, 90]),
        ),
        max_size=60,
    )
)
@pytest.mark.nightly
def test_nonce_memory_forgets_nothing_that_is_fresh(steps: list[tuple[str, int, int]]) -> None:
    """A nonce is not accepted again within its lifetime, even if the clock jumps."""
    memory = NonceMemory(10 * SECOND, 1000)
    now = 1000
    accepted: set[tuple[str, str]] = set()
    for signer, number, seconds in steps:
        now += seconds
        nonce = f"{number}-{now // 5}"
        created = (now // 5) * 5
        if memory.objection(signer, nonce, created, now * SECOND) is None:
            assert (signer, nonce) not in accepted
            accepted.add((signer, nonce))


def test_nonce_memory_gives_memory_back() -> None:
    """After two lifetimes only spans of time are left of a signer."""
    memory = NonceMemory(10 * SECOND, 1000)
    for number in range(100):
        assert memory.objection("a", str(number), 1000, 1000 * SECOND) is None
    assert memory.objection("b", "x", 1020, 1020 * SECOND) is None
    assert sum(len(seen.nonces) for seen in memory._current.values()) == 1
    assert memory._previous == {}


def test_who_was_ahead_together_is_believed_again() -> None:
    """Signatures after a wrong hour are accepted, and those of that hour are not again."""
    memory = NonceMemory(10 * SECOND, 1000)
    hour = 3600
    assert memory.objection("a", "before", 1000, 1000 * SECOND) is None
    for second in range(60):
        ahead = 1000 + hour + second
        assert memory.objection("a", f"ahead-{second}", ahead, ahead * SECOND) is None
    for second in range(60, 120):
        assert (
            memory.objection("a", f"back-{second}", 1000 + second, (1000 + second) * SECOND) is None
        )
    later = 1000 + hour + 5
    assert memory.objection("a", "ahead-5", later, later * SECOND) is not None


@patient
@given(st.lists(st.tuples(st.integers(0, 100), st.integers(1, 10)), max_size=30), st.integers(1, 6))
def test_merged_spans_cover_all_and_are_few(pairs: list[tuple[int, int]], spans_max: int) -> None:
    """No time of a span is lost, spans do not touch, and those nearest to each other are one."""
    spans: list[Span] = [(first, first + length) for first, length in pairs]
    few = merged_spans(spans, spans_max)
    assert len(few) <= spans_max
    assert all(any(a <= first and last <= b for a, b in few) for first, last in spans)
    assert all(earlier[1] < later[0] for earlier, later in pairwise(few))
    if len(few) < spans_max:
        covered = {time for first, last in spans for time in range(first, last)}
        assert covered == {time for a, b in few for time in range(a, b)}
