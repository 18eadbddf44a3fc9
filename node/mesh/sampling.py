"""Whom to ask when not all can be asked: few pairs, in which everybody takes part. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from node.mesh.expansion import MeasurementPair


def covering_keys(pairs: Mapping[str, MeasurementPair]) -> list[str]:
    """Keys such that each end of each entry is asked at least once: at source or at dest.

    First pairs of which neither end is asked yet, then those that ask one more: at most as many
    as there are ends, and half of that in a full mesh.
    """
    asked: set[tuple[int, str]] = set()
    left = []
    chosen = []
    for key, (measure, source, dest) in pairs.items():
        if (measure, source) not in asked and (measure, dest) not in asked:
            asked |= {(measure, source), (measure, dest)}
            chosen.append(key)
        else:
            left.append((key, (measure, source), (measure, dest)))
    for key, source_end, dest_end in left:
        if source_end not in asked or dest_end not in asked:
            asked |= {source_end, dest_end}
            chosen.append(key)
    return chosen


def first_keys(pairs: Mapping[str, MeasurementPair], skip: Iterable[int] = ()) -> list[str]:
    """The first key of each entry, but for those to skip."""
    seen = set(skip)
    chosen = []
    for key, pair in pairs.items():
        if pair.measure not in seen:
            seen.add(pair.measure)
            chosen.append(key)
    return chosen
