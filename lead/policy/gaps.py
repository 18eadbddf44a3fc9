"""Trying in order of priority, with a limit that whoever is stuck sets for those below. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from lead.policy.view import Exact

Found = TypeVar("Found")


@dataclass(frozen=True, slots=True)
class GapEntry:
    """Who is to be tried; when stuck it holds all that are ``gap`` or more below (None: nobody)."""

    name: str
    priority: Exact
    gap: Exact | None


@dataclass(frozen=True, slots=True)
class GapAttempt(Generic[Found]):
    """What was found, and for whom; who was stuck before; who is held, and by whom."""

    entry: GapEntry | None
    found: Found | None
    stuck: Sequence[GapEntry]
    held: Sequence[GapEntry] = ()
    holder: GapEntry | None = None


def attempt(entries: Iterable[GapEntry], find: Callable[[str], Found | None]) -> GapAttempt[Found]:
    """The first entry for which something is found, unless it is held.

    ``entries`` come highest priority first, and are only looked at as far as is needed.
    """
    stuck: list[GapEntry] = []
    holder: GapEntry | None = None
    limit: Exact = 0
    coming = iter(entries)
    for entry in coming:
        if holder is not None and entry.priority <= limit:
            return GapAttempt(None, None, stuck, [entry, *coming], holder)
        found = find(entry.name)
        if found is not None:
            return GapAttempt(entry, found, stuck)
        stuck.append(entry)
        if entry.gap is not None and (holder is None or entry.priority - entry.gap > limit):
            holder, limit = entry, entry.priority - entry.gap
    return GapAttempt(None, None, stuck)
