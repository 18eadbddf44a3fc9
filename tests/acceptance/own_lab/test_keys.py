"""A node is rekeyed under load, beside a node that is away; a revoked key ends, for good."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from pathlib import Path

import aiohttp
import pytest

from node.cli.lab.supervisor import Lab
from node.execution import process
from node.model.errors import HostError
from node.trust.keys import NodeKey
from tests.acceptance.commands import parley
from tests.acceptance.outsider import Json, Outsider, booked
from tests.integration.host_leftovers import nothing_left
from tests.support.patience import PATIENCE_S

pytestmark = [pytest.mark.timeout(240), pytest.mark.nightly]

UNHAPPY = ("failed", "missed", "unplaced", "displaced", "cancelled")


async def _said(node: Outsider, *words: str) -> str:
    """Run a command that has to succeed, and return what it prints."""
    result = await parley(node, *words)
    assert result.code == 0, result.err
    return result.out


def _keys(node: Outsider) -> list[str]:
    return list(NodeKey.load_or_create(Path(node.state) / "node.pem").lineage.keys)


async def _follows(here: Outsider, name: str, keys: list[str]) -> None:
    """Wait until a node knows another one with these keys."""
    await here.until(
        "/v1/nodes",
        lambda page: keys in [each["keys"] for each in page["items"] if each["name"] == name],
    )


async def _runs_on(task: Json, lead: Outsider, other: Outsider, since: datetime) -> None:
    """Wait until a run that began after this instant has finished; both tables have the same."""
    found = await lead.until(
        f"/v1/tasks/{task['id']}/runs?state=finished",
        lambda page: [
            run for run in page["items"] if datetime.fromisoformat(run["starts_at"]) > since
        ],
    )
    for run in found["items"]:
        assert booked(await other.get(f"/v1/runs/{run['id']}")) == booked(run)
    for state in UNHAPPY:
        lost = await lead.get(f"/v1/tasks/{task['id']}/runs?state={state}")
        assert lost["items"] == []


async def test_keys_live_and_die() -> None:
    """No run is lost while a node is rekeyed twice, and a revoked one ends for good."""
    waits = aiohttp.ClientTimeout(total=PATIENCE_S)
    connector = aiohttp.TCPConnector(ssl=False)
    with nothing_left():
        async with (
            Lab(3, tls=True) as lab,
            aiohttp.ClientSession(timeout=waits, connector=connector) as session,
        ):
            a, b, c = (Outsider(**asdict(node), session=session) for node in lab.nodes)
            until = (datetime.now(UTC) + timedelta(minutes=4)).isoformat()
            often = {"repeat": "PT4S", "until": until}
            led = await a.create("idle", a, b, spec={"duration": "PT1S"}, schedule=often)
            joined = await b.create("idle", b, a, spec={"duration": "PT1S"}, schedule=often)
            await asyncio.gather(a.planned(led), b.planned(joined))
            await lab._running["c"].end(PATIENCE_S)
            for _ in range(2):
                assert "Taken over by: b." in await _said(a, "node", "rekey", "-o", "table")
                since = datetime.now(UTC)
                await _follows(b, "a", _keys(a))
                await asyncio.gather(_runs_on(led, a, b, since), _runs_on(joined, b, a, since))
            c = Outsider(**asdict(await lab.restart("c")), session=session)
            await _follows(c, "a", _keys(a))
            assert len(_keys(a)) == 3
            old = _keys(a)[1]
            assert "goes on with a later key" in await _said(
                a, "node", "revoke", old, "--yes", "-o", "table"
            )
            await _runs_on(led, a, b, datetime.now(UTC))
            await _killed(lab, a, b, session)
            await _revoked(lab, a, b, c)


def _replaced(file: Path, inode: int) -> None:
    """Look until there is another file in the place of this one, or for too long."""
    give_up_at = time.monotonic() + PATIENCE_S
    while file.stat().st_ino == inode:
        assert time.monotonic() < give_up_at


async def _killed(lab: Lab, a: Outsider, b: Outsider, session: aiohttp.ClientSession) -> None:
    """A node that is killed as soon as its file has the new key goes on with that."""
    file = Path(b.state) / "node.pem"
    replaced = asyncio.create_task(asyncio.to_thread(_replaced, file, file.stat().st_ino))
    rekeying = asyncio.create_task(parley(b, "node", "rekey"))
    await replaced
    os.kill(lab._running["b"].pid, signal.SIGKILL)
    await lab._running["b"].wait()
    await rekeying
    b = Outsider(**asdict(await lab.restart("b")), session=session)
    assert len(_keys(b)) == 2
    await _follows(a, "b", _keys(b))
    await _follows(b, "b", _keys(b))


async def _revoked(lab: Lab, a: Outsider, b: Outsider, c: Outsider) -> None:
    """A revocation that was made beforehand ends a node everywhere, and it never comes back."""
    prepared = await _said(b, "node", "revoke", "--prepare", "-o", "table")
    file = Path(b.state) / "b.revocation"
    file.write_text(prepared)
    assert "has ended" in await _said(c, "node", "revoke", "--file", str(file), "-o", "table")
    async with asyncio.timeout(PATIENCE_S):
        await lab._running["b"].wait()
    assert "was revoked" in process.tail_of(lab._plans["b"].log, 5)
    with pytest.raises(HostError, match="was revoked"):
        await lab.restart("b")
    for node in (a, c):
        await node.until(
            "/v1/nodes", lambda page: "b" not in [each["name"] for each in page["items"]]
        )
        refused = await parley(node, "node", "add", _keys(b)[0])
        assert refused.code != 0
        assert "was revoked" in refused.err
