"""The emulated WAN between real namespaces, measured with the system's ping; needs root."""

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

from node.cli.lab import namespaces, wan
from node.cli.lab.namespaces import Namespaces, NamespaceSite
from node.cli.lab.wan import WanSettings
from node.execution import process
from node.model.errors import HostError
from tests.integration.host_leftovers import nothing_left

pytestmark = [pytest.mark.timeout(30), pytest.mark.nightly]


@pytest.fixture(autouse=True)
def _clean() -> Iterator[None]:
    with nothing_left():
        yield


@contextlib.asynccontextmanager
async def emulated(names: str, settings: WanSettings) -> AsyncIterator[list[NamespaceSite]]:
    """Create namespaces joined by a WAN; its report is appended to ``reports``."""
    created = Namespaces(list(names))
    sites = created.create()
    try:
        words = wan.arguments([namespace_site.site for namespace_site in sites], settings)
        argv = [sys.executable, "-m", "node.cli.lab.wan", *words]
        emulator = await process.start(argv, cwd=Path.cwd())
        try:
            await emulator.wait_for_output(wan.READY)
            yield sites
        finally:
            await emulator.end(5)
        finished = await emulator.wait()
        assert finished.exit_code == 0, finished.stderr
        reports.append(json.loads(finished.stdout.splitlines()[1]))
    finally:
        created.remove()


LAST = 1
"""Unanswered last packets: ping waits for only two round trips, a busy host needs longer."""

reports: list[dict[str, Any]] = []


async def ping(site: NamespaceSite, target: str, count: int, *more: str) -> list[float]:
    """Send ``count`` packets, and return the round trips of those answered, in ms, in order."""
    argv = ["ip", "netns", "exec", site.namespace, "ping", "-n", "-c", str(count), *more, target]
    text = (await process.finish(argv, timeout_s=20)).stdout.decode()
    return [float(match) for match in re.findall(r"time=([\d.]+) ms", text)]


def is_between(trips: list[float], least_ms: float, most_ms: float) -> bool:
    """Return whether the shortest round trip is so long: a busy host makes only others longer."""
    return least_ms <= min(trips, default=math.inf) < most_ms


def inside_confidence(lost: int, sent: int, probability: float) -> bool:
    """Return whether the losses lie within the 99.9 % interval of the probability."""
    deviation = math.sqrt(sent * probability * (1 - probability))
    return abs(lost - sent * probability) <= 3.3 * deviation + 0.5


@pytest.mark.needs("root", "ip", "ping")
async def test_two_sites_have_the_delay_both_ways() -> None:
    """20 ms each way give a round trip of 40 ms, within 1 ms, for IPv4 and IPv6."""
    async with emulated("ab", WanSettings(delay_ms=20)) as (one, other):
        for target in (other.address, other.address6):
            trips = await ping(one, target, 100, "-i", "0.01")
            assert len(trips) >= 100 - LAST
            assert is_between(trips, 40.0, 41.0), trips
    assert {row["taken"] for row in reports[-1]["directions"]} == {200}


@pytest.mark.needs("root", "ip", "ping")
async def test_three_sites_reach_each_other() -> None:
    """Three sites reach each other concurrently with the same delay."""
    async with emulated("abc", WanSettings(delay_ms=20)) as sites:
        pairs = [(one, other) for one in sites for other in sites if one is not other]
        trips = await asyncio.gather(
            *(ping(one, other.address, 20, "-i", "0.02") for one, other in pairs)
        )
    assert all(len(each) >= 20 - LAST and is_between(each, 40.0, 41.0) for each in trips), trips


@pytest.mark.needs("root", "ip", "ping")
async def test_loss_is_as_requested() -> None:
    """With 5 % loss in each direction the report and ping agree."""
    async with emulated("ab", WanSettings(delay_ms=1, loss=0.05)) as (one, other):
        answered = len(await ping(one, other.address, 1000, "-i", "0.002", "-W", "1"))
    rows = reports[-1]["directions"]
    assert rows[0]["taken"] == 1000
    assert 0 <= 1000 - answered - sum(row["lost"] for row in rows) <= LAST
    assert all(inside_confidence(row["lost"], row["taken"], 0.05) for row in rows), rows


@pytest.mark.needs("root", "ip")
async def test_a_flood_meets_the_rate_and_the_queue() -> None:
    """A burst beyond the uplink's rate is queued, and dropped beyond the queue's length."""
    settings = WanSettings(delay_ms=5, rate_mbit=1, queue_ms=50)
    async with emulated("ab", settings) as (one, other):
        trips = await ping(one, other.address, 50, "-s", "1222", "-l", "50", "-W", "1")
    answered = len(trips)
    assert 5 <= answered < 50  # 10 ms each, until one would wait longer than 50 ms
    assert max(trips) > 20
    forth = next(row for row in reports[-1]["directions"] if row["tail"])
    assert (forth["sender"], forth["taken"] - forth["tail"]) == (one.namespace, answered)


@pytest.mark.needs("root", "ip", "ping")
async def test_the_host_reaches_the_management_side_without_delay() -> None:
    """The management side of a namespace has no delay."""
    created = Namespaces(["a"])
    (site,) = created.create()
    finished = await process.finish(
        ["ping", "-n", "-c", "3", "-i", "0.01", site.management], timeout_s=9
    )
    created.remove()
    created.remove()  # has no effect
    assert b" 0% packet loss" in finished.stdout


@pytest.mark.needs("root", "ip", "ping")
async def test_two_labs_at_once_do_not_meet() -> None:
    """Two concurrent labs with equal names have separate namespaces, links and subnets."""
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
    """A subnet to which the host has a route is not used."""
    with monkeypatch.context() as patch:
        patch.setattr(namespaces, "MANAGEMENT_RANGES", ("127.0.0.0/23", "10.87.0.0/16"))
        created = Namespaces(["a"])
        (site,) = created.create()
        created.remove()
        assert site.management.startswith("10.87.")
        patch.setattr(namespaces, "MANAGEMENT_RANGES", ("127.0.0.0/23",))
        with pytest.raises(HostError, match="is routed already"):
            Namespaces(["a"]).create()


@pytest.mark.needs("root", "ip")
def test_a_set_up_that_fails_half_way_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """An error in the second namespace removes the first one and the bridge."""
    create_site = Namespaces._create_site

    def fail_second(self: Namespaces, number: int, index: int, name: str, management: str) -> None:
        create_site(self, number, index, name, management if index == 0 else "no address")

    monkeypatch.setattr(Namespaces, "_create_site", fail_second)
    with pytest.raises(HostError, match="could not be set up"):
        Namespaces(["a", "b"]).create()


@pytest.mark.needs("root", "ip")
async def test_what_a_killed_owner_left_is_removed_by_the_next() -> None:
    """Namespaces and bridges of a dead process are removed by the next lab."""
    script = (
        "import os; from node.cli.lab.namespaces import Namespaces\n"
        "Namespaces(['a', 'b']).create(); print('made', flush=True); os.kill(os.getpid(), 9)"
    )
    owner = await process.start([sys.executable, "-c", script], cwd=Path.cwd())
    await owner.wait_for_output(b"made")
    await owner.wait()
    listed = await process.finish(["ip", "netns", "list"], timeout_s=9)
    assert f"parley-{owner.pid}-" in listed.stdout.decode()
    namespaces.remove_abandoned()


def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without root and the ip program, the error names both and the alternative."""
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(HostError, match=r"needs root .* the program ip .*Without --namespaces"):
        Namespaces(["a"]).create()
