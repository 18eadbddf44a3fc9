"""A node backs itself up at intervals, where its owner has set a directory for that."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import generate_latest

from node.model import times
from node.operation.metrics import registry_of
from node.operation.readiness import readiness_of
from node.postgres import ServerBinaries, backups, binaries
from node.postgres.scheduled_backups import RETRY, ScheduledBackups
from node.runtime.settings import Settings
from node.store import maintenance
from node.store.core import Core
from node.store.database import PostgresDatabase
from node.trust.keys import NodeKey
from node.trust.signer import Signer
from tests.support.clocks import ManualClock
from tests.support.served_nodes import served


class Site:
    """A node's database and state directory, with a place for backups."""

    def __init__(self, dsn: str, directory: Path) -> None:
        """Keep the state and the backups in a directory."""
        self.dsn, self.state, self.place = dsn, directory / "state", directory / "backups"
        self.state.mkdir(mode=0o700)
        self.place.mkdir()
        self.clock = ManualClock()
        self.database = PostgresDatabase(dsn)
        self.key = NodeKey.load_or_create(self.state / "node.pem")

    def backups(self, **settings: Any) -> ScheduledBackups:
        """Return what makes the backups of a process that has just started."""
        given = Settings(state_dir=self.state, backup_directory=self.place, **settings)
        signer = Signer(self.key, self.clock.now)
        core = Core(self.database, self.clock, self.key.identity, given, signer)
        return ScheduledBackups(core, self.dsn)

    @property
    def files(self) -> list[str]:
        """The names of the backups."""
        return sorted(it.name for it in self.place.iterdir())


@pytest.fixture
async def site(dsn: str, tmp_path: Path) -> AsyncIterator[Site]:
    """A node's database and state directory, with a place for backups."""
    site = Site(dsn, tmp_path)
    await site.database.open()
    yield site
    await site.database.close()


@pytest.mark.nightly
async def test_backups_come_at_intervals_and_some_are_kept(site: Site) -> None:
    """The first comes at once, the next after the interval, also if the process was restarted."""
    made = site.backups(backup_keep=2)
    await made.run_once()
    [first] = site.files
    assert backups.read(site.place / first).with_key
    site.clock.advance(times.DAY - times.MINUTE)
    await made.run_once()
    await site.backups(backup_keep=2).run_once()
    assert site.files == [first]
    site.clock.advance(times.MINUTE)
    await site.backups(backup_keep=2).run_once()
    assert site.files[0] == first
    site.clock.advance(times.DAY)
    await site.backups(backup_keep=2).run_once()
    assert len(site.files) == 2
    assert first not in site.files


async def test_failures_are_told_and_tried_again(site: Site) -> None:
    """A directory that is gone is named, and once it is back there is a backup."""
    made = site.backups()
    site.place.rmdir()
    await made.run_once()
    [warning] = made.warnings
    assert f"{site.place} cannot be opened: No such file or directory" in warning
    site.place.mkdir()
    await made.run_once()
    assert site.files == []
    site.clock.advance(RETRY)
    await made.run_once()
    assert (len(site.files), made.warnings) == (1, ())


async def test_keys_are_left_out_on_demand(site: Site) -> None:
    """Without the key a file may be kept where others read it."""
    await site.backups(backup_with_key=False).run_once()
    assert not backups.read(site.place / site.files[0]).with_key


async def test_clients_are_enough_where_the_server_is_elsewhere(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A backup is made with the programs of postgresql-client alone, without those of a server."""
    server = await maintenance.server_major(site.dsn)
    found = [binaries.inspect(it, programs=binaries.CLIENTS) for it in binaries.candidates()]
    [own, *_] = [it for it in found if isinstance(it, ServerBinaries) and it.major == server]
    clients = tmp_path / "versions" / str(server) / "bin"
    clients.mkdir(parents=True)
    for name in binaries.CLIENTS:
        (clients / name).symlink_to(own.directory / name)
    monkeypatch.setattr(binaries, "HOST_VERSIONS", tmp_path / "versions")
    monkeypatch.setattr(binaries, "wheel_directories", list)
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    assert isinstance(binaries.inspect(clients), str)
    await site.backups().run_once()
    [file] = site.files
    assert backups.read(site.place / file).with_key


@pytest.mark.nightly
async def test_failures_are_metrics_and_warnings(dsn: str, tmp_path: Path) -> None:
    """The metrics tell that a backup failed, and that there is none; ``/readyz`` warns."""
    missing = tmp_path / "missing"
    async with served("a", dsn, ManualClock(), tmp_path, backup_directory=missing) as node:
        await node.backups.run_once()
        metrics = generate_latest(await registry_of(node)).decode().splitlines()
        assert {"parley_backup_failed 1.0", "parley_backup_age_seconds +Inf"} <= set(metrics)
        [warning] = (await readiness_of(node)).warnings
        assert f"no backup could be made: {missing} cannot be opened" in warning
