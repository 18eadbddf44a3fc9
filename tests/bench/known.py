"""The cost of knowing others: a node of which nothing is wanted, in fleets of several sizes.

Another process stands in for all others (:mod:`tests.bench.crowd`): it answers as each of them, and
looks at the node as often as they would.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from node.execution import process
from node.model import times
from node.model.looks import ROUND, ROUND_MAX, SELDOM
from node.runtime.clock import SystemClock
from tests.bench import crowd
from tests.bench.figures import Figure
from tests.bench.fleet import Fleet, cpu_seconds, rss_mb

COUNTS = (100, 1000)
SETTLED_S = 30.0
WATCHED_S = 60.0

_KEEP = """
    INSERT INTO node (identity, name, url, address, added_at, seen_at, attributes, lanes)
    SELECT card ->> 'identity', card ->> 'name', card ->> 'url', card ->> 'address', now(), now(),
        card -> 'attributes', (card ->> 'lanes')::integer
    FROM jsonb_array_elements($1::jsonb) AS card
"""
_WRITTEN = "SELECT pg_current_wal_lsn() - '0/0'"


async def known(fleet: Fleet) -> list[Figure]:
    """Measure ``known_*``: processor, memory and writes of an idle node, by how many it knows."""
    name, figures, folder = fleet.names[0], list[Figure](), Path(tempfile.mkdtemp())
    await SystemClock().sleep(SETTLED_S)
    alone = await _watch(fleet, name)
    figures.append(Figure("known_0_core", 100 * alone["core"], "% of a core", "none known"))
    memory_mb = rss_mb(fleet.pid(name))
    for count in COUNTS:
        every_s = max(SELDOM, ROUND * count // ROUND_MAX) / times.SECOND
        file = folder / "cards.json"
        file.write_text(json.dumps(await fleet.ask(name, "GET", "/v1/nodes/self")))
        words = [sys.executable, "-m", "tests.bench.crowd", str(count), str(file), str(every_s)]
        others = await process.start(words)
        try:
            await others.wait_for_output(crowd.READY)
            async with fleet.database(name) as connection:
                await connection.execute("DELETE FROM node WHERE NOT is_self")
                await connection.execute(_KEEP, file.read_text())
                await connection.execute("SELECT pg_notify('parley', 'node all changed')")
            await SystemClock().sleep(SETTLED_S)
            seen = await _watch(fleet, name)
        finally:
            await others.end(10)
        how = f"{count} known nodes without a common task, {WATCHED_S:g} s"
        more_mb = rss_mb(fleet.pid(name)) - memory_mb
        figures += [
            Figure(f"known_{count}_core", 100 * seen["core"], "% of a core", how),
            Figure(f"known_{count}_memory", more_mb, "MB", "more than with none known"),
            Figure(f"known_{count}_written", seen["wal"] / 1000, "kB/min", how),
            Figure(f"known_{count}_requests", seen["requests"], "requests/s", "those it served"),
        ]
    return figures


async def _watch(fleet: Fleet, name: str) -> dict[str, Any]:
    """Return what a node uses while nothing is asked of it, a second or a minute."""
    pid, clock = fleet.pid(name), SystemClock()
    before = cpu_seconds(pid), await fleet.peer_requests(), await fleet.value(name, _WRITTEN)
    began = clock.monotonic()
    await clock.sleep(WATCHED_S)
    took_s = (clock.monotonic() - began) / times.SECOND
    after = cpu_seconds(pid), await fleet.peer_requests(), await fleet.value(name, _WRITTEN)
    used = (float(later - earlier) for earlier, later in zip(before, after, strict=True))
    core, requests, wal = used
    return {"core": core / took_s, "requests": requests / took_s, "wal": wal / took_s * 60}
