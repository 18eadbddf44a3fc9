"""Who could have the seats of pool tasks: the pools, and the nodes with what is known of them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

from node.model.errors import ParleyError
from node.model.predicates import Attributes, Predicate
from node.model.seating import Wanted, seats_possible
from node.model.times import format_duration, to_the_second
from node.model.wire.seats import SeatRequest
from node.store.pools import StoredPool

_SHOWN = 5


class Known(Protocol):
    """A node that this one knows, or this one itself."""

    @property
    def identity(self) -> str:
        """Its key."""

    @property
    def name(self) -> str:
        """What it is called."""

    @property
    def lanes(self) -> int:
        """So many normal runs side by side count like an exclusive one."""

    @property
    def unreachable_since(self) -> int | None:
        """Since when it does not answer, if it does not."""

    @property
    def facts(self) -> Attributes:
        """What predicates may ask of it."""


class Asking(Protocol):
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


KnownNodes = Callable[[], Awaitable[Sequence[Known]]]
WantedOf = Callable[[str, dict[str, Any], Collection[str], SeatRequest, Mapping[str, Any]], Wanted]
"""``wanted(test, spec, tools, request, pool_match)``: what a node must be to have a seat."""


@dataclass(frozen=True)
class Membership:
    """The pools and nodes of one moment."""

    pools: Mapping[str, StoredPool]
    nodes: Sequence[Known]
    wanted_of: WantedOf

    @cached_property
    def by_identity(self) -> dict[str, Known]:
        """The nodes by their keys."""
        return {node.identity: node for node in self.nodes}

    @cached_property
    def by_name(self) -> dict[str, Known]:
        """The nodes by their names."""
        return {node.name: node for node in self.nodes}

    @cached_property
    def names(self) -> dict[str, str]:
        """By key, what each node is called."""
        return {node.identity: node.name for node in self.nodes}

    def wanted(self, asking: Asking) -> Wanted:
        """What a node must be to have a seat of this task.

        :raises ParleyError: its test is not known here (any more), or has other fields.
        """
        request = SeatRequest.model_validate(asking.request)
        match = self.pools[asking.pool].match
        return self.wanted_of(asking.test, asking.spec, asking.tools, request, match)

    def members(self, match: Predicate) -> list[Known]:
        """Who belongs to a pool with this predicate."""
        return [node for node in self.nodes if match.met_by(node.facts)]

    def judged(self, asking: Asking) -> tuple[list[str], dict[str, str]]:
        """Who of the pool could have a seat, by name, and why the others could not.

        :raises ParleyError: as of :meth:`wanted`.
        """
        wanted = self.wanted(asking)
        able: list[str] = []
        unable: dict[str, str] = {}
        for node in self.members(wanted.pool_match):
            reason = wanted.why_not(node.name, node.facts)
            if reason is None:
                able.append(node.name)
            else:
                unable[node.name] = reason
        return able, unable

    def why_gone(self, asking: Asking, identity: str, now: int) -> str | None:
        """Why a node that has a seat cannot keep it; None if it can."""
        node = self.by_identity.get(identity)
        if node is None:
            return "it is not known here any more"
        try:
            reason = self.wanted(asking).why_not(node.name, node.facts)
        except ParleyError as error:
            reason = error.detail
        if reason is not None:
            return f"{node.name}: {reason}"
        patience = self.pools[asking.pool].patience
        if node.unreachable_since is not None and now >= node.unreachable_since + patience:
            since = to_the_second(node.unreachable_since)
            return f"{node.name} has not answered for {format_duration(patience)}, since {since}"
        return None

    def gone_at(self, now: int) -> int | None:
        """When the next node that does not answer will be waited for no longer."""
        patiences = {pool.patience for pool in self.pools.values()}
        silent = [node.unreachable_since for node in self.nodes]
        ends = [since + it for since in silent if since is not None for it in patiences]
        return min((end for end in ends if end > now), default=None)

    def lack(self, asking: Asking) -> str | None:
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
        facts = [self.by_name[name].facts for name in able]
        possible = seats_possible(facts, request.spread)
        if possible >= least:
            return None
        said = f"pool {asking.pool} has {_nodes(possible)} for it, and {least} are wanted at least"
        why = [f"{name}: {reason}" for name, reason in list(unable.items())[:_SHOWN]]
        if possible < len(able):
            why.insert(0, f"{len(able)} are too much alike")
        return f"{said} ({'; '.join(why)})" if why else said


def _nodes(count: int) -> str:
    return f"{count} node{'' if count == 1 else 's'}"
