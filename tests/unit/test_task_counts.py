"""The tasks of a list count at their participants and for their user, one after the other."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest

from lead.exchange.task_counts import TaskCounts
from node.model.host_limits.standing import LimitStanding
from node.model.taskstate import TaskState
from node.model.wire.host_limits import TaskRoom
from node.model.wire.tasks import Participant
from node.store.tasks import StoredTask
from tests.support.episodes import case_of

TERMS = replace(
    case_of("t", "default", ["b"]).pool_task.terms,
    participants=tuple(
        Participant(name=name, node=name, url=None, address=name, accepted=True)
        for name in ("b", "c")
    ),
)
TASK = StoredTask(UUID(int=1), "a", TaskState.ACTIVE, TERMS)


@pytest.mark.parametrize(
    ("room", "why"),
    [
        (TaskRoom(kind="lead", used=1, most=3), "its lead has 3 open tasks here"),
        (TaskRoom(kind="rule", name="few", used=0, most=2), "limit 'few': its lead has 2 of 2"),
        (TaskRoom(kind="cap", name="all", used=3, most=5), "the nodes for which it counts have 5"),
        (TaskRoom(kind="rate", used=0, most=1_500_000, step=1_000_000), "ask again in 1 s"),
    ],
)
def test_a_task_without_room_is_not_taken_there(room: TaskRoom, why: str) -> None:
    """Two tasks find room at b, and the third one an answer as b would give it; c takes all."""
    counts = TaskCounts()
    answers = [counts.introduced(TASK, {"b": [room]}).terms.participants for _ in range(3)]
    assert [[each.accepted for each in answer] for answer in answers] == [
        [True, True],
        [True, True],
        [None, True],
    ]
    reason = str(answers[2][0].reason)
    assert reason.startswith("b: ")
    assert why in reason


def test_tasks_count_for_their_user_and_rule() -> None:
    """A task counts for the user under the rule that admits it."""
    counts, standing = TaskCounts(), LimitStanding("course", user="alice")
    counts.count_for_user(standing)
    assert counts.of_user(standing) == 1
    assert counts.of_user(LimitStanding("others", user="alice")) == 0
