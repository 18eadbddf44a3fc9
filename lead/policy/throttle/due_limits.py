"""How many due tasks of one holder are considered, and age, at all. Pure.

Ten thousand tasks that are created at once would all grow old together and stand before everything
that comes later. So a holder's due tasks are taken in order until its limit is reached: the others
are not considered, and their waiting does not count.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from lead.policy.verdict import Axis, PolicyRefusal, RefusalRule

DUE = RefusalRule(
    Axis.THROTTLE,
    "due limit",
    "{holder} would have {wanted} {kind} due at once, of at most {limit}; it does not age so",
)


@dataclass(frozen=True, slots=True)
class DueTask:
    """A due task, whom it counts for, and what it asks for by kind (``runs``: 1, ``nodes``: 20)."""

    task: str
    holders: Sequence[str]
    request: Mapping[str, int]


def considered(
    due: Iterable[DueTask], limits: Mapping[str, Mapping[str, int]]
) -> tuple[list[str], dict[str, PolicyRefusal]]:
    """The tasks to consider, in the order given, and for each other task the limit it hit.

    ``limits`` are by holder, then by kind. A task that hits a limit does not use any of it up.
    """
    taken: dict[str, dict[str, int]] = {name: dict.fromkeys(it, 0) for name, it in limits.items()}
    tasks: list[str] = []
    refused: dict[str, PolicyRefusal] = {}
    for it in due:
        no = _over(it, limits, taken)
        if no is not None:
            refused[it.task] = no
            continue
        tasks.append(it.task)
        for holder in it.holders:
            for kind in taken.get(holder, ()):
                taken[holder][kind] += it.request.get(kind, 0)
    return tasks, refused


def _over(
    due: DueTask, limits: Mapping[str, Mapping[str, int]], taken: Mapping[str, Mapping[str, int]]
) -> PolicyRefusal | None:
    for holder in due.holders:
        for kind, most in limits.get(holder, {}).items():
            wanted = taken[holder][kind] + due.request.get(kind, 0)
            if wanted > most:
                return DUE.says_no(holder=holder, wanted=wanted, kind=kind, limit=most)
    return None


def ageing_since(before: Mapping[str, int], tasks: Iterable[str], now: int) -> dict[str, int]:
    """Since when each considered task ages; who was not considered begins anew."""
    return {task: before.get(task, now) for task in tasks}
