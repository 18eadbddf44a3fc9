"""The delivery speed of each archiver in its own batches, to the peers of the tests."""

from __future__ import annotations

import json
import shutil
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from random import Random

from node.plugins.contracts import ArchivingHost, DeliveryItem, DeliveryStatus, Destination
from node.postgres.binaries import ServerBinaries, locate
from node.postgres.cluster import PrivateCluster
from node.results.archivers import archivers
from tests.bench.figures import Figure
from tests.support.listeners import PEERS, deliveries, document
from tests.support.receivers import CLOCK, Surroundings, servers

RESULTS = 20_000
"""Minimum number of results, rounded up to whole batches."""
_VALUES = 170
"""Round-trip times per document, which make it 1.5 kB that compress badly."""
_APART = 10_000
"""Microseconds between two results, so that all are of the last hour."""


async def delivered(names: Sequence[str]) -> list[Figure]:
    """Measure ``archiver_*_per_s`` of each: from prepared documents to the last acceptance."""
    folder = Path(tempfile.mkdtemp(prefix="parley-bench-"))
    folder.chmod(0o711)
    binaries = locate()
    assert isinstance(binaries, ServerBinaries)
    cluster = await PrivateCluster.create(folder / "postgres", binaries, durable=True)
    await cluster.start()
    try:
        with servers() as surroundings_servers:
            return [
                await _speed(name, Surroundings(folder, cluster, surroundings_servers))
                for name in names
            ]
    finally:
        await cluster.stop()
        shutil.rmtree(folder)


async def _speed(name: str, where: Surroundings) -> Figure:
    archiver_name, open_peer = PEERS[name]
    archiver = archivers()[archiver_name]
    async with open_peer(where) as peer:
        spec = archiver.spec_model.model_validate({**peer.spec, **_patient(archiver_name)})
        host = ArchivingHost("a.example", (where.folder, where.cluster.socket), CLOCK.now)
        size = archiver.batches(spec).items
        rounds = -(-RESULTS // size)
        documents = _documents(1 + rounds * size)
        destination = archiver.open(spec, host)
        await _deliver(destination, documents[:1])  # connects, and creates what it needs
        cpu, started_at = time.process_time(), time.perf_counter()
        for first in range(1, len(documents), size):
            await _deliver(destination, documents[first : first + size])
        duration, cpu = time.perf_counter() - started_at, time.process_time() - cpu
        await destination.close()
    how = f"batches of {size:,}, results of 1.5 kB; {cpu / duration:.0%} of a core here"
    return Figure(f"archiver_{name}_per_s", rounds * size / duration, "/s", how)


def _patient(archiver: str) -> dict[str, str]:
    """Return options with a timeout longer than any batch takes, for archivers that have one."""
    return {} if archiver == "file" else {"timeout": "PT1M"}


def _documents(count: int) -> list[DeliveryItem]:
    first_at = CLOCK.now() - count * _APART
    chance = Random(1)
    values = [round(chance.gauss(20, 1), 3) for _ in range(10_000)]
    return [
        replace(
            item,
            at=first_at + number * _APART,
            body=json.dumps({**document(number), "rtt_ms": _some(values, number)}).encode(),
        )
        for number, item in enumerate(deliveries(count))
    ]


def _some(values: Sequence[float], number: int) -> Sequence[float]:
    first = number * 37 % (len(values) - _VALUES)
    return values[first : first + _VALUES]


async def _deliver(destination: Destination, batch: Sequence[DeliveryItem]) -> None:
    outcomes = await destination.deliver(batch)
    assert all(outcome.status is DeliveryStatus.ACCEPTED for outcome in outcomes), outcomes[-1]
