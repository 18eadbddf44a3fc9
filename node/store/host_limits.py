"""The tasks of other nodes and of users, as the limits of the owner of this host see them."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from uuid import UUID

from node.model.host_limits.quotas import PeriodQuota, Quantity, UseKey
from node.model.host_limits.standing import LimitStanding
from node.model.spans import Span
from node.model.wire.participants import RunRequest
from node.store.database import Connection
from node.store.statements import Query, Statements, as_tuple

_SQL = Statements("node.store", "host_limits")


async def open_tasks_to_judge(
    connection: Connection, after: UUID, at_most: int, *, of_users: bool
) -> list[UUID]:
    """Return open tasks to which limits may apply, in the order of their ids, after this one.

    With ``of_users`` these are also those that this node leads, and else only those that limits
    have bound so far.
    """
    rows = await connection.fetch(_SQL["judged_open"], after, at_most, of_users)
    return [row[0] for row in rows]


async def keep_verdicts(
    connection: Connection, judged: Mapping[tuple[UUID, int], LimitStanding]
) -> None:
    """Write the verdicts on tasks, by id and revision; one that has changed since keeps its own."""
    await connection.execute(
        _SQL["keep_verdicts"],
        [task for task, _ in judged],
        [revision for _, revision in judged],
        [standing.rule for standing in judged.values()],
        [standing.refusal for standing in judged.values()],
        [standing.run_bytes for standing in judged.values()],
        [json.dumps(standing.caps) for standing in judged.values()],
    )


standings: Query[[Sequence[UUID]], dict[UUID, LimitStanding]] = _SQL.rows_by_key(
    "limit_standings", LimitStanding.from_columns
)
"""The standing with the limits by task; unknown tasks are left out."""

count_refused: Query[[], int] = _SQL.value("refused_count")
"""Return how many open tasks are refused by the present limits."""


RuleQuota = tuple[str, PeriodQuota]
"""The name of a rule or a cap, and one of its quotas."""


async def quotas(connection: Connection) -> set[RuleQuota]:
    """Return the quotas by which runs are counted."""
    rows = await connection.fetch(_SQL["quotas"])
    return {(row[0], PeriodQuota(Quantity(row[1]), row[3], row[2])) for row in rows}


async def replace_quotas(connection: Connection, given: Collection[RuleQuota], now: int) -> None:
    """Count by these quotas instead of the earlier ones; recount what is booked already."""
    await connection.execute(_SQL["stop_counting"])
    await connection.execute(_SQL["drop_quotas"])
    await connection.execute(
        _SQL["keep_quotas"],
        [rule for rule, _ in given],
        [quota.quantity for _, quota in given],
        [quota.period for _, quota in given],
        [quota.most for _, quota in given],
    )
    await connection.execute(_SQL["recount"], now)


async def lock_use(connection: Connection, keys: Collection[UseKey]) -> dict[UseKey, int]:
    """Return the use under these keys, and lock it until the transaction ends."""
    if not keys:
        return {}
    columns = list(zip(*sorted(keys), strict=True))
    rows = await connection.fetch(_SQL["claim_use"], *columns)
    rows += await connection.fetch(_SQL["take_returns"], *columns)
    return {UseKey(*row[:5]): row[5] for row in map(tuple, rows)}


async def use_between(
    connection: Connection, asked: Collection[tuple[str, str]], since: int, until: int
) -> dict[UseKey, int]:
    """Return what holders use of rules and caps in periods that overlap this time.

    ``asked`` has the name of a rule with a lead, or that of a cap with the network of a target.
    """
    names, holders = [name for name, _ in asked], [holder for _, holder in asked]
    rows = await connection.fetch(_SQL["use_between"], names, holders, since, until)
    return {UseKey(*row[:5]): row[5] for row in map(tuple, rows)}


use_now: Query[[int], list[tuple[str, str, int, int]]] = _SQL.rows("use_now", as_tuple)
"""Rule or cap, quantity, period (µs), and what all together use in the present one."""

concurrent_spans: Query[[str, str, int, int], list[Span]] = _SQL.rows("at_once", as_tuple)
"""The spans of the runs of a lead or a user under a rule that overlap this time.

Takes ``rule``, ``holder``, ``since``, ``until``.
"""


async def countable_runs(connection: Connection, task: UUID) -> list[RunRequest]:
    """Return the runs of a task that count for whatever an edit brings it under."""
    return [
        RunRequest(run=row[0], slot=row[1], attempt=row[2], starts_at=row[3], ends_at=row[4])
        for row in await connection.fetch(_SQL["moving"], task)
    ]


async def has_booked_runs(connection: Connection, task: UUID, *, own_spec: bool) -> bool:
    """Return whether a task has runs to come, or only such with a spec of their own."""
    found: bool = await connection.fetchval(_SQL["any_booked"], task, own_spec)
    return found


async def rates(
    connection: Connection, asked: Collection[tuple[str, str]], since: int, until: int
) -> dict[tuple[str, str], list[tuple[int, int, int]]]:
    """Return begin, end, and rate (b/s) of what counts for caps and networks in this time."""
    caps, networks = [cap for cap, _ in asked], [network for _, network in asked]
    found: dict[tuple[str, str], list[tuple[int, int, int]]] = {each: [] for each in asked}
    for row in await connection.fetch(_SQL["rates"], caps, networks, since, until):
        found[row[0], row[1]].append((row[2], row[3], row[4]))
    return found


async def keep_rates(
    connection: Connection, counted: Mapping[tuple[str, str], int], since: int, until: int
) -> None:
    """Count these rates (b/s), by cap and network, for a run that is about to begin."""
    caps, networks = [cap for cap, _ in counted], [network for _, network in counted]
    await connection.execute(
        _SQL["keep_rates"], caps, networks, list(counted.values()), since, until
    )


async def count_use(
    connection: Connection, counted: Mapping[UseKey, tuple[int, int]]
) -> set[UseKey]:
    """Count these amounts, each with the most that its quota allows; return the counted keys.

    A key whose quota would be exceeded is left out, and nothing is counted under it.
    """
    await lock_use(connection, counted)
    counts = [(*key, *counted[key]) for key in sorted(counted)]
    rows = await connection.fetch(_SQL["count_use"], *zip(*counts, strict=True))
    return {UseKey(*row[:5]) for row in map(tuple, rows)}


ReachedPeriod = tuple[str, int, int]
"""The name of a rule or a cap, and the beginning and end of a period in which it refused."""


async def mark_reached(
    connection: Connection, periods: Collection[ReachedPeriod], now: int
) -> list[ReachedPeriod]:
    """Keep that limits were reached in these periods; return those of which this is news."""
    rows = await connection.fetch(_SQL["reach"], *zip(*sorted(periods), strict=True), now)
    return [tuple(row) for row in rows]


reached_limits: Query[[int], set[str]] = _SQL.distinct("reached_now")
"""The rules and caps that have refused something in a present period."""


async def purge(connection: Connection, before: int, at_most: int) -> int:
    """Delete the use of periods that ended before; return how many."""
    deleted = len(await connection.fetch(_SQL["purge_use"], before, at_most))
    deleted += len(await connection.fetch(_SQL["purge_returns"], before, at_most))
    deleted += len(await connection.fetch(_SQL["purge_rates"], before, at_most))
    return deleted + len(await connection.fetch(_SQL["purge_reached"], before, at_most))
