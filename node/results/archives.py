"""Archives: the node's own, those of tasks, and what waits to be delivered to them.

Every fault that can be known is reported when an archive is created: an unknown archiver, a wrong
field, a place that the host's owner does not allow, a transform that does not compile.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

import orjson
from pydantic import ValidationError

from node.model import secrets
from node.model.changes import patched_document, require_revision
from node.model.errors import (
    ArchiverFailed,
    Conflict,
    FieldFault,
    HostError,
    InvalidDocument,
    NotFound,
)
from node.model.similar import suggestion
from node.model.wire.archives import (
    FORM,
    Archive,
    ArchiveChoice,
    ArchiveDocument,
    ArchivePatch,
    ArchiveTested,
    Retried,
    RetryRequest,
)
from node.model.wire.fields import FROM_OUTSIDE
from node.model.wire.validation import faults_of
from node.plugins.contracts import ArchivingHost
from node.results.archivers import archivers, missing_requirement
from node.results.sealing import opened_spec, readable_spec, sealed_spec
from node.runtime.clock import Clock
from node.store import archives, notices
from node.store.archives import DeliveryFilter, KeptArchive, StoredDestination
from node.store.database import Connection, Database
from node.trust.sealing import SealingKey

FaultOf = Callable[[Mapping[str, Any]], Awaitable[str | None]]
"""Returns why a transform cannot be used; None if it can."""


@dataclass(frozen=True)
class ArchivesEdit:
    """A task's archives after an edit, checked; and before and after without secrets."""

    choices: tuple[ArchiveChoice, ...]
    before: tuple[ArchiveChoice, ...]
    after: tuple[ArchiveChoice, ...]


class Archives:
    """Stores and checks the archives of this node and of its tasks."""

    def __init__(
        self,
        database: Database,
        clock: Clock,
        host: ArchivingHost,
        fault_of: FaultOf,
        new_id: Callable[[], UUID],
        sealing: SealingKey,
    ) -> None:
        """Store the dependencies; ``new_id`` returns ids for new archives.

        ``sealing`` is the key by which their secrets are stored.
        """
        self._sealing = sealing
        self._database = database
        self._clock = clock
        self._fault_of = fault_of
        self._new_id = new_id
        self.host = host

    async def checked_choice(
        self, choice: ArchiveChoice, pointer: str = "", before: KeptArchive | None = None
    ) -> ArchiveChoice:
        """Return the choice with its spec completed; redacted secrets are taken from ``before``.

        :raises InvalidDocument: a field is wrong, or not allowed here; each has its pointer.
        """
        archiver = archivers().get(choice.archiver)
        if archiver is None:
            hint = suggestion(choice.archiver, sorted(archivers()))
            fault = f"there is no archiver {choice.archiver!r}; {hint}"
            raise InvalidDocument([FieldFault(f"{pointer}/archiver", fault)])
        if (missing := missing_requirement(archiver)) is not None:
            raise InvalidDocument([FieldFault(f"{pointer}/archiver", missing)])
        known_spec = self._readable(before) if before and before.archiver == choice.archiver else {}
        document = secrets.restored_spec(
            archiver.spec_model, choice.spec, known_spec, f"{pointer}/spec"
        )
        try:
            spec = archiver.spec_model.model_validate(document, context=FROM_OUTSIDE)
        except ValidationError as error:
            faults = faults_of(error, archiver.spec_model, f"{pointer}/spec")
            raise InvalidDocument(faults) from None
        if (refused := archiver.refusal(spec, self.host)) is not None:
            raise InvalidDocument([FieldFault(f"{pointer}/spec/{refused[0]}", refused[1])])
        await self._check_transform(choice, pointer)
        return choice.model_copy(update={"spec": spec.model_dump(mode="json")})

    async def _check_transform(self, choice: ArchiveChoice, pointer: str) -> None:
        if choice.transform is None:
            return
        transform = choice.transform.model_dump(exclude_none=True)
        try:
            fault = await self._fault_of(transform)
        except HostError as error:
            fault = error.detail
        if fault is not None:
            name = next(each for each in ("jmespath", "jq") if each in transform)
            raise InvalidDocument([FieldFault(f"{pointer}/transform/{name}", fault)])

    async def checked_choices(
        self, choices: Sequence[ArchiveChoice], before: Sequence[KeptArchive] = ()
    ) -> tuple[ArchiveChoice, ...]:
        """Check the archives of a task document; ``before`` are those that the task has, by place.

        :raises InvalidDocument: a field is wrong.
        """
        by_place = {archive.place: archive for archive in before}
        return tuple(
            [
                await self.checked_choice(choice, f"/archives/{place}", by_place.get(place))
                for place, choice in enumerate(choices)
            ]
        )

    async def of_task(self, connection: Connection, task: UUID) -> tuple[ArchiveChoice, ...]:
        """Return the archives of a task, in its order, without secrets."""
        kept = await archives.find_all(connection, task)
        return tuple(ArchiveChoice(**choice_of(one)) for one in kept)

    async def effect_of_edit(
        self, task: UUID, choices: Sequence[ArchiveChoice]
    ) -> ArchivesEdit | None:
        """Return the effect of an edit on a task's archives; None if there is none.

        :raises InvalidDocument: a field is wrong.
        """
        async with self._database.connection() as connection:
            before = await archives.find_all(connection, task)
        checked = await self.checked_choices(choices, before)
        old = [ArchiveChoice(**{**choice_of(one), "spec": self._readable(one)}) for one in before]
        if list(checked) == old:
            return None
        return ArchivesEdit(checked, _without_secrets(old), _without_secrets(checked))

    async def keep_of_task(
        self, connection: Connection, task: UUID, choices: Sequence[ArchiveChoice]
    ) -> None:
        """Give a task these checked archives; waiting results follow the archives that stay.

        An archive stays if its place has the same archiver as before.
        """
        now = self._clock.now()
        before = {one.place: one for one in await archives.find_all(connection, task)}
        for place, archive in before.items():
            same = place is not None and place < len(choices)
            if not same or choices[place or 0].archiver != archive.archiver:
                await archives.remove(connection, archive.id, now)
        for place, choice in enumerate(choices):
            old = before.get(place)
            kept = await self._store_destination(connection, choice, name=None, place=place)
            if old is not None and old.archiver == choice.archiver:
                await archives.change(connection, replace(kept, id=old.id), now)
                await notices.notify(connection, "result", kept.destination)
            else:
                await archives.add(connection, kept, task)

    async def _store_destination(
        self,
        connection: Connection,
        choice: ArchiveChoice,
        *,
        name: str | None,
        place: int | None = None,
    ) -> KeptArchive:
        """Return a checked choice as it is stored; create its destination if there is none."""
        archiver = archivers()[choice.archiver]
        label = archiver.label(archiver.spec_model.model_validate(choice.spec))
        spec = sealed_spec(self._sealing, choice.archiver, choice.spec)
        digest = digest_of(choice.archiver, spec)
        where = StoredDestination(digest, choice.archiver, spec, label, archiver.ordered)
        destination = await archives.keep_destination(connection, where)
        transform = None
        if choice.transform is not None:
            transform = choice.transform.model_dump(exclude_none=True)
        now = self._clock.now()
        return KeptArchive(
            self._new_id(),
            name,
            place,
            destination,
            choice.archiver,
            spec,
            label,
            choice.runs,
            transform,
            1,
            now,
            now,
            choice.model_dump(mode="json", include=set(FORM), exclude_defaults=True),
        )

    # The node's own archives

    async def add(self, document: ArchiveDocument) -> Archive:
        """Add an archive to the node; adding an identical one again changes nothing.

        :raises InvalidDocument: a field is wrong.
        :raises Conflict: there is another one of this name.
        """
        checked = await self.checked_choice(document)
        async with self._database.transaction() as connection:
            kept = await self._store_destination(connection, checked, name=document.name)
            added = await archives.add(connection, kept, None)
        stored = await self._find_own(document.name)
        if not added and _content(stored) != _content(kept):
            msg = f"there is already an archive {document.name}; edit it, or use another name"
            raise Conflict(msg)
        return view(stored)

    async def own(self) -> list[Archive]:
        """Return the node's own archives, by name."""
        async with self._database.connection() as connection:
            return [view(one) for one in await archives.find_all(connection, None)]

    async def one(self, name: str) -> Archive:
        """Return one of the node's own archives.

        :raises NotFound: there is none of this name.
        """
        return view(await self._find_own(name))

    async def _find_own(self, name: str) -> KeptArchive:
        async with self._database.connection() as connection:
            return await _find_named(connection, name)

    async def edit(self, name: str, patch: ArchivePatch) -> Archive:
        """Change one of the node's own archives; waiting results go to its new destination.

        :raises NotFound: there is none of this name.
        :raises Conflict: it was changed since the revision that was read.
        :raises InvalidDocument: a field is wrong.
        """
        stored = await self._find_own(name)
        _check_revision(stored, patch.revision)
        changes, archiver = patch.changes(), archivers().get(stored.archiver)
        spec = self._readable(stored)
        before: dict[str, Any] = {
            "spec": spec if archiver is None else secrets.redacted_spec(archiver.spec_model, spec),
            "runs": stored.runs,
            **stored.form,
        }
        if "transform" not in changes:
            before["transform"] = stored.transform
        after = patched_document(before, changes)
        try:
            choice = ArchiveChoice.model_validate(
                {"archiver": stored.archiver, **after}, context=FROM_OUTSIDE
            )
        except ValidationError as error:
            raise InvalidDocument(faults_of(error, ArchiveChoice)) from None
        checked = await self.checked_choice(choice, "", stored)
        async with self._database.transaction() as connection:
            await archives.lock(connection, name)
            _check_revision(await _find_named(connection, name), stored.revision)
            kept = await self._store_destination(connection, checked, name=name)
            if _content(kept) != _content(stored):
                changed = replace(kept, id=stored.id)
                await archives.change(connection, changed, self._clock.now())
                await notices.notify(connection, "result", kept.destination)
        return await self.one(name)

    def _readable(self, kept: KeptArchive) -> dict[str, Any]:
        return readable_spec(self._sealing, kept.spec)

    async def remove(self, name: str, revision: int | None = None) -> None:
        """Remove an archive; results that wait for it are not delivered any more.

        With ``revision``, only in this one.

        :raises NotFound: there is none of this name.
        :raises Conflict: it has another revision.
        """
        async with self._database.transaction() as connection:
            await archives.lock(connection, name)
            stored = await _find_named(connection, name)
            _check_revision(stored, revision)
            await archives.remove(connection, stored.id, self._clock.now())

    async def test(self, name: str) -> ArchiveTested:
        """Test one of the node's own archives, without delivering a result.

        :raises NotFound: there is none of this name.
        :raises ArchiverFailed: results cannot be delivered there.
        """
        stored = await self._find_own(name)
        archiver = archivers().get(stored.archiver)
        if archiver is None:
            msg = f"the archiver {stored.archiver!r} is no longer installed on this host"
            raise ArchiverFailed(msg)
        try:
            spec = opened_spec(self._sealing, stored.archiver, stored.spec)
        except HostError as error:
            raise ArchiverFailed(error.detail) from error
        destination = archiver.open(archiver.spec_model.model_validate(spec), self.host)
        try:
            detail = await destination.test()
        finally:
            await destination.close()
        return ArchiveTested(label=stored.label, detail=detail)

    async def retry(self, request: RetryRequest) -> Retried:
        """Make deliveries due now that are parked or wait for their retry.

        :raises NotFound: there is no such archive.
        """
        if request.archive is not None:
            await self._find_own(request.archive)
        selection = DeliveryFilter(
            archive=request.archive, destination=request.destination, run=request.run
        )
        async with self._database.transaction() as connection:
            count = await archives.retry(connection, selection, request.number, self._clock.now())
        return Retried(retried=count)


def view(kept: KeptArchive) -> Archive:
    """Return one of the node's own archives as the API shows it."""
    return Archive(
        id=kept.id,
        name=kept.name or "",
        destination=kept.destination,
        label=kept.label,
        revision=kept.revision,
        created_at=kept.created_at,
        changed_at=kept.changed_at,
        **choice_of(kept),
    )


def choice_of(kept: KeptArchive) -> dict[str, Any]:
    """Return the fields of the choice that created the archive, without secrets."""
    return {
        "archiver": kept.archiver,
        "spec": _readable(kept.archiver, kept.spec),
        "runs": kept.runs,
        "transform": kept.transform,
        **kept.form,
    }


def _without_secrets(choices: Sequence[ArchiveChoice]) -> tuple[ArchiveChoice, ...]:
    return tuple(
        choice.model_copy(update={"spec": _readable(choice.archiver, choice.spec)})
        for choice in choices
    )


def _readable(name: str, spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return a spec without secrets; if the archiver is gone these are unknown: without values."""
    archiver = archivers().get(name)
    if archiver is None:
        return dict.fromkeys(spec, secrets.REDACTED)
    return secrets.redacted_spec(archiver.spec_model, spec)


def digest_of(archiver: str, spec: Mapping[str, Any]) -> str:
    """Return the digest of a destination by its archiver and its spec as it is stored."""
    identity = orjson.dumps([archiver, spec], option=orjson.OPT_SORT_KEYS)
    return hashlib.sha256(identity).hexdigest()


def _content(archive: KeptArchive) -> tuple[Any, ...]:
    return archive.destination, archive.runs, archive.transform, archive.form


async def _find_named(connection: Connection, name: str) -> KeptArchive:
    for archive in await archives.find_all(connection, None):
        if archive.name == name:
            return archive
    msg = f"this node has no archive {name!r}; see: parley archive list"
    raise NotFound(msg)


def _check_revision(stored: KeptArchive, read: int | None) -> None:
    require_revision(f"archive {stored.name}", read, stored.revision)
