"""Common causes of failures: single faults are named, and healthy hosts never blamed."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from itertools import combinations, permutations

import pytest

from node.model.common_cause import Findings, PairOutcome, Suspect, SuspectKind, find_causes

HOSTS = [f"h{number:02}" for number in range(20)]
NETWORKS = {host: [f"net{number % 4}"] for number, host in enumerate(HOSTS)}
SEEDS = 100
RIGHT_MIN = 95

Fault = Callable[[PairOutcome], bool]


def _mesh(rng: random.Random) -> Iterator[PairOutcome]:
    """Yield the pairs of a mesh of 20, all well: round trips, and each way apart."""
    for source, dest in combinations(HOSTS, 2):
        lead = rng.choice(["x", "y", "z"])
        there, back = (source, dest), (dest, source)
        key = f"rtt/{source}/{dest}"
        yield PairOutcome(key, (there, back), "rtt", "ping", lead, is_failing=False)
        for way in (there, back):
            key = f"latency/{source}/{dest}"
            yield PairOutcome(key, (way,), "latency", "irtt", lead, is_failing=False)


def _found(rng: random.Random, *faults: Fault) -> Findings:
    """Return what is found if these faults, and one pair in 200 for reasons of its own, fail."""
    told = []
    for each in _mesh(rng):
        fails = any(fault(each) for fault in faults) or rng.random() < 0.005
        told.append(
            PairOutcome(each.key, each.ways, each.test, each.tool, each.lead, is_failing=fails)
        )
    return find_causes(told, NETWORKS)


def _touches(host: str) -> Fault:
    return lambda each: any(host in way for way in each.ways)


def _to(host: str) -> Fault:
    return lambda each: any(end == host for _, end in each.ways)


def _between(one: str, other: str) -> Fault:
    def crosses(each: PairOutcome) -> bool:
        return any({NETWORKS[a][0], NETWORKS[b][0]} == {one, other} for a, b in each.ways)

    return crosses


def _single_fault(kind: str, rng: random.Random) -> tuple[Fault, Suspect]:
    host = rng.choice(HOSTS)
    if kind == "host":
        return _touches(host), Suspect(SuspectKind.HOST, (host,))
    if kind == "way out":
        return (
            lambda each: any(start == host for start, _ in each.ways),
            Suspect(SuspectKind.FROM_HOST, (host,)),
        )
    if kind == "way in":
        return _to(host), Suspect(SuspectKind.TO_HOST, (host,))
    if kind == "link":
        one, other = sorted(rng.sample(["net0", "net1", "net2", "net3"], 2))
        return _between(one, other), Suspect(SuspectKind.BETWEEN, (one, other))
    if kind == "tool":
        tool = rng.choice(["ping", "irtt"])
        return lambda each: each.tool == tool, Suspect(SuspectKind.TOOL, (tool,))
    lead = rng.choice(["x", "y", "z"])
    return lambda each: each.lead == lead, Suspect(SuspectKind.LEAD, (lead,))


@pytest.mark.parametrize("kind", ["host", "way out", "way in", "link", "tool", "lead"])
@pytest.mark.nightly
def test_a_single_fault_is_named(kind: str) -> None:
    """A fault in a mesh of 20 hosts is the only cause that is found, in 95 of 100 meshes."""
    right = 0
    for seed in range(SEEDS):
        rng = random.Random(f"{kind} {seed}")
        fault, suspect = _single_fault(kind, rng)
        causes = _found(rng, fault).causes
        right += [each.suspect for each in causes] == [suspect]
    assert right >= RIGHT_MIN


@pytest.mark.nightly
def test_of_two_unrelated_faults_no_healthy_host_is_blamed() -> None:
    """Each host that is named is one of the two faults, whatever they are."""
    hosts = {SuspectKind.HOST, SuspectKind.FROM_HOST, SuspectKind.TO_HOST}
    kinds = ["host", "way out", "way in", "link", "tool", "lead"]
    for seed in range(SEEDS):
        rng = random.Random(seed)
        drawn = [_single_fault(rng.choice(kinds), rng) for _ in range(2)]
        broken = {suspect.names for _, suspect in drawn if suspect.kind in hosts}
        found = _found(rng, *(fault for fault, _ in drawn))
        blamed = {each.suspect.names for each in found.causes if each.suspect.kind in hosts}
        assert blamed <= broken, (seed, drawn)


def _rtt(*failing: str, hosts: str = "abcd") -> Findings:
    return find_causes(
        [
            PairOutcome(f"{a}{b}", ((a, b), (b, a)), "rtt", "ping", "x", f"{a}{b}" in failing)
            for a, b in permutations(hosts, 2)
        ]
    )


def test_round_trips_do_not_tell_directions() -> None:
    """A host of which only round trips are known may be broken in one direction: all are told."""
    [cause] = _rtt("ad", "bd", "cd", "da", "db", "dc").causes
    assert (len(cause.failing), cause.crossing) == (6, 6)
    kinds = (SuspectKind.HOST, SuspectKind.FROM_HOST, SuspectKind.TO_HOST)
    assert [each for each in cause.suspects if each.kind in kinds] == [
        Suspect(kind, ("d",)) for kind in kinds
    ]


def _measured(failing: dict[str, int], good: int, hosts: str = "abcdef") -> Findings:
    """Return what explains pairs that failed from an instant on; others were good at ``good``."""
    return find_causes(
        [
            PairOutcome(key, ((a, b), (b, a)), "rtt", "ping", "x", key in failing, at)
            for a, b in permutations(hosts, 2)
            for key in [f"{a}{b}"]
            for at in [failing.get(key, good)]
        ]
    )


def test_what_was_good_before_and_not_measured_since_says_nothing() -> None:
    """A host that just went away is named before each of its pairs has been measured again."""
    failing = {"ad": 103, "bd": 101, "cd": 104, "da": 105, "db": 102, "dc": 106}
    [cause] = _measured(failing, good=100).causes
    assert cause.suspect == Suspect(SuspectKind.HOST, ("d",))
    assert (len(cause.failing), cause.crossing) == (6, 6)
    assert _measured(failing, good=107).causes == ()


def test_a_few_pairs_that_just_failed_blame_nobody() -> None:
    """Two new failures share a host by chance, although none of its other pairs is newer."""
    assert _measured({"ad": 101, "bd": 102}, good=100) == Findings((), ("ad", "bd"))


def test_a_single_pair_blames_nobody() -> None:
    """A pair that fails both ways while its hosts are well is told apart, without a cause."""
    assert _rtt("ab", "ba") == Findings((), ("ab", "ba"))


def test_hosts_that_reach_only_each_other_are_a_split() -> None:
    """Two halves of which each works within are named as such, without networks."""
    across = {f"{a}{b}" for a, b in permutations("abcdef", 2) if (a in "abc") != (b in "abc")}
    [cause] = _rtt(*across, hosts="abcdef").causes
    assert cause.suspect == Suspect(SuspectKind.SPLIT, ("a, b, c", "d, e, f"))


def test_if_nothing_works_nothing_is_told_apart() -> None:
    """Tool, test, lead, and the rest cannot be told apart if all pairs fail."""
    [cause] = _rtt(*(f"{a}{b}" for a, b in permutations("abcd", 2))).causes
    assert [each.kind for each in cause.suspects] == [
        SuspectKind.TOOL,
        SuspectKind.TEST,
        SuspectKind.LEAD,
        SuspectKind.ALL,
    ]


def test_nothing_is_said_of_what_works() -> None:
    """Without failing pairs there is nothing in common."""
    assert _rtt() == Findings()
