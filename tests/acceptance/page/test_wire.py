"""The costs of an open page: bytes over the wire, and processor time of the node."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from node.cli.lab.supervisor import Lab
from tests.acceptance.outsider import Outsider
from tests.support.browser import new_page
from tests.support.page_opened import LIVE
from tests.support.patience import SHARED

pytestmark = [pytest.mark.timeout(120), pytest.mark.asyncio(loop_scope="session")]

TASKS = 14
OPEN_S = 90
WATCHED_S = 60 * 3 / TASKS
"""The tasks have three runs in this time, so that it may stand for the whole."""
BYTES_MOST = 200_000
CPU_MOST_S = 0.1
ROUNDS = 15
"""Repetitions of requests to measure them: the kernel counts hundredths of seconds."""


@pytest.mark.nightly
async def test_an_open_page_is_cheap(browser: str, lab: Lab, a: Outsider) -> None:
    """An open page of 14 tasks costs in 90 s at most 200 kB, and 0.1 s of a quiet processor."""
    # A shorter time is watched, and scaled up. What its requests cost is measured by repeating
    # them, because the node does other things meanwhile.
    tasks = [
        await a.create("rtt", spec={"dest": "127.0.0.1", "count": 1}, schedule=spread(number))
        for number in range(TASKS)
    ]
    for task in tasks:
        await a.planned(task)
    async with new_page(browser) as page:
        await page.open(f"{a.url}/#token={a.token}")
        await page.until(f"{LIVE} && document.querySelector('#next table')")
        await page.until("document.querySelector('#health li')")
        loaded, first = page.received(), page.requests()
        await page.evaluate("window.since = performance.now()")
        await page.until(f"performance.now() - window.since > {1000 * WATCHED_S}")
        later = page.requests()[len(first) :]
        scale = OPEN_S / WATCHED_S
        total = loaded + (page.received() - loaded) * scale
    used = await cost_of(a, lab.pid(a.name), first)
    used += scale * await cost_of(a, lab.pid(a.name), later)
    # The figures are what this test is for.
    print(  # noqa: T201
        f"first {loaded / 1e3:.1f} kB, {len(first)} requests; in {OPEN_S} s {total / 1e3:.0f} kB, "
        f"{len(first) + len(later) * scale:.0f} requests, {used:.3f} s of processor time"
    )
    for task in tasks:
        await a.cancel(task)
    assert total <= BYTES_MOST
    assert used <= SHARED * CPU_MOST_S


def spread(number: int) -> dict[str, str]:
    """Return the schedule of a task, so that all together have their runs at equal distances."""
    return {"start": f"PT{60 * number / TASKS:.0f}S", "repeat": "PT1M"}


async def cost_of(a: Outsider, pid: int, urls: list[str]) -> float:
    """Return the processor time of a process for these requests, but for endless ones."""
    headers = {"Authorization": f"Bearer {a.token}", "Accept-Encoding": "gzip"}
    before = processor_time(pid)
    for url in [url for url in urls if "/v1/events" not in url] * ROUNDS:
        async with a.session.get(url, headers=headers) as answer:
            assert answer.status == 200, url
            await answer.read()
    return (processor_time(pid) - before) / ROUNDS


def processor_time(pid: int) -> float:
    """Return the processor time that a process has used, in seconds."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
