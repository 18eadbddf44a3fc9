"""The time of a proposal of a node with small and large run tables, and the memory it takes."""

from __future__ import annotations

import statistics
import time
from uuid import uuid4

import aiohttp

from node.client.peers import Peer, Peers
from node.model import times
from node.model.classes import SchedulingClass
from node.model.wire.participants import ProposalRequest
from node.trust.signer import Signer
from tests.bench.figures import Figure
from tests.bench.fleet import Fleet, rss_mb

SIZES = (1_000, 10_000, 100_000)
REPEATS = 25
WINDOWS = 288

_TASK = """
    INSERT INTO task (id, lead, test, spec, scheduling_class, duration, participants, created_at)
    SELECT gen_random_uuid(), identity, 'idle', '{}', 'normal', '10 s', '[]', now()
    FROM node WHERE is_self
"""
# Runs as campaigns create them: normal ones at whole minutes, many at the same time; exclusive ones
# half a minute later; background ones anywhere. Half of them exceed the requested priority.
_RUNS = """
    INSERT INTO run (
        id, task_id, slot, attempt, scheduling_class, priority, starts_at, ends_at, lane, state,
        created_at, changed_at
    )
    SELECT
        gen_random_uuid(), task.id, begins.at + number * interval '1 us', 1, name, number % 2 * 5,
        begins.at, begins.at + interval '10 s',
        CASE name
            WHEN 'exclusive' THEN int8range(NULL, NULL)
            WHEN 'normal' THEN int8range(number, number, '[]')
        END,
        'booked', now(), now()
    FROM task, (
        SELECT number, (
            CASE WHEN number % 100 = 0 THEN 'exclusive' WHEN number % 100 < 15 THEN 'normal'
            ELSE 'background' END
        )::scheduling_class AS name
        FROM generate_series(0, $1::bigint - 1) AS series (number)
    ) AS kind, LATERAL (
        SELECT date_trunc('minute', now()) + interval '2 min' + CASE name
            WHEN 'exclusive' THEN number * 1420 / $1::bigint * interval '1 min' + interval '30 s'
            WHEN 'normal' THEN number * 7919 % 1420 * interval '1 min'
            ELSE number * 104729 % 85000 * interval '1 s'
        END AS at
    ) AS begins
"""


async def proposals(fleet: Fleet) -> list[Figure]:
    """Measure ``proposal_100k_over_1k``, its three times, and ``node_rss_mb_100k``."""
    receiver, sender = fleet.names[1], fleet.names[0]
    async with fleet.database(receiver) as connection:
        await connection.execute(_TASK)
    figures, medians = [], {}
    for size in SIZES:
        async with fleet.database(receiver) as connection:
            await connection.execute("TRUNCATE run CASCADE")
            await connection.execute(_RUNS, size)
            await connection.execute("VACUUM ANALYZE")
            # TRUNCATE notifies nobody.
            await connection.execute("SELECT pg_notify('parley', 'wake')")
        medians[size] = await _time(fleet, sender, receiver)
        how = f"one proposal over HTTP, signed: {WINDOWS} windows of 70 s, one every 5 min, for an "
        how += f"exclusive run of 10 s; {size} future runs (85 % background, 14 % normal, 1 % "
        how += f"exclusive); median of {REPEATS}"
        figures.append(Figure(f"proposal_{size // 1000}k_ms", medians[size], "ms", how))
    ratio = medians[SIZES[-1]] / medians[SIZES[0]]
    figures.append(Figure("proposal_100k_over_1k", ratio, "", "of these times, last over first"))
    lead = await fleet.start_lead(receiver)
    await _time(fleet, sender, receiver)
    memory = rss_mb(fleet.pid(receiver)) + rss_mb(lead.pid)
    how = "resident memory of a node's service and its lead together, 100,000 future runs, after "
    figures.append(Figure("node_rss_mb_100k", memory, "MB", how + "50 such proposals"))
    return figures


async def _time(fleet: Fleet, sender: str, receiver: str) -> float:
    """Return the median time of a proposal in milliseconds."""
    signer = Signer(fleet.key(sender), lambda: time.time_ns() // 1000)
    async with aiohttp.ClientSession(auto_decompress=False) as session:
        peers = Peers(session, signer, 60)
        url = fleet.node(receiver).url
        peer = peers.client_of((await peers.card(url)).identity, receiver, url)
        durations = []
        for _ in range(REPEATS + 1):
            started_at = time.perf_counter()
            await _propose(peer)
            durations.append((time.perf_counter() - started_at) * 1000)
    return statistics.median(durations[1:])


async def _propose(peer: Peer) -> None:
    now = time.time_ns() // 1000
    starts = [now + n * 5 * times.MINUTE for n in range(WINDOWS)]
    answer = await peer.propose(
        ProposalRequest(
            task=uuid4(),
            lease_epoch=1,
            scheduling_class=SchedulingClass.EXCLUSIVE,
            duration=10 * times.SECOND,
            priority=3,
            windows=tuple((start, start + 70 * times.SECOND) for start in starts),
        )
    )
    assert len(answer.free) >= WINDOWS
