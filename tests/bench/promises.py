"""Figures of the promises under load and faults: what the scorecard in ``tests/README.md`` lists.

Each function measures one promise on real processes. Like all benchmarks they assert no durations.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import statistics
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import aiohttp

from node.execution import process
from node.execution.process import RunningProcess
from node.journal.retention import Purger, rules_of
from node.model import times
from node.runtime.clock import SystemClock
from node.runtime.settings import Settings
from node.store.core import Core
from node.store.database import PostgresDatabase
from tests.bench import starts
from tests.bench.booking import idle
from tests.bench.figures import Figure
from tests.bench.fleet import Fleet, cpu_seconds, rss_mb
from tests.support.clocks import ManualClock
from tests.support.ended_tasks import ENDED_TASKS

LEASE_S = 10
TAKEOVERS = 3
TAKEN_OVER = 200
BURST = 5000
CLIENTS = 50
SINGLES = 400
HOGS = 2
READERS = 1000
EVENTS = 2000
EVENTS_AT_ONCE = 500
MONTHS = 12
APART = 15 * times.MINUTE
A_MONTH = 30 * times.DAY // APART
KEPT = 30 * times.DAY
RUNS_A_DAY = 100_000
KEPT_DAYS = 2

_BOOKED = "SELECT count(*) FROM run_known WHERE state = 'scheduled'"
_PLANNED = "SELECT count(*) FROM planning WHERE planned_to IS NOT NULL"
_LEASED = "SELECT count(*) FROM planning WHERE lease_until > now()"
_LEASED_OR_PLANNED = """
    SELECT count(*) FILTER (WHERE lease_until > now()) > 0
        OR count(*) FILTER (WHERE planned_to IS NOT NULL) >= $1
    FROM planning
"""
_RATE = """
    SELECT count(*) / extract(EPOCH FROM max(decided_at) - min(opened_at))::float8
    FROM negotiation WHERE state = 'committed'
"""
_BACKENDS = "SELECT pid FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> $1"
_SIZE = "SELECT sum(pg_total_relation_size(oid)) FROM pg_class WHERE relkind = 'r' AND oid > 16383"
_ALL_BACKENDS = "SELECT pid FROM pg_stat_activity WHERE datname = current_database()"
_NOTIFY = (
    "SELECT pg_notify('parley', 'node ' || n || ' changed') FROM generate_series($1::int, $2) n"
)
_HOG = "while True: pass"
_TIMERS = """
import asyncio
async def main():
    await asyncio.gather(*map(turn, range(1000)))
async def turn(number):
    await asyncio.sleep(number / 1000)
    while True:
        await asyncio.sleep(1)
asyncio.run(main())
"""
"""A program with 1,000 timers, one of which ends each millisecond."""


async def takeover(fleet: Fleet) -> list[Figure]:
    """Measure ``takeover_leases``: from the kill of a lead until another has planned its tasks."""
    name = fleet.names[0]
    taken = list[float]()
    os.environ["PARLEY_LEASE"] = f"PT{LEASE_S}S"
    try:
        while len(taken) < TAKEOVERS:
            taken += await _taken_over(fleet, name)
    finally:
        del os.environ["PARLEY_LEASE"]
    how = (
        f"lease {LEASE_S} s: kill -9 of a lead that holds leases, until a lead that is started at "
        f"once has planned all tasks, in leases; median of {TAKEOVERS}"
    )
    return [Figure("takeover_leases", statistics.median(taken), "", how)]


async def _taken_over(fleet: Fleet, name: str) -> list[float]:
    """Return the time in leases; nothing if the lead held no lease when it was killed."""
    documents = [idle(fleet.names, {"repeat": "PT1H"}) for _ in range(TAKEN_OVER)]
    await fleet.post_all(name, documents)
    lead = await fleet.start_lead(name)
    async with fleet.database(name) as connection:
        while not await connection.fetchval(_LEASED_OR_PLANNED, len(documents)):
            pass
    lead.send(signal.SIGKILL)
    killed_at = time.monotonic()
    leased = await fleet.value(name, _LEASED)
    await fleet.end_lead(name)
    await fleet.start_lead(name)

    async def all_planned() -> bool:
        return bool(await fleet.value(name, _PLANNED) >= len(documents))

    await fleet.until(all_planned)
    passed = time.monotonic() - killed_at
    await fleet.end_lead(name)
    await fleet.cancel_all()
    return [passed / LEASE_S] if leased else []


async def restart(fleet: Fleet) -> list[Figure]:
    """Measure ``database_restart_s``: from a crash of Postgres until a new run is committed."""
    name = fleet.names[0]
    await fleet.start_lead(name)
    await fleet.post_all(name, [idle(fleet.names, {"repeat": "PT5M"}) for _ in range(10)])

    async def all_planned() -> bool:
        return bool(await fleet.value(name, _PLANNED) >= 10)

    await fleet.until(all_planned)
    before = [await fleet.value(each, _BOOKED) for each in fleet.names]
    async with fleet.database(name) as connection:
        own = connection.get_server_pid()
        [victim, *_] = [row[0] for row in await connection.fetch(_BACKENDS, own)]
        os.kill(victim, signal.SIGKILL)  # Postgres then ends all others, and recovers
        crashed_at = time.monotonic()
        connection.terminate()
    seconds = await _next_commit(fleet, name) - crashed_at
    lost = sum(before) - sum([await fleet.value(each, _BOOKED) for each in fleet.names])
    await fleet.end_lead(name)
    await fleet.cancel_all()
    how = "a backend is killed, so that Postgres crashes and recovers; two nodes with 2,880 runs"
    return [
        Figure("database_restart_s", seconds, "s", f"{how}; until a new task's run is committed"),
        Figure(
            "database_restart_lost", max(0, lost), "runs", f"{how}; committed runs that are gone"
        ),
    ]


async def _next_commit(fleet: Fleet, name: str) -> float:
    """Post a task until it is taken; return when its run is committed on all nodes."""
    node = fleet.node(name)
    headers = {"Authorization": f"Bearer {node.token}", "Idempotency-Key": "after the crash"}
    document = idle(fleet.names, {"slip": "PT1H"})
    task: str | None = None

    async def taken() -> bool:
        nonlocal task
        url = f"{node.url}/v1/tasks"
        async with fleet.session.post(url, json=document, headers=headers) as response:
            task = (await response.json())["id"] if response.ok else None
        return task is not None

    await fleet.until(taken)
    query = f"SELECT count(*) FROM exchange WHERE state = 'committed' AND task_id = '{task}'"

    async def committed() -> bool:
        return all([await fleet.value(each, query) for each in fleet.names])

    await fleet.until(committed)
    return time.monotonic()


async def burst(fleet: Fleet) -> list[Figure]:
    """Measure ``burst_*``: the answers to thousands of tasks posted at once to three nodes."""
    for name in fleet.names:
        await fleet.start_lead(name)
    documents = [idle(fleet.names[:2], {"slip": "PT1H"}) for _ in range(BURST)]
    statuses = Counter[int]()
    seconds: list[float] = []

    async def client(session: aiohttp.ClientSession, number: int) -> None:
        node = fleet.node(fleet.names[number % len(fleet.names)])
        headers = {"Authorization": f"Bearer {node.token}"}
        for document in documents[number::CLIENTS]:
            again_s = await post(session, node.url, document, headers)
            while again_s is not None:
                await SystemClock().sleep(again_s * random.uniform(1, 2))
                again_s = await post(session, node.url, document, headers)

    async def post(
        session: aiohttp.ClientSession, url: str, document: Any, headers: dict[str, str]
    ) -> float | None:
        """Post a task; return the seconds after which the node wants to be asked again, if any."""
        began = time.monotonic()
        async with session.post(f"{url}/v1/tasks", json=document, headers=headers) as response:
            await response.read()
            statuses[response.status] += 1
            seconds.append(time.monotonic() - began)
            return float(response.headers["Retry-After"]) if response.status == 429 else None

    began = time.monotonic()
    connector = aiohttp.TCPConnector(limit=CLIENTS)
    async with aiohttp.ClientSession(connector=connector) as session:
        await asyncio.gather(*(client(session, number) for number in range(CLIENTS)))
    rate = BURST / (time.monotonic() - began)
    for name in fleet.names:
        await fleet.end_lead(name)
    await fleet.cancel_all()
    how = (
        f"{BURST} tasks of two nodes by {CLIENTS} clients at once, to three nodes with their leads"
    )
    failed = sum(count for status, count in statuses.items() if status >= 500)
    return [
        Figure("burst_5xx", failed, "", f"{how}; answers of 500 and above"),
        Figure("burst_429", statuses[429], "", f"{how}; told to come again, and came"),
        Figure("burst_201", statuses[201], "", f"{how}; created"),
        Figure("burst_p99_s", statistics.quantiles(seconds, n=100)[98], "s", f"{how}; answer, p99"),
        Figure("burst_posts_per_s", rate, "1/s", how),
    ]


async def slow_peer(fleet: Fleet) -> list[Figure]:
    """Measure ``slow_peer_ratio``: the booking rate of others beside a node that stands still."""
    *others, silent = fleet.names
    documents = [idle(others[:2], {"slip": "PT1H"}) for _ in range(SINGLES)]
    needing = [idle([others[0], silent], {"slip": "PT1H"}) for _ in range(SINGLES // 4)]
    alone = [await _rate(fleet, documents, SINGLES) for _ in range(3)]
    beside = []
    for _ in range(3):
        await fleet.post_all(others[0], needing)
        os.kill(fleet.pid(silent), signal.SIGSTOP)
        try:
            beside.append(await _rate(fleet, documents, SINGLES))
        finally:
            os.kill(fleet.pid(silent), signal.SIGCONT)
    how = (
        f"{SINGLES} single runs of two nodes of five beside {len(needing)} tasks that need a node "
        "which is stopped, over the same without those; medians of 3"
    )
    ratio = statistics.median(beside) / statistics.median(alone)
    return [Figure("slow_peer_ratio", ratio, "", how)]


async def _rate(fleet: Fleet, documents: Sequence[Any], expected: int) -> float:
    """Return the committed exchanges per second."""
    lead = fleet.names[0]
    await fleet.post_all(lead, documents)
    await fleet.start_lead(lead)
    committed = "SELECT count(*) FROM negotiation WHERE state = 'committed'"

    async def all_committed() -> bool:
        return bool(await fleet.value(lead, committed) >= expected)

    await fleet.until(all_committed)
    rate = float(await fleet.value(lead, _RATE))
    await fleet.end_lead(lead)
    await fleet.cancel_all()
    return rate


async def hogged_starts(fleet: Fleet) -> list[Figure]:
    """Measure ``hogged_start_error_ms_*``: start errors while programs take all processors."""
    async with _hogs():
        figures = await starts.start_errors(fleet)
    return [
        Figure(
            f"hogged_{it.name}",
            it.value,
            it.unit,
            f"{it.how}; beside {HOGS} busy loops and a program with 1,000 timers",
        )
        for it in figures
    ]


@asynccontextmanager
async def _hogs() -> AsyncIterator[None]:
    hogs: list[RunningProcess] = []
    try:
        for code in (*[_HOG] * HOGS, _TIMERS):
            hog = await process.start([sys.executable, "-c", code])
            hogs.append(hog)
        yield
    finally:
        for hog in hogs:
            await hog.end(0)


async def slow_readers(fleet: Fleet) -> list[Figure]:
    """Measure ``slow_readers_mb``: the memory of event streams that nobody reads."""
    name = fleet.names[0]
    before = rss_mb(fleet.pid(name))
    url = fleet.node(name).url.removeprefix("http://")
    host, _, port = url.partition(":")
    headers = fleet.authorization(name)
    streams = []
    served = 0
    for _ in range(READERS):
        reader, writer = await asyncio.open_connection(host, int(port), limit=64)
        words = (f"{name}: {value}" for name, value in ({"Host": url} | headers).items())
        writer.write("\r\n".join(("GET /v1/events HTTP/1.1", *words, "\r\n")).encode())
        served += b" 200" in await reader.readexactly(12)
        streams.append(writer)
    assert served
    idle_mb = rss_mb(fleet.pid(name)) - before
    async with fleet.database(name) as connection:
        for first in range(0, EVENTS, EVENTS_AT_ONCE):
            await connection.execute(_NOTIFY, first, first + EVENTS_AT_ONCE - 1)
    for writer in streams[: READERS // 10]:
        writer.close()  # makes room for a question

    async def answers() -> bool:
        metrics = f"{fleet.node(name).url}/metrics"
        async with fleet.session.get(metrics, headers=headers) as response:
            return response.ok

    await fleet.until(answers)
    unread_mb = rss_mb(fleet.pid(name)) - before
    for writer in streams:
        writer.close()
    how = (
        f"growth of a node's memory by {READERS} event streams of which only the head is read; "
        f"{served} were served, the others refused"
    )
    return [
        Figure("idle_readers_mb", idle_mb, "MB", f"{how}; nothing happens"),
        Figure("slow_readers_mb", unread_mb, "MB", f"{how}; {EVENTS:,} events happen"),
    ]


async def year(fleet: Fleet) -> list[Figure]:
    """Measure ``year_over_month``: the size of all tables after a year over that after a month."""
    name = fleet.names[0]
    clock = ManualClock()
    database = PostgresDatabase(fleet.node(name).dsn)
    await database.open()
    kept = {field: KEPT for field in Settings.model_fields if field.startswith("keep_")}
    settings = Settings(name=name).model_copy(update=kept)
    purger = Purger(Core(database, clock, fleet.key(name).identity, settings), rules_of(settings))
    identity = fleet.key(name).identity
    sizes = []
    for _ in range(MONTHS):
        async with database.connection() as connection:
            await connection.execute(ENDED_TASKS, identity, clock.now(), A_MONTH, APART)
        clock.advance(30 * times.DAY)
        await purger.purge(clock.now())
        async with fleet.database(name) as raw:
            await raw.execute("VACUUM ANALYZE")  # as autovacuum does, many times a month
            sizes.append(float(await raw.fetchval(_SIZE)))
    await database.close()
    await fleet.cancel_all()
    how = f"{A_MONTH:,} ended tasks a month, all kept 30 days; month 12 over month 2"
    return [
        Figure("year_over_month", sizes[-1] / sizes[1], "", how),
        Figure("month_mb", sizes[1] / 1e6, "MB", "the size of all tables after two months of them"),
    ]


async def purge(fleet: Fleet) -> list[Figure]:
    """Measure ``purge_core_percent``: the part of a processor that deleting each day's runs takes.

    Each run has a task, an exchange, and all else of its own, which is the most there can be.
    """
    name = fleet.names[0]
    clock = ManualClock()
    database = PostgresDatabase(fleet.node(name).dsn)
    await database.open()
    kept = {field: KEPT_DAYS * times.DAY for field in Settings.model_fields if "keep_" in field}
    settings = Settings(name=name).model_copy(update=kept)
    purger = Purger(Core(database, clock, fleet.key(name).identity, settings), rules_of(settings))
    identity, apart = fleet.key(name).identity, times.DAY // RUNS_A_DAY
    async with fleet.database(name) as raw:
        for _ in range(KEPT_DAYS + 1):
            at = times.to_datetime(clock.now())
            await raw.execute(ENDED_TASKS, identity, at, RUNS_A_DAY, timedelta(microseconds=apart))
            clock.advance(times.DAY)
        await raw.execute("VACUUM ANALYZE")
        before = await raw.fetchval("SELECT count(*) FROM run")
        spent = -await _processor_seconds(raw)
        await purger.purge(clock.now())
        await raw.execute("VACUUM ANALYZE")  # as autovacuum does
        spent += await _processor_seconds(raw)
        gone = before - await raw.fetchval("SELECT count(*) FROM run")
    await database.close()
    await fleet.cancel_all()
    how = f"{gone:,} of {before:,} runs deleted, with all that is theirs; Postgres and the node"
    percent = spent * (RUNS_A_DAY / gone) / (times.DAY / times.SECOND) * 100
    return [
        Figure("purge_s_per_day", spent * RUNS_A_DAY / gone, "s", f"processor time; {how}"),
        Figure("purge_core_percent", percent, "%", f"of a core, {RUNS_A_DAY:,} runs a day; {how}"),
    ]


async def _processor_seconds(connection: Any) -> float:
    """Return the processor time of this process and of all connections to the database."""
    pids = [row[0] for row in await connection.fetch(_ALL_BACKENDS)]
    return time.process_time() + sum(cpu_seconds(pid) for pid in pids)
