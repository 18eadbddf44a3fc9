"""The service manager hears of the event loop alone."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import pytest

from node.cli import services
from node.model.times import SECOND
from node.runtime.housekeeping import WATCHDOG_S, Housekeeper, process_jobs
from tests.support.clocks import ManualClock


async def test_a_long_start_is_given_time(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The service manager is asked for more time as long as the database is being prepared."""
    clock = ManualClock()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(0)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        async with services._startup_grace(clock):
            for _ in range(3):
                for _ in range(10):
                    await clock.sleep(0)
                assert manager.recv(100) == b"EXTEND_TIMEOUT_USEC=60000000"
                clock.advance(20 * SECOND)
        clock.advance(20 * SECOND)
        for _ in range(10):
            await clock.sleep(0)
        with pytest.raises(BlockingIOError):
            manager.recv(100)


async def test_the_watchdog_is_fed_at_its_interval_whatever_the_database_does(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Each interval has one datagram; nothing is asked for it, so nothing can hold it up."""
    clock = ManualClock()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(0)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        housekeeper = Housekeeper(clock)
        housekeeper.start(
            process_jobs(
                ping_watchdog=services._ping_watchdog,
                watch_clock=asyncio.Event().wait,
                mark_database=asyncio.Event().wait,
            )
        )
        for _ in range(3):
            await clock.sleep(0)
            clock.advance(WATCHDOG_S * SECOND)
            for _ in range(10):
                await clock.sleep(0)
            assert manager.recv(100) == b"WATCHDOG=1"
            with pytest.raises(BlockingIOError):
                manager.recv(100)
        await housekeeper.stop()
