"""Read-only queries: the impact that runs which are not booked would have on this node."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from node.model.classes import SchedulingClass, blockers
from node.model.wire.impacts import HOURS, Hour, ImpactRequest
from node.model.wire.participants import Obstacle
from node.store.database import Connection
from node.store.queries import Queries

_SQL = Queries("node.store", "impacts")


async def runs_giving_way(
    connection: Connection,
    request: ImpactRequest,
    displacing: Sequence[int],
    rank: int,
    earliest: int,
) -> list[tuple[Obstacle, str]]:
    """Return the runs that a hold of these runs would set aside, by start, with their leads."""
    rows = await connection.fetch(
        _SQL["giving_way"],
        list(displacing),
        [request.runs[index][0] for index in displacing],
        [request.runs[index][1] for index in displacing],
        sorted(blockers(request.scheduling_class)),
        rank,
        request.priority,
        earliest,
    )
    return [
        (
            Obstacle(
                window=row[0],
                run=row[1],
                task=row[2],
                test=row[3],
                scheduling_class=SchedulingClass(row[4]),
                priority=row[5],
                starts_at=row[6],
                ends_at=row[7],
            ),
            row[8],
        )
        for row in rows
    ]


async def occupied_hours(
    connection: Connection, request: ImpactRequest, gone: Sequence[UUID], lead: str
) -> list[Hour]:
    """Return by hour how long runs occupy the node: now, and with these but without ``gone``.

    The booked runs of the task to leave out are gone as well, if ``lead`` leads it.
    """
    rows = await connection.fetch(
        _SQL["hours"],
        request.since,
        HOURS,
        [run[0] for run in request.runs],
        [run[1] for run in request.runs],
        list(gone),
        request.mesh,
        request.leaving_out,
        lead,
    )
    return [Hour(before=row[0], after=row[1], others=row[2]) for row in rows]
