"""Checks of tables and logs when all requests are over, and whether the nodes measure.

The owners remove the hostile peers first, as they would. Then nothing of these may be left.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import asyncpg

from tests.hostile.honest import TASK, wait_for_run
from tests.hostile.queries import SQL
from tests.hostile.record import Record
from tests.hostile.scene import Scene, Site

TABLES = (
    "expired_holds",
    "blocked_for_nothing",
    "overlaps",
    "one_slot_often",
    "large_parts",
    "overdue",
    "led_by_strangers",
    "booked_by_strangers",
    "ledger_hours",
    "more_than_quota",
)
"""The queries whose rows are faults."""

_SETTLE_S = 60.0
_LOOK_S = 2.0
_SHOWN = 4


async def look(scene: Scene, pause: Callable[[float], Any]) -> None:
    """Note everything that is not as it has to be; what is being repaired gets some time."""
    await _remove_peers(scene)
    left: list[tuple[str, str]] = []
    for _ in range(int(_SETTLE_S / _LOOK_S)):
        left = [each for site in scene.sites for each in await _broken(site)]
        left += await _half_made(scene)
        if not left:
            break
        await pause(_LOOK_S)
    for check, what in left:
        scene.record.fault(check, what)
    for site in scene.sites:
        logs(site.log, scene.record)
        await _audit(site, scene.record)
    await _remove_reservations(scene)
    await _measure(scene)


async def _remove_reservations(scene: Scene) -> None:
    """End what operators have reserved, as nothing could be measured then."""
    for site in scene.sites:
        for each in (await scene.ask(site, "GET", "/v1/reservations?limit=500"))["items"]:
            await scene.ask(site, "DELETE", f"/v1/reservations/{each['id']}")


async def _remove_peers(scene: Scene) -> None:
    known = {key.identity for key in (*scene.peers, scene.participant)}
    for site in scene.sites:
        for node in (await scene.ask(site, "GET", "/v1/nodes"))["items"]:
            if node["identity"] in known:
                await scene.ask(site, "DELETE", f"/v1/nodes/{node['name']}")


async def _broken(site: Site) -> list[tuple[str, str]]:
    """Return the rows of a node that break a promise."""
    connection: Any = await asyncpg.connect(site.node.dsn)
    try:
        found = []
        for check in TABLES:
            rows = await connection.fetch(SQL[check])
            found += [(check, f"{site.node.name}: {row[0]} {row[1]}") for row in rows[:_SHOWN]]
        return found + await _quotas(connection, site)
    finally:
        await connection.close()


async def _quotas(connection: Any, site: Site) -> list[tuple[str, str]]:
    """Compare what is counted of quotas with the sum over all runs."""
    transaction = connection.transaction(isolation="repeatable_read")
    await transaction.start()
    try:
        counted = {tuple(row) for row in await connection.fetch(SQL["quotas_counted"])}
        await connection.execute(SQL["count_quotas"])
        summed = {tuple(row) for row in await connection.fetch(SQL["quotas_counted"])}
    finally:
        await transaction.rollback()
    return [
        ("quotas are not the sum over runs", f"{site.node.name}: {row}")
        for row in sorted(counted ^ summed)[:_SHOWN]
    ]


async def _half_made(scene: Scene) -> list[tuple[str, str]]:
    """Return tasks and runs that one node of the lab has and another one should have."""
    tasks: dict[str, set[str]] = {}
    runs: dict[str, set[str]] = {}
    leads: dict[str, tuple[str, str]] = {}
    for site in scene.sites:
        connection: Any = await asyncpg.connect(site.node.dsn)
        try:
            rows = await connection.fetch(SQL["open_tasks"])
            tasks[site.identity] = {row[0] for row in rows}
            leads |= {row[0]: (row[1], "") for row in rows}
            rows = await connection.fetch(SQL["coming_runs"])
            runs[site.identity] = {row[0] for row in rows}
            leads |= {row[0]: (row[1], row[2]) for row in rows}
        finally:
            await connection.close()
    found = []
    for site in scene.sites:
        for task in tasks[site.identity]:
            lead = leads[task][0]
            if task not in tasks.get(lead, set()):
                found.append(("task without its lead", f"{site.node.name}: {task} of {lead}"))
        for run in runs[site.identity]:
            lead, participants = leads[run]
            everywhere = {lead} | {each["node"] for each in json.loads(participants)}
            lacking = [each for each in everywhere if run not in runs.get(each, set())]
            if lacking:
                found.append(("run booked in part", f"{site.node.name}: {run} not on {lacking}"))
    return found


def logs(path: Path, record: Record) -> None:
    """Note tracebacks, errors, and secrets in a log."""
    with path.open("rb") as lines:
        for line in lines:
            text = line.decode(errors="replace").rstrip()
            if b"Traceback" in line or b'"exception"' in line:
                record.fault("traceback in a log", f"{path.name}: {text[-600:]}")
            record.look_for_secrets(f"{path.name}: {text}", [line])


async def _audit(site: Site, record: Record) -> None:
    """Note secrets in the rows of the audit."""
    connection: Any = await asyncpg.connect(site.node.dsn)
    try:
        rows = await connection.fetch(SQL["audit_rows"])
    finally:
        await connection.close()
    record.look_for_secrets(f"the audit of {site.node.name}", [row[0].encode() for row in rows])


async def _measure(scene: Scene) -> None:
    """Measure on every node, and on all of them together."""
    together = {
        "test": {"type": "idle", "spec": {"duration": "PT1S", "class": "background"}},
        "participants": [site.node.name for site in scene.sites],
    }
    wanted = [(site, TASK) for site in scene.sites] + [(scene.sites[0], together)]

    async def one(site: Site, document: Any) -> None:
        task = await scene.ask(site, "POST", "/v1/tasks", document)
        state, reason = await wait_for_run(scene, site, task["id"])
        if state != "finished":
            scene.record.fault("no measurement afterwards", f"{site.node.name}: {state}: {reason}")

    await asyncio.gather(*(one(*each) for each in wanted))
