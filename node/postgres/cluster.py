"""A private Postgres: one directory, one owner, reached through a socket that only we can open.

The directory has ``data`` and ``socket`` (the server's own, mode 0700), ``log`` and ``lock``.
The process that holds the lock owns the cluster. The kernel releases the lock when its owner ends,
so a server that still runs in ``data`` when the lock is taken is a leftover of a killed owner, and
is ended.

Authentication is ``trust``: the server is protected because no network reaches it, and its socket
is in a directory that nobody else can enter.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import hashlib
import os
import pwd
import shutil
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO
from urllib.parse import quote

from node.execution import process, proctable
from node.execution.process import RunningProcess
from node.model.errors import ClusterInUse, DatabaseUnavailable
from node.postgres.account import server_account
from node.postgres.binaries import ServerBinaries
from node.trust.private_files import refuse_foreign_link

SUPERUSER = "parley"
PORT = 5432  # only a part of the socket's name; no port is opened

INITDB_S = 120.0
START_S = 120.0  # after a crash the server first replays its log
STOP_S = 60.0
_POLL_S = 0.01
_READY = frozenset({"ready", "standby"})
"""States of a server that accepts connections, by its pid file."""

_LOCKING = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
"""The flags of the lock file, which may lie in the directory of another account than root's."""
_SOCKET_NAME_BYTES = len(f"/.s.PGSQL.{PORT}")
_SOCKET_PATH_BYTES_MAX = 107  # size of the kernel's sun_path, less the final zero

_SETTINGS = {
    "listen_addresses": "",
    "port": str(PORT),
    "unix_socket_permissions": "0700",
    "shared_buffers": "128MB",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "lc_messages": "C",  # its messages are part of ours
    "jit": "off",  # all statements are short, none is worth compiling
    "max_parallel_workers_per_gather": "0",
    "autovacuum_naptime": "15s",  # runs change state several times within a minute
    "log_checkpoints": "off",
    "max_wal_size": "512MB",
}
_NOT_DURABLE = {
    "autovacuum": "off",
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
}


class PrivateCluster:
    """One Postgres cluster in ``directory``; use :meth:`create`, which keeps an existing one.

    ``durable=False`` trades safety in a power failure for speed, for data that nobody needs later.
    ``settings`` are further ones of the server.
    """

    def __init__(
        self,
        directory: Path,
        binaries: ServerBinaries,
        *,
        connections_max: int = 300,
        durable: bool = True,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        """Set the paths of the cluster, without touching the disk."""
        self.directory = directory.absolute()
        self.data = self.directory / "data"
        self.log = self.directory / "log"
        self.account = server_account(self.data)
        self.socket = self._socket_directory()
        self._binaries = binaries
        self._connections_max = connections_max
        self._durable = durable
        self._settings = settings or {}
        self._server: RunningProcess | None = None
        self._lock: IO[str] | None = None

    @classmethod
    async def create(
        cls,
        directory: Path,
        binaries: ServerBinaries,
        *,
        connections_max: int = 300,
        durable: bool = True,
        settings: Mapping[str, str] | None = None,
    ) -> PrivateCluster:
        """Create the cluster if it does not exist, without starting it.

        :raises DatabaseUnavailable: the directory cannot be used, or the cluster in it was created
            by another major version.
        """
        cluster = cls(
            directory,
            binaries,
            connections_max=connections_max,
            durable=durable,
            settings=settings,
        )
        cluster._make_directory()
        if existing_major(directory) is None:
            with cluster._take_lock():
                await cluster._initialise()
        cluster._check_major()
        return cluster

    @property
    def running(self) -> bool:
        """Return whether the server that we started is running."""
        return self._server is not None and not self._server.ended

    async def start(self) -> None:
        """Start the server unless it runs, and return when it accepts connections.

        A leftover server of a killed owner is ended first.

        :raises DatabaseUnavailable: another process owns the cluster, or the server did not start;
            then the message has the end of its log.
        """
        if self.running:
            return
        await self.stop()
        self._lock = self._take_lock()
        try:
            await self._end_leftovers()
            self._make_private_directory(self.socket)
            self._server = await self._spawn()
            await self._wait_ready(self._server)
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Shut down fast: end sessions, write everything, and end all processes; idempotent."""
        lock, self._lock = self._lock, None
        server, self._server = self._server, None
        if lock is None:
            return
        with lock:
            if server is not None:
                _go_on(proctable.working_in(self.data))
                await _shut_down(server)
                await self._end_leftovers()
            if self.socket.parent != self.directory:
                shutil.rmtree(self.socket, ignore_errors=True)

    async def remove(self) -> None:
        """End the server that a killed owner has left, and delete the cluster.

        :raises ClusterInUse: its owner lives.
        :raises DatabaseUnavailable: the server does not end, or the directory cannot be used.
        """
        with self._take_lock():
            await self._end_leftovers()
            if self.socket.parent != self.directory:
                shutil.rmtree(self.socket, ignore_errors=True)
            shutil.rmtree(self.directory, ignore_errors=True)

    async def wait(self) -> None:
        """Wait until the server has ended for any reason."""
        if self._server is not None:
            await self._server.wait()

    async def create_database(self, name: str) -> None:
        """Create an empty database unless it exists.

        :raises DatabaseUnavailable: the server refused with a reason, or cannot be reached.
        """
        argv = [self._binaries.program("createdb"), "-h", str(self.socket), "-p", str(PORT)]
        argv += ["-U", SUPERUSER, "--", name]
        finished = await process.finish(argv, timeout_s=60, cwd=Path("/"))
        if finished.exit_code != 0 and b"already exists" not in finished.stderr:
            raise DatabaseUnavailable(
                f"the database {name} could not be created: {process.tail(finished.stderr, 2)}"
            )

    def dsn(self, name: str) -> str:
        """Return the complete address of a database, independent of the environment."""
        host = quote(str(self.socket), safe="/")
        return f"postgresql:///{quote(name, safe='')}?host={host}&port={PORT}&user={SUPERUSER}"

    def _socket_directory(self) -> Path:
        """Return the socket directory: beside the data, or a shorter path if that is too long.

        The short name is derived from the long one, so that a restart finds it again.
        """
        beside = self.directory / "socket"
        if len(os.fsencode(beside)) + _SOCKET_NAME_BYTES <= _SOCKET_PATH_BYTES_MAX:
            return beside
        digest = hashlib.sha256(os.fsencode(self.directory)).hexdigest()[:12]
        return Path("/tmp") / f"parley-{os.geteuid()}-{digest}"  # noqa: S108 - owner is checked

    def _make_directory(self) -> None:
        """Create our directory, which the server's account may enter but not read.

        :raises HostError: it is a link of another account.
        """
        refuse_foreign_link(self.directory)
        try:
            if self.directory.exists() and not self.data.exists():
                foreign = {path.name for path in self.directory.iterdir()}
                foreign -= {"data.new", "socket", "log", "lock"}
                names = ", ".join(sorted(foreign)[:3])
                if foreign:
                    raise DatabaseUnavailable(
                        f"{self.directory} contains other files ({names}). "
                        "A database needs a directory of its own"
                    )
            self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            if self.account is not None:
                self.directory.chmod(0o711)
        except OSError as fault:
            raise _unusable(self.directory, fault) from fault
        self._check_passable()

    def _check_passable(self) -> None:
        if self.account is None:
            return
        if self._can_enter(self.directory):
            return
        above = reversed(self.directory.parents)
        closed = next((it for it in above if not self._can_enter(it)), self.directory)
        raise DatabaseUnavailable(
            f"Postgres does not run as root, and the account {self.account}, as which it would "
            f"run, may not enter {self.directory}, because {closed} belongs to {closed.owner()} "
            f"alone. Permit it (chmod o+x {closed}), or choose another directory with --state-dir"
        )

    def _can_enter(self, directory: Path) -> bool:
        """Return whether the server's account may enter a directory."""
        argv = ["test", "-x", str(directory)]
        return process.run(argv, timeout_s=10, user=self.account, cwd=Path("/")).exit_code == 0

    def _make_private_directory(self, directory: Path) -> None:
        """Ensure that a directory exists, has mode 0700, and belongs to the server's account.

        Under ``/tmp`` somebody else may have created it first; then it is refused.
        """
        entry = pwd.getpwnam(self.account) if self.account else None
        owner = entry.pw_uid if entry else os.geteuid()
        try:
            with contextlib.suppress(FileExistsError):
                directory.mkdir(mode=0o700)
                if entry is not None:
                    os.chown(directory, entry.pw_uid, entry.pw_gid)
            status = directory.lstat()
        except OSError as fault:
            raise _unusable(directory, fault) from fault
        if directory.is_symlink() or status.st_uid != owner or status.st_mode & 0o077:
            raise DatabaseUnavailable(
                f"{directory} is not a directory that belongs to {self.account or 'us'} alone, so "
                "the database would not be private. Remove it and start again"
            )

    async def _initialise(self) -> None:
        """Create the cluster under another name and rename it, so that it is complete or absent."""
        new = self.directory / "data.new"
        shutil.rmtree(new, ignore_errors=True)
        finished = None
        for locale in ("C.UTF-8", "C"):  # the first does not exist everywhere
            self._make_private_directory(new)
            argv = [self._binaries.program("initdb"), "-D", str(new), "-U", SUPERUSER]
            argv += ["--auth=trust", "--encoding=UTF8", f"--locale={locale}", "--no-instructions"]
            argv += [] if self._durable else ["--no-sync"]
            finished = await process.finish(
                argv, timeout_s=INITDB_S, user=self.account, cwd=Path("/")
            )
            if finished.exit_code == 0:
                new.rename(self.data)
                return
            shutil.rmtree(new, ignore_errors=True)
        reason = process.tail(finished.stderr) if finished else ""
        raise DatabaseUnavailable(f"no database could be created in {self.directory}: {reason}")

    def _check_major(self) -> None:
        major = existing_major(self.directory)
        if major != self._binaries.major:
            raise DatabaseUnavailable(
                f"the database in {self.directory} was created by Postgres {major}, but Postgres "
                f"{self._binaries.major} is installed here ({self._binaries.directory}). "
                f"Install the other: apt install postgresql-{major}. Or move the directory away to "
                "start with an empty database"
            )

    def _take_lock(self) -> IO[str]:
        """Lock the cluster's lock file and return it; whichever process has it owns the cluster."""
        path = self.directory / "lock"
        try:
            lock = os.fdopen(os.open(path, _LOCKING, 0o600), "r+")
        except OSError as fault:
            raise _unusable(path, fault) from fault
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            with lock:
                lock.seek(0)
                owner = lock.read().strip() or "unknown"
            raise ClusterInUse(
                f"the database in {self.directory} is in use by another Parley (process {owner}). "
                "Stop that one, or give this one a directory of its own"
            ) from None
        lock.truncate(0)
        lock.write(str(os.getpid()))
        lock.flush()
        return lock

    async def _end_leftovers(self) -> None:
        """End the leftover server of a former owner.

        :raises DatabaseUnavailable: it does not end.
        """
        recorded = _recorded_pid(self.data / "postmaster.pid")
        leftovers = proctable.working_in(self.data)
        if recorded in leftovers:
            os.kill(recorded, signal.SIGINT)
        _go_on(leftovers)
        try:
            async with asyncio.timeout(STOP_S):
                await proctable.wait_for_exits(leftovers)
        except TimeoutError:
            raise DatabaseUnavailable(
                f"an earlier Postgres still runs in {self.data} (processes {leftovers}) and does "
                "not end. Inspect them with ps, and end them manually"
            ) from None
        self._forget_stranger(recorded)

    def _forget_stranger(self, recorded: int) -> None:
        """Remove a stale pid file: its pid may now be that of an unrelated process."""
        if recorded and Path(f"/proc/{recorded}").exists():
            (self.data / "postmaster.pid").unlink(missing_ok=True)
            for name in (f".s.PGSQL.{PORT}", f".s.PGSQL.{PORT}.lock"):
                (self.socket / name).unlink(missing_ok=True)

    async def _spawn(self) -> RunningProcess:
        settings = {
            **_SETTINGS,
            "unix_socket_directories": '"' + str(self.socket).replace('"', '""') + '"',
            "max_connections": str(self._connections_max),
            **({} if self._durable else _NOT_DURABLE),
            **self._settings,
        }
        argv = [self._binaries.program("postgres"), "-D", str(self.data)]
        argv += [f"--{name}={value}" for name, value in settings.items()]
        return await process.start(
            argv,
            user=self.account,
            log=self.log,
            cwd=Path("/"),
            owner_death=signal.SIGINT,  # a fast shutdown: even then everything is written
        )

    async def _wait_ready(self, server: RunningProcess) -> None:
        """Return when the server's pid file says that it accepts connections."""
        try:
            async with asyncio.timeout(START_S):
                while not server.ended:
                    if _says_ready(self.data / "postmaster.pid", server.pid):
                        return
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(_POLL_S):
                            await server.wait()
        except TimeoutError:
            pass
        raise DatabaseUnavailable(
            f"Postgres did not start in {self.directory}: {process.tail_of(self.log)}"
        )


def existing_major(directory: Path) -> int | None:
    """Return the major version of the cluster in a directory; ``None`` if there is none.

    :raises DatabaseUnavailable: it cannot be read, or is not a cluster.
    """
    try:
        return int((directory / "data" / "PG_VERSION").read_text())
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as fault:
        raise _unusable(directory, fault) from fault


async def _shut_down(server: RunningProcess) -> None:
    for number in (signal.SIGINT, signal.SIGQUIT):  # fast; then immediate, with a later replay
        server.send(number)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(STOP_S):
                await server.wait()
            return
    await server.end(0)


def _go_on(pids: Sequence[int]) -> None:
    """Let processes go on that were stopped: they would not hear that they should end."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


def _unusable(directory: Path, fault: Exception) -> DatabaseUnavailable:
    reason = (fault.strerror if isinstance(fault, OSError) else None) or str(fault)
    return DatabaseUnavailable(
        f"{directory} cannot be used for a database: {reason}. Choose another directory, or start "
        "as the user who owns it"
    )


def _recorded_pid(pid_file: Path) -> int:
    """Return the server's pid in a pid file; 0 if there is none."""
    try:
        return abs(int(pid_file.read_text().splitlines()[0]))
    except (FileNotFoundError, IndexError, ValueError):
        return 0


def _says_ready(pid_file: Path, pid: int) -> bool:
    """Return whether the eighth line says so, also of a standby, and the first is this server's."""
    try:
        lines = pid_file.read_text().splitlines()
    except FileNotFoundError:
        return False
    return len(lines) > 7 and lines[0] == str(pid) and lines[7].strip() in _READY  # noqa: PLR2004
