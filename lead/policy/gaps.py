"""Trying in order of priority, with a limit that whoever is stuck sets for those below. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from lead.policy.view import Exact

Found = TypeVar("Found")


@dataclass(frozen=True, slots=True)
class Entry:
    """Who is to be tried; when stuck it holds all that are ``gap`` or more below (None: nobody)."""

    name: str
    priority: Exact
    gap: Exact | None


@dataclass(frozen=True, slots=True)
class Attempt(Generic[Found]):
    """What was found, and for whom; who was stuck before; who is held, and by whom."""

    entry: Entry | None
    found: Found | None
    stuck: Sequence[Entry]
    held: Sequence[Entry]
    holder: Entry | None


def attempt(entries: Iterable[Entry], find: Callable[[str], Found | None]) -> Attempt[Found]:
    """The first, highest priority first, for which something is found and nobody holds it."""
    listed = list(entries)
    stuck: list[Entry] = []
    holder: Entry | None = None
    limit: Exact = 0
    for place, entry in enumerate(listed):
        if holder is not None and entry.priority <= limit:
            return Attempt(None, None, stuck, listed[place:], holder)
        found = find(entry.name)
        if found is not None:
            return Attempt(entry, found, stuck, (), None)
        stuck.append(entry)
        if entry.gap is not None and (holder is None or entry.priority - entry.gap > limit):
            holder, limit = entry, entry.priority - entry.gap
    return Attempt(None, None, stuck, (), None)
