"""A full disk is told with 507 and what to do, and everything goes on once there is room."""

from __future__ import annotations

import errno
import os
import pwd
import subprocess
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from node.postgres.account import server_account
from tests.conftest import NewDatabase
from tests.support.clocks import ManualClock
from tests.support.needs import fixture_needs
from tests.support.served_nodes import Asker, asker

IDLE = {"test": {"type": "idle", "spec": {"duration": "PT1S"}}}


@pytest.fixture
async def a(new_database: NewDatabase, clock: ManualClock, tmp_path: Path) -> AsyncIterator[Asker]:
    """Return a node to ask, with a token."""
    async with asker("a", await new_database(), clock, tmp_path) as client:
        yield client


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
async def test_a_file_that_has_no_room(
    a: Asker, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """A file that cannot be written for want of room is no internal error."""

    async def full(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number), "/var/lib/parley/x")

    monkeypatch.setattr(a.node.admission, "create", full)
    status, problem = await a.ask("POST", "/v1/tasks", IDLE)
    assert (status, problem["type"].rsplit("/", 1)[-1]) == (507, "no-room")
    assert problem["detail"].startswith("nothing was written, because a disk of this node is full")
    assert "'/var/lib/parley/x'); make room there, then send the request" in problem["detail"]


@pytest.fixture
@fixture_needs("root")
def small_disk(cluster_directory: Path) -> Iterator[Path]:
    """Mount a file system of one megabyte, which belongs to the account of Postgres."""
    place = Path(tempfile.mkdtemp(dir=cluster_directory))
    owner = pwd.getpwnam(server_account() or "root")
    options = f"size=1m,mode=700,uid={owner.pw_uid},gid={owner.pw_gid}"
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(place)], check=True)
    yield place
    subprocess.run(["umount", str(place)], check=True)


async def test_a_disk_of_postgres_without_room(a: Asker, small_disk: Path) -> None:
    """A task is refused with 507 while Postgres has no room, and taken as soon as it has."""
    await a.rows(f"CREATE TABLESPACE small LOCATION '{small_disk}'")
    try:
        # A test before may have left pages with room for rows.
        await a.rows("TRUNCATE task CASCADE")
        await a.rows("ALTER TABLE task SET TABLESPACE small")
        filling = small_disk / "filling"
        with pytest.raises(OSError, match="No space left"):
            filling.write_bytes(bytes(2_000_000))
        status, problem = await a.ask("POST", "/v1/tasks", IDLE)
        assert (status, problem["type"].rsplit("/", 1)[-1]) == (507, "no-room")
        assert problem["detail"].startswith(
            "nothing was stored, because the disk of the database is full (could not extend file"
        )
        assert problem["detail"].endswith("; make room there, then send the request again")
        status, problem = await a.ask("GET", "/readyz")
        assert (status, problem["detail"].partition(":")[0]) == (503, "the database has no room")
        assert (await a.ask("GET", "/v1/tasks"))[0] == 200
        filling.unlink()
        assert (await a.ask("POST", "/v1/tasks", IDLE))[0] == 201
        [kept] = await a.rows("SELECT count(*) FROM task")
        assert kept[0] == 1
    finally:
        await a.rows("ALTER TABLE task SET TABLESPACE pg_default")
        await a.rows("DROP TABLESPACE small")
