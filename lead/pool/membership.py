"""Who could have the seats of pool tasks: the pools, and the nodes with what is known of them."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Protocol, TypeVar

from lead.planning.node_views import NodeDescription
from node.model.errors import ParleyError
from node.model.predicates import Attributes, Predicate
from node.model.terms import NodeRequirements, seats_possible
from node.model.times import format_duration, to_the_second
from node.model.wire.seats import SeatRequest
from node.store.pools import StoredPool

_SHOWN = 5
_WANTED_MAX = 10_000
_JUDGED_MAX = 500
_Value = TypeVar("_Value")


class MemberCandidate(NodeDescription, Protocol):
    """A node that this one knows, or this one itself."""

    @property
    def identity(self) -> str:
        """Its key."""

    @property
    def url(self) -> str | None:
        """Where it is reached."""

    @property
    def address(self) -> str:
        """Where it is measured."""

    @property
    def silence(self) -> str | None:
        """That it does not answer, since when and why; None if it does."""


class SeatCriteria(Protocol):
    """A task as far as it says who could have its seats."""

    @property
    def test(self) -> str:
        """What is measured."""

    @property
    def spec(self) -> dict[str, Any]:
        """Its fields."""

    @property
    def tools(self) -> Collection[str]:
        """The tools it may use; none is any."""

    @property
    def pool(self) -> str:
        """The pool it asks."""

    @property
    def request(self) -> dict[str, Any]:
        """What it asks of it."""


KnownNodes = Callable[[], Awaitable[Sequence[MemberCandidate]]]
WantedOf = Callable[
    [str, dict[str, Any], Collection[str], SeatRequest, Mapping[str, Any]], NodeRequirements
]
"""``wanted(test, spec, tools, request, pool_match)``: what a node must be to have a seat."""

NeedsOf = Callable[[str, dict[str, Any]], Mapping[str, int | None]]
"""``needs(test, spec)``: what its runs take of counted resources; None is all that a node has."""


Judged = tuple[tuple[str, ...], Mapping[str, str]]
"""Who of a pool could have a seat, by name, and why the others could not."""


@dataclass(frozen=True)
class _Verdicts:
    """What was found out: what equal requests want, and who is able to do what alike ones want."""

    wanted: dict[str, tuple[str, NodeRequirements]] = field(default_factory=dict)
    judged: dict[str, Judged] = field(default_factory=dict)


@dataclass(frozen=True)
class Membership:
    """The pools and nodes of one moment; equal requests are judged once."""

    pools: Mapping[str, StoredPool]
    nodes: Sequence[MemberCandidate]
    wanted_of: WantedOf
    _verdicts: _Verdicts = field(default_factory=_Verdicts, repr=False, compare=False)

    def later(
        self, pools: Mapping[str, StoredPool], nodes: Sequence[MemberCandidate]
    ) -> Membership:
        """Those of a later moment; as long as they are what they were, so are the verdicts."""
        now = Membership(pools, nodes, self.wanted_of)
        return replace(now, _verdicts=self._verdicts) if now.said == self.said else now

    @cached_property
    def said(self) -> str:
        """All that verdicts go by. As text: 1 and true are equal, but not the same."""
        matches = [(pool.name, pool.match) for pool in self.pools.values()]
        nodes = [
            (it.identity, it.name, it.url, it.address, self.facts[it.name]) for it in self.nodes
        ]
        return repr((matches, nodes))

    @cached_property
    def by_identity(self) -> dict[str, MemberCandidate]:
        """The nodes by their keys."""
        return {node.identity: node for node in self.nodes}

    @cached_property
    def by_name(self) -> dict[str, MemberCandidate]:
        """The nodes by their names."""
        return {node.name: node for node in self.nodes}

    @cached_property
    def facts(self) -> dict[str, Attributes]:
        """By name, what predicates may ask of each node."""
        return {node.name: node.facts for node in self.nodes}

    @cached_property
    def names(self) -> dict[str, str]:
        """By key, what each node is called."""
        return {node.identity: node.name for node in self.nodes}

    def wanted(self, asking: SeatCriteria) -> NodeRequirements:
        """What a node must be to have a seat of this task.

        :raises ParleyError: its test is not known here (any more), or has other fields.
        """
        return self._wanted(asking)[1]

    def _wanted(self, asking: SeatCriteria) -> tuple[str, NodeRequirements]:
        """What is wanted of nodes that take no part in it yet, as text; and all that is wanted."""
        tools = sorted(asking.tools)
        said = json.dumps([asking.test, asking.spec, tools, asking.pool, asking.request])
        found = self._verdicts.wanted.get(said)
        if found is None:
            request = SeatRequest.model_validate(asking.request)
            match = self.pools[asking.pool].match
            wanted = self.wanted_of(asking.test, asking.spec, asking.tools, request, match)
            found = repr(replace(wanted, taking_part=frozenset())), wanted
            _keep(self._verdicts.wanted, said, found, _WANTED_MAX)
        return found

    def members(self, match: Predicate) -> list[MemberCandidate]:
        """Who belongs to a pool with this predicate."""
        return [node for node in self.nodes if match.met_by(self.facts[node.name])]

    def judged(self, asking: SeatCriteria) -> Judged:
        """Who of the pool could have a seat, by name, and why the others could not.

        Those who ask for the same nodes get the very same sequence.

        :raises ParleyError: as of :meth:`wanted`.
        """
        alike, wanted = self._wanted(asking)
        found = self._verdicts.judged.get(alike)
        if found is None:
            found = self._judge(replace(wanted, taking_part=frozenset()))
            _keep(self._verdicts.judged, alike, found, _JUDGED_MAX)
        able, unable = found
        taking_part = [n for n in sorted(wanted.taking_part) if n in able or n in unable]
        if not taking_part:
            return found
        said = {name: wanted.why_not(name, self.facts[name]) or "" for name in taking_part}
        return tuple(name for name in able if name not in said), {**unable, **said}

    def _judge(self, wanted: NodeRequirements) -> Judged:
        able: list[str] = []
        unable: dict[str, str] = {}
        for node in self.members(wanted.pool_match):
            reason = wanted.why_not(node.name, self.facts[node.name])
            if reason is None:
                able.append(node.name)
            else:
                unable[node.name] = reason
        return tuple(able), unable

    def seat_loss_reason(self, asking: SeatCriteria, identity: str, now: int) -> str | None:
        """Why a node that has a seat cannot keep it; None if it can."""
        node = self.by_identity.get(identity)
        if node is None:
            return "it is not known here any more"
        try:
            reason = self.wanted(asking).why_not(node.name, self.facts[node.name])
        except ParleyError as error:
            reason = error.detail
        if reason is not None:
            return f"{node.name}: {reason}"
        patience = self.pools[asking.pool].patience
        if node.unreachable_since is not None and now >= node.unreachable_since + patience:
            since = to_the_second(node.unreachable_since)
            return f"{node.name} has not answered for {format_duration(patience)}, since {since}"
        return None

    def silent(self, names: Iterable[str]) -> dict[str, str]:
        """Those of these nodes that do not answer, and what is known of that."""
        said = {name: self.by_name[name].silence for name in names if name in self.by_name}
        return {name: silence for name, silence in said.items() if silence is not None}

    def next_unreachable_at(self, now: int) -> int | None:
        """When the next node that does not answer will be waited for no longer."""
        patiences = {pool.patience for pool in self.pools.values()}
        silent = [node.unreachable_since for node in self.nodes]
        ends = [since + it for since in silent if since is not None for it in patiences]
        return min((end for end in ends if end > now), default=None)

    def lack(self, asking: SeatCriteria) -> str | None:
        """Why not even as many seats can be given as suffice; None if they can."""
        request = SeatRequest.model_validate(asking.request)
        try:
            able, unable = self.judged(asking)
        except ParleyError as error:
            return error.detail
        least = request.suffices
        if not able and not unable:
            match = self.wanted(asking).pool_match.in_words()
            return f"pool {asking.pool} is empty: no node known here has {match}"
        facts = [self.facts[name] for name in able]
        possible = seats_possible(facts, request.spread)
        if possible >= least:
            return None
        said = f"pool {asking.pool} has {_nodes(possible)} for it, and {least} are wanted at least"
        why = [f"{name}: {reason}" for name, reason in list(unable.items())[:_SHOWN]]
        if possible < len(able):
            why.insert(0, f"{len(able)} are too much alike")
        return f"{said} ({'; '.join(why)})" if why else said


def _keep(kept: dict[str, _Value], key: str, value: _Value, most: int) -> None:
    if len(kept) >= most:
        kept.clear()
    kept[key] = value


def _nodes(count: int) -> str:
    return f"{count} node{'' if count == 1 else 's'}"
