"""Membership of pools: which nodes belong to them and could have a seat, and why others cannot."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice
from typing import Any, Protocol, TypeVar

from lead.model.reasons import node_forgotten, pool_empty, pool_lacks_nodes, silent_for_long
from lead.planning.node_views import NodeDescription
from node.model.errors import ParleyError
from node.model.predicates import Attributes, Predicate
from node.model.reason import Reason
from node.model.terms import NodeRequirements, seats_possible
from node.model.wire.seats import SeatRequest
from node.store.pools import StoredPool

_SHOWN = 5
_WANTED_MAX = 10_000
_JUDGED_MAX = 500
_Value = TypeVar("_Value")


class MemberCandidate(NodeDescription, Protocol):
    """A known node, which may be this one."""

    @property
    def identity(self) -> str:
        """The public key."""

    @property
    def url(self) -> str | None:
        """The URL of its API; None in pull mode."""

    @property
    def address(self) -> str:
        """The address for measurements."""

    @property
    def silence(self) -> Reason | None:
        """A reason that says that it does not answer, since when, and why; None if it answers."""


class SeatCriteria(Protocol):
    """The fields of a pool task that decide which nodes could have its seats."""

    @property
    def test(self) -> str:
        """The name of the test."""

    @property
    def spec(self) -> dict[str, Any]:
        """The fields of the test."""

    @property
    def tools(self) -> Collection[str]:
        """The tools that may be used; empty is any."""

    @property
    def pool(self) -> str:
        """The name of the pool."""

    @property
    def request(self) -> dict[str, Any]:
        """The seat request, as stored."""


KnownNodes = Callable[[], Awaitable[Sequence[MemberCandidate]]]
WantedOf = Callable[
    [str, dict[str, Any], Collection[str], SeatRequest, Mapping[str, Any]], NodeRequirements
]
"""``wanted(test, spec, tools, request, pool_match)`` returns the requirements on nodes."""


Judged = tuple[tuple[str, ...], Mapping[str, Reason]]
"""The names of the nodes that could have a seat, and by name why others could not."""


@dataclass(frozen=True)
class _Verdicts:
    """Cached requirements by request, and cached judgements by requirements."""

    wanted: dict[str, tuple[str, NodeRequirements]] = field(default_factory=dict)
    judged: dict[str, Judged] = field(default_factory=dict)


@dataclass(frozen=True)
class Membership:
    """A snapshot of the pools and nodes; equal requests are judged once."""

    pools: Mapping[str, StoredPool]
    nodes: Sequence[MemberCandidate]
    wanted_of: WantedOf
    _verdicts: _Verdicts = field(default_factory=_Verdicts, repr=False, compare=False)

    def refreshed_membership(
        self, pools: Mapping[str, StoredPool], nodes: Sequence[MemberCandidate]
    ) -> Membership:
        """Return a later snapshot; it keeps the cached verdicts if nothing relevant changed."""
        now = Membership(pools, nodes, self.wanted_of)
        return replace(now, _verdicts=self._verdicts) if now.digest == self.digest else now

    @cached_property
    def digest(self) -> str:
        """Everything on which verdicts depend, as text, because 1 == True but they differ here."""
        matches = [(pool.name, pool.match) for pool in self.pools.values()]
        nodes = [
            (it.identity, it.name, it.url, it.address, self.facts[it.name]) for it in self.nodes
        ]
        return repr((matches, nodes))

    @cached_property
    def by_identity(self) -> dict[str, MemberCandidate]:
        """The nodes by identity."""
        return {node.identity: node for node in self.nodes}

    @cached_property
    def by_name(self) -> dict[str, MemberCandidate]:
        """The nodes by name."""
        return {node.name: node for node in self.nodes}

    @cached_property
    def facts(self) -> dict[str, Attributes]:
        """The attributes of each node, by name."""
        return {node.name: node.facts for node in self.nodes}

    @cached_property
    def names(self) -> dict[str, str]:
        """The name of each node, by identity."""
        return {node.identity: node.name for node in self.nodes}

    def requirements_of(self, asking: SeatCriteria) -> NodeRequirements:
        """Return what a node needs to have a seat of this task.

        :raises ParleyError: its test is not known here (any more), or has other fields.
        """
        return self._cached_requirements(asking)[1]

    def _cached_requirements(self, asking: SeatCriteria) -> tuple[str, NodeRequirements]:
        """Return the requirements on nodes that take no part (as text), and all requirements."""
        tools = sorted(asking.tools)
        key = json.dumps([asking.test, asking.spec, tools, asking.pool, asking.request])
        entry = self._verdicts.wanted.get(key)
        if entry is None:
            request = SeatRequest.model_validate(asking.request)
            match = self.pools[asking.pool].match
            wanted = self.wanted_of(asking.test, asking.spec, asking.tools, request, match)
            entry = repr(replace(wanted, taking_part=frozenset())), wanted
            _keep(self._verdicts.wanted, key, entry, _WANTED_MAX)
        return entry

    def members(self, match: Predicate) -> list[MemberCandidate]:
        """Return the nodes that belong to a pool with this predicate."""
        return [node for node in self.nodes if match.met_by(self.facts[node.name])]

    def judgement_of(self, asking: SeatCriteria) -> Judged:
        """Return which nodes of the pool could have a seat (names), and why the others could not.

        Tasks with the same requirements get the identical (same object) sequence.

        :raises ParleyError: as of :meth:`requirements_of`.
        """
        alike, wanted = self._cached_requirements(asking)
        judged = self._verdicts.judged.get(alike)
        if judged is None:
            judged = self._judgement(replace(wanted, taking_part=frozenset()))
            _keep(self._verdicts.judged, alike, judged, _JUDGED_MAX)
        able, unable = judged
        taking_part = [n for n in sorted(wanted.taking_part) if n in able or n in unable]
        if not taking_part:
            return judged
        asked = {name: wanted.why_not(name, self.facts[name]) for name in taking_part}
        reasons = {name: why for name, why in asked.items() if why is not None}
        return tuple(name for name in able if name not in reasons), {**unable, **reasons}

    def _judgement(self, wanted: NodeRequirements) -> Judged:
        able: list[str] = []
        unable: dict[str, Reason] = {}
        for node in self.members(wanted.pool_match):
            reason = wanted.why_not(node.name, self.facts[node.name])
            if reason is None:
                able.append(node.name)
            else:
                unable[node.name] = reason
        return tuple(able), unable

    def seat_loss_reason(self, asking: SeatCriteria, identity: str, now: int) -> Reason | None:
        """Return why a node that has a seat cannot keep it; None if it can."""
        node = self.by_identity.get(identity)
        if node is None:
            return node_forgotten()
        try:
            reason = self.requirements_of(asking).why_not(node.name, self.facts[node.name])
        except ParleyError as error:
            reason = error.reason
        if reason is not None:
            return reason.at(node.name)
        patience = self.pools[asking.pool].patience
        if node.unreachable_since is not None and now >= node.unreachable_since + patience:
            return silent_for_long(node.name, patience, node.unreachable_since)
        return None

    def silent_nodes(self, names: Iterable[str]) -> dict[str, Reason]:
        """Return those of these nodes that do not answer, each with the sentence that says so."""
        silences = {name: self.by_name[name].silence for name in names if name in self.by_name}
        return {name: silence for name, silence in silences.items() if silence is not None}

    def next_unreachable_at(self, now: int) -> int | None:
        """Return when the patience of a pool with a silent node ends next; None if never."""
        patiences = {pool.patience for pool in self.pools.values()}
        silent = [node.unreachable_since for node in self.nodes]
        ends = [since + it for since in silent if since is not None for it in patiences]
        return min((end for end in ends if end > now), default=None)

    def find_lack(self, asking: SeatCriteria) -> Reason | None:
        """Return why the pool has fewer nodes than suffice for a task; None if it has enough."""
        request = SeatRequest.model_validate(asking.request)
        try:
            able, unable = self.judgement_of(asking)
        except ParleyError as error:
            return error.reason
        least = request.suffices
        if not able and not unable:
            match = self.requirements_of(asking).pool_match.in_words()
            return pool_empty(asking.pool, match)
        facts = [self.facts[name] for name in able]
        possible = seats_possible(facts, request.spread)
        if possible >= least:
            return None
        alike = len(able) if possible < len(able) else 0
        return pool_lacks_nodes(
            asking.pool, possible, least, alike, dict(islice(unable.items(), _SHOWN))
        )


def _keep(kept: dict[str, _Value], key: str, value: _Value, most: int) -> None:
    if len(kept) >= most:
        kept.clear()
    kept[key] = value
