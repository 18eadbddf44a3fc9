"""The embedded Postgres in an environment that the server's account may not read."""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from node.postgres import ServerBinaries, binaries, copies
from node.postgres.account import server_account

pytestmark = pytest.mark.needs("root")


@pytest.fixture(name="place")
def _place() -> Iterator[Path]:
    """A directory which the server's account may enter."""
    place = Path(tempfile.mkdtemp(prefix="parley-test-"))
    place.chmod(0o711)
    yield place
    shutil.rmtree(place)


@pytest.fixture(name="closed")
def _closed(place: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A wheel's directory of programs, below a folder that is root's alone."""
    packages = place / "closed" / "packages"
    directory = packages / "pgserver" / "pginstall17" / "bin"
    directory.mkdir(parents=True)
    libraries = packages / "pgserver.libs"
    libraries.mkdir()
    (libraries / "libpq.so").write_text("17.2")
    for name in binaries.PROGRAMS:
        script = f'#!/bin/sh\necho "postgres (PostgreSQL) $(cat {RELATIVE})"\n'
        (directory / name).write_text(script)
    for path in packages.rglob("*"):  # as with umask 077
        path.chmod(0o600 if path.suffix else 0o700)
    (place / "closed").chmod(0o700)
    monkeypatch.setattr(copies, "PLACE", place / "cache" / "parley" / "postgres")
    monkeypatch.setattr(binaries, "wheel_directories", lambda: [directory])
    return directory


RELATIVE = '"${0%/*}"/../../../pgserver.libs/libpq.so'
"""Where a program of the wheel looks for a library."""


def test_a_wheel_that_the_account_may_not_read_is_copied_once(closed: Path) -> None:
    """The server's account runs a copy in which everything is readable; the next one finds it."""
    found = binaries.inspect(closed, server_account())
    assert isinstance(found, ServerBinaries), found
    assert found.major == 17
    [copy] = copies.PLACE.iterdir()
    assert found.directory == copy / "pgserver" / "pginstall17" / "bin"
    before = found.directory.stat().st_ino
    again = binaries.inspect(closed, server_account())
    assert again == found
    assert found.directory.stat().st_ino == before


def test_several_copy_the_wheel_at_once(closed: Path) -> None:
    """Whoever comes second takes the copy of the first, and nothing half-made stays."""
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: binaries.inspect(closed, server_account()), range(4)))
    assert len(set(found)) == 1
    assert isinstance(found[0], ServerBinaries)
    assert len(list(copies.PLACE.iterdir())) == 1


def test_a_wheel_that_cannot_be_copied_is_refused_with_its_reason(
    closed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error names the place to which it could not be copied, and why."""
    (closed / "file").touch()
    monkeypatch.setattr(copies, "PLACE", closed / "file" / "postgres")
    refusal = binaries.inspect(closed, server_account())
    assert isinstance(refusal, str)
    assert re.search(r"could not be copied to .*/file/postgres: Not a directory", refusal)


def test_a_server_of_the_host_that_the_account_may_not_read_is_refused(
    closed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the wheel is copied; of any other directory the reason is given."""
    monkeypatch.setattr(binaries, "wheel_directories", list)
    account = server_account()
    assert binaries.inspect(closed, account) == f"{closed}: the account {account} may not read it"
    assert not copies.PLACE.exists()
