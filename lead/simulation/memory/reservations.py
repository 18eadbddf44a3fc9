"""Twins of ``node/store/sql/reservations.sql``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from lead.simulation.memory.rows import ReservationRow, ReservedSpanRow, RunRow, pack, unpack
from lead.simulation.memory.statements import Answer, Twins
from lead.simulation.memory.tables import Tables

TWINS = Twins("node.store", "reservations")
OCCUPYING = ("booked", "running", "set-aside")


@TWINS.of("id", "kind", "name", "owner", "access", "starts_at", "ends_at")
def reserved_between(tables: Tables, since: int, until: int) -> Answer:
    """Return the spans that overlap this time, each with its reservation."""
    return [row[1:] for row in _touching(tables, since, until) if row[0] is None]


@TWINS.of("pool", "id", "kind", "name", "owner", "access", "starts_at", "ends_at")
def reserved_for(tables: Tables, pools: Sequence[str], since: int, until: int) -> Answer:
    """Return the spans of these pools that overlap this time."""
    return [row for row in _touching(tables, since, until) if row[0] in pools]


def _touching(tables: Tables, since: int, until: int) -> list[tuple[Any, ...]]:
    spans = sorted(
        tables.reserved.touching(since, until),
        key=lambda span: (span.starts_at, span.reservation_id),
    )
    reservations = tables.reservations.rows
    return [
        (
            *(row.pool, row.id, row.kind, row.name, row.owner, unpack(row.access)),
            *(span.starts_at, span.ends_at),
        )
        for span in spans
        for row in [reservations[span.reservation_id]]
    ]


@TWINS.of()
def keep_reservation(
    tables: Tables,
    reservation: UUID,
    pool: str | None,
    purpose: str,
    name: str,
    owner: str,
    description: str | None,
    schedule: dict[str, Any],
    duration: int,
    access: dict[str, Any],
    now: int,
) -> Answer:
    """Insert a reservation."""
    row = ReservationRow(
        reservation,
        pool,
        purpose,
        name,
        owner,
        description,
        pack(schedule),
        duration,
        pack(access),
        now,
        now,
        now,
    )
    tables.reservations.insert(row)
    return ()


@TWINS.of("id")
def change_reservation(
    tables: Tables,
    reservation: UUID,
    revision: int,
    purpose: str,
    name: str,
    owner: str,
    description: str | None,
    schedule: dict[str, Any],
    duration: int,
    access: dict[str, Any],
    now: int,
) -> Answer:
    """Change a reservation, unless it was changed since it was read."""
    row = tables.reservations.rows.get(reservation)
    if row is None or row.revision != revision:
        return ()
    tables.reservations.change(
        row,
        kind=purpose,
        name=name,
        owner=owner,
        description=description,
        schedule=pack(schedule),
        duration=duration,
        access=pack(access),
        reserved_to=now,
        changed_at=now,
        revision=revision + 1,
    )
    return [(reservation,)]


@TWINS.of("revision")
def remove_reservation(tables: Tables, reservation: UUID) -> Answer:
    """Delete a reservation."""
    row = tables.reservations.rows.get(reservation)
    if row is None:
        return ()
    tables.delete_reservation(row)
    return [(row.revision,)]


@TWINS.of()
def put_spans(
    tables: Tables, reservation: UUID, starts: Sequence[int], ends: Sequence[int]
) -> Answer:
    """Insert spans; existing ones stay as they are."""
    for start, end in zip(starts, ends, strict=True):
        tables.reserved.offer(ReservedSpanRow(reservation, start, end))
    return ()


@TWINS.of()
def drop_spans(tables: Tables, reservation: UUID, now: int) -> Answer:
    """Delete the spans that have not ended."""
    for span in tables.reserved.of(reservation):
        if span.ends_at > now:
            tables.reserved.delete(span)
    return ()


@TWINS.of()
def reserved_to(tables: Tables, reservation: UUID, until: int) -> Answer:
    """Record up to when the spans of a reservation exist."""
    row = tables.reservations.rows.get(reservation)
    if row is not None:
        tables.reservations.change(row, reserved_to=until)
    return ()


@TWINS.of("id", "schedule", "duration", "reserved_to", "created_at")
def to_extend(tables: Tables, until: int) -> Answer:
    """Return the reservations whose spans do not reach ``until``."""
    return [
        (row.id, unpack(row.schedule), row.duration, row.reserved_to, row.created_at)
        for row in tables.reservations.rows.values()
        if row.reserved_to < until
    ]


@TWINS.of("count")
def purge_spans(tables: Tables, before: int, at_most: int) -> Answer:
    """Delete spans that ended long ago."""
    old = [span for span in tables.reserved.rows.values() if span.ends_at < before]
    gone = sorted(old, key=lambda span: (span.starts_at, span.reservation_id))[:at_most]
    for span in gone:
        tables.reserved.delete(span)
    return [(len(gone),)]


@TWINS.of("count")
def purge_reservations(tables: Tables, never: int, at_most: int) -> Answer:
    """Delete reservations without future spans, once their last span is deleted."""
    every = sorted(tables.reservations.rows.values(), key=lambda row: row.id)
    old = [row for row in every if row.reserved_to >= never and not tables.reserved.of(row.id)]
    for row in old[:at_most]:
        tables.delete_reservation(row)
    return [(len(old[:at_most]),)]


@TWINS.of(
    *("id", "pool", "kind", "name", "owner", "description", "schedule", "duration", "access"),
    *("revision", "created_at", "changed_at", "next_starts_at", "next_ends_at"),
)
def reservations(
    tables: Tables,
    now: int,
    wanted: UUID | None,
    prefix: str | None,
    before_created: int | None,
    before_id: UUID | None,
    limit: int,
) -> Answer:
    """Return one reservation by id, or a page, newest first; with the next span of each."""
    found = [
        row
        for row in tables.reservations.rows.values()
        if wanted in {None, row.id}
        and str(row.id).startswith(prefix or "")
        and (
            before_created is None
            or row.created_at < before_created
            or (before_id is not None and (row.created_at, row.id) < (before_created, before_id))
        )
    ]
    found.sort(key=lambda row: (row.created_at, row.id), reverse=True)
    return [
        (
            *(row.id, row.pool, row.kind, row.name, row.owner, row.description),
            *(unpack(row.schedule), row.duration, unpack(row.access), row.revision),
            *(row.created_at, row.changed_at, *_next_span(tables, row.id, now)),
        )
        for row in found[:limit]
    ]


def _next_span(tables: Tables, reservation: UUID, now: int) -> tuple[int | None, int | None]:
    spans = [span for span in tables.reserved.of(reservation) if span.ends_at > now]
    if not spans:
        return None, None
    following = min(spans, key=lambda span: span.starts_at)
    return following.starts_at, following.ends_at


@TWINS.of(
    *("id", "task_id", "test", "scheduling_class", "priority", "starts_at", "ends_at"),
    "gives_way",
)
def inside(tables: Tables, reservation: UUID, now: int, earliest: int) -> Answer:
    """Return the future runs in the time of a reservation that does not admit them."""
    row = tables.reservations.rows.get(reservation)
    if row is None:
        return []
    spans = [span for span in tables.reserved.of(reservation) if span.ends_at > now]
    touching = [
        run
        for run in tables.runs.rows.values()
        if run.state in OCCUPYING
        and run.ends_at > now
        and any(span.starts_at < run.ends_at and run.starts_at < span.ends_at for span in spans)
        and tables.turned_away(row, run)
    ]
    return [
        (
            *(run.id, run.task_id, tables.tasks.rows[run.task_id].test, run.scheduling_class),
            *(run.priority, run.starts_at, run.ends_at),
            run.state != "running" and run.starts_at >= earliest,
        )
        for run in sorted(touching, key=_begins)
    ]


def _begins(run: RunRow) -> tuple[int, UUID]:
    return run.starts_at, run.id
