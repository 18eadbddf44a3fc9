"""Retention: how long everything is kept, and its deletion in small batches.

Each row of :func:`rules_of` is one kind of record; how long it is kept is a setting
(``PARLEY_KEEP_…``). A batch is a transaction of its own, so that nobody waits for the deletion of a
year. What depends on a record is deleted with it: parts, intervals, and deliveries with their run;
the agenda, archives, exchanges, and decisions with their task.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial

from node.model import times
from node.runtime.settings import Settings
from node.store import (
    alerts,
    archives,
    audit,
    campaigns,
    clock_steps,
    host_limits,
    meshes,
    outbox,
    reservations,
    runs,
    seats,
    tasks,
    tokens,
)
from node.store.core import Core
from node.store.database import Connection

BATCH = 1000
"""Maximum number of records that one transaction deletes, without what depends on them."""

RUNS_KEPT = 100_000
"""Maximum number of ended runs of one other lead that are kept; leads that share a cap are one."""

PARTS_WAITING = 10_000
"""Maximum number of messages with what was measured here that wait for one lead, which can ask for
the parts again."""

EXCHANGES_KEPT = 1000
"""Maximum number of exchanges of one other lead that are kept although they have no runs."""

Delete = Callable[[Connection, int, int], Awaitable[int]]
"""``delete(connection, before, at_most)`` returns how many records it deleted."""


@dataclass(frozen=True)
class RetentionRule:
    """The time (µs) for which one kind of record is kept, and the deletion of older ones."""

    name: str
    keep: int
    delete: Delete


def rules_of(settings: Settings) -> tuple[RetentionRule, ...]:
    """Return the rules by age; a kind of record comes before those that it depends on."""
    finished = partial(runs.purge, finished=True)
    others = partial(runs.purge, finished=False)

    async def delete_surplus_runs(connection: Connection, _: int, at_most: int) -> int:
        return await runs.purge_surplus(connection, RUNS_KEPT, at_most)

    return (
        RetentionRule("finished runs", settings.keep_finished, finished),
        RetentionRule("other runs that are over", settings.keep_failed, others),
        RetentionRule("gaps", settings.keep_failed, runs.purge_gaps),
        RetentionRule("refused pairs of meshes", settings.keep_failed, meshes.purge_refusals),
        RetentionRule("alerts that are over", settings.keep_failed, alerts.purge),
        RetentionRule("decisions", settings.keep_decisions, runs.purge_decisions),
        RetentionRule("surplus runs of other nodes", 0, delete_surplus_runs),
        RetentionRule("exchanges", settings.keep_exchanges, runs.purge_exchanges),
        RetentionRule("negotiations", settings.keep_exchanges, runs.purge_negotiations),
        RetentionRule("Idempotency-Keys", settings.keep_keys, runs.purge_idempotency),
        RetentionRule("charges", settings.keep_charges, campaigns.purge_charges),
        RetentionRule("hourly sums of charges", settings.keep_hours, campaigns.purge_hours),
        RetentionRule("reserved spans", settings.keep_reserved, reservations.purge_spans),
        RetentionRule("audit", settings.keep_audit, audit.purge),
        RetentionRule("invalid tokens", settings.keep_tokens, tokens.purge),
        # The following have no age of their own: they go once nothing refers to them, or once the
        # period to which they belong is over.
        RetentionRule("uses of limits", 0, host_limits.purge),
        RetentionRule("reservations", 0, _delete_reservations),
        RetentionRule("messages", settings.keep_messages, outbox.purge),
        RetentionRule("terms of pool tasks", settings.keep_finished, seats.purge),
        RetentionRule("ended tasks", settings.keep_tasks, tasks.purge),
        RetentionRule("removed archives", 0, _delete_archives),
        RetentionRule("destinations", 0, _delete_destinations),
    )


def surplus_rules_of(settings: Settings) -> tuple[RetentionRule, ...]:
    """Return the rules by number, which are applied more often than those by age.

    A peer may introduce and end ten tasks of 64 kB each second. By age alone, that would be 55 GB
    a day.
    """

    async def delete_surplus_tasks(connection: Connection, _: int, at_most: int) -> int:
        return await tasks.purge_surplus(connection, settings.peer_ended_tasks, at_most)

    async def delete_heavy_tasks(connection: Connection, _: int, at_most: int) -> int:
        return await tasks.purge_heavy(connection, settings.peer_ended_bytes, at_most)

    async def delete_surplus_exchanges(connection: Connection, _: int, at_most: int) -> int:
        return await runs.purge_surplus_exchanges(connection, EXCHANGES_KEPT, at_most)

    async def delete_surplus_messages(connection: Connection, _: int, at_most: int) -> int:
        return await outbox.purge_surplus(connection, PARTS_WAITING, at_most)

    return (
        RetentionRule("surplus tasks of other nodes", 0, delete_surplus_tasks),
        RetentionRule("surplus exchanges of other nodes", 0, delete_surplus_exchanges),
        RetentionRule("surplus messages with parts", 0, delete_surplus_messages),
        RetentionRule("bytes of ended tasks of other nodes", 0, delete_heavy_tasks),
    )


async def _delete_reservations(connection: Connection, _: int, at_most: int) -> int:
    return await reservations.purge(connection, times.LATEST, at_most)


async def _delete_archives(connection: Connection, _: int, at_most: int) -> int:
    return await archives.purge(connection, at_most)


async def _delete_destinations(connection: Connection, _: int, at_most: int) -> int:
    return await archives.purge_destinations(connection, at_most)


class Purger:
    """Deletes what has been kept long enough."""

    def __init__(self, core: Core, rules: Sequence[RetentionRule]) -> None:
        self._database = core.database
        self._clock = core.clock
        self._steps = core.steps
        self._rules = rules

    async def run_once(self) -> None:
        """Delete all records that are older than their rules allow, batch by batch.

        Nothing is deleted while the clock is in doubt. A clock that is believed, and wrong all the
        same, makes nothing more than a day older in an hour (``age_judged_at``).
        """
        if self._steps.doubtful:
            return
        async with self._database.connection() as connection:
            now = await clock_steps.judge_age(connection, self._clock.now())
        await self.purge(now)

    async def purge(self, now: int) -> None:
        """Delete all records that at ``now`` (µs) are older than their rules allow, in batches."""
        for rule in self._rules:
            while await self.delete_batch(rule, now - rule.keep) == BATCH:
                pass

    async def delete_batch(self, rule: RetentionRule, before: int) -> int:
        """Delete up to ``BATCH`` records in a transaction of their own; return their number."""
        return await self._database.settle(
            lambda connection: rule.delete(connection, before, BATCH)
        )
