"""The counted resources that this node keeps, and what runs take of them.

``resource_taken`` in ``schema.sql`` says what counts, and a trigger refuses more than there is.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from uuid import UUID

from node.model.resources import Use
from node.model.spans import Span
from node.model.wire.host_limits import ResourceState
from node.store.database import Connection
from node.store.statements import Query, Statements

_SQL = Statements("node.store", "resources")

numbers: Query[[], dict[str, int]] = _SQL.by_key("numbers")
"""Return the number of each resource, by name."""


async def states(connection: Connection, now: int) -> list[ResourceState]:
    """Return each resource with what is taken of it at this instant, and from then on."""
    rows = await connection.fetch(_SQL["states"], now)
    return [ResourceState.model_validate(dict(row)) for row in rows]


lock: Query[[Sequence[str]], dict[str, int]] = _SQL.by_key("lock")
"""Lock these resources until the transaction ends; return the numbers of those that are known."""

end_kept: Query[[int], None] = _SQL.command("end_kept")
"""Finish the runs of others whose time is over and of which this node only kept resources."""


async def replace(connection: Connection, given: Mapping[str, int]) -> None:
    """Keep these resources, by name, and no others; what is taken stays taken."""
    await connection.execute(_SQL["drop"], list(given))
    await connection.execute(_SQL["keep"], list(given), list(given.values()))


async def uses(
    connection: Connection, names: Collection[str], spans: Sequence[Span], fixed_before: int
) -> dict[str, list[tuple[Use, UUID]]]:
    """Return by resource what is taken in these spans, each with the task of the run.

    Runs that begin before ``fixed_before``, or have begun, do not give way.
    """
    rows = await connection.fetch(
        _SQL["uses"],
        list(names),
        [start for start, _ in spans],
        [end for _, end in spans],
        fixed_before,
    )
    found: dict[str, list[tuple[Use, UUID]]] = defaultdict(list)
    for name, *use, task in map(tuple, rows):
        found[name].append((Use(*use), task))
    return found


async def set_aside(
    connection: Connection, victims: Sequence[tuple[UUID, UUID, int]], now: int
) -> Counter[UUID]:
    """Set aside runs, each for another one of this rank; count them by the displacing run."""
    rows = await connection.fetch(_SQL["set_aside"], *zip(*victims, strict=True), now)
    return Counter(row[0] for row in rows)


async def take(connection: Connection, taken: Sequence[tuple[UUID, str, int]]) -> None:
    """Write what booked runs take: run, resource, and amount."""
    await connection.execute(_SQL["take"], *zip(*taken, strict=True))
