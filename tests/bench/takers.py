"""How fast each archiver delivers in its own batches, to the peers of the tests."""

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
"""As many at least, in whole batches."""
_VALUES = 170
"""Round-trip times in each document, which make it 1.5 kB that cannot be packed to nothing."""
_APART = 10_000
"""Microseconds from one result to the next: all are of the last hour."""


async def delivered(names: Sequence[str]) -> list[Figure]:
    """``archiver_*_per_s`` of each: from documents that are ready until the last is accepted."""
    folder = Path(tempfile.mkdtemp(prefix="parley-bench-"))
    folder.chmod(0o711)
    binaries = locate()
    assert isinstance(binaries, ServerBinaries)
    cluster = await PrivateCluster.create(folder / "postgres", binaries, durable=True)
    await cluster.start()
    try:
        with servers() as started:
            return [await _speed(name, Surroundings(folder, cluster, started)) for name in names]
    finally:
        await cluster.stop()
        shutil.rmtree(folder)


async def _speed(name: str, where: Surroundings) -> Figure:
    archiver_name, made = PEERS[name]
    archiver = archivers()[archiver_name]
    async with made(where) as peer:
        spec = archiver.spec_model.model_validate({**peer.spec, **_patient(archiver_name)})
        host = ArchivingHost("a.example", (where.folder, where.cluster.socket), CLOCK.now)
        size = archiver.batches(spec).items
        rounds = -(-RESULTS // size)
        documents = _documents(1 + rounds * size)
        destination = archiver.open(spec, host)
        await _take(destination, documents[:1])  # connected, and what it needs is there
        cpu, began = time.process_time(), time.perf_counter()
        for first in range(1, len(documents), size):
            await _take(destination, documents[first : first + size])
        took, cpu = time.perf_counter() - began, time.process_time() - cpu
        await destination.close()
    how = f"batches of {size:,}, results of 1.5 kB; {cpu / took:.0%} of a core here"
    return Figure(f"archiver_{name}_per_s", rounds * size / took, "/s", how)


def _patient(archiver: str) -> dict[str, str]:
    """Longer than any batch lasts, where it can be said."""
    return {} if archiver == "file" else {"timeout": "PT1M"}


def _documents(count: int) -> list[DeliveryItem]:
    began = CLOCK.now() - count * _APART
    chance = Random(1)
    values = [round(chance.gauss(20, 1), 3) for _ in range(10_000)]
    return [
        replace(
            one,
            at=began + number * _APART,
            body=json.dumps({**document(number), "rtt_ms": _some(values, number)}).encode(),
        )
        for number, one in enumerate(deliveries(count))
    ]


def _some(values: Sequence[float], number: int) -> Sequence[float]:
    first = number * 37 % (len(values) - _VALUES)
    return values[first : first + _VALUES]


async def _take(destination: Destination, batch: Sequence[DeliveryItem]) -> None:
    outcomes = await destination.deliver(batch)
    assert all(one.status is DeliveryStatus.ACCEPTED for one in outcomes), outcomes[-1]
