"""The costs of an open page: bytes over the wire, and processor time of the node."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from node.lab.supervisor import Lab
from tests.acceptance.outsider import Outsider
from tests.support.browser import Page, new_page
from tests.support.page_opened import LIVE

pytestmark = [pytest.mark.timeout(120), pytest.mark.asyncio(loop_scope="session")]

TASKS = 14
OPEN_S = 90
WATCHED_MS = 10_000
BYTES_MOST = 200_000
CPU_MOST_S = 1.0
"""The aim is a tenth of it; so short a time on a busy host cannot tell more than its size."""


async def test_an_open_page_is_cheap(browser: str, lab: Lab, a: Outsider) -> None:
    """An open page of 14 tasks costs in 90 s at most 200 kB, and little processor time."""
    # A shorter time is watched without and with the page, and scaled up.
    tasks = [
        await a.create("rtt", spec={"dest": "127.0.0.1", "count": 1}, schedule=spread(number))
        for number in range(TASKS)
    ]
    for task in tasks:
        await a.planned(task)
    async with new_page(browser) as page:
        alone = await used_while(page, lab.pid(a.name))
        await page.open(f"{a.url}/#token={a.token}")
        await page.until(f"{LIVE} && document.querySelector('#next table')")
        await page.until("document.querySelector('#health li')")
        loaded, asked = page.received(), len(page.requests())
        used = await used_while(page, lab.pid(a.name))
        scale = OPEN_S * 1000 / WATCHED_MS
        total = loaded + (page.received() - loaded) * scale
        requests = (len(page.requests()) - asked) * scale
    extra = (used - alone) * scale
    # The figures are what this test is for.
    print(  # noqa: T201
        f"first {loaded / 1e3:.1f} kB; in {OPEN_S} s {total / 1e3:.0f} kB, "
        f"{requests:.0f} requests, {extra:.2f} s of processor time"
    )
    for task in tasks:
        await a.cancel(task)
    assert total <= BYTES_MOST
    assert extra <= CPU_MOST_S


def spread(number: int) -> dict[str, str]:
    """Return the schedule of a task, so that all together have their runs at equal distances."""
    return {"start": f"PT{60 * number / TASKS:.0f}S", "repeat": "PT1M"}


async def used_while(page: Page, pid: int) -> float:
    """Return the processor time of a process, in seconds, while the page does nothing new."""
    before = processor_time(pid)
    await page.evaluate("window.since = performance.now()")
    await page.until(f"performance.now() - window.since > {WATCHED_MS}")
    return processor_time(pid) - before


def processor_time(pid: int) -> float:
    """Return the processor time that a process has used, in seconds."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
