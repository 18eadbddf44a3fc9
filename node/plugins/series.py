"""Whether series can be made of the figures that a plugin gives. Pure.

What one stranger's plugin says must keep nobody from reading the runs of the others, so figures
are looked at before they are kept, and once more before they are shown.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping

from node.plugins.contracts import Metric


def faults_of(given: Iterable[object]) -> Iterator[str]:
    """What is wrong with each figure, for a sentence that begins with whose it is."""
    return (fault for each in given if (fault := _fault_of(each)) is not None)


def usable_metrics(given: Iterable[Metric]) -> tuple[Metric, ...]:
    """Those that can be stored, sent and read again."""
    return tuple(each for each in given if _fault_of(each) is None)


def _fault_of(given: object) -> str | None:
    if not isinstance(given, Metric):
        return f"gave {given!r} for a figure, no Metric"[:200]
    name: object = given.name
    unit: object = given.unit
    labels: object = given.labels
    if not isinstance(name, str) or not name:
        return f"gave a figure the name {name!r}"[:200]
    if not _is_number(given.value):
        return f"gave no number for {name!r}, but {given.value!r}"[:200]
    if not isinstance(unit, str):
        return f"gave {name!r} the unit {unit!r}, which is no text"[:200]
    if not isinstance(labels, Mapping) or not all(
        isinstance(word, str) for pair in labels.items() for word in pair
    ):
        return f"gave {name!r} the labels {labels!r}, which are no texts"[:200]
    return None


def _is_number(value: object) -> bool:
    if not isinstance(value, int | float) or isinstance(value, bool):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:  # an integer beyond what any database can hold
        return False
