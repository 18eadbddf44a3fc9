"""Counts the tasks of a list, as those that are created before leave less room for others. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from node.model.host_limits.standing import LimitStanding
from node.model.reasons import told
from node.model.wire.host_limits import TaskRoom
from node.model.wire.tasks import Participant
from node.store.tasks import StoredTask

Rooms = Mapping[str, Sequence[TaskRoom]]
"""By the name of a participant, what bounds the number of tasks there."""

_Key = tuple[str, str, str, str]
"""A participant, and by kind, name, and holder what bounds the tasks there."""


class TaskCounts:
    """The tasks of a list that count so far at participants, and for the rules of their user."""

    def __init__(self) -> None:
        self._there: Counter[_Key] = Counter()
        self._of_users: Counter[tuple[str | None, str | None]] = Counter()

    def of_user(self, standing: LimitStanding) -> int:
        """Return how many tasks count so far for the user and the rule of one more."""
        return self._of_users[standing.user, standing.rule]

    def count_for_user(self, standing: LimitStanding) -> None:
        """Count a task that is created."""
        self._of_users[standing.user, standing.rule] += 1

    def introduced(self, task: StoredTask, rooms: Rooms) -> StoredTask:
        """Count a task at its participants; return it with the answers of those without room."""
        answers = [self._answer(each, rooms.get(each.name, ())) for each in task.terms.parties]
        return replace(task, terms=task.terms.with_parties(answers))

    def _answer(self, participant: Participant, rooms: Sequence[TaskRoom]) -> Participant:
        if not participant.accepted:
            return participant
        keys = [(participant.name, it.kind, it.name, it.holder) for it in rooms]
        for key, room in zip(keys, rooms, strict=True):
            if room.lacks(self._there[key]):
                why = told(room.why_full(self._there[key])).at(participant.name)
                update: dict[str, Any] = {"accepted": None, "reason": why, "tools": ()}
                return participant.model_copy(update=update)
        self._there.update(keys)
        return participant
