"""The scheduling classes and the one conflict rule.

================  ==========  ================  ======  =========
may overlap with  background  background-multi  normal  exclusive
================  ==========  ================  ======  =========
background        yes         yes               yes     yes
background-multi  yes         yes               yes     yes
normal            yes         yes               yes     no
exclusive         yes         yes               no      no
================  ==========  ================  ======  =========

The database holds the same rule as an exclusion constraint (``run.lane`` in ``schema.sql``).
"""

from __future__ import annotations

from enum import StrEnum


class SchedulingClass(StrEnum):
    """The scheduling classes, in the order of the SQL enum."""

    EXCLUSIVE = "exclusive"
    NORMAL = "normal"
    BACKGROUND = "background"
    BACKGROUND_MULTI = "background-multi"


_CONFLICTS: dict[SchedulingClass, frozenset[SchedulingClass]] = {
    SchedulingClass.EXCLUSIVE: frozenset({SchedulingClass.EXCLUSIVE, SchedulingClass.NORMAL}),
    SchedulingClass.NORMAL: frozenset({SchedulingClass.EXCLUSIVE}),
    SchedulingClass.BACKGROUND: frozenset(),
    SchedulingClass.BACKGROUND_MULTI: frozenset(),
}


def blockers(scheduling_class: SchedulingClass) -> frozenset[SchedulingClass]:
    """Return the classes whose runs a run of this class must not overlap."""
    return _CONFLICTS[scheduling_class]
