"""Expand a mesh file into its tasks. Pure.

A task is identified by its key, ``label/source/dest``, regardless of its id.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, combinations, islice, permutations, product
from typing import Any, NamedTuple

from node.mesh.document import Direction, HostGroup, Measure, MeshDocument
from node.mesh.findings import Finding, FindingKind

TASKS_MAX = 1_000_000
"""Maximum number of tasks of a mesh file."""
_NAMES_PER_TASK = 20
"""Maximum number of names in the entries for each task: a star of many hosts has two."""


class MeasurementPair(NamedTuple):
    """Two ends of one entry (its number in the file, from 0)."""

    measure: int
    source: str
    dest: str


@dataclass(frozen=True)
class MeshInventory:
    """The nodes, groups, tests, tools and campaigns that a node knows."""

    nodes: Mapping[str, int]
    """Each node's lanes, by name."""
    groups: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """The nodes of groups that are predicates or pools, by the name of the group."""
    tests: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """The JSON schema of each test's spec."""
    tools: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """The tests of each tool."""
    campaigns: frozenset[str] = frozenset()
    unresolved: frozenset[str] = frozenset()
    """Groups that the node could not resolve, for which there are findings already."""


@dataclass(frozen=True)
class Expansion:
    """The tasks by their keys, and findings about keys of two entries."""

    pairs: Mapping[str, MeasurementPair]
    findings: tuple[Finding, ...] = ()
    is_too_large: bool = False
    """The file has more tasks than are wanted, or names in its entries; there are no pairs then."""


def members_of(document: MeshDocument, fleet: MeshInventory) -> dict[str, tuple[str, ...]]:
    """Return the names in each group, without duplicates, in the order of the file."""
    members = {}
    for name, group in document.groups.items():
        if isinstance(group, tuple):
            names: Sequence[str] = group
        else:
            names = group.hosts if isinstance(group, HostGroup) else fleet.groups.get(name, ())
        members[name] = tuple(dict.fromkeys(names))
    return members


def spread(words: Sequence[str], groups: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    """Replace names of groups by their members; return each name once."""
    return tuple(dict.fromkeys(name for word in words for name in groups.get(word, (word,))))


def words(measure: Measure) -> tuple[str, ...]:
    """Return the words of an entry that stand for nodes: names of theirs, and of groups."""
    pairs = (word for pair in measure.pairs for word in pair)
    return (*measure.members, *measure.centre, *pairs)


def direction_of(measure: Measure) -> Direction:
    """Return the direction of an entry: by default both, or for pairs as written."""
    return measure.direction or ("one" if measure.shape == "pairs" else "both")


def ends_of(measure: Measure, groups: Mapping[str, Sequence[str]]) -> Iterator[tuple[str, str]]:
    """Yield the (source, dest) pairs of an entry; both ends are the same only for ``each``."""
    way = direction_of(measure)
    if measure.shape == "full-mesh":
        names = spread(measure.members, groups)
        yield from permutations(names, 2) if way == "both" else combinations(names, 2)
        return
    if measure.shape == "each":
        yield from ((name, name) for name in spread(measure.members, groups))
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


def expand(
    document: MeshDocument, groups: Mapping[str, Sequence[str]], most: int = TASKS_MAX
) -> Expansion:
    """Return every task of the file; ``groups`` as of :func:`members_of`.

    A file of a few kilobytes may have billions: one with more than ``most`` has none.
    """
    named = (len(groups.get(word, (word,))) for each in document.measure for word in words(each))
    if sum(named) > _NAMES_PER_TASK * most:
        return Expansion({}, is_too_large=True)
    # To count them costs a tenth of making them.
    ends = chain.from_iterable(ends_of(measure, groups) for measure in document.measure)
    if sum(1 for _ in islice(ends, most + 1)) > most:
        return Expansion({}, is_too_large=True)
    pairs: dict[str, MeasurementPair] = {}
    findings = []
    for number, measure in enumerate(document.measure):
        start = f"{measure.label}/"
        duplicates: dict[int, str] = {}
        for source, dest in ends_of(measure, groups):
            key = f"{start}{source}/{dest}"
            existing = pairs.setdefault(key, MeasurementPair(number, source, dest))
            if existing.measure != number:
                duplicates.setdefault(existing.measure, f"{source} to {dest}")
        findings += [
            _repeated_key_finding(document, number, other, ends)
            for other, ends in duplicates.items()
        ]
    return Expansion(pairs, tuple(findings))


def _repeated_key_finding(document: MeshDocument, number: int, other: int, ends: str) -> Finding:
    label = document.measure[number].label
    return Finding(
        FindingKind.INVALID,
        f"/measure/{number}",
        f"measures {label} from {ends}, and so does measure {other + 1}",
        'give one of the two its own name (name = "…"), or remove the pair from one',
    )
