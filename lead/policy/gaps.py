"""Trying entries in order of priority, where a stuck entry blocks those below its gap. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from lead.policy.view import Exact

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class GapEntry:
    """An entry to try; once stuck, it blocks all that are ``gap`` or more below (None: nobody)."""

    name: str
    priority: Exact
    gap: Exact | None


@dataclass(frozen=True, slots=True)
class GapAttempt(Generic[Result]):
    """The first success and its entry, the stuck ones before, and those that ``holder`` blocks."""

    entry: GapEntry | None
    result: Result | None
    stuck: Sequence[GapEntry]
    held: Sequence[GapEntry] = ()
    holder: GapEntry | None = None


def first_success(
    entries: Iterable[GapEntry], find: Callable[[str], Result | None]
) -> GapAttempt[Result]:
    """Return the first entry for which ``find`` succeeds, unless a stuck entry blocks it.

    ``entries`` come highest priority first and are consumed only as far as needed.
    """
    stuck: list[GapEntry] = []
    holder: GapEntry | None = None
    limit: Exact = 0
    coming = iter(entries)
    for entry in coming:
        if holder is not None and entry.priority <= limit:
            return GapAttempt(None, None, stuck, [entry, *coming], holder)
        result = find(entry.name)
        if result is not None:
            return GapAttempt(entry, result, stuck)
        stuck.append(entry)
        if entry.gap is not None and (holder is None or entry.priority - entry.gap > limit):
            holder, limit = entry, entry.priority - entry.gap
    return GapAttempt(None, None, stuck)
