"""The emulated WAN between real namespaces, measured with the system's ping. Needs root."""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import os
import re
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from node.execution import process
from node.lab import namespaces, wan
from node.lab.namespaces import Namespaces, NamespaceSite
from node.lab.wan import WanSettings
from node.model.errors import HostError
from tests.integration.host_leftovers import nothing_left

pytestmark = pytest.mark.timeout(30)


@pytest.fixture(autouse=True)
def _clean() -> Iterator[None]:
    with nothing_left():
        yield


@contextlib.asynccontextmanager
async def emulated(names: str, settings: WanSettings) -> AsyncIterator[list[NamespaceSite]]:
    """Namespaces joined by a WAN; the emulator's report is appended to ``reports``."""
    made = Namespaces(list(names))
    sites = made.create()
    try:
        words = wan.arguments([one.site for one in sites], settings)
        argv = [sys.executable, "-m", "node.lab.wan", *words]
        emulator = await process.start(argv, cwd=Path.cwd())
        try:
            await emulator.printed(wan.READY)
            yield sites
        finally:
            await emulator.end(5)
        finished = await emulator.wait()
        assert finished.exit_code == 0, finished.stderr
        reports.append(json.loads(finished.stdout.splitlines()[1]))
    finally:
        made.remove()


LAST = 1
"""ping waits for the answer to its last packet for two round trips; a busy host needs longer."""

reports: list[dict[str, Any]] = []


async def ping(site: NamespaceSite, target: str, count: int, *more: str) -> tuple[int, float]:
    """How many of ``count`` were answered, and the median round trip in milliseconds."""
    argv = ["ip", "netns", "exec", site.namespace, "ping", "-n", "-c", str(count), *more, target]
    text = (await process.finish(argv, timeout_s=20)).stdout.decode()
    times = sorted(float(found) for found in re.findall(r"time=([\d.]+) ms", text))
    return len(times), times[len(times) // 2] if times else math.inf


def inside_confidence(lost: int, sent: int, probability: float) -> bool:
    """Whether so many losses lie within 99.9 % of what the probability gives."""
    deviation = math.sqrt(sent * probability * (1 - probability))
    return abs(lost - sent * probability) <= 3.3 * deviation + 0.5


@pytest.mark.needs("root", "ip", "ping")
async def test_two_sites_have_the_delay_both_ways() -> None:
    """20 ms each way is a round trip of 40 ms, within 1 ms, in both versions of IP."""
    async with emulated("ab", WanSettings(delay_ms=20)) as (one, other):
        for target in (other.address, other.address6):
            answered, median_ms = await ping(one, target, 100, "-i", "0.01")
            assert answered >= 100 - LAST
            assert 40.0 <= median_ms < 41.0
    assert {row["taken"] for row in reports[-1]["directions"]} == {200}


@pytest.mark.needs("root", "ip", "ping")
async def test_three_sites_reach_each_other() -> None:
    """Any to any, all at the same time, each with the same delay."""
    async with emulated("abc", WanSettings(delay_ms=20)) as sites:
        pairs = [(one, other) for one in sites for other in sites if one is not other]
        trips = await asyncio.gather(
            *(ping(one, other.address, 20, "-i", "0.02") for one, other in pairs)
        )
    assert all(answered >= 20 - LAST and 40.0 <= median < 41.0 for answered, median in trips), trips


@pytest.mark.needs("root", "ip", "ping")
async def test_loss_is_what_was_asked_for() -> None:
    """With 5 % in each direction, the losses reported and those that ping saw agree."""
    async with emulated("ab", WanSettings(delay_ms=1, loss=0.05)) as (one, other):
        answered, _ = await ping(one, other.address, 1000, "-i", "0.002", "-W", "1")
    rows = reports[-1]["directions"]
    assert rows[0]["taken"] == 1000
    assert 0 <= 1000 - answered - sum(row["lost"] for row in rows) <= LAST
    assert all(inside_confidence(row["lost"], row["taken"], 0.05) for row in rows), rows


@pytest.mark.needs("root", "ip")
async def test_a_flood_meets_the_rate_and_the_queue() -> None:
    """A burst beyond the uplink's rate waits in its queue, and beyond that is dropped."""
    settings = WanSettings(delay_ms=5, rate_mbit=1, queue_ms=50)
    async with emulated("ab", settings) as (one, other):
        answered, median_ms = await ping(
            one, other.address, 50, "-s", "1222", "-l", "50", "-W", "1"
        )
    assert 5 <= answered < 50  # 10 ms each, until one would wait longer than 50 ms
    assert median_ms > 20
    forth = next(row for row in reports[-1]["directions"] if row["tail"])
    assert (forth["sender"], forth["taken"] - forth["tail"]) == (one.namespace, answered)


@pytest.mark.needs("root", "ip", "ping")
async def test_the_host_reaches_the_management_side_without_delay() -> None:
    """What carries HTTP does not go through the WAN."""
    made = Namespaces(["a"])
    (site,) = made.create()
    finished = await process.finish(
        ["ping", "-n", "-c", "3", "-i", "0.01", site.management], timeout_s=9
    )
    made.remove()
    made.remove()  # a second time there is nothing to do
    assert b" 0% packet loss" in finished.stdout


@pytest.mark.needs("root", "ip", "ping")
async def test_two_labs_at_once_do_not_meet() -> None:
    """Two sets of namespaces of the same names have different names, links and subnets."""
    first, second = Namespaces(["a"]), Namespaces(["a"])
    (one,), (other,) = first.create(), second.create()
    first.remove()
    still = await process.finish(["ping", "-n", "-c", "1", other.management], timeout_s=9)
    second.remove()
    assert one.namespace != other.namespace
    assert one.management != other.management
    assert still.exit_code == 0


@pytest.mark.needs("root", "ip")
async def test_a_subnet_in_use_is_avoided(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a route of the host already leads, no lab is put."""
    with monkeypatch.context() as patch:
        patch.setattr(namespaces, "MANAGEMENT_RANGES", ("127.0.0.0/23", "10.87.0.0/16"))
        made = Namespaces(["a"])
        (site,) = made.create()
        made.remove()
        assert site.management.startswith("10.87.")
        patch.setattr(namespaces, "MANAGEMENT_RANGES", ("127.0.0.0/23",))
        with pytest.raises(HostError, match="is routed already"):
            Namespaces(["a"]).create()


@pytest.mark.needs("root", "ip")
def test_a_set_up_that_fails_half_way_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """An error in the second namespace takes the first one and the bridge with it."""
    whole = Namespaces._create_site

    def broken(self: Namespaces, number: int, index: int, name: str, management: str) -> None:
        whole(self, number, index, name, management if index == 0 else "no address")

    monkeypatch.setattr(Namespaces, "_create_site", broken)
    with pytest.raises(HostError, match="could not be set up"):
        Namespaces(["a", "b"]).create()


@pytest.mark.needs("root", "ip")
async def test_what_a_killed_owner_left_is_removed_by_the_next() -> None:
    """Namespaces and bridges of a process that is gone do not stay for ever."""
    script = (
        "import os; from node.lab.namespaces import Namespaces\n"
        "Namespaces(['a', 'b']).create(); print('made', flush=True); os.kill(os.getpid(), 9)"
    )
    owner = await process.start([sys.executable, "-c", script], cwd=Path.cwd())
    await owner.printed(b"made")
    await owner.wait()
    listed = await process.finish(["ip", "netns", "list"], timeout_s=9)
    assert f"parley-{owner.pid}-" in listed.stdout.decode()
    namespaces.remove_abandoned()


def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without root and without the ip program, the error names both and the way around."""
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(HostError, match=r"needs root .* the program ip .*Without --namespaces"):
        Namespaces(["a"]).create()
