"""Edits of a task: what changes, which runs are given up, and where planning goes on. Pure.

Documents are the JSON forms of a task (``node.model.wire.tasks``); a *slot* is a nominal start of
the task; instants and durations are microseconds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

from node.model import times
from node.model.errors import ChangedSince
from node.model.recurrence import Recurrence, next_nominal, nominal_starts, slip_of
from node.model.scheduling import first_slot
from node.model.secrets import REDACTED, is_kept, name_of
from node.model.task_terms import TaskTerms

EVERY_SLOT = 0
NO_SLOT = times.LATEST - 1
"""Values for "give up the slots from here on": every slot, or none, since no task has this one."""

_SHOWN_CHARACTERS = 60
_WHOLE = frozenset({"reference"})


def require_revision(thing: str, read: int | None, current: int) -> None:
    """Return if a thing is at the revision that was read; None demands none.

    :raises ChangedSince: it has another one.
    """
    if read not in (None, current):
        msg = (
            f"{thing} has been changed since revision {read} was read: it is at revision "
            f"{current}; read it again"
        )
        raise ChangedSince(msg)


def patched_document(document: Any, patch: Any) -> Any:
    """Return the document with a JSON merge patch applied (RFC 7396).

    A null removes a member, and a list replaces the old one.
    """
    if not isinstance(patch, Mapping):
        return patch
    result = dict(document) if isinstance(document, Mapping) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = patched_document(result.get(name), value)
    return result


def differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """Describe each field that differs, in document order: ``repeat 1 h → 30 min``."""
    old, new = dict(_leaves(before)), dict(_leaves(after))
    names = [*old, *(name for name in new if name not in old)]
    return [
        f"{name} changed"
        if name in _WHOLE
        else f"{name} {_value_text(old, name)} → {_value_text(new, name)}"
        for name in names
        if old.get(name) != new.get(name)
    ]


def _leaves(document: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield each field under its own name, without its parents; the reference is one field."""
    for name, value in document.items():
        if isinstance(value, Mapping) and name not in _WHOLE and not is_kept(value):
            yield from _leaves(value)
        else:
            yield name, value


def _value_text(document: Mapping[str, Any], name: str) -> str:
    value = document.get(name)
    if is_kept(value):
        named = name_of(value)
        return REDACTED if named is None else f"the secret {named}"
    if value is None or value in ([], ()):
        return "none"
    text = ", ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)
    text = times.with_durations_in_words(text)
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}…"


@dataclass(frozen=True)
class PlacementTerms:
    """The terms that decide where a task's runs may lie and what they measure."""

    measured: tuple[Any, ...]
    """Spec, tool, class, and duration. If one of them changes, all runs are given up."""
    recurrence: Recurrence
    slip_random: bool
    displacement_budget: str | None = None

    @classmethod
    def of(cls, terms: TaskTerms) -> Self:
        """Return those of a task."""
        measured = terms.spec, terms.tool, terms.scheduling_class, terms.duration
        schedule = terms.schedule
        return cls(measured, terms.recurrence, schedule.slip_random, schedule.displacement_budget)


def first_given_up_slot(old: PlacementTerms, new: PlacementTerms, surplus: int | None) -> int:
    """Return the first slot whose runs are given up because of the new terms.

    It is :data:`EVERY_SLOT` if the measurement or its times change. Otherwise it is the first slot
    after an earlier end, or ``surplus``, the first slot beyond the task's number of runs. It is
    :data:`NO_SLOT` if nothing is given up.
    """
    if old.measured != new.measured or _nominal_grid(old) != _nominal_grid(new):
        return EVERY_SLOT
    ends = [new.recurrence.until, surplus]
    return min((end for end in ends if end is not None), default=NO_SLOT)


def _nominal_grid(terms: PlacementTerms) -> tuple[Recurrence, bool, str | None]:
    recurrence = replace(terms.recurrence, until=None)
    return recurrence, terms.slip_random, terms.displacement_budget


@dataclass(frozen=True)
class PlanningPosition:
    """The position of planning: slots up to ``planned_to`` are planned, ``next_slot`` is next."""

    planned_to: int | None
    next_slot: int | None


def position_after_edit(
    recurrence: Recurrence,
    current: PlanningPosition,
    freed: Sequence[int],
    open_from: int,
    now: int,
    *,
    anew: bool,
) -> PlanningPosition:
    """Return where planning goes on after an edit that gave up the slots ``freed`` (ascending).

    Nothing before ``open_from`` can run any more, nor is it told of by the new terms. With ``anew``
    the nominal starts have changed: planning goes on with the future ones, and with those of the
    freed slots whose nominal start has passed but still is one.
    """
    if anew:
        coming = first_slot(recurrence, now)
        passed = [slot for slot in freed if open_from <= slot <= now]
        passed = [slot for slot in passed if _is_nominal(recurrence, slot)]
        start = min([*passed[:1], *([] if coming is None else [coming])], default=None)
        return PlanningPosition(current.planned_to if start is None else start - 1, start)
    planned_to = current.planned_to
    if planned_to is not None and freed:
        planned_to = min(planned_to, freed[0] - 1)
    if _planned_before(open_from, PlanningPosition(planned_to, current.next_slot)):
        planned_to = open_from - 1
    following = None if planned_to is None else next_nominal(recurrence, planned_to)
    candidates = [slot for slot in (current.next_slot, following) if slot is not None]
    return PlanningPosition(planned_to, min(candidates, default=None))


def _planned_before(open_from: int, position: PlanningPosition) -> bool:
    """Return whether the next slot to plan may be one before ``open_from``."""
    if position.planned_to is not None:
        return position.planned_to < open_from - 1
    return position.next_slot is not None and position.next_slot < open_from


def _is_nominal(recurrence: Recurrence, slot: int) -> bool:
    return nominal_starts(recurrence, slot - 1, slot + 1, 1) == [slot]


def first_open(recurrence: Recurrence, duration: int, soonest: int) -> int | None:
    """Return the first slot whose run may still start at or after ``soonest``."""
    before = max(recurrence.anchor, soonest - recurrence.slip) - 1
    while (slot := next_nominal(recurrence, before)) is not None:
        if slot + slip_of(recurrence, duration, slot) >= soonest:
            return slot
        before = slot
    return None


def reopens(old: TaskTerms, new: TaskTerms, now: int) -> bool:
    """Return whether new terms leave time for the only slot of a task, which may have been over."""
    recurrence = new.recurrence
    single = recurrence.repeat is None and recurrence.cron is None and not recurrence.follows
    same = replace(old.recurrence, slip=recurrence.slip) == recurrence
    return single and same and first_open(recurrence, new.duration, now) is not None


def passed_slots(
    recurrence: Recurrence, first: int | None, following: int | None, now: int, limit: int
) -> list[int]:
    """Return the slots from ``first`` up to ``following`` (or ``now``), at most ``limit``."""
    if first is None:
        return []
    return nominal_starts(recurrence, first - 1, now if following is None else following, limit)
