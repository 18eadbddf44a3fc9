"""The campaigns of the tasks led here: checks of their names, creation, editing, and removal.

Their names are cached in memory, like the directory of nodes, and read again when they change. So a
task is checked without a query, and a name that is not in the cache is looked up once more before
it is refused.

The database enforces what it can (``campaign`` in ``schema.sql``): unique names, depth, targets of
one kind. The checks here come first, to say which field is wrong and what to do; a change that two
users make at once is refused there. An edit is a patch, and its result is checked like a new
campaign, except that quotas and promises which it has already may stay.

A change wakes what it may help: tasks that waited for room in the campaign, and tasks of others if
it now has to give way to them. What is booked stays booked.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from typing import Any
from uuid import UUID

from pydantic import ValidationError

from node.model import limits, policysets, promises, times
from node.model.byte_quotas import BYTES
from node.model.changes import patched_document, require_revision
from node.model.errors import ChangedSince, Conflict, FieldFault, InvalidDocument, NotFound
from node.model.nodekinds import NodeKind
from node.model.promises import CampaignPromise, PoolSize
from node.model.similar import suggestion
from node.model.wire.campaigns import (
    DEFAULT,
    DEPTH_MAX,
    SUSPENDED,
    URGENT,
    CampaignDocument,
    CampaignPatch,
)
from node.model.wire.fields import FROM_OUTSIDE
from node.model.wire.validation import faults_of
from node.runtime.clock import Clock
from node.store import campaigns, notices, pools
from node.store.campaigns import CampaignSettings, CampaignUses, StoredCampaign
from node.store.database import Connection, Database
from node.store.nodes import KnownNode

PoolSizes = Callable[[Connection], Awaitable[Sequence[PoolSize]]]

_SHOWN = 8
_TARGET = ("seats", "share", "borrow", "lend")
_OTHERS_MAX = 200
"""Maximum number of tasks of other campaigns that an edit has planned at once.

The others are planned after their usual pauses."""
_URGENT = campaigns.URGENT


class Campaigns:
    """The campaigns of this node."""

    def __init__(
        self,
        database: Database,
        clock: Clock,
        resources: Collection[str],
        pool_sizes: PoolSizes,
        find_node: Callable[[str], KnownNode | None],
    ) -> None:
        """Know only the default campaign until :meth:`refresh`.

        ``resources`` are the counted resources that runs of some test may need,
        ``pool_sizes(connection)`` returns the sizes of all pools, ``find_node(word)`` the node that
        a name or a key stands for.
        """
        self._find_node = find_node
        self._pool_sizes = pool_sizes
        self._resources = resources
        self._database = database
        self._clock = clock
        self._states: Mapping[str, str] = {DEFAULT: "active"}

    async def refresh(self) -> None:
        """Read the names and states of all campaigns."""
        async with self._database.connection() as connection:
            self._states = await campaigns.states(connection)

    async def look_up(self, name: str | None) -> None:
        """Read all names again if this campaign is not known as active: it may be new."""
        if name is not None and self._states.get(name) != "active":
            await self.refresh()

    def check(self, name: str) -> None:
        """Check that a campaign exists and takes new tasks.

        :raises InvalidDocument: it does not; says what to do.
        """
        state = self._states.get(name)
        if state == "active":
            return
        if state is not None:
            msg = f"{name} is closed and takes no new tasks; open it again: parley campaign edit"
            raise InvalidDocument([FieldFault("/campaign", f"{msg} {name} --state active")])
        raise InvalidDocument([FieldFault("/campaign", unknown_campaign(name, self._states))])

    async def check_exists(self, name: str) -> None:
        """Check that there is a campaign of this name.

        :raises NotFound: there is none; names similar ones.
        """
        async with self._database.connection() as connection:
            if not await campaigns.exists(connection, name):
                raise NotFound(unknown_campaign(name, await campaigns.states(connection)))

    async def all(self) -> list[StoredCampaign]:
        """Return all campaigns, ordered by name."""
        async with self._database.connection() as connection:
            return await campaigns.find_all(connection)

    async def create(self, document: CampaignDocument) -> bool:
        """Create a campaign; return False if an equal one exists.

        :raises InvalidDocument: a field is wrong, by itself or together with other campaigns.
        :raises Conflict: a different campaign has the name.
        """
        new = self._with_leads(settings_of(document))
        async with self._database.transaction() as connection:
            there = await campaigns.find_all(connection)
            taken = _find_named(there, new.name)
            if taken is not None:
                if taken.settings == new:
                    return False
                raise Conflict(_name_taken(new.name))
            await self._check(connection, new, there)
            if not await campaigns.keep(connection, new, self._clock.now()):
                raise Conflict(_name_taken(new.name))
            await notices.notify(connection, "campaign", new.name, "added")
        await self.refresh()
        return True

    async def edit(self, name: str, patch: CampaignPatch) -> None:
        """Change a campaign; the result is checked like a new one.

        :raises NotFound: there is no campaign of that name.
        :raises InvalidDocument: a field is wrong, by itself or together with other campaigns.
        :raises Conflict: it has been changed since the revision that was read.
        """
        async with self._database.transaction() as connection:
            there = await campaigns.find_all(connection)
            known = _find_named(there, name)
            if known is None:
                raise NotFound(unknown_campaign(name, [each.settings.name for each in there]))
            require_revision(name, patch.revision, known.revision)
            now = self._clock.now()
            new = _with_beginning(settings_of(_patched_document(known.settings, patch)), known, now)
            new = self._with_leads(new, known.settings.leads)
            if new == known.settings:
                return
            await self._check(connection, new, there, known.settings)
            if not await campaigns.change(connection, new, now, known.revision):
                msg = f"{name} has been changed since it was read; read it again"
                raise ChangedSince(msg)
            if new.level != SUSPENDED and _deciding_settings(known.settings) != _deciding_settings(
                new
            ):
                await campaigns.plan_again(connection, name, now)
            if _yielding_settings(known.settings) != _yielding_settings(new):
                await campaigns.plan_others(connection, name, now, _OTHERS_MAX)
            if new.leads != known.settings.leads:
                await campaigns.forget_told(connection, name)
            if new.parent != known.settings.parent:
                await campaigns.notify_of_room(connection, known.settings.parent or name)
            await notices.notify(connection, "campaign", name, "changed")
        await self.refresh()

    def _with_leads(
        self, settings: CampaignSettings, had: Collection[str] = ()
    ) -> CampaignSettings:
        """Return the settings with the identities of the leads that share the campaign.

        Those that it ``had`` may stay, though they are not known here any more.

        :raises InvalidDocument: one is not known here, or is this node itself.
        """
        identities, faults = set[str](), []
        for place, word in enumerate(settings.leads):
            known = None if word in had else self._find_node(word)
            if word not in had and (fault := _lead_fault(word, known)) is not None:
                faults.append(FieldFault(f"/leads/{place}", fault))
            identities.add(word if known is None else known.identity)
        if faults:
            raise InvalidDocument(faults)
        return replace(settings, leads=sorted(identities))

    async def _check(
        self,
        connection: Connection,
        new: CampaignSettings,
        there: Sequence[StoredCampaign],
        known: CampaignSettings | None = None,
    ) -> None:
        """Check a campaign against the other campaigns, the pools, and the tests.

        The quotas and the promise of ``known``, which it has already, may stay.

        :raises InvalidDocument: something does not fit.
        """
        others = [each.settings for each in there if each.settings.name != new.name]
        sets = {pool.name: pool.policy_set for pool in await pools.find_all(connection)}
        quotas = () if known is None else known.quotas
        promise = promise_of(new)
        if promise is not None and (known is None or promise_of(known) != promise):
            promised = [promise, *filter(None, map(promise_of, others))]
            sizes = await self._pool_sizes(connection)
            excess = _excess_fault(promise, promises.promise_refusal(promise, promised, sizes))
        else:
            excess = None
        possible = (
            excess,
            _parent_fault(new, others),
            _weight_fault(new.weight, sets),
            _target_fault(new, others),
            _default_fault(new),
            *(_quota_fault(it, self._resources) for it in new.quotas if it not in quotas),
        )
        faults = [fault for fault in possible if fault is not None]
        if faults:
            raise InvalidDocument(faults)

    async def remove(self, name: str, revision: int | None = None) -> None:
        """Remove a campaign that nothing refers to; with ``revision``, only in this one.

        :raises NotFound: there is no campaign of that name.
        :raises Conflict: something refers to it, or it has another revision; says what to do.
        """
        async with self._database.transaction() as connection:
            uses = await campaigns.uses(connection, name, self._clock.now())
            if uses is None:
                raise NotFound(unknown_campaign(name, await campaigns.states(connection)))
            if (reason := _removal_refusal(name, uses)) is not None:
                raise Conflict(reason)
            removed = await campaigns.remove(connection, name)
            if removed is not None:
                require_revision(name, revision, removed)
            await notices.notify(connection, "campaign", name, "removed")
        await self.refresh()


def settings_of(document: CampaignDocument) -> CampaignSettings:
    """Return the settings to store for the campaign of a document."""
    target, fairshare, queue = document.target, document.fairshare, document.queue
    return CampaignSettings(
        name=document.name,
        parent=document.parent,
        weight=document.weight,
        level=_URGENT if document.level == URGENT else int(document.level),
        priority=document.priority,
        preemptor=document.preemptor,
        preemptee=document.preemptee,
        seats_max=document.seats_max,
        target_seats=None if target is None else target.seats,
        target_share=None if target is None else target.share,
        target_borrow=None if target is None else target.borrow,
        target_lend=None if target is None else target.lend,
        fairshare=None if fairshare is None else fairshare.model_dump(mode="json"),
        limits=limits.to_stored_limits(
            {word: vars(limit) for word, limit in document.limits.items()}
        ),
        quotas=dict(document.quotas),
        queue=None if queue is None else queue.model_dump(mode="json"),
        budget=None if document.budget is None else document.budget.model_dump(mode="json"),
        owner=document.owner,
        contact=document.contact,
        description=document.description,
        state=document.state,
        timed_weights=[each.model_dump(mode="json") for each in document.timed_weights],
        leads=list(document.leads),
    )


def document_of(settings: CampaignSettings) -> dict[str, Any]:
    """Return the document of a stored campaign; the inverse of :func:`settings_of`."""
    values = dict(vars(settings))
    target = {word: values.pop(f"target_{word}") for word in _TARGET}
    promised = {word: value for word, value in target.items() if value is not None} or None
    level = URGENT if settings.level == _URGENT else settings.level
    words = limits.to_worded_limits(settings.limits)
    return {**values, "level": level, "target": promised, "limits": words}


def _patched_document(known: CampaignSettings, patch: CampaignPatch) -> CampaignDocument:
    wanted = patch.changes()
    if wanted.get("name", known.name) != known.name:
        reason = "cannot be changed; add another campaign and give it the tasks"
        raise InvalidDocument([FieldFault("/name", reason)])
    before = CampaignDocument.model_validate(document_of(known)).model_dump(mode="json")
    kinds = {"seats": None, "share": None}
    if before["target"] and not kinds.keys().isdisjoint(wanted.get("target") or ()):
        before["target"] |= kinds  # one kind of promise takes the place of the other
    try:
        return CampaignDocument.model_validate(
            patched_document(before, wanted), context=FROM_OUTSIDE
        )
    except ValidationError as error:
        raise InvalidDocument(faults_of(error, CampaignDocument)) from None


def _with_beginning(new: CampaignSettings, known: StoredCampaign, now: int) -> CampaignSettings:
    """Return the settings with the beginning of a budget that is new: what was had before is free.

    The budget of a new campaign needs none: it begins with the campaign.
    """
    if new.budget is None or known.settings.budget is not None or new.budget["since"] is not None:
        return new
    since = times.format_instant(now - now % times.HOUR)
    return replace(new, budget={**new.budget, "since": since})


def _lead_fault(word: str, known: KnownNode | None) -> str | None:
    if known is None:
        return f"no node {word} is known here; add it first: parley node add"
    if known.is_self:
        return "is this node itself; name the other leads that share the campaign"
    if known.kind is not NodeKind.PARLEY:
        return f"{known.name} leads no campaigns: it runs {known.kind}"
    return None


def _parent_fault(new: CampaignSettings, others: Sequence[CampaignSettings]) -> FieldFault | None:
    parents = {each.name: each.parent for each in others}
    if new.parent is None:
        return None
    if new.parent != new.name and new.parent not in parents:
        return FieldFault("/parent", unknown_campaign(new.parent, parents))
    line = [new.name]
    at: str | None = new.parent
    while at is not None and at != new.name:
        line.append(at)
        at = parents[at]
    if at is not None:
        circle = " → ".join([*line, at])
        return FieldFault("/parent", f"would put it below itself: {circle}; choose another parent")
    depth = len(line) - 1 + _generations_below(new.name, parents)
    if depth > DEPTH_MAX:
        reason = f"would make {depth} generations, of at most {DEPTH_MAX}; choose one further up"
        return FieldFault("/parent", reason)
    return None


def _generations_below(name: str, parents: Mapping[str, str | None]) -> int:
    children = [child for child, parent in parents.items() if parent == name]
    return 1 + max((_generations_below(child, parents) for child in children), default=0)


def _weight_fault(weight: Decimal, sets: Mapping[str, str]) -> FieldFault | None:
    """Return why a weight is refused, None if it is not.

    A weight of 0 gives no share at all, except in the set long-term, where it means "only
    what no other campaign wants".
    """
    if weight > 0:
        return None
    kinds = {
        pool: policysets.SETS.get(name, policysets.PolicySetTraits()) for pool, name in sets.items()
    }
    dividing = [f"{pool} ({sets[pool]})" for pool, kind in kinds.items() if kind.divides]
    remedy = "give it a weight above 0, or suspend it with level 0"
    if dividing:
        divide = "divides" if len(dividing) == 1 else "divide"
        reason = f"0 is not a share: {', '.join(dividing)} {divide} by weight"
        return FieldFault("/weight", f"{reason}; {remedy}")
    if not any(kind.zero_weight for kind in kinds.values()):
        reason = "0 has a meaning only in pools with the policy set long-term, and there is none"
        return FieldFault("/weight", f"{reason}; {remedy}")
    return None


def weights_fault(pool: str, policy_set: str, there: Sequence[StoredCampaign]) -> str | None:
    """Return why a pool cannot share by these policies (a campaign has weight 0), or None."""
    kind = policysets.SETS.get(policy_set, policysets.PolicySetTraits())
    without = [each.settings.name for each in there if not each.settings.weight]
    if not kind.divides or not without:
        return None
    return (
        f"{policy_set} divides by weight, and {', '.join(without[:_SHOWN])} has weight 0; "
        f"give it one above 0 before {pool} shares so"
    )


def _target_fault(new: CampaignSettings, others: Sequence[CampaignSettings]) -> FieldFault | None:
    if new.target_seats is not None:
        field, mixed = "seats", [each.name for each in others if each.target_share is not None]
        one, many = "a share of each pool", "shares of each pool"
    elif new.target_share is not None:
        field, mixed = "share", [each.name for each in others if each.target_seats is not None]
        one, many = "a number of seats", "numbers of seats"
    else:
        return None
    if not mixed:
        return None
    clear = f"parley campaign edit {mixed[0]} --clear target"
    if len(mixed) == 1:
        promised, remedy = f"{mixed[0]} is promised {one}", f"remove that target: {clear}"
    else:
        promised, remedy = (
            f"{_in_one_sentence(mixed)} are promised {many}",
            f"remove those targets: {clear}, …",
        )
    reason = f"cannot stand beside promises of another kind: {promised}"
    return FieldFault(f"/target/{field}", f"{reason}; promise {one} here too, or {remedy}")


def promise_of(settings: CampaignSettings) -> CampaignPromise | None:
    """Return the promise of a campaign; None if it has none or is suspended."""
    share = None if settings.target_share is None else Fraction(settings.target_share)
    if settings.level == SUSPENDED or (settings.target_seats is None and share is None):
        return None
    return CampaignPromise(settings.name, settings.target_seats, share)


def _excess_fault(promise: CampaignPromise, why: str | None) -> FieldFault | None:
    kind = "share" if promise.seats is None else "seats"
    return None if why is None else FieldFault(f"/target/{kind}", why)


def _quota_fault(resource: str, resources: Collection[str]) -> FieldFault | None:
    """Return a fault for a quota that no test needs, as it would have no effect; None otherwise."""
    known = {*resources, BYTES}
    if resource in known:
        return None
    hint = suggestion(resource, sorted(known))
    reason = f"would limit nothing: no test needs {resource}; {hint}"
    return FieldFault(f"/quotas/{resource}", reason)


def _default_fault(new: CampaignSettings) -> FieldFault | None:
    if new.name != DEFAULT or new.state == "active":
        return None
    reason = (
        "tasks that name no campaign belong to this one, so it stays open; suspend it by level 0"
    )
    return FieldFault("/state", reason)


def _children_sentence(name: str, children: Sequence[str]) -> str:
    if len(children) == 1:
        return f"{children[0]} is below {name}; give it another parent first"
    return f"{_in_one_sentence(children)} are below {name}; give them another parent first"


def _in_one_sentence(names: Sequence[str]) -> str:
    """Join names for a sentence; after ``_SHOWN`` of them only count the others."""
    *some, last = names[:_SHOWN]
    more = len(names) - _SHOWN
    if more > 0:
        return f"{', '.join([*some, last])} and {more} more"
    return f"{', '.join(some)} and {last}"


def _reservations_sentence(name: str, reservations: Sequence[UUID]) -> str:
    first, *others = reservations
    some = f"{first} and {len(others)} more" if others else str(first)
    verb = "reservations" if others else "reservation"
    return (
        f"{name} is in /access/campaigns of {verb} {some}, which would admit whoever has the name "
        f"next; take it out first: parley reservation edit {first} --clear campaigns, "
        "or with --campaign for each that stays"
    )


def _removal_refusal(name: str, uses: CampaignUses) -> str | None:
    """Return why a campaign cannot be removed, and what to do; None if it can."""
    close = f"close it instead: parley campaign edit {name} --state closed"
    if name == DEFAULT:
        return f"{name} is always there: tasks that name no campaign belong to it"
    if uses.children:
        return _children_sentence(name, uses.children)
    if uses.admitted_by:
        return _reservations_sentence(name, uses.admitted_by)
    if uses.tasks:
        count = f"{uses.tasks} task{'' if uses.tasks == 1 else 's'}"
        return f"{count} of {name} are known here, ended ones among them; {close}"
    if uses.charged:
        return f"{name} was charged for runs, and the ledger is kept; {close}"
    return None


def _deciding_settings(settings: CampaignSettings) -> CampaignSettings:
    """Return the settings that decide what a campaign may have, without those for people."""
    return replace(settings, owner=None, contact=None, description=None, state="")


def _yielding_settings(settings: CampaignSettings) -> tuple[bool, int, int, bool]:
    """Return the settings that decide whether other campaigns have to give way to a campaign.

    One that is suspended wants no time, so that soft limits of others bind no longer.
    """
    suspended = settings.level == SUSPENDED
    return suspended, settings.level, settings.priority, settings.preemptee


def _find_named(there: Sequence[StoredCampaign], name: str) -> StoredCampaign | None:
    return next((each for each in there if each.settings.name == name), None)


def unknown_campaign(name: str, known: Mapping[str, Any] | Sequence[str]) -> str:
    """Say that there is no campaign of this name, which names are similar, and what to do."""
    return (
        f"there is no campaign {name} on this node (make it: parley campaign add {name}); "
        f"{suggestion(name, known)}"
    )


def _name_taken(name: str) -> str:
    return f"there is another campaign {name}; change it: parley campaign edit {name}"
