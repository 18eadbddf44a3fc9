"""Archives, and the outbox of results, which a trigger fills when a run is over."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from node.store import notices
from node.store.database import Connection, Record
from node.store.statements import Query, Statements, spread

_SQL = Statements("node.store", "archives")


@dataclass(frozen=True)
class StoredDestination:
    """A destination to store; ``digest`` identifies its archiver and spec."""

    digest: str
    archiver: str
    spec: dict[str, Any]
    label: str
    ordered: bool


@dataclass(frozen=True)
class KeptArchive:
    """A stored archive: of a task, with its place there, or the node's own, with a name."""

    id: UUID
    name: str | None
    place: int | None
    destination: int
    archiver: str
    spec: dict[str, Any]
    label: str
    runs: str
    transform: dict[str, Any] | None
    revision: int
    created_at: int
    changed_at: int
    form: dict[str, Any]
    """The fields of :data:`node.model.wire.archives.FORM` that are set."""


@dataclass(frozen=True)
class DeliverySettlement:
    """The result of one delivery; ``next_at`` is set if it waits for another attempt.

    ``given_up``: it is parked, and delivered once its destination accepts anything again.
    """

    number: int
    state: str
    next_at: int | None
    error: str | None
    given_up: bool = False

    @property
    def failed(self) -> bool:
        """True if the attempt failed."""
        return self.state != "delivered"


@dataclass(frozen=True)
class DeliveryFilter:
    """The deliveries to list, and the page, newest first; ``whole_runs`` leaves out intervals."""

    before: int | None = None
    run: UUID | None = None
    task: UUID | None = None
    archive: str | None = None
    destination: int | None = None
    states: Sequence[str] | None = None
    limit: int = 50
    whole_runs: bool = False


keep_destination: Query[[StoredDestination], int] = spread(_SQL.value("destination"))
"""The number of the destination with this archiver and spec; it is stored if it is new."""


async def add(connection: Connection, archive: KeptArchive, task: UUID | None) -> bool:
    """Store an archive; False if the name or the place is taken."""
    made = await connection.fetchval(
        _SQL["add_archive"],
        archive.id,
        task,
        archive.place,
        archive.name,
        archive.destination,
        archive.runs,
        archive.transform,
        archive.created_at,
        archive.form,
    )
    return made is not None


find_all: Query[[UUID | None], list[KeptArchive]] = _SQL.rows("archives", KeptArchive)
"""The archives of a task in their order, or without one the node's own by name."""

lock: Query[[str], UUID | None] = _SQL.value("lock_archive")
"""Lock the node's own archive of this name, and return its id; None if there is none."""


async def change(connection: Connection, archive: KeptArchive, now: int) -> None:
    """Change an archive; waiting deliveries are moved to its new destination."""
    await connection.execute(
        _SQL["change_archive"],
        archive.id,
        archive.destination,
        archive.runs,
        archive.transform,
        now,
        archive.form,
    )
    await connection.execute(_SQL["move_waiting"], archive.id, archive.destination)


async def remove(connection: Connection, archive: UUID, now: int) -> int:
    """Remove an archive, drop its waiting deliveries, and return how many these were."""
    await connection.execute(_SQL["remove_archive"], archive, now)
    return len(await connection.fetch(_SQL["drop_waiting"], archive))


next_due_by_destination: Query[[Sequence[int]], dict[int, int]] = _SQL.by_key("next_due")
"""Return when the first waiting delivery of each destination is due (µs), but for the busy ones."""


async def find_destination(
    connection: Connection, destination: int
) -> tuple[str, dict[str, Any], str, bool]:
    """Return archiver, spec, and label of a destination, and whether it is ordered.

    :raises LookupError: there is no such destination.
    """
    row = await connection.fetchrow(_SQL["destination_spec"], destination)
    if row is None:
        msg = f"there is no destination {destination}"
        raise LookupError(msg)
    return row[0], row[1], row[2], row[3]


release_claims: Query[[int], None] = _SQL.command("release")
"""Make deliveries due at once that an earlier process had claimed and not settled."""


async def claim(
    connection: Connection, destination: int, now: int, again_at: int, *, limit: int, ordered: bool
) -> list[int]:
    """Claim due deliveries; one that is not settled is due again at ``again_at``."""
    query = _SQL["claim_in_order" if ordered else "claim"]
    rows = await connection.fetch(query, destination, now, again_at, limit)
    return sorted(row[0] for row in rows)


rows_of_deliveries: Query[[Sequence[int]], list[Record]] = _SQL.records("documents")
"""Rows with the runs of these deliveries, in the order of their numbers."""

parts: Query[[Sequence[UUID]], list[Record]] = _SQL.records("parts")
"""The parts of these runs, without their results."""


async def settle(connection: Connection, now: int, settled: Sequence[DeliverySettlement]) -> None:
    """Store the results of deliveries."""
    await connection.execute(
        _SQL["settle"],
        [one.number for one in settled],
        now,
        [one.state for one in settled],
        [one.next_at for one in settled],
        [one.error for one in settled],
        [one.failed for one in settled],
        [one.given_up for one in settled],
    )


unclaim: Query[[Sequence[int], int], None] = _SQL.command("unclaim")
"""Give back claimed deliveries that were not attempted."""

supersede: Query[[Sequence[int]], None] = _SQL.command("supersede")
"""Delete deliveries whose outcome is not the latest of its run; the latest has its own."""

hasten: Query[[int, int], None] = _SQL.command("hasten")
"""Make the deliveries due that this destination did not accept before, also those given up.

Takes ``destination``, ``now``.
"""

probe: Query[[int], None] = _SQL.command("probe")
"""Make the oldest delivery due of each destination of which all have been given up."""

keep_error: Query[[int, str, int], None] = _SQL.command("keep_error")
"""Store the last error of a destination. Takes ``destination``, ``error``, ``now``."""

deliveries: Query[[DeliveryFilter], list[Record]] = spread(_SQL.records("archivings"))
"""Rows of deliveries for users."""


async def retry(
    connection: Connection, wanted: DeliveryFilter, number: int | None, now: int
) -> int:
    """Make waiting and parked deliveries due now, and return how many."""
    row = await connection.fetchrow(
        _SQL["retry"], wanted.archive, wanted.destination, wanted.run, number, now
    )
    if row is None or not row[0]:
        return 0
    await notices.notify_all(connection, [("retry", destination) for destination in row[1]])
    return int(row[0])


backlog: Query[[], list[Record]] = _SQL.records("backlog")
"""Rows with the waiting and parked deliveries by destination."""

purge: Query[[int], int] = _SQL.value("purge_archives")
"""Delete removed archives that nothing refers to any more; return how many."""

purge_destinations: Query[[int], int] = _SQL.value("purge_destinations")
"""Delete destinations that nothing refers to any more; return how many."""
