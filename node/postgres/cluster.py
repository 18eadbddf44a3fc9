"""A private Postgres: one directory, one owner, reached through a socket that only we can open.

The directory holds ``data`` and ``socket`` (the server's own, mode 0700), ``log`` and ``lock``.
Whoever holds the lock owns the cluster. The kernel drops it with its owner, so with the lock in
hand any server still running in ``data`` is left over from an owner that was killed, and is ended.

Authentication is ``trust``: what protects the server is that no network reaches it, and that the
socket lies in a directory which nobody else can enter.
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
from pathlib import Path
from typing import IO
from urllib.parse import quote

from node.execution import process, proctable
from node.execution.process import RunningProcess
from node.model.errors import DatabaseUnavailable
from node.postgres.account import server_account
from node.postgres.binaries import ServerBinaries

SUPERUSER = "parley"
PORT = 5432  # only a part of the socket's name; no port is opened

INITDB_S = 120.0
START_S = 120.0  # after a crash the server first replays its log
STOP_S = 60.0
_POLL_S = 0.01

_SOCKET_NAME_BYTES = len(f"/.s.PGSQL.{PORT}")
_SOCKET_PATH_BYTES_MAX = 107  # what the kernel's sockaddr_un holds, less the final zero

_SETTINGS = {
    "listen_addresses": "",
    "port": str(PORT),
    "unix_socket_permissions": "0700",
    "shared_buffers": "128MB",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "lc_messages": "C",  # its messages are part of ours
    "jit": "off",  # thousands of short statements, none worth compiling
    "max_parallel_workers_per_gather": "0",
    "autovacuum_naptime": "15s",  # runs change state several times within a minute
    "log_checkpoints": "off",
    "max_wal_size": "512MB",
}
_NOT_DURABLE = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}


class PrivateCluster:
    """One Postgres cluster in ``directory``; made by :meth:`create`, which keeps an existing one.

    ``durable=False`` gives up safety in a power cut for speed, for tests only.
    """

    def __init__(
        self,
        directory: Path,
        binaries: ServerBinaries,
        *,
        connections_max: int = 300,
        durable: bool = True,
    ) -> None:
        """Name the cluster; touches nothing."""
        self.directory = directory.absolute()
        self.data = self.directory / "data"
        self.log = self.directory / "log"
        self.account = server_account(self.data)
        self.socket = self._socket_directory()
        self._binaries = binaries
        self._connections_max = connections_max
        self._durable = durable
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
    ) -> PrivateCluster:
        """Make the cluster if it is not there yet; it is not started.

        :raises DatabaseUnavailable: the directory cannot be used, or the cluster in it was made by
            another major version.
        """
        cluster = cls(directory, binaries, connections_max=connections_max, durable=durable)
        cluster._make_directory()
        if existing_major(directory) is None:
            with cluster._take_lock():
                await cluster._initialise()
        cluster._check_major()
        return cluster

    @property
    def running(self) -> bool:
        """Whether the server runs, started by us."""
        return self._server is not None and not self._server.ended

    async def start(self) -> None:
        """Start the server and return when it takes connections; nothing happens if it does.

        A server left over from an owner that was killed is ended first.

        :raises DatabaseUnavailable: another process owns the cluster, or the server did not start;
            then the end of its log is in the message.
        """
        if self.running:
            return
        await self.stop()
        self._lock = self._take_lock()
        try:
            await self._end_leftovers()
            self._own_directory(self.socket)
            self._server = await self._spawn()
            await self._ready(self._server)
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Fast shutdown: sessions are ended, everything is written, nobody is left. Repeatable."""
        lock, self._lock = self._lock, None
        server, self._server = self._server, None
        if lock is None:
            return
        with lock:
            if server is not None:
                await _shut_down(server)
                await self._end_leftovers()
            if self.socket.parent != self.directory:
                shutil.rmtree(self.socket, ignore_errors=True)

    async def wait(self) -> None:
        """Return when the server has ended, whoever ended it."""
        if self._server is not None:
            await self._server.wait()

    async def create_database(self, name: str) -> None:
        """Make an empty database; one that is there already is kept.

        :raises DatabaseUnavailable: the server refused, or cannot be reached; says why.
        """
        argv = [self._binaries.program("createdb"), "-h", str(self.socket), "-p", str(PORT)]
        argv += ["-U", SUPERUSER, "--", name]
        finished = await process.finish(argv, timeout_s=60, cwd=Path("/"))
        if finished.exit_code != 0 and b"already exists" not in finished.stderr:
            raise DatabaseUnavailable(
                f"the database {name} could not be made: {process.tail(finished.stderr, 2)}"
            )

    def dsn(self, name: str) -> str:
        """The address of a database, complete: nothing is taken from the environment."""
        host = quote(str(self.socket), safe="/")
        return f"postgresql:///{quote(name, safe='')}?host={host}&port={PORT}&user={SUPERUSER}"

    def _socket_directory(self) -> Path:
        """Beside the data, or where its name is short enough for a socket.

        The short name follows from the long one, so that a restart finds it again.
        """
        beside = self.directory / "socket"
        if len(os.fsencode(beside)) + _SOCKET_NAME_BYTES <= _SOCKET_PATH_BYTES_MAX:
            return beside
        digest = hashlib.sha256(os.fsencode(self.directory)).hexdigest()[:12]
        return Path("/tmp") / f"parley-{os.geteuid()}-{digest}"  # noqa: S108 - owner is checked

    def _make_directory(self) -> None:
        """Our own directory, which the server's account may pass through but not read."""
        try:
            if self.directory.exists() and not self.data.exists():
                strange = {path.name for path in self.directory.iterdir()}
                strange -= {"data.new", "socket", "log", "lock"}
                if strange:
                    raise DatabaseUnavailable(
                        f"{self.directory} holds other things ({', '.join(sorted(strange)[:3])}). "
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
        argv = ["test", "-x", str(self.directory)]
        if process.run(argv, timeout_s=10, user=self.account, cwd=Path("/")).exit_code != 0:
            raise DatabaseUnavailable(
                f"Postgres does not run as root, and the account {self.account}, as which it would "
                f"run, may not enter {self.directory}, often because a directory above it belongs "
                "to root alone. Choose a place outside, for example /var/lib/parley"
            )

    def _own_directory(self, directory: Path) -> None:
        """A directory of mode 0700 that belongs to the server's account, made if need be.

        Under ``/tmp`` somebody else may have put it there first; then it is refused.
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
        """Make the cluster beside its place and then move it there: it is whole, or not there."""
        new = self.directory / "data.new"
        shutil.rmtree(new, ignore_errors=True)
        finished = None
        for locale in ("C.UTF-8", "C"):  # the first is not known everywhere
            self._own_directory(new)
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
        said = process.tail(finished.stderr) if finished else ""
        raise DatabaseUnavailable(f"a database could not be made in {self.directory}: {said}")

    def _check_major(self) -> None:
        major = existing_major(self.directory)
        if major != self._binaries.major:
            raise DatabaseUnavailable(
                f"the database in {self.directory} was made by Postgres {major}, but what is "
                f"installed here is Postgres {self._binaries.major} ({self._binaries.directory}). "
                f"Install it: apt install postgresql-{major}. Or move the directory away to "
                "start with an empty database"
            )

    def _take_lock(self) -> IO[str]:
        """The cluster's lock file; whoever has it open owns the cluster."""
        lock = (self.directory / "lock").open("a+")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            with lock:
                lock.seek(0)
                owner = lock.read().strip() or "unknown"
            raise DatabaseUnavailable(
                f"the database in {self.directory} is in use by another Parley (process {owner}). "
                "Stop that one, or give this one a directory of its own"
            ) from None
        lock.truncate(0)
        lock.write(str(os.getpid()))
        lock.flush()
        return lock

    async def _end_leftovers(self) -> None:
        """End the server of a former owner.

        :raises DatabaseUnavailable: it does not end.
        """
        recorded = _recorded_pid(self.data / "postmaster.pid")
        left = proctable.working_in(self.data)
        if recorded in left:
            os.kill(recorded, signal.SIGINT)
        try:
            await asyncio.wait_for(proctable.wait_for_exits(left), STOP_S)
        except TimeoutError:
            raise DatabaseUnavailable(
                f"an earlier Postgres still works in {self.data} (processes {left}) and does not "
                "end. Look at them with ps, and end them by hand"
            ) from None
        self._forget_stranger(recorded)

    def _forget_stranger(self, recorded: int) -> None:
        """Postgres would take the process that has the former server's number now for a server."""
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

    async def _ready(self, server: RunningProcess) -> None:
        """Return when the server says in its pid file that it takes connections."""
        try:
            async with asyncio.timeout(START_S):
                while not server.ended:
                    if _says_ready(self.data / "postmaster.pid", server.pid):
                        return
                    with contextlib.suppress(TimeoutError):
                        await asyncio.wait_for(server.wait(), _POLL_S)
        except TimeoutError:
            pass
        raise DatabaseUnavailable(
            f"Postgres did not start in {self.directory}: {process.tail_of(self.log)}"
        )


def existing_major(directory: Path) -> int | None:
    """The major version that made the cluster in a directory; ``None`` if there is none.

    :raises DatabaseUnavailable: we may not look, or what is there is no cluster.
    """
    try:
        return int((directory / "data" / "PG_VERSION").read_text())
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as fault:
        raise _unusable(directory, fault) from fault


async def _shut_down(server: RunningProcess) -> None:
    for number in (signal.SIGINT, signal.SIGQUIT):  # fast; then at once, to be replayed
        server.send(number)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(server.wait(), STOP_S)
            return
    await server.end(0)


def _unusable(directory: Path, fault: Exception) -> DatabaseUnavailable:
    reason = (fault.strerror if isinstance(fault, OSError) else None) or str(fault)
    return DatabaseUnavailable(
        f"{directory} cannot be used for a database: {reason}. Choose another directory, or start "
        "as the user to whom it belongs"
    )


def _recorded_pid(pid_file: Path) -> int:
    """The server's number in a pid file; 0 if there is none."""
    try:
        return abs(int(pid_file.read_text().splitlines()[0]))
    except (FileNotFoundError, IndexError, ValueError):
        return 0


def _says_ready(pid_file: Path, pid: int) -> bool:
    """Whether the eighth line is ``ready`` and the first is this server's number."""
    try:
        lines = pid_file.read_text().splitlines()
    except FileNotFoundError:
        return False
    return len(lines) > 7 and lines[0] == str(pid) and lines[7].strip() == "ready"  # noqa: PLR2004
