"""The hosts, directions, networks, tools, and leads that explain which pairs fail. Pure.

Each pair that was measured crosses what may be broken: its two hosts, one of them on the way out
and one on the way in, the networks of both, its tool, its test, and its lead. A set of broken
things explains the outcomes if every failing pair crosses one of them and no working pair does
(boolean network tomography). The smallest such set is hard to find, so it is approached greedily,
as fault localization by risk groups does:

* A suspect is considered if nearly all pairs that cross it fail (:data:`HIT_RATIO`), of those that
  were measured since the first of these failures. A voter who works counts against it: one good
  pair out of ten is tolerated. A pair that was good before that, and was not measured since, says
  nothing; but at least half of all that cross it must fail (:data:`LEAST_SHARE`), because a few
  pairs that have just failed have something in common by chance.
* Of these the one that explains most failing pairs is taken; its pairs are explained, and the rest
  is searched again. Working pairs are never explained away.
* What a single pair shows is no pattern. A host is blamed only if it fails with two others at
  least, a tool, a test, or a lead only if no one host is in all its failing pairs.

Suspects that the same pairs cross cannot be told apart: all of them are named, the narrowest first.
Failing pairs that no suspect explains are told as such, one by one, and nobody is blamed for them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

HIT_RATIO = 0.9
"""The share of failing pairs, of those that cross a suspect, from which on it is considered."""
LEAST_SHARE = 0.5
"""The share of failing pairs, of all that cross a suspect, below which it is not considered."""
CAUSES_MAX = 10
_LEAST = 2


class SuspectKind(IntEnum):
    """A kind of what may be broken, the narrowest first."""

    __hash__ = int.__hash__  # sets of thousands of suspects are made; that of enums is slow

    HOST = 1
    FROM_HOST = 2
    TO_HOST = 3
    TOOL_AT_HOST = 4
    NETWORK_EDGE = 5
    """The way into a network and out of it, not the one within it."""
    NETWORK = 6
    ONE_WAY = 7
    """From one network to another one."""
    BETWEEN = 8
    SPLIT = 9
    """Two groups of hosts, of which each reaches its own members only."""
    TOOL = 10
    TEST = 11
    LEAD = 12
    ALL = 13


class Suspect(NamedTuple):
    """Something that may be broken, with the names of its host, networks, tool, test, or lead."""

    kind: SuspectKind
    names: tuple[str, ...]


@dataclass(frozen=True)
class PairOutcome:
    """The outcome of the newest run of a pair, or of one direction of it.

    ``ways`` are the directed ways that it measured, each from a host to a host.
    """

    key: str
    ways: tuple[tuple[str, str], ...]
    test: str
    tool: str
    lead: str
    is_failing: bool
    at: int = 0
    """The instant (µs) of that run, or of the first of those in a row that went wrong."""


@dataclass(frozen=True)
class CommonCause:
    """Suspects that explain the same failing pairs, the narrowest first; the others may be it."""

    suspects: tuple[Suspect, ...]
    failing: tuple[str, ...]
    """The keys of the failing pairs that it explains."""
    crossing: int
    """The number of pairs that cross it, and are not explained by a cause before."""

    @property
    def suspect(self) -> Suspect:
        """The narrowest suspect."""
        return self.suspects[0]


@dataclass(frozen=True)
class Findings:
    """The causes of failing pairs, the widest first, and the pairs that have none in common."""

    causes: tuple[CommonCause, ...] = ()
    apart: tuple[str, ...] = ()


def find_causes(
    outcomes: Sequence[PairOutcome], networks: Mapping[str, Collection[str]] | None = None
) -> Findings:
    """Return what explains the failing pairs; ``networks`` are those of each host, if known."""
    open_ = {number for number, each in enumerate(outcomes) if each.is_failing}
    if not open_:
        return Findings()
    groups, split = _told_networks(outcomes, networks or {}), _split_sides(outcomes)
    failing_by = _crossings(outcomes, open_, groups, split)
    good = [number for number, each in enumerate(outcomes) if not each.is_failing]
    good_by = _crossings(outcomes, good, groups, split, failing_by)
    causes: list[CommonCause] = []
    while len(causes) < CAUSES_MAX:
        open_by, against = _considered(outcomes, failing_by, good_by, open_)
        if not open_by:
            break
        suspects = _widest(open_by, against)
        failing = open_by[suspects[0]]
        keys = tuple(dict.fromkeys(outcomes[number].key for number in sorted(failing)))
        good_keys = {outcomes[number].key for number in against[suspects[0]]}
        causes.append(CommonCause(suspects, keys, len(good_keys.union(keys))))
        open_ -= failing
    in_causes = {key for cause in causes for key in cause.failing}
    keys = tuple(dict.fromkeys(outcomes[number].key for number in sorted(open_)))
    return Findings(tuple(causes), tuple(key for key in keys if key not in in_causes))


_Crossings = Mapping[Suspect, set[int]]
"""The numbers of the outcomes that cross each suspect."""


def _considered(
    outcomes: Sequence[PairOutcome], failing_by: _Crossings, good_by: _Crossings, open_: set[int]
) -> tuple[dict[Suspect, set[int]], dict[Suspect, set[int]]]:
    """Return the failing pairs of each suspect to be considered, and the good ones against it."""
    open_by, against = dict[Suspect, set[int]](), dict[Suspect, set[int]]()
    for suspect, crossing in failing_by.items():
        failing, good = crossing & open_, good_by.get(suspect, set())
        if not failing or len(failing) * (1 - LEAST_SHARE) < LEAST_SHARE * len(good):
            continue
        since = min(outcomes[number].at for number in failing)
        later = {number for number in good if outcomes[number].at >= since}
        if len(failing) * (1 - HIT_RATIO) >= HIT_RATIO * len(later) and _is_pattern(
            suspect, [outcomes[number] for number in failing]
        ):
            open_by[suspect], against[suspect] = failing, later
    return open_by, against


def _widest(open_by: _Crossings, good_by: _Crossings) -> tuple[Suspect, ...]:
    """Return the suspects that explain most, all of which the same pairs cross."""

    def rank(suspect: Suspect) -> tuple[int, int, int]:
        return len(open_by[suspect]), -len(good_by.get(suspect, ())), -suspect.kind

    chosen = max(open_by, key=rank)
    crossing = open_by[chosen], good_by.get(chosen, set())
    alike = [each for each in open_by if (open_by[each], good_by.get(each, set())) == crossing]
    return tuple(sorted(alike))


def _is_pattern(suspect: Suspect, failing: Sequence[PairOutcome]) -> bool:
    """Return whether failing pairs show more than what is wrong with a single pair or host."""
    ends = {frozenset(way) for each in failing for way in each.ways}
    if len(ends) < _LEAST:
        return False
    return suspect.kind <= SuspectKind.TOOL_AT_HOST or not frozenset.intersection(*ends)


def _crossings(
    outcomes: Sequence[PairOutcome],
    numbers: Iterable[int],
    groups: Mapping[str, Collection[str]],
    split: Mapping[str, str],
    only: Collection[Suspect] | None = None,
) -> dict[Suspect, set[int]]:
    """Return the numbers of those outcomes that cross each suspect, or each of some suspects."""
    found: dict[Suspect, set[int]] = defaultdict(set)
    for number in numbers:
        for suspect in _suspects_of(outcomes[number], groups, split):
            if only is None or suspect in only:
                found[suspect].add(number)
    return found


def _suspects_of(
    outcome: PairOutcome, groups: Mapping[str, Collection[str]], split: Mapping[str, str]
) -> Iterator[Suspect]:
    """Yield what an outcome crosses, some of it twice."""
    kind = SuspectKind
    for start, end in outcome.ways:
        yield Suspect(kind.FROM_HOST, (start,))
        yield Suspect(kind.TO_HOST, (end,))
        for host in (start, end):
            yield Suspect(kind.HOST, (host,))
            yield Suspect(kind.TOOL_AT_HOST, (outcome.tool, host))
        yield from _networks_crossed(groups.get(start, ()), groups.get(end, ()))
        sides = sorted((split.get(start, ""), split.get(end, "")))
        if sides[0] != sides[1]:
            yield Suspect(kind.SPLIT, tuple(sides))
    yield Suspect(kind.TOOL, (outcome.tool,))
    yield Suspect(kind.TEST, (outcome.test,))
    yield Suspect(kind.LEAD, (outcome.lead,))
    yield Suspect(kind.ALL, ())


def _networks_crossed(near: Collection[str], far: Collection[str]) -> Iterator[Suspect]:
    """Yield the networks that a way crosses from one host to another, and each two of them."""
    both = {*near} & {*far}
    for name in {*near, *far}:
        yield Suspect(SuspectKind.NETWORK, (name,))
        if name not in both:
            yield Suspect(SuspectKind.NETWORK_EDGE, (name,))
    for one in {*near} - both:
        for other in {*far} - both:
            yield Suspect(SuspectKind.ONE_WAY, (one, other))
            yield Suspect(SuspectKind.BETWEEN, (min(one, other), max(one, other)))


def _told_networks(
    outcomes: Iterable[PairOutcome], networks: Mapping[str, Collection[str]]
) -> dict[str, Collection[str]]:
    """Return the networks of each host that have other measured hosts, and not all of them."""
    hosts = {host for each in outcomes for way in each.ways for host in way}
    sizes: dict[str, int] = defaultdict(int)
    for host in hosts:
        for name in networks.get(host, ()):
            sizes[name] += 1
    return {
        host: [name for name in networks.get(host, ()) if _LEAST <= sizes[name] < len(hosts)]
        for host in hosts
    }


def _split_sides(outcomes: Iterable[PairOutcome]) -> dict[str, str]:
    """Return the group of each host that some hosts reach, if there are two groups; else none.

    Hosts are in one group if a working pair joins them; one that nobody reaches is in none.
    """
    joined: dict[str, str] = {}

    def root(host: str) -> str:
        while joined.setdefault(host, host) != host:
            joined[host] = joined[joined[host]]
            host = joined[host]
        return host

    for each in outcomes:
        for start, end in each.ways:
            first, second = root(start), root(end)
            if not each.is_failing:
                joined[first] = second
    members: dict[str, list[str]] = defaultdict(list)
    for host in list(joined):
        members[root(host)].append(host)
    groups = [sorted(group) for group in members.values() if len(group) >= _LEAST]
    if len(groups) != _LEAST:
        return {}
    return {host: _group_text(group) for group in groups for host in group}


def _group_text(hosts: Sequence[str], shown: int = 3) -> str:
    more = len(hosts) - shown
    return ", ".join(hosts[:shown]) + (f" and {more} more" if more > 0 else "")
