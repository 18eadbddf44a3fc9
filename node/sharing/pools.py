"""The pools that this node plans: named sets of nodes, told apart by what the nodes say of them.

Who belongs to a pool is never kept: it is whoever meets its predicate now, among the nodes known
here. A pool that nobody meets is refused when it is made, with what there is instead.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any
from uuid import UUID

from pydantic import ValidationError

from node.clock import Clock
from node.model import predicates, promises, times
from node.model.changes import merged
from node.model.errors import Conflict, FieldFault, InvalidDocument, NotFound
from node.model.predicates import Attributes
from node.model.promises import CampaignPromise, PoolSize
from node.model.wire.campaigns import SUSPENDED
from node.model.wire.fields import FROM_OUTSIDE
from node.model.wire.pools import PolicyChoice, PoolDocument, PoolPatch
from node.model.wire.validation import faults_of
from node.peers.directory import Directory
from node.sharing.campaigns import weights_fault
from node.store import campaigns, pools
from node.store.campaigns import StoredCampaign
from node.store.database import Connection, Database
from node.store.pools import StoredPool

_NAMED = 5

JudgePolicy = Callable[[PolicyChoice], list[FieldFault]]
"""Returns what is wrong with the choice of a policy, by its fields. The lead knows the rules."""


@dataclass(frozen=True)
class PoolMembership:
    """Who belongs to a pool, by name, and why the others do not."""

    nodes: tuple[str, ...]
    others: Mapping[str, str]


@dataclass(frozen=True)
class Warnings:
    """By name of campaigns and of pools, what is to be told of them; nothing of most."""

    campaigns: Mapping[str, tuple[str, ...]]
    pools: Mapping[str, tuple[str, ...]]


class Pools:
    """The pools of this node."""

    def __init__(
        self, database: Database, clock: Clock, directory: Directory, judge_policy: JudgePolicy
    ) -> None:
        """Take the nodes and their attributes from ``directory``."""
        self._judge_policy = judge_policy
        self._database = database
        self._clock = clock
        self._directory = directory

    async def all(self) -> list[StoredPool]:
        """Every pool, by name."""
        async with self._database.connection() as connection:
            return await pools.listed(connection)

    async def one(self, name: str) -> StoredPool:
        """One pool.

        :raises NotFound: there is none of that name.
        """
        return _named(await self.all(), name)

    def membership(self, match: Mapping[str, Any]) -> PoolMembership:
        """Who meets the predicate of a pool now."""
        predicate = predicates.parse(match)
        nodes, others = [], {}
        for name, attributes in self._facts().items():
            failures = predicate.faults(attributes)
            if failures:
                others[name] = "; ".join(f"{f.reason}, not {f.condition}" for f in failures)
            else:
                nodes.append(name)
        return PoolMembership(tuple(nodes), others)

    async def warnings(self) -> Warnings:
        """What is allowed as it stands, and yet hardly meant."""
        async with self._database.connection() as connection:
            there = await pools.listed(connection)
            listed = await campaigns.listed(connection)
        sized = [
            PoolSize(
                pool.name,
                len(self.membership(pool.match).nodes),
                promises.keeps_promises(pool.policy_set, pool.overrides),
                promises.short_term(pool.choice, pool.term),
            )
            for pool in there
        ]
        promised = [each for each in map(_promised, listed) if each is not None]
        return Warnings(
            {own.campaign: promises.campaign_warnings(own, promised, sized) for own in promised},
            {
                pool.name: (
                    *promises.pool_warnings(size, promised),
                    *([pool.unseen] if pool.unseen else ()),
                    *self._silent(pool.match),
                )
                for pool, size in zip(there, sized, strict=True)
            },
        )

    def _silent(self, match: Mapping[str, Any]) -> list[str]:
        """Of the nodes that belong to a pool, those that do not answer."""
        there = self.membership(match).nodes
        named = ((known.name, known.silence) for known in self._directory.all)
        return [f"{name} {said}" for name, said in named if said and name in there]

    async def create(self, document: PoolDocument) -> bool:
        """Make a pool; False if the very same one was made before.

        :raises InvalidDocument: a field is wrong, or no node known here belongs to it.
        :raises Conflict: the name is taken by another one.
        """
        new = stored_pool(document)
        async with self._database.transaction() as connection:
            there = await pools.listed(connection)
            taken = next((pool for pool in there if pool.name == new.name), None)
            if taken is not None:
                if _settings(taken) == _settings(new):
                    return False
                raise Conflict(_taken(new.name))
            await self._check(connection, document)
            if not await pools.keep(connection, new, self._clock.now()):
                raise Conflict(_taken(new.name))
            await pools.notify(connection, new.name, "added")
        return True

    async def edit(self, name: str, patch: PoolPatch) -> None:
        """Change a pool; it is checked like a new one.

        :raises NotFound: there is none of that name.
        :raises InvalidDocument: a field is wrong, or no node known here belongs to it.
        :raises Conflict: it has been changed since the revision that was read.
        """
        async with self._database.transaction() as connection:
            known = _named(await pools.listed(connection), name)
            if patch.revision not in (None, known.revision):
                raise Conflict(_changed(name, patch.revision))
            document = _edited(known, patch)
            new = stored_pool(document)
            if _settings(new) == _settings(known):
                return
            await self._check(connection, document, anew=document.match != known.match)
            if not await pools.change(connection, new, self._clock.now(), known.revision):
                raise Conflict(_changed(name, known.revision))
            await pools.notify(connection, name, "changed")

    async def remove(self, name: str) -> None:
        """Forget a pool.

        :raises NotFound: there is none of that name.
        :raises Conflict: tasks ask for nodes of it that are not over; names them.
        """
        async with self._database.transaction() as connection:
            asking, count = await pools.asking(connection, name, _NAMED)
            if asking:
                raise Conflict(_why_kept(name, asking, count))
            if not await pools.remove(connection, name):
                _named(await pools.listed(connection), name)
            await pools.notify(connection, name, "removed")

    def _facts(self) -> dict[str, Attributes]:
        return {known.name: known.facts for known in self._directory.all}

    async def _check(
        self, connection: Connection, document: PoolDocument, *, anew: bool = True
    ) -> None:
        """``anew``: who belongs to it is said anew; nodes may have gone from one that is there."""
        policy = document.policy
        unfit = self._judge_policy(policy)
        nobody = self._nobody(document) if anew else None
        found = (self._lead_fault(document), *unfit, nobody)
        faults = [fault for fault in found if fault is not None]
        if faults:
            raise InvalidDocument(faults)
        there = await campaigns.listed(connection)
        weightless = weights_fault(document.name, policy.set, there)
        if weightless is not None:
            raise InvalidDocument([FieldFault("/policy/set", weightless)])

    def _lead_fault(self, document: PoolDocument) -> FieldFault | None:
        own = self._directory.self.name
        if document.lead in (None, own):
            return None
        said = f"this is {own}, and a pool is made at the node that plans it; ask {document.lead}"
        return FieldFault("/lead", said)

    def _nobody(self, document: PoolDocument) -> FieldFault | None:
        predicate = predicates.parse(document.match, "/match")
        known = self._facts()
        if any(predicate.met_by(attributes) for attributes in known.values()):
            return None
        return predicates.explain_no_match(predicate, known, "/match")


def stored_pool(document: PoolDocument) -> StoredPool:
    """A pool as it is kept."""
    return StoredPool(
        name=document.name,
        match=document.match,
        policy_set=document.policy.set,
        overrides={str(axis): dict(wanted) for axis, wanted in document.policy.overrides.items()},
        choice=document.choice,
        term=document.term,
        patience=document.patience,
        description=document.description,
    )


def document_of(pool: StoredPool) -> dict[str, Any]:
    """A pool as it would be posted; the inverse of :func:`stored_pool`."""
    return {
        "name": pool.name,
        "match": pool.match,
        "policy": {"set": pool.policy_set, "overrides": pool.overrides},
        "choice": pool.choice,
        "term": times.format_duration(pool.term),
        "patience": times.format_duration(pool.patience),
        "description": pool.description,
    }


def _promised(campaign: StoredCampaign) -> CampaignPromise | None:
    """What a campaign is promised, unless it is suspended."""
    own = campaign.settings
    share = None if own.target_share is None else Fraction(own.target_share)
    if own.level == SUSPENDED or (own.target_seats is None and share is None):
        return None
    return CampaignPromise(own.name, own.target_seats, share)


def _settings(pool: StoredPool) -> dict[str, Any]:
    return document_of(pool)


def _edited(known: StoredPool, patch: PoolPatch) -> PoolDocument:
    wanted = patch.changes()
    if wanted.get("name", known.name) != known.name:
        said = "cannot be changed; add another pool and remove this one"
        raise InvalidDocument([FieldFault("/name", said)])
    before = document_of(known)
    if wanted.get("match") is not None:
        before["match"] = {}
    try:
        return PoolDocument.model_validate(merged(before, wanted), context=FROM_OUTSIDE)
    except ValidationError as error:
        raise InvalidDocument(faults_of(error, PoolDocument)) from None


def _named(there: list[StoredPool], name: str) -> StoredPool:
    found = next((pool for pool in there if pool.name == name), None)
    if found is None:
        known = ", ".join(pool.name for pool in there) or "none yet; make one: parley pool add"
        msg = f"there is no pool {name} on this node; there are: {known}"
        raise NotFound(msg)
    return found


def _why_kept(name: str, asking: Sequence[UUID], count: int) -> str:
    """Who keeps a pool from being removed, and what to do about it."""
    named = ", ".join(str(task) for task in asking)
    more = f" and {count - len(asking)} more" if count > len(asking) else ""
    which = (
        f"1 task wants nodes of {name}: " if count == 1 else f"{count} tasks want nodes of {name}: "
    )
    return f"{which}{named}{more}; end what is not wanted first: parley task cancel {asking[0]}"


def _taken(name: str) -> str:
    return f"there is another pool {name}; change it: parley pool edit {name}"


def _changed(name: str, read: int | None) -> str:
    return f"{name} has been changed since revision {read} was read; read it again"
