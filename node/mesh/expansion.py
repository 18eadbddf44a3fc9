"""From a mesh file to the tasks it stands for. Pure.

A task is known by its key, ``label/source/dest``: what a mesh has made is found again by it,
whatever ids there are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations, permutations, product
from typing import Any, NamedTuple

from node.mesh.document import Direction, HostGroup, Measure, MeshDocument
from node.mesh.findings import Finding, FindingKind


class MeasurementPair(NamedTuple):
    """Two ends of one entry (its number in the file, from 0)."""

    measure: int
    source: str
    dest: str


@dataclass(frozen=True)
class MeshInventory:
    """What a node says there is."""

    nodes: Mapping[str, int]
    """Each node's lanes, by name."""
    groups: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """The nodes that match or belong to a pool, by the name of the group."""
    tests: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """The JSON schema of each test's spec."""
    tools: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """The tests of each tool."""
    campaigns: frozenset[str] = frozenset()
    unresolved: frozenset[str] = frozenset()
    """Groups that the node refused to resolve, and said why."""


@dataclass(frozen=True)
class Expansion:
    """The tasks by their keys, and keys that two entries want."""

    pairs: Mapping[str, MeasurementPair]
    findings: tuple[Finding, ...] = ()


def members_of(document: MeshDocument, fleet: MeshInventory) -> dict[str, tuple[str, ...]]:
    """The names in each group, each once, in the order of the file."""
    found = {}
    for name, group in document.groups.items():
        if isinstance(group, tuple):
            names: Sequence[str] = group
        else:
            names = group.hosts if isinstance(group, HostGroup) else fleet.groups.get(name, ())
        found[name] = tuple(dict.fromkeys(names))
    return found


def spread(words: Sequence[str], groups: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    """The nodes that these words mean, each once: a group's name stands for all in it."""
    return tuple(dict.fromkeys(name for word in words for name in groups.get(word, (word,))))


def direction_of(measure: Measure) -> Direction:
    """Which way it measures: both ways unless said, but pairs as they are written."""
    return measure.direction or ("one" if measure.shape == "pairs" else "both")


def ends_of(measure: Measure, groups: Mapping[str, Sequence[str]]) -> Iterator[tuple[str, str]]:
    """The (source, dest) of an entry; nobody measures to itself."""
    way = direction_of(measure)
    if measure.shape == "full-mesh":
        names = spread(measure.members, groups)
        yield from permutations(names, 2) if way == "both" else combinations(names, 2)
        return
    if measure.shape == "star":
        centres, members = spread(measure.centre, groups), spread(measure.members, groups)
        sides: Iterator[tuple[str, str]] = product(centres, members)
    else:
        sides = (
            ends
            for one, other in measure.pairs
            for ends in product(spread((one,), groups), spread((other,), groups))
        )
    for one, other in sides:
        if one != other:
            if way != "in":
                yield one, other
            if way in {"in", "both"}:
                yield other, one


def expand(document: MeshDocument, groups: Mapping[str, Sequence[str]]) -> Expansion:
    """Every task of the file; ``groups`` as of :func:`members_of`."""
    pairs: dict[str, MeasurementPair] = {}
    findings = []
    for number, measure in enumerate(document.measure):
        start = f"{measure.label}/"
        taken: dict[int, str] = {}
        for source, dest in ends_of(measure, groups):
            key = f"{start}{source}/{dest}"
            there = pairs.setdefault(key, MeasurementPair(number, source, dest))
            if there.measure != number:
                taken.setdefault(there.measure, f"{source} to {dest}")
        findings += [_twice(document, number, other, ends) for other, ends in taken.items()]
    return Expansion(pairs, tuple(findings))


def _twice(document: MeshDocument, number: int, other: int, ends: str) -> Finding:
    label = document.measure[number].label
    return Finding(
        FindingKind.INVALID,
        f"/measure/{number}",
        f"measures {label} from {ends}, and so does measure {other + 1}",
        'give one of the two a name of its own (name = "…"), or take the pair out of one',
    )
