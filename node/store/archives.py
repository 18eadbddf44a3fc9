"""Where results go, and the outbox of results: a trigger fills it when a run is over."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from node.store.database import Connection, Queries, Record

_SQL = Queries("node.store", "archives")


@dataclass(frozen=True)
class StoredDestination:
    """A destination to be kept; ``digest`` is that of archiver and spec."""

    digest: str
    archiver: str
    spec: dict[str, Any]
    label: str
    ordered: bool


@dataclass(frozen=True)
class KeptArchive:
    """An archive as kept: of a task at a place, or the node's own by its name."""

    id: UUID
    name: str | None
    place: int | None
    destination: int
    archiver: str
    spec: dict[str, Any]
    label: str
    runs: str
    transform: dict[str, str] | None
    revision: int
    created_at: int
    changed_at: int


@dataclass(frozen=True)
class DeliverySettlement:
    """What came of one delivery; ``next_at`` where it waits again."""

    number: int
    state: str
    next_at: int | None
    error: str | None

    @property
    def failed(self) -> bool:
        """Whether it was tried in vain."""
        return self.state != "delivered"


@dataclass(frozen=True)
class DeliveryFilter:
    """Which deliveries, and which page of them, newest first; ``whole``: not those of intervals."""

    before: int | None = None
    run: UUID | None = None
    task: UUID | None = None
    archive: str | None = None
    destination: int | None = None
    states: Sequence[str] | None = None
    limit: int = 50
    whole: bool = False


async def keep_destination(connection: Connection, where: StoredDestination) -> int:
    """The number of this destination, made if there is none."""
    return int(
        await connection.fetchval(
            _SQL["destination"],
            where.digest,
            where.archiver,
            where.spec,
            where.label,
            where.ordered,
        )
    )


async def add(connection: Connection, archive: KeptArchive, task: UUID | None) -> bool:
    """Keep an archive; False if the name or the place is taken."""
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
    )
    return made is not None


async def listed(connection: Connection, task: UUID | None) -> list[KeptArchive]:
    """The archives of a task in their order, or the node's own by name."""
    return [KeptArchive(*row) for row in await connection.fetch(_SQL["archives"], task)]


async def lock(connection: Connection, name: str) -> UUID | None:
    """Lock the node's own archive of this name; None if there is none."""
    found: UUID | None = await connection.fetchval(_SQL["lock_archive"], name)
    return found


async def change(connection: Connection, archive: KeptArchive, now: int) -> None:
    """Change where it is and what goes there; what waits goes there, too."""
    await connection.execute(
        _SQL["change_archive"],
        archive.id,
        archive.destination,
        archive.runs,
        archive.transform,
        now,
    )
    await connection.execute(_SQL["move_waiting"], archive.id, archive.destination)


async def remove(connection: Connection, archive: UUID, now: int) -> int:
    """Nothing goes there any more; how many deliveries were dropped."""
    await connection.execute(_SQL["remove_archive"], archive, now)
    return len(await connection.fetch(_SQL["drop_waiting"], archive))


async def next_due(connection: Connection, busy: Sequence[int]) -> dict[int, int]:
    """By destination that is not busy: when the first of what waits is due."""
    rows = await connection.fetch(_SQL["next_due"], list(busy))
    return {row[0]: row[1] for row in rows}


async def where(connection: Connection, destination: int) -> tuple[str, dict[str, Any], str, bool]:
    """Archiver, spec, label, and whether it is ordered."""
    row = await connection.fetchrow(_SQL["destination_spec"], destination)
    if row is None:
        msg = f"there is no destination {destination}"
        raise LookupError(msg)
    return row[0], row[1], row[2], row[3]


async def release(connection: Connection, now: int) -> None:
    """What a process that is gone had taken is due now."""
    await connection.execute(_SQL["release"], now)


async def claim(
    connection: Connection, destination: int, now: int, again_at: int, *, limit: int, ordered: bool
) -> list[int]:
    """Take what is due; it comes again at ``again_at`` if nobody settles it."""
    query = _SQL["claim_in_order" if ordered else "claim"]
    rows = await connection.fetch(query, destination, now, again_at, limit)
    return sorted(row[0] for row in rows)


async def documents(connection: Connection, numbers: Sequence[int]) -> list[Record]:
    """All that is told of the runs of these deliveries, in the order of their numbers."""
    return await connection.fetch(_SQL["documents"], list(numbers))


async def parts(connection: Connection, runs: Sequence[UUID]) -> list[Record]:
    """The parts of these runs, without what they measured."""
    return await connection.fetch(_SQL["parts"], list(runs))


async def settle(connection: Connection, now: int, settled: Sequence[DeliverySettlement]) -> None:
    """Keep what came of deliveries."""
    await connection.execute(
        _SQL["settle"],
        [one.number for one in settled],
        now,
        [one.state for one in settled],
        [one.next_at for one in settled],
        [one.error for one in settled],
        [one.failed for one in settled],
    )


async def unclaim(connection: Connection, numbers: Sequence[int], now: int) -> None:
    """These were not tried after all."""
    await connection.execute(_SQL["unclaim"], list(numbers), now)


async def supersede(connection: Connection, numbers: Sequence[int]) -> None:
    """These tell of outcomes that others have taken the place of."""
    await connection.execute(_SQL["supersede"], list(numbers))


async def hasten(connection: Connection, destination: int, now: int) -> None:
    """What this destination did not take before is due now."""
    await connection.execute(_SQL["hasten"], destination, now)


async def keep_error(connection: Connection, destination: int, error: str, now: int) -> None:
    """What a destination said last when it did not take something."""
    await connection.execute(_SQL["keep_error"], destination, error, now)


async def deliveries(connection: Connection, wanted: DeliveryFilter) -> list[Record]:
    """Deliveries for people."""
    return await connection.fetch(
        _SQL["archivings"],
        wanted.before,
        wanted.run,
        wanted.task,
        wanted.archive,
        wanted.destination,
        None if wanted.states is None else list(wanted.states),
        wanted.limit,
        wanted.whole,
    )


async def retry(
    connection: Connection, wanted: DeliveryFilter, number: int | None, now: int
) -> int:
    """Have deliveries that wait or are parked tried now; how many."""
    row = await connection.fetchrow(
        _SQL["retry"], wanted.archive, wanted.destination, wanted.run, number, now
    )
    if row is None or not row[0]:
        return 0
    await connection.execute(_SQL["notify"], list(row[1]), "retry")
    return int(row[0])


async def notify(connection: Connection, destinations: Sequence[int]) -> None:
    """Something is to be delivered there."""
    await connection.execute(_SQL["notify"], list(destinations), "result")


async def backlog(connection: Connection) -> list[Record]:
    """What waits and what is parked, by destination."""
    return await connection.fetch(_SQL["backlog"])


async def purge(connection: Connection) -> None:
    """Forget archives and destinations that nothing tells of any more."""
    await connection.execute(_SQL["purge_archives"])
    await connection.execute(_SQL["purge_destinations"])
