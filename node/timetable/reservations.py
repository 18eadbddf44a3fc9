"""Reservations of this node: time that its owner sets apart for maintenance, a demo, or quiet.

A reservation is stored with its spans, which are written well beyond the horizon and extended once
a day, so that the database itself can refuse bookings in them (``schema.sql``,
``refuse_reserved``). Runs that were booked there before are kept and reported, or displaced on
request, like by a run of higher priority.

A reservation of a pool is made at the pool's lead and applies to what that lead gives: the seats of
the pool get no runs in its time (``lead/planning/reserved.py``). It closes no node, because the
time of a node belongs to its own owner.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Sequence
from typing import Any
from uuid import UUID

from pydantic import ValidationError

from node.execution.catalog import Capabilities
from node.model import times
from node.model.changes import patched_document, require_revision
from node.model.errors import ChangedSince, Conflict, FieldFault, InvalidDocument, NotFound
from node.model.reason import Reason
from node.model.reasons import displaced_by_reservation, reserved
from node.model.recurrence import Recurrence, next_nominal, recurrence_faults
from node.model.reservations import ReservationSpan, occurrences, split_task, written_task
from node.model.similar import suggestion
from node.model.timeline import Booking
from node.model.wire.fields import FROM_OUTSIDE
from node.model.wire.reservations import (
    AccessDocument,
    Occasions,
    Purpose,
    Reservation,
    ReservationDocument,
    ReservationPatch,
    RunInside,
)
from node.model.wire.validation import faults_of
from node.peers.directory import Directory
from node.sharing.campaigns import unknown_campaign
from node.store import campaigns, notices, pools, reservations, seats, tasks
from node.store.core import Core
from node.store.database import Connection, Record
from node.store.reservations import ReservationFilter, ReservationTerms
from node.store.tasks import Made
from node.tasks.pool_tasks import unknown_pool
from node.tasks.termination import TaskTerminator

SPANS_AHEAD = 7 * times.DAY
"""Time beyond the horizon for which spans are written; they are extended daily."""

RUNS_INSIDE_MAX = 1000
"""Maximum number of runs inside to list; more may be displaced."""

_SPANS_MAX = 20_000
_AT_ONCE = 200
"""Number of runs that are displaced before it is asked whether the reservation still stands."""


class Reservations:
    """Creates, changes, and shows the reservations of this node."""

    def __init__(
        self,
        core: Core,
        directory: Directory,
        ending: TaskTerminator,
        capabilities: Capabilities,
        new_id: Callable[[], UUID],
    ) -> None:
        """``new_id`` makes the ids of reservations; ``ending`` displaces runs."""
        self._database = core.database
        self._clock = core.clock
        self._settings = core.settings
        self._directory = directory
        self._ending = ending
        self._capabilities = capabilities
        self._new_id = new_id

    async def create(self, document: ReservationDocument, key: str | None) -> Reservation:
        """Create a reservation; a repeated key returns the one that it made.

        :raises InvalidDocument: a field is wrong.
        :raises Conflict: the key was used for another document.
        """
        digest = hashlib.sha256(document.model_dump_json().encode()).hexdigest()
        new_id = self._new_id()
        now = self._clock.now()
        terms = self._stored_terms(document, now)
        await self._check(document)

        async def make(connection: Connection) -> UUID:
            keys = [] if key is None else [key]
            for known in (await tasks.find_idempotency(connection, keys)).values():
                if known.digest != digest:
                    msg = "this Idempotency-Key was used for another document; use a new one"
                    raise Conflict(msg)
                return known.made
            if key is not None:
                await tasks.keep_idempotency(connection, {key: Made(digest, new_id)}, now)
            await self._stop_seating(connection, document.pool)
            await reservations.keep(connection, new_id, document.pool, terms, now)
            await self._write_spans(connection, new_id, terms, now)
            await self._notify(connection, new_id, "made", document.pool, now)
            return new_id

        reservation = await self._database.settle(make)
        return await self._with_inside(reservation, displace=document.displace)

    async def edit(self, reservation: UUID, patch: ReservationPatch) -> Reservation:
        """Change a reservation; time that it no longer covers is free at once.

        :raises NotFound: there is no such reservation.
        :raises InvalidDocument: a field is wrong after the change.
        :raises Conflict: it has been changed since it was read.
        """
        known = await self._fetch_row(reservation)
        revision = known["revision"] if patch.revision is None else patch.revision
        now = self._clock.now()
        edited = self._patched_document(known, patch)
        terms = self._stored_terms(edited, now)
        await self._check(edited, self._access_for_people(known["access"]))

        async def change(connection: Connection) -> None:
            await self._stop_seating(connection, known["pool"])
            if not await reservations.change(connection, reservation, revision, terms, now):
                msg = f"reservation {reservation} has been changed since; read it again"
                raise ChangedSince(msg)
            await reservations.drop_spans(connection, reservation, now)
            await self._write_spans(connection, reservation, terms, now)
            await self._notify(connection, reservation, "changed", known["pool"], now)

        await self._database.settle(change)
        return await self._with_inside(reservation, displace=patch.displace)

    def _patched_document(self, known: Record, patch: ReservationPatch) -> ReservationDocument:
        shown = self._reservation_for_people(known).model_dump(mode="json")
        fields = ("kind", "name", "pool", "owner", "description", "schedule", "duration", "access")
        try:
            return ReservationDocument.model_validate(
                patched_document({field: shown[field] for field in fields}, patch.changes()),
                context=FROM_OUTSIDE,
            )
        except ValidationError as error:
            raise InvalidDocument(faults_of(error, ReservationDocument)) from None

    async def _check(
        self, document: ReservationDocument, before: AccessDocument | None = None
    ) -> None:
        """Check the names in a document; those in ``before`` were accepted earlier and may be gone.

        :raises InvalidDocument: a name is not known.
        """
        known = before or AccessDocument()
        self._check_tests(document.access.tests, known.tests)
        await self._check_campaigns(document.access.campaigns, known.campaigns)
        if document.pool is None:
            return
        if document.access.leads:
            detail = "all seats of a pool are given by this node; leave it out"
            raise InvalidDocument([FieldFault("/access/leads", detail)])
        faults = [
            FieldFault(
                f"/access/tasks/{index}", "this node gives the pool's seats; write the id alone"
            )
            for index, written in enumerate(document.access.tasks)
            if split_task(written)[1] is not None
        ]
        if faults:
            raise InvalidDocument(faults)
        async with self._database.connection() as connection:
            there = await pools.find_all(connection)
        if document.pool not in [pool.name for pool in there]:
            raise InvalidDocument([FieldFault("/pool", unknown_pool(document.pool, there))])

    def _check_tests(self, named: Sequence[str], admitted: Collection[str]) -> None:
        """Check the tests: a mistyped name would admit nothing, unnoticed until that time."""
        faults = []
        for index, name in enumerate(named):
            if name not in admitted:
                try:
                    self._capabilities.test(name, f"/access/tests/{index}")
                except InvalidDocument as error:
                    faults += error.faults
        if faults:
            raise InvalidDocument(faults)

    async def _check_campaigns(self, named: Sequence[str], admitted: Collection[str]) -> None:
        """Check the campaigns: a mistyped name would admit nobody, unnoticed until that time."""
        async with self._database.connection() as connection:
            there = await campaigns.states(connection)
        faults = [
            FieldFault(f"/access/campaigns/{index}", unknown_campaign(name, there))
            for index, name in enumerate(named)
            if name not in there and name not in admitted
        ]
        if faults:
            raise InvalidDocument(faults)

    async def _stop_seating(self, connection: Connection, pool: str | None) -> None:
        if pool is not None:
            await seats.stop_seating(connection, pool)

    async def _notify(
        self, connection: Connection, reservation: UUID, what: str, pool: str | None, now: int
    ) -> None:
        """Notify of a change, and have the seats of its pool planned anew."""
        if pool is not None:
            for task in await seats.plan_anew(connection, pool, now):
                await notices.notify(connection, "task", task, "plan")
        await notices.notify(connection, "reservation", reservation, what)

    async def remove(self, reservation: UUID, revision: int | None = None) -> None:
        """Remove a reservation and free its time; with ``revision``, only in this one.

        :raises NotFound: there is no such reservation.
        :raises Conflict: it has another revision.
        """
        known = await self._fetch_row(reservation)
        now = self._clock.now()

        async def give_back(connection: Connection) -> None:
            await self._stop_seating(connection, known["pool"])
            removed = await reservations.remove(connection, reservation)
            if removed is None:
                raise NotFound(_unknown_reservation(reservation))
            require_revision(f"reservation {reservation}", revision, removed)
            await self._notify(connection, reservation, "removed", known["pool"], now)

        await self._database.settle(give_back)

    async def find(self, reservation: UUID) -> Reservation:
        """Return a reservation with the runs inside.

        :raises NotFound: there is no such reservation.
        """
        return await self._with_inside(reservation, displace=False)

    async def page(self, wanted: ReservationFilter) -> list[Reservation]:
        """Return a page of reservations, newest first."""
        async with self._database.connection() as connection:
            rows = await reservations.find_page(connection, self._clock.now(), wanted)
        return [self._reservation_for_people(row) for row in rows]

    async def extend_spans(self) -> None:
        """Write further spans well before the horizon reaches their end."""
        now = self._clock.now()
        until = now + self._settings.horizon + SPANS_AHEAD - times.DAY

        async def write_on(connection: Connection) -> None:
            for each in await reservations.reservations_to_extend(connection, until):
                recurrence = _recurrence_of(each.schedule)
                since = max(now, each.reserved_to)
                await self._write_spans_from(connection, each.id, recurrence, each.duration, since)

        await self._database.settle(write_on)

    async def _write_spans(
        self, connection: Connection, reservation: UUID, terms: ReservationTerms, now: int
    ) -> None:
        await self._write_spans_from(
            connection, reservation, _recurrence_of(terms.schedule), terms.duration, now
        )

    async def _write_spans_from(
        self,
        connection: Connection,
        reservation: UUID,
        recurrence: Recurrence,
        duration: int,
        since: int,
    ) -> None:
        """Store the spans that end after ``since``; those of a recurrence only some time ahead."""
        repeats = recurrence.repeat is not None or recurrence.cron is not None
        until = (
            self._clock.now() + self._settings.horizon + SPANS_AHEAD if repeats else times.LATEST
        )
        spans = occurrences(recurrence, duration, since, until, _SPANS_MAX)
        reached = spans[-1][0] + 1 if len(spans) == _SPANS_MAX else until
        if next_nominal(recurrence, reached - 1) is None:
            reached = times.LATEST
        await reservations.put_spans(connection, reservation, spans, reached)

    async def _fetch_row(self, reservation: UUID) -> Record:
        async with self._database.connection() as connection:
            rows = await reservations.find_page(
                connection, self._clock.now(), ReservationFilter(reservation)
            )
        if not rows:
            raise NotFound(_unknown_reservation(reservation))
        return rows[0]

    async def _with_inside(self, reservation: UUID, *, displace: bool) -> Reservation:
        """Return a reservation with the runs inside; ``displace`` those that can give way."""
        row = await self._fetch_row(reservation)
        now = self._clock.now()
        async with self._database.connection() as connection:
            earliest = now + self._settings.start_margin
            runs = await reservations.runs_inside(connection, reservation, now, earliest)
            until = max((run.ends_at for run in runs), default=now + 1)
            spans = await self._reserved_spans(connection, row["pool"], now, until)
        own = [span for span in spans if span.reservation == reservation]
        giving_way = [run for run in runs if displace and not run.fixed]
        reasons = [(run.run, _displacement_reason(run, own, row["pool"])) for run in giving_way]
        displaced = await self._displace(row, [(run, why) for run, why in reasons if why])
        inside = (_run_inside(run, run.run in displaced) for run in runs[:RUNS_INSIDE_MAX])
        update = {
            "inside": tuple(inside),
            "inside_count": len(runs),
            "displaced_count": len(displaced),
        }
        return self._reservation_for_people(row).model_copy(update=update)

    async def _displace(self, row: Record, runs: Sequence[tuple[UUID, str]]) -> set[UUID]:
        """Displace runs, each for its reason, some at a time, and return those.

        Of ten thousands it takes so long that the reservation may be removed or changed meanwhile.
        Then the others keep their time.
        """
        displaced: set[UUID] = set()
        for first in range(0, len(runs), _AT_ONCE):
            if first and not await self._is_unchanged(row):
                break
            some = dict(runs[first : first + _AT_ONCE])
            await self._ending.lose_runs(some)
            displaced |= some.keys()
        return displaced

    async def _is_unchanged(self, row: Record) -> bool:
        try:
            now = await self._fetch_row(row["id"])
        except NotFound:
            return False
        return bool(now["revision"] == row["revision"])

    async def _reserved_spans(
        self, connection: Connection, pool: str | None, since: int, until: int
    ) -> list[ReservationSpan]:
        if pool is None:
            return await reservations.spans_between(connection, since, until)
        return (await reservations.pool_spans_between(connection, [pool], since, until))[pool]

    def _stored_terms(self, document: ReservationDocument, now: int) -> ReservationTerms:
        """Return the stored form of a document.

        :raises InvalidDocument: a field is wrong.
        """
        occasions = document.schedule.at(now)
        schedule = occasions.model_dump(mode="json")
        faults = _schedule_faults(occasions, document.duration, now)
        access = document.access
        leads = [
            self._lead_identity(f"leads/{index}", word) for index, word in enumerate(access.leads)
        ]
        named = [
            self._stored_task_reference(f"tasks/{index}", word)
            for index, word in enumerate(access.tasks)
        ]
        faults += [each for each in (*leads, *named) if isinstance(each, FieldFault)]
        if faults:
            raise InvalidDocument(faults)
        stored_access = access.model_dump(mode="json") | {"leads": leads, "tasks": named}
        return ReservationTerms(
            kind=document.kind,
            name=document.name,
            owner=document.owner or f"the owner of {self._settings.name}",
            description=document.description,
            schedule=schedule,
            duration=document.duration,
            access=stored_access,
        )

    def _stored_task_reference(self, place: str, word: str) -> str | FieldFault:
        """Return a task in stored form, with the identity of its lead if one is named."""
        task, lead = split_task(word)
        identity = None if lead is None else self._lead_identity(place, lead)
        return identity if isinstance(identity, FieldFault) else written_task(task, identity)

    def _lead_identity(self, place: str, word: str) -> str | FieldFault:
        """Return the identity of a node given by name or identity, or what is wrong with it."""
        known = self._directory.find_or_key(word)
        if known is not None:
            return known.identity
        names = sorted(node.name for node in self._directory.all)
        fault = f"{word} is not a node known here; {suggestion(word, names)}"
        return FieldFault(f"/access/{place}", fault)

    def _reservation_for_people(self, row: Record) -> Reservation:
        now = self._clock.now()
        starts_at = row["next_starts_at"]
        return Reservation(
            id=row["id"],
            kind=Purpose(row["kind"]),
            name=row["name"],
            pool=row["pool"],
            owner=row["owner"],
            description=row["description"],
            state="over" if starts_at is None else "now" if starts_at <= now else "upcoming",
            next_starts_at=starts_at,
            next_ends_at=row["next_ends_at"],
            schedule=Occasions.model_validate(row["schedule"]),
            duration=row["duration"],
            access=self._access_for_people(row["access"]),
            revision=row["revision"],
            created_at=row["created_at"],
            changed_at=row["changed_at"],
        )

    def _access_for_people(self, stored: dict[str, Any]) -> AccessDocument:
        """Return an access list with names of leads instead of identities, where known."""
        names = {node.identity: node.name for node in self._directory.all}
        leads = [names.get(lead, lead) for lead in stored["leads"]]
        split = (split_task(written) for written in stored["tasks"])
        named = [written_task(task, lead and names.get(lead, lead)) for task, lead in split]
        return AccessDocument.model_validate(stored | {"leads": leads, "tasks": named})


def _unknown_reservation(reservation: UUID) -> str:
    return f"there is no reservation {reservation} on this node"


def _recurrence_of(schedule: dict[str, Any]) -> Recurrence:
    occasions = Occasions.model_validate(schedule)
    return Recurrence(
        anchor=occasions.start,
        repeat=occasions.repeat,
        cron=occasions.cron,
        timezone=occasions.timezone,
        until=occasions.until,
    )


def _schedule_faults(occasions: Occasions, duration: int, now: int) -> list[FieldFault]:
    """Return the fields of a schedule that are wrong, each with its reason."""
    once = occasions.repeat is None and occasions.cron is None
    if once and occasions.until is not None:
        detail = "needs repeat or cron; what takes place once ends after its duration"
        return [FieldFault("/schedule/until", detail)]
    recurrence = _recurrence_of(occasions.model_dump())
    faults = recurrence_faults(recurrence, duration, "reservation")
    if not faults and not occurrences(recurrence, duration, now, times.LATEST, 1):
        return [FieldFault("/schedule", "all of it is over")]
    return faults


def _displacement_reason(
    run: Booking, spans: Sequence[ReservationSpan], pool: str | None
) -> Reason | None:
    """Return why a run gives way to a reservation; None if this no longer covers it."""
    meeting = (it for it in spans if it.starts_at < run.ends_at and run.starts_at < it.ends_at)
    if (span := next(meeting, None)) is None:
        return None
    why = reserved(span.kind, span.name, span.owner, span.reservation, span.ends_at)
    return displaced_by_reservation(why, pool)


def _run_inside(run: Booking, displaced: bool) -> RunInside:  # noqa: FBT001 - a column
    return RunInside(
        run=run.run,
        task=run.task,
        test=run.test,
        scheduling_class=run.scheduling_class,
        priority=run.priority,
        starts_at=run.starts_at,
        ends_at=run.ends_at,
        displaced=displaced,
    )
