"""What an edit of a task changes, which of its runs it gives up, and where planning goes on. Pure.

Documents here are the JSON forms of a task (``node.model.wire.tasks``); a *slot* is a nominal start
of the task; instants and durations are microseconds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from node.model import times
from node.model.recurrence import Recurrence, next_nominal, nominal_starts, slip_of
from node.model.scheduling import first_slot

EVERY_SLOT = 0
NO_SLOT = times.LATEST - 1
"""Bounds of the slots given up: from the first one on, and from one on that no task has."""

_SHOWN_CHARACTERS = 60
_WHOLE = frozenset({"reference"})


def merged(document: Any, patch: Any) -> Any:
    """The document with a JSON merge patch applied (RFC 7396): null removes, a list replaces."""
    if not isinstance(patch, Mapping):
        return patch
    kept = dict(document) if isinstance(document, Mapping) else {}
    for name, value in patch.items():
        if value is None:
            kept.pop(name, None)
        else:
            kept[name] = merged(kept.get(name), value)
    return kept


def differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """What differs, field by field, in the order of the documents: ``repeat PT1H → PT30M``."""
    old, new = dict(_leaves(before)), dict(_leaves(after))
    names = [*old, *(name for name in new if name not in old)]
    return [
        f"{name} changed" if name in _WHOLE else f"{name} {_word(old, name)} → {_word(new, name)}"
        for name in names
        if old.get(name) != new.get(name)
    ]


def _leaves(document: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Each field under its own name, without the objects around it; the reference is one field."""
    for name, value in document.items():
        if isinstance(value, Mapping) and name not in _WHOLE:
            yield from _leaves(value)
        else:
            yield name, value


def _word(document: Mapping[str, Any], name: str) -> str:
    value = document.get(name)
    if value is None or value in ([], ()):
        return "none"
    text = ", ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}…"


@dataclass(frozen=True)
class PlacementTerms:
    """What decides where a task's runs may lie and what they measure."""

    measured: tuple[Any, ...]
    """Spec, tool, class and duration: a run of other ones is another run."""
    recurrence: Recurrence
    slip_random: bool


def given_up_from(old: PlacementTerms, new: PlacementTerms, surplus: int | None) -> int:
    """The slot from which on the runs to come are given up for new terms.

    All of them (:data:`EVERY_SLOT`) if other things are measured, or at other times; else those
    behind an earlier end, and from the first slot in ``surplus`` of the task's number of runs; or
    none (:data:`NO_SLOT`).
    """
    if old.measured != new.measured or _grid(old) != _grid(new):
        return EVERY_SLOT
    ends = [new.recurrence.until, surplus]
    return min((end for end in ends if end is not None), default=NO_SLOT)


def _grid(terms: PlacementTerms) -> tuple[Recurrence, bool]:
    return replace(terms.recurrence, until=None), terms.slip_random


@dataclass(frozen=True)
class PlanningPosition:
    """Where planning goes on: all slots up to ``planned_to`` are done, ``next_slot`` is next."""

    planned_to: int | None
    next_slot: int | None


def position_after_edit(
    recurrence: Recurrence,
    standing: PlanningPosition,
    freed: Sequence[int],
    now: int,
    *,
    anew: bool,
) -> PlanningPosition:
    """Where to plan on after an edit that gave these slots up (ascending).

    ``anew``: the nominal starts are others now; then those to come are planned, and of the slots
    that were given up those whose nominal start has passed but is one still.
    """
    if anew:
        coming = first_slot(recurrence, now)
        passed = [slot for slot in freed if slot <= now and _is_nominal(recurrence, slot)]
        start = min([*passed[:1], *([] if coming is None else [coming])], default=None)
        return PlanningPosition(standing.planned_to if start is None else start - 1, start)
    planned_to = standing.planned_to
    if planned_to is not None and freed:
        planned_to = min(planned_to, freed[0] - 1)
    following = None if planned_to is None else next_nominal(recurrence, planned_to)
    known = [slot for slot in (standing.next_slot, following) if slot is not None]
    return PlanningPosition(planned_to, min(known, default=None))


def _is_nominal(recurrence: Recurrence, slot: int) -> bool:
    return nominal_starts(recurrence, slot - 1, slot + 1, 1) == [slot]


def first_open(recurrence: Recurrence, duration: int, soonest: int) -> int | None:
    """The first slot that still has a start left at or after ``soonest``."""
    before = max(recurrence.anchor, soonest - recurrence.slip) - 1
    while (slot := next_nominal(recurrence, before)) is not None:
        if slot + slip_of(recurrence, duration, slot) >= soonest:
            return slot
        before = slot
    return None


def passed_slots(
    recurrence: Recurrence, first: int | None, following: int | None, now: int, limit: int
) -> list[int]:
    """The slots from ``first`` on and before ``following`` (or ``now``), ``limit`` at most."""
    if first is None:
        return []
    return nominal_starts(recurrence, first - 1, now if following is None else following, limit)
