"""The key of secrets: all processes of a node have the one of its service."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import aiohttp
import pytest

from lead.assembly.with_node import lead_functions
from node.model import times
from node.model.errors import HostError
from node.runtime.clock import SystemClock
from node.runtime.settings import Settings
from node.service import assemble, require_key_of_service
from node.trust.keys import NodeKey
from node.trust.sealing import FILE
from tests.conftest import NewDatabase
from tests.support.clocks import ManualClock
from tests.support.patience import PATIENCE_S


async def _start(dsn: str, state_dir: Path, *, serving: bool) -> str:
    """Put a process of a node together, and return the name of the key by which it seals."""
    settings = Settings(name="a", state_dir=state_dir)
    async with aiohttp.ClientSession() as session:
        node = await assemble(
            settings, SystemClock(), dsn, session, lead_functions(), serving=serving
        )
        await node.database.close()
        return node.core.sealing.name


async def test_a_lead_on_another_host_needs_the_key_of_the_service(
    new_database: NewDatabase, tmp_path: Path
) -> None:
    """Without the key, or with another one, it does not start, says what to copy, makes none."""
    dsn, here, there = await new_database(), tmp_path / "here", tmp_path / "there"
    own = await _start(dsn, here, serving=True)
    there.mkdir(mode=0o700)
    shutil.copy(here / "node.pem", there)
    copy = f"copy the file {FILE} from the state directory of the host on which the service runs"
    with pytest.raises(HostError, match=f"the key {own} .* there is none in .*: {copy}"):
        await _start(dsn, there, serving=False)
    assert not (there / FILE).exists()
    other = await _start(await new_database(), tmp_path / "other", serving=True)
    shutil.copy(tmp_path / "other" / FILE, there)
    with pytest.raises(HostError, match=f"it has the key {other} in"):
        await _start(dsn, there, serving=False)
    shutil.copy(here / FILE, there)
    assert await _start(dsn, there, serving=False) == own


async def test_a_service_whose_key_was_lost_goes_on(
    new_database: NewDatabase, tmp_path: Path
) -> None:
    """It makes a new key, which its other processes need from then on."""
    dsn, here = await new_database(), tmp_path / "here"
    lost = await _start(dsn, here, serving=True)
    shutil.copy(here / FILE, tmp_path / FILE)
    (here / FILE).unlink()
    made = await _start(dsn, here, serving=True)
    assert made != lost
    assert await _start(dsn, here, serving=False) == made
    shutil.copy(tmp_path / FILE, here / FILE)
    with pytest.raises(HostError, match=f"the key {made} .* it has the key {lost} in"):
        await _start(dsn, here, serving=False)


async def test_a_lead_that_began_first_ends_once_the_service_names_its_key(
    new_database: NewDatabase, tmp_path: Path
) -> None:
    """A lead that made a key of its own goes on until a service names another one, or its own."""
    dsn, here, there = await new_database(), tmp_path / "here", tmp_path / "there"
    here.mkdir(mode=0o700)
    there.mkdir(mode=0o700)
    NodeKey.load_or_create(here / "node.pem")
    shutil.copy(here / "node.pem", there)
    settings = Settings(name="a", state_dir=there)
    clock = ManualClock()
    async with aiohttp.ClientSession() as session:
        lead = await assemble(settings, clock, dsn, session, lead_functions(), serving=False)
        try:
            requiring = asyncio.create_task(require_key_of_service(lead.core))
            assert await _start(dsn, tmp_path / "here", serving=True) != lead.core.sealing.name
            with pytest.raises(HostError, match=f"it has the key {lead.core.sealing.name} in"):
                await asyncio.wait_for(_passing(clock, requiring), PATIENCE_S)
            shutil.copy(there / FILE, here / FILE)
            await _start(dsn, here, serving=True)
            await require_key_of_service(lead.core)
        finally:
            await lead.database.close()


async def _passing(clock: ManualClock, waiting: asyncio.Task[None]) -> None:
    """Let time pass until something that waits for it is over."""
    while not waiting.done():
        clock.advance(times.SECOND)
        await clock.sleep(0)
    await waiting
