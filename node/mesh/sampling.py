"""Choose a small sample of pairs in which every node takes part. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from node.mesh.expansion import MeasurementPair


def covering_keys(pairs: Mapping[str, MeasurementPair]) -> list[str]:
    """Return keys such that each end of each entry is in a pair, as source or as dest.

    First come pairs with two new ends, then pairs with one: at most as many as there are ends, and
    half of that in a full mesh.
    """
    covered: set[tuple[int, str]] = set()
    rest = []
    chosen = []
    for key, (measure, source, dest) in pairs.items():
        if (measure, source) not in covered and (measure, dest) not in covered:
            covered |= {(measure, source), (measure, dest)}
            chosen.append(key)
        else:
            rest.append((key, (measure, source), (measure, dest)))
    for key, source_end, dest_end in rest:
        if source_end not in covered or dest_end not in covered:
            covered |= {source_end, dest_end}
            chosen.append(key)
    return chosen


def first_keys(pairs: Mapping[str, MeasurementPair], skip: Iterable[int] = ()) -> list[str]:
    """Return the first key of each entry, except of those to skip."""
    seen = set(skip)
    chosen = []
    for key, pair in pairs.items():
        if pair.measure not in seen:
            seen.add(pair.measure)
            chosen.append(key)
    return chosen
