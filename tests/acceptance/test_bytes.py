"""Bytes that runs move: expected, measured, and limited per period, over HTTP on real nodes."""

from __future__ import annotations

from uuid import uuid4

import pytest

from tests.acceptance.commands import parley
from tests.acceptance.outsider import Json, Outsider

pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.timeout(120),
    pytest.mark.usefixtures("tidy"),
]

MEGABYTE = 1_000_000
SPEC = {"duration": "PT1S", "omit": "PT0S", "rate_bps": 8 * MEGABYTE}


async def _used(lead: Outsider, campaign: str) -> Json:
    return (await lead.get(f"/v1/campaigns/{campaign}"))["used"]


@pytest.mark.needs("iperf3", "cubic")
@pytest.mark.nightly
async def test_a_campaign_moves_no_more_than_its_quota(nodes: list[Outsider]) -> None:
    """A run is booked as expected and counted as measured; what exceeds the quota waits."""
    lead, b, c = nodes
    name = f"metered-{uuid4().hex[:6]}"
    added = await parley(lead, "campaign", "add", name, "--quota", "bytes=3M/P1D")
    assert added.code == 0, added
    later = {"start": "PT1H"}
    booked = await lead.create("throughput", b, c, spec=SPEC, campaign=name, schedule=later)
    await lead.until_state(await lead.run(booked), "scheduled")
    used = await _used(lead, name)
    assert (used["delivered_bytes"], used["booked_bytes"]) == (0, 2 * MEGABYTE)
    waiting = await lead.create("throughput", b, c, spec=SPEC, campaign=name, schedule=later)
    reason = (await lead.run(waiting))["reason"]
    assert f"{name} has moved or booked 2 MB of 3 MB per day, and wants 2 MB more" in reason
    for task in (waiting, booked):
        await lead.cancel(task)
    assert (await _used(lead, name))["booked_bytes"] == 0
    run = await lead.run(await lead.create("throughput", b, c, spec=SPEC, campaign=name))
    await lead.finished(run)
    moved = (await _used(lead, name))["delivered_bytes"]
    assert MEGABYTE < moved < 4 * MEGABYTE
    shown = (await parley(lead, "campaign", "show", name)).out
    assert '"bytes": "3M/P1D"' in shown
