"""Refused windows by task: bounded, and matched with time that becomes free."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from node.model.classes import SchedulingClass
from node.model.refusals import RefusalMemory
from node.model.spans import Span
from node.model.wire.participants import ProposalRequest

spans = st.tuples(st.integers(0, 60), st.integers(1, 20)).map(lambda s: (s[0], s[0] + s[1]))
windows_of_tasks = st.lists(st.tuples(st.integers(0, 5), st.lists(spans, max_size=6)), max_size=12)


def question(task: int, windows: list[Span]) -> ProposalRequest:
    """Return a question about these windows (at least one is required)."""
    return ProposalRequest(
        task=UUID(int=task),
        lease_epoch=1,
        scheduling_class=SchedulingClass.EXCLUSIVE,
        duration=1,
        priority=0,
        windows=tuple(windows or [(0, 1)]),
    )


@given(windows_of_tasks, st.lists(spans, max_size=4))
@pytest.mark.nightly
def test_what_is_touched_is_what_overlaps(
    asked: list[tuple[int, list[Span]]], freed: list[Span]
) -> None:
    """Exactly the windows of each task's last question that overlap the freed time are found."""
    kept = RefusalMemory()
    for task, windows in asked:
        kept.remember("lead", question(task, windows), windows)
    last = dict(asked)
    expected = {
        UUID(int=task): [w for w in windows if any(f[0] < w[1] and w[0] < f[1] for f in freed)]
        for task, windows in last.items()
    }
    result = {r.question.task: list(r.question.windows) for r in kept.touched_questions(freed)}
    assert result == {task: windows for task, windows in expected.items() if windows}


@given(windows_of_tasks, st.integers(1, 12))
def test_the_number_of_windows_is_bounded(asked: list[tuple[int, list[Span]]], most: int) -> None:
    """The oldest tasks are dropped first, as a whole, to stay within the bound."""
    kept = RefusalMemory(most)
    for task, windows in asked:
        kept.remember("lead", question(task, windows), windows)
    order: dict[int, int] = {}
    for task, windows in asked:
        order.pop(task, None)
        if windows:
            order[task] = len(windows)
        while sum(order.values()) > most:
            order.pop(next(iter(order)))
    touched = kept.touched_questions([(-1, 1000)])
    assert [r.question.task.int for r in touched] == list(order)
    assert len(kept) == sum(len(r.question.windows) for r in touched) <= most
    for task in order:
        kept.forget("lead", UUID(int=task))
    assert kept.touched_questions([(-1, 1000)]) == []


def test_another_lead_cannot_overwrite_a_question() -> None:
    """Another node's question about the same task does not replace its lead's question."""
    kept = RefusalMemory()
    kept.remember("lead", question(1, [(0, 9)]), [(0, 9)])
    kept.remember("stranger", question(1, [(0, 9)]), [])
    assert [refused.lead for refused in kept.touched_questions([(5, 6)])] == ["lead"]
