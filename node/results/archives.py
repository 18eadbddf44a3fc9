"""Where results go: the node's own archives, those of tasks, and what waits for them.

Everything that can be known is said when an archive is asked for: an unknown archiver, a wrong
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

from node.clock import Clock
from node.model import archiving
from node.model.changes import merged
from node.model.errors import (
    ArchiverFailed,
    Conflict,
    FieldFault,
    HostError,
    InvalidDocument,
    NotFound,
)
from node.model.wire.archives import (
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
from node.store import archives
from node.store.archives import DeliveryFilter, KeptArchive, StoredDestination
from node.store.database import Connection, Database

FaultOf = Callable[[Mapping[str, str | None]], Awaitable[str | None]]
"""Why a transform cannot be used; None if it can."""


@dataclass(frozen=True)
class ArchivesEdit:
    """A task's archives after an edit, checked; and before and after as they may be shown."""

    choices: tuple[ArchiveChoice, ...]
    before: tuple[ArchiveChoice, ...]
    after: tuple[ArchiveChoice, ...]


class Archives:
    """Keeps where results go."""

    def __init__(
        self,
        database: Database,
        clock: Clock,
        host: ArchivingHost,
        fault_of: FaultOf,
        new_id: Callable[[], UUID],
    ) -> None:
        """``new_id`` makes ids of archives."""
        self._database = database
        self._clock = clock
        self._fault_of = fault_of
        self._new_id = new_id
        self.host = host

    async def checked(
        self, choice: ArchiveChoice, pointer: str = "", before: KeptArchive | None = None
    ) -> ArchiveChoice:
        """The choice with its spec filled in; what it leaves hidden is that of ``before``.

        :raises InvalidDocument: a field is wrong, or not allowed here; each has its pointer.
        """
        archiver = archivers().get(choice.archiver)
        if archiver is None:
            known = ", ".join(sorted(archivers()))
            said = f"there is no archiver {choice.archiver!r}; there are: {known}"
            raise InvalidDocument([FieldFault(f"{pointer}/archiver", said)])
        if (lacking := missing_requirement(archiver)) is not None:
            raise InvalidDocument([FieldFault(f"{pointer}/archiver", lacking)])
        known_spec = before.spec if before and before.archiver == choice.archiver else {}
        document = archiving.restored(archiver.spec_model, choice.spec, known_spec)
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
        given = choice.transform.model_dump(exclude_none=True)
        try:
            fault = await self._fault_of(given)
        except HostError as error:
            fault = error.detail
        if fault is not None:
            [name] = given
            raise InvalidDocument([FieldFault(f"{pointer}/transform/{name}", fault)])

    async def checked_all(
        self, choices: Sequence[ArchiveChoice], before: Sequence[KeptArchive] = ()
    ) -> tuple[ArchiveChoice, ...]:
        """The archives of a task document; ``before`` are those it has, by place.

        :raises InvalidDocument: a field is wrong.
        """
        known = {archive.place: archive for archive in before}
        return tuple(
            [
                await self.checked(choice, f"/archives/{place}", known.get(place))
                for place, choice in enumerate(choices)
            ]
        )

    async def of_task(self, task: UUID) -> tuple[ArchiveChoice, ...]:
        """The archives of a task, in its order, as they may be shown."""
        async with self._database.connection() as connection:
            kept = await archives.listed(connection, task)
        return tuple(ArchiveChoice(**choice_of(one)) for one in kept)

    async def edited(self, task: UUID, choices: Sequence[ArchiveChoice]) -> ArchivesEdit | None:
        """What an edit makes of a task's archives; None if nothing.

        :raises InvalidDocument: a field is wrong.
        """
        async with self._database.connection() as connection:
            before = await archives.listed(connection, task)
        checked = await self.checked_all(choices, before)
        old = [ArchiveChoice(**{**choice_of(one), "spec": one.spec}) for one in before]
        if list(checked) == old:
            return None
        return ArchivesEdit(checked, _shown(old), _shown(checked))

    async def keep_of_task(
        self, connection: Connection, task: UUID, choices: Sequence[ArchiveChoice]
    ) -> None:
        """Give a task these archives, which were checked; what waits follows those that stay.

        One stays whose place has the same archiver as before.
        """
        now = self._clock.now()
        before = {one.place: one for one in await archives.listed(connection, task)}
        for place, old in before.items():
            same = place is not None and place < len(choices)
            if not same or choices[place or 0].archiver != old.archiver:
                await archives.remove(connection, old.id, now)
        for place, choice in enumerate(choices):
            known = before.get(place)
            made = await self._kept(connection, choice, name=None, place=place)
            if known is not None and known.archiver == choice.archiver:
                await archives.change(connection, replace(made, id=known.id), now)
                await archives.notify(connection, [made.destination])
            else:
                await archives.add(connection, made, task)

    async def _kept(
        self,
        connection: Connection,
        choice: ArchiveChoice,
        *,
        name: str | None,
        place: int | None = None,
    ) -> KeptArchive:
        """A checked choice as it is kept, its destination made if there is none."""
        archiver = archivers()[choice.archiver]
        label = archiver.label(archiver.spec_model.model_validate(choice.spec))
        written = orjson.dumps([choice.archiver, choice.spec], option=orjson.OPT_SORT_KEYS)
        digest = hashlib.sha256(written).hexdigest()
        where = StoredDestination(digest, choice.archiver, choice.spec, label, archiver.ordered)
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
            choice.spec,
            label,
            choice.runs,
            transform,
            1,
            now,
            now,
        )

    # The node's own

    async def add(self, document: ArchiveDocument) -> Archive:
        """Add one of the node's own; the very same again changes nothing.

        :raises InvalidDocument: a field is wrong.
        :raises Conflict: there is another one of this name.
        """
        checked = await self.checked(document)
        async with self._database.transaction() as connection:
            made = await self._kept(connection, checked, name=document.name)
            added = await archives.add(connection, made, None)
        found = await self._own(document.name)
        if not added and _content(found) != _content(made):
            msg = f"there is an archive {document.name} already; edit it, or take another name"
            raise Conflict(msg)
        return view(found)

    async def own(self) -> list[Archive]:
        """The node's own, by name."""
        async with self._database.connection() as connection:
            return [view(one) for one in await archives.listed(connection, None)]

    async def one(self, name: str) -> Archive:
        """One of the node's own.

        :raises NotFound: there is none of this name.
        """
        return view(await self._own(name))

    async def _own(self, name: str) -> KeptArchive:
        async with self._database.connection() as connection:
            return await _named(connection, name)

    async def edit(self, name: str, patch: ArchivePatch) -> Archive:
        """Change one of the node's own; what waits for it goes where it is then.

        :raises NotFound: there is none of this name.
        :raises Conflict: it was changed since the revision that was read.
        :raises InvalidDocument: a field is wrong.
        """
        known = await self._own(name)
        _check_revision(known, patch.revision)
        changes = _hiding(patch.changes(), known)
        before: dict[str, Any] = {"spec": known.spec, "runs": known.runs}
        if "transform" not in changes:
            before["transform"] = known.transform
        after = merged(before, changes)
        try:
            choice = ArchiveChoice.model_validate(
                {"archiver": known.archiver, **after}, context=FROM_OUTSIDE
            )
        except ValidationError as error:
            raise InvalidDocument(faults_of(error, ArchiveChoice)) from None
        checked = await self.checked(choice, "", known)
        async with self._database.transaction() as connection:
            await archives.lock(connection, name)
            _check_revision(await _named(connection, name), known.revision)
            made = await self._kept(connection, checked, name=name)
            if _content(made) != _content(known):
                changed = replace(made, id=known.id)
                await archives.change(connection, changed, self._clock.now())
                await archives.notify(connection, [made.destination])
        return await self.one(name)

    async def remove(self, name: str) -> None:
        """Nothing goes there any more, not even what waits for it.

        :raises NotFound: there is none of this name.
        """
        async with self._database.transaction() as connection:
            await archives.lock(connection, name)
            found = await _named(connection, name)
            await archives.remove(connection, found.id, self._clock.now())

    async def test(self, name: str) -> ArchiveTested:
        """Try one of the node's own, without a result.

        :raises NotFound: there is none of this name.
        :raises ArchiverFailed: results cannot be delivered there.
        """
        found = await self._own(name)
        archiver = archivers().get(found.archiver)
        if archiver is None:
            msg = f"there is no archiver {found.archiver!r} on this host any more"
            raise ArchiverFailed(msg)
        destination = archiver.open(archiver.spec_model.model_validate(found.spec), self.host)
        try:
            detail = await destination.test()
        finally:
            await destination.close()
        return ArchiveTested(label=found.label, detail=detail)

    async def retry(self, request: RetryRequest) -> Retried:
        """Have deliveries tried at once that are parked or wait for their time.

        :raises NotFound: there is no such archive.
        """
        if request.archive is not None:
            await self._own(request.archive)
        wanted = DeliveryFilter(
            archive=request.archive, destination=request.destination, run=request.run
        )
        async with self._database.transaction() as connection:
            count = await archives.retry(connection, wanted, request.number, self._clock.now())
        return Retried(retried=count)


def view(kept: KeptArchive) -> Archive:
    """One of the node's own as the API shows it."""
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
    """The fields of the choice that made it, without what is secret."""
    return {
        "archiver": kept.archiver,
        "spec": _readable(kept.archiver, kept.spec),
        "runs": kept.runs,
        "transform": kept.transform,
    }


def _shown(choices: Sequence[ArchiveChoice]) -> tuple[ArchiveChoice, ...]:
    """Without what is secret."""
    return tuple(
        choice.model_copy(update={"spec": _readable(choice.archiver, choice.spec)})
        for choice in choices
    )


def _readable(name: str, spec: Mapping[str, Any]) -> dict[str, Any]:
    """A spec without what is secret; if the archiver is gone nobody knows what that is: all."""
    archiver = archivers().get(name)
    if archiver is None:
        return dict.fromkeys(spec, archiving.REDACTED)
    return archiving.redacted(archiver.spec_model, spec)


def _hiding(patch: dict[str, Any], known: KeptArchive) -> dict[str, Any]:
    """The patch without what it leaves hidden: that stays as it is."""
    spec, archiver = patch.get("spec"), archivers().get(known.archiver)
    if not isinstance(spec, Mapping) or archiver is None:
        return patch
    return {**patch, "spec": archiving.restored(archiver.spec_model, spec, known.spec)}


def _content(one: KeptArchive) -> tuple[Any, ...]:
    return one.destination, one.runs, one.transform


async def _named(connection: Connection, name: str) -> KeptArchive:
    for found in await archives.listed(connection, None):
        if found.name == name:
            return found
    msg = f"there is no archive {name!r} of this node; see: parley archive list"
    raise NotFound(msg)


def _check_revision(found: KeptArchive, read: int | None) -> None:
    if read is not None and read != found.revision:
        msg = (
            f"archive {found.name} has been changed since revision {read} was read: it is at "
            f"revision {found.revision}; read it again"
        )
        raise Conflict(msg)
