"""The invariants of ``lead/simulation/sql/invariants.sql``, asked of nodes in the test's process.

Each function returns sentences about violations; none is good.
"""

from __future__ import annotations

from collections.abc import Sequence

import asyncpg

from lead.simulation import evidence
from node.model import times
from node.store.database import prepare_connection
from tests.support.worlds import Site

_SETTLED = (
    "all_or_none",
    "slots",
    "once",
    "at_once",
    "displaced",
    "changed",
    "orphans",
    "delivered",
)
"""The invariants that hold although nothing is measured."""

_UNPLANNED = """
SELECT task.id FROM task INNER JOIN planning ON planning.task_id = task.id
WHERE task.state = 'active' AND (planning.plan_at IS NULL OR planning.plan_at > $1)
    AND (
        EXISTS (SELECT FROM run WHERE run.task_id = task.id AND run.state = 'waiting')
        OR NOT EXISTS (SELECT FROM run WHERE run.task_id = task.id)
    )
"""


async def always(site: Site, *, holds: bool = False) -> list[str]:
    """Check what holds between any two steps; of old holds only a node whose loops run."""
    now = site.clock.now()
    rows = await site.rows(evidence.ALWAYS, now, now if holds else 0, 0, 0)
    return [f"{row['node']}: {row['what']} ({row['invariant']} {row['id']})" for row in rows]


async def settled(
    sites: Sequence[Site], scratch: str, hold_life: int, longest_pause: int
) -> list[str]:
    """Compare all nodes side by side once all wires are whole and their holds have expired.

    Their rows are copied into the database ``scratch`` (a DSN), whose content is lost.
    """
    now = sites[0].clock.now()
    at_once, margin = -1, sites[0].node.settings.start_margin
    connection = await asyncpg.connect(scratch)
    try:
        await prepare_connection(connection)
        await connection.execute(evidence.SQL["tables"])
        for site in sites:
            [row] = await site.rows(evidence.ROWS)
            await connection.execute(evidence.FILLING, row["document"])
        terms = (
            now,
            now,
            margin,
            hold_life,
            0,
            longest_pause,
            0,
            at_once,
            0,
            0,
            0,
            times.DAY,
            0,
            0,
        )
        await connection.execute(evidence.ROUND, *terms)
        await connection.execute(evidence.READY)
        faults = [
            f"{row[0]}: {row[2]} ({name} {row[1]})"
            for name in _SETTLED
            for row in await connection.fetch(evidence.SQL[f"settled_{name}"])
        ]
    finally:
        await connection.close()
    for site in sites:
        unplanned = await site.rows(_UNPLANNED, now + longest_pause)
        faults += [f"{site.name}: nobody plans task {row['id']}" for row in unplanned]
    return faults
