"""The pools that this node plans: named sets of nodes, selected by a predicate on attributes.

The members of a pool are never stored: they are the known nodes that meet its predicate now, so a
node whose attributes change joins or leaves by itself, and nothing has to be kept in step. Only its
settings are stored, with a revision, which an edit may name to be refused if it has changed since.

A pool without any member is refused when it is created, with the attributes that nodes have
instead, since that is hardly intended. Later it may become empty, as nodes can be removed. It is
removed only while no open task asks for its nodes. Settings that are allowed and yet hardly
intended (a promise that its campaigns cannot get, silent members) are warnings, not faults.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from pydantic import ValidationError

from node.model import predicates, promises, times
from node.model.changes import patched_document, require_revision
from node.model.errors import ChangedSince, Conflict, FieldFault, InvalidDocument, NotFound
from node.model.predicates import Attributes
from node.model.promises import PoolSize
from node.model.similar import suggestion
from node.model.wire.fields import FROM_OUTSIDE
from node.model.wire.pools import PolicyChoice, PoolDocument, PoolPatch
from node.model.wire.validation import faults_of
from node.peers.directory import Directory
from node.runtime.clock import Clock
from node.sharing.campaigns import promise_of, weights_fault
from node.store import campaigns, nodes, notices, pools
from node.store.database import Connection, Database
from node.store.nodes import KnownNode
from node.store.pools import PoolMisses, StoredPool

_NAMED = 5

JudgePolicy = Callable[[PolicyChoice], list[FieldFault]]
"""Returns what is wrong with the choice of a policy, by its fields. The lead knows the rules."""


@dataclass(frozen=True)
class PoolMembership:
    """The names of the nodes of a pool, and by name why the others do not belong to it."""

    nodes: tuple[str, ...]
    others: Mapping[str, str]


@dataclass(frozen=True)
class Warnings:
    """The warnings about campaigns and pools, by their names; by pool also the expected misses."""

    campaigns: Mapping[str, tuple[str, ...]]
    pools: Mapping[str, tuple[str, ...]]
    misses: Mapping[str, Sequence[PoolMisses]]


class Pools:
    """The pools of this node."""

    def __init__(
        self, database: Database, clock: Clock, directory: Directory, judge_policy: JudgePolicy
    ) -> None:
        """``directory`` has the nodes and their attributes."""
        self._judge_policy = judge_policy
        self._database = database
        self._clock = clock
        self._directory = directory

    async def all(self) -> list[StoredPool]:
        """Return all pools, ordered by name."""
        async with self._database.connection() as connection:
            return await pools.find_all(connection)

    async def find(self, name: str) -> StoredPool:
        """Return a pool by its name.

        :raises NotFound: there is no pool of that name.
        """
        return _require_named(await self.all(), name)

    def membership(self, match: Mapping[str, Any]) -> PoolMembership:
        """Return which nodes meet the predicate of a pool now, and why the others do not."""
        predicate = predicates.parse(match)
        members, others = [], {}
        for name, attributes in self._attributes_by_node().items():
            failures = predicate.faults(attributes)
            if failures:
                others[name] = "; ".join(f"{f.reason}, not {f.condition}" for f in failures)
            else:
                members.append(name)
        return PoolMembership(tuple(members), others)

    async def warnings(self) -> Warnings:
        """Return warnings about settings that are allowed but hardly intended, and about misses."""
        async with self._database.connection() as connection:
            there = await pools.find_all(connection)
            listed = await campaigns.find_all(connection)
            misses: dict[str, list[PoolMisses]] = {pool.name: [] for pool in there}
            for missed in await pools.expected_misses(connection, self._clock.now()):
                misses.setdefault(missed.pool, []).append(missed)
        sized = self._sizes_of(there)
        promised = [it for it in (promise_of(each.settings) for each in listed) if it is not None]
        return Warnings(
            {own.campaign: promises.campaign_warnings(own, promised, sized) for own in promised},
            {
                pool.name: (
                    *promises.pool_warnings(size, promised),
                    *([pool.unseen] if pool.unseen else ()),
                    *self._silent_members(pool.match),
                    *map(_misses_sentence, misses[pool.name]),
                )
                for pool, size in zip(there, sized, strict=True)
            },
            misses,
        )

    async def sizes(self, connection: Connection) -> list[PoolSize]:
        """Return the sizes of all pools, by name."""
        return self._sizes_of(await pools.find_all(connection))

    def _sizes_of(self, listed: Sequence[StoredPool]) -> list[PoolSize]:
        return [
            PoolSize(
                pool.name,
                len(self.membership(pool.match).nodes),
                promises.keeps_promises(pool.policy_set, pool.overrides),
                promises.short_term(pool.choice, pool.term),
            )
            for pool in listed
        ]

    def _silent_members(self, match: Mapping[str, Any]) -> list[str]:
        """List the nodes of a pool that do not answer."""
        members = self.membership(match).nodes
        silences = ((node.name, node.silence) for node in self._directory.all)
        return [f"{name} {silence}" for name, silence in silences if silence and name in members]

    async def pardon(self, name: str) -> KnownNode:
        """Forget the failed runs and the refusals that policies hold against a node.

        :raises NotFound: no node of that name is known here.
        """
        known = self._directory.find(name)
        if known is None:
            msg = f"no node named {name} is known here"
            raise NotFound(msg)
        async with self._database.transaction() as connection:
            await nodes.forget_refusals(connection, known.name, self._clock.now())
            await notices.notify(connection, "node", known.name, "pardoned")
        return known

    async def create(self, document: PoolDocument) -> bool:
        """Create a pool; return False if an equal one exists.

        :raises InvalidDocument: a field is wrong, or no known node belongs to it.
        :raises Conflict: a different pool has the name.
        """
        new = stored_pool(document)
        async with self._database.transaction() as connection:
            there = await pools.find_all(connection)
            taken = next((pool for pool in there if pool.name == new.name), None)
            if taken is not None:
                if _settings(taken) == _settings(new):
                    return False
                raise Conflict(_name_taken(new.name))
            await self._check(connection, document)
            if not await pools.keep(connection, new, self._clock.now()):
                raise Conflict(_name_taken(new.name))
            await notices.notify(connection, "pool", new.name, "added")
        return True

    async def edit(self, name: str, patch: PoolPatch) -> None:
        """Change a pool; the result is checked like a new one.

        :raises NotFound: there is no pool of that name.
        :raises InvalidDocument: a field is wrong, or no known node belongs to it.
        :raises Conflict: it has been changed since the revision that was read.
        """
        async with self._database.transaction() as connection:
            known = _require_named(await pools.find_all(connection), name)
            require_revision(name, patch.revision, known.revision)
            document = _patched_document(known, patch)
            new = stored_pool(document)
            if _settings(new) == _settings(known):
                return
            await self._check(connection, document, anew=document.match != known.match)
            if not await pools.change(connection, new, self._clock.now(), known.revision):
                msg = f"{name} has been changed since it was read; read it again"
                raise ChangedSince(msg)
            await notices.notify(connection, "pool", name, "changed")

    async def check_policy(self, name: str, policy: PolicyChoice) -> StoredPool:
        """Check that a pool could have these policies, and return it as it is.

        :raises NotFound: there is no pool of that name.
        :raises InvalidDocument: a field is wrong, or a campaign has no weight that they could use.
        """
        async with self._database.connection() as connection:
            known = _require_named(await pools.find_all(connection), name)
            there = await campaigns.find_all(connection)
        faults = self._judge_policy(policy)
        weightless = weights_fault(name, policy.set, there)
        if weightless is not None:
            faults.append(FieldFault("/policy/set", weightless))
        if faults:
            raise InvalidDocument(faults)
        return known

    async def remove(self, name: str, revision: int | None = None) -> None:
        """Remove a pool; with ``revision``, only in this one.

        :raises NotFound: there is no pool of that name.
        :raises Conflict: tasks that have not ended use it, which are named; or it has another
            revision.
        """
        async with self._database.transaction() as connection:
            asking, count = await pools.tasks_asking(connection, name, _NAMED)
            if asking:
                raise Conflict(_removal_refusal(name, asking, count))
            removed = await pools.remove(connection, name)
            if removed is None:
                _require_named(await pools.find_all(connection), name)
            else:
                require_revision(name, revision, removed)
            await notices.notify(connection, "pool", name, "removed")

    def _attributes_by_node(self) -> dict[str, Attributes]:
        return {known.name: known.facts for known in self._directory.nodes_of_parley}

    async def _check(
        self, connection: Connection, document: PoolDocument, *, anew: bool = True
    ) -> None:
        """Check a document; with ``anew`` also that the pool is not empty.

        An existing pool may have become empty, since nodes can be removed.

        :raises InvalidDocument: a field is wrong.
        """
        policy = document.policy
        unfit = self._judge_policy(policy)
        nobody = self._empty_pool_fault(document) if anew else None
        possible = (self._lead_fault(document), *unfit, nobody)
        faults = [fault for fault in possible if fault is not None]
        if faults:
            raise InvalidDocument(faults)
        there = await campaigns.find_all(connection)
        weightless = weights_fault(document.name, policy.set, there)
        if weightless is not None:
            raise InvalidDocument([FieldFault("/policy/set", weightless)])

    def _lead_fault(self, document: PoolDocument) -> FieldFault | None:
        own = self._directory.self.name
        if document.lead in (None, own):
            return None
        msg = f"this is {own}, and a pool is made at the node that plans it; ask {document.lead}"
        return FieldFault("/lead", msg)

    def _empty_pool_fault(self, document: PoolDocument) -> FieldFault | None:
        predicate = predicates.parse(document.match, "/match")
        known = self._attributes_by_node()
        if any(predicate.met_by(attributes) for attributes in known.values()):
            return None
        return predicates.explain_no_match(predicate, known, "/match")


def _misses_sentence(missed: PoolMisses) -> str:
    runs = "1 run" if missed.runs == 1 else f"{missed.runs} runs"
    first = times.to_the_second(missed.first_at)
    at = f"at {first}" if missed.runs == 1 else f"the first at {first}"
    return f"{runs} of {missed.campaign} will miss the latest start, {at}, as things are"


def stored_pool(document: PoolDocument) -> StoredPool:
    """Return the stored form of a pool."""
    return StoredPool(
        name=document.name,
        match=document.match,
        policy_set=document.policy.set,
        overrides={str(axis): dict(wanted) for axis, wanted in document.policy.overrides.items()},
        choice=document.choice,
        term=document.term,
        patience=document.patience,
        description=document.description,
        options=dict(document.policy.options),
    )


def document_of(pool: StoredPool) -> dict[str, Any]:
    """Return the document of a stored pool; the inverse of :func:`stored_pool`."""
    return {
        "name": pool.name,
        "match": pool.match,
        "policy": {
            "set": pool.policy_set,
            "options": pool.options,
            "overrides": pool.overrides,
        },
        "choice": pool.choice,
        "term": times.format_duration(pool.term),
        "patience": times.format_duration(pool.patience),
        "description": pool.description,
    }


def _settings(pool: StoredPool) -> dict[str, Any]:
    return document_of(pool)


def _patched_document(known: StoredPool, patch: PoolPatch) -> PoolDocument:
    wanted = patch.changes()
    if wanted.get("name", known.name) != known.name:
        reason = "cannot be changed; add another pool and remove this one"
        raise InvalidDocument([FieldFault("/name", reason)])
    before = document_of(known)
    if wanted.get("match") is not None:
        before["match"] = {}
    if (wanted.get("policy") or {}).get("set") is not None:
        before["policy"]["options"] = {}
    try:
        return PoolDocument.model_validate(patched_document(before, wanted), context=FROM_OUTSIDE)
    except ValidationError as error:
        raise InvalidDocument(faults_of(error, PoolDocument)) from None


_NO_POOL = "there is none yet; make one: parley pool add"


def _require_named(there: list[StoredPool], name: str) -> StoredPool:
    match = next((pool for pool in there if pool.name == name), None)
    if match is None:
        hint = suggestion(name, (pool.name for pool in there)) if there else _NO_POOL
        msg = f"there is no pool {name} on this node; {hint}"
        raise NotFound(msg)
    return match


def _removal_refusal(name: str, asking: Sequence[UUID], count: int) -> str:
    """Return which tasks prevent the removal of a pool, and what to do."""
    named = ", ".join(str(task) for task in asking)
    more = f" and {count - len(asking)} more" if count > len(asking) else ""
    which = (
        f"1 task wants nodes of {name}: " if count == 1 else f"{count} tasks want nodes of {name}: "
    )
    return f"{which}{named}{more}; end what is not wanted first: parley task cancel {asking[0]}"


def _name_taken(name: str) -> str:
    return f"there is another pool {name}; change it: parley pool edit {name}"
