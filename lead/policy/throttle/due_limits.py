"""Limits on how many due tasks of one holder are considered, and age. Pure.

Ten thousand tasks that are created at once would all age together and come before all later tasks.
So a holder's due tasks are taken in order until its limit is reached: the others are not
considered, and their waiting does not count.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from lead.policy.verdict import Axis, PolicyRefusal, RefusalRule

DUE = RefusalRule(
    Axis.THROTTLE,
    "due limit",
    "{holder} would have {wanted} {kind} due at once, of at most {limit}; the task does not age",
)


@dataclass(frozen=True, slots=True)
class DueTask:
    """A due task, its holders, and its demand by kind (``runs``: 1, ``nodes``: 20)."""

    task: str
    holders: Sequence[str]
    request: Mapping[str, int]


def tasks_within_limits(
    due: Iterable[DueTask], limits: Mapping[str, Mapping[str, int]]
) -> tuple[list[str], dict[str, PolicyRefusal]]:
    """Return the tasks to consider, in the order given, and for each other task the limit it hit.

    ``limits`` are by holder, then by kind. A task that hits a limit does not count against any.
    """
    counts: dict[str, dict[str, int]] = {name: dict.fromkeys(it, 0) for name, it in limits.items()}
    tasks: list[str] = []
    refused: dict[str, PolicyRefusal] = {}
    for it in due:
        refusal = _find_refusal(it, limits, counts)
        if refusal is not None:
            refused[it.task] = refusal
            continue
        tasks.append(it.task)
        for holder in it.holders:
            for kind in counts.get(holder, ()):
                counts[holder][kind] += it.request.get(kind, 0)
    return tasks, refused


def _find_refusal(
    due: DueTask, limits: Mapping[str, Mapping[str, int]], counts: Mapping[str, Mapping[str, int]]
) -> PolicyRefusal | None:
    for holder in due.holders:
        for kind, most in limits.get(holder, {}).items():
            wanted = counts[holder][kind] + due.request.get(kind, 0)
            if wanted > most:
                return DUE.refuse(holder=holder, wanted=wanted, kind=kind, limit=most)
    return None


def ageing_since(before: Mapping[str, int], tasks: Iterable[str], now: int) -> dict[str, int]:
    """Return since when each considered task ages; one that was not considered begins anew."""
    return {task: before.get(task, now) for task in tasks}
