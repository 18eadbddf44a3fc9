"""Backups: the database of a node, and its keys unless they are left out, in one file.

The file is a tar archive: ``database.dump`` (of ``pg_dump``, compressed), the keys ``node.pem`` and
``secrets.key``, and ``manifest.json``, which has the digest of each. Without the keys it tells no
secret: those in the database are sealed by the second one. What was written is read again before
the file gets its name, so that a file of that name is whole.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import shutil
import tarfile
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import cast
from urllib.parse import unquote, urlsplit

import orjson

from node.execution import process
from node.model import times
from node.model.errors import DatabaseUnavailable, HostError, SchemaMismatch
from node.postgres.binaries import CLIENTS, ServerBinaries, candidates, inspect
from node.store import maintenance, migrating
from node.store.schema import schema_version
from node.trust import sealing
from node.trust.keys import NodeKey
from node.trust.private_files import OWNER_ONLY, read_private, replace_private

FORMAT = 1
_DUMP, _KEY, _MANIFEST = "database.dump", "node.pem", "manifest.json"
_MANIFEST_MAX = 65_536
_SUFFIX = ".parley"


@dataclass(frozen=True)
class Manifest:
    """The manifest of a backup; ``identity`` is the key of the node."""

    format: int
    program: str
    schema_version: int
    identity: str
    made_at: str
    with_key: bool
    digests: Mapping[str, str]


@dataclass(frozen=True)
class BackupDirectory:
    """A directory that has backups of nodes, and keeps some of each node's; None keeps all."""

    path: Path
    keep: int | None

    def new_file(self, identity: str, made_at: str) -> Path:
        """Return the file for a backup of a node that is made at this time."""
        return self.path / f"{_prefix(identity)}{made_at.replace(':', '')}{_SUFFIX}"

    def latest(self, identity: str) -> int | None:
        """Return when the latest backup of a node here was made (µs since 1970), by its name."""
        made = [
            instant
            for file in self._files(identity)
            if (instant := _instant_in_name(file.name[len(_prefix(identity)) : -len(_SUFFIX)]))
            is not None
        ]
        return max(made, default=None)

    def delete_older(self, identity: str) -> None:
        """Delete the oldest backups of a node, but those that are to be kept."""
        if self.keep is not None:
            for old in self._files(identity)[: -self.keep]:
                old.unlink()

    def _files(self, identity: str) -> list[Path]:
        return sorted(self.path.glob(f"{_prefix(identity)}*{_SUFFIX}"))


def _prefix(identity: str) -> str:
    """Return how the names of a node's backups begin: with its key."""
    return f"parley-{identity.removeprefix('ed25519:')[:12]}-"


def _instant_in_name(text: str) -> int | None:
    """Return the instant in the name of a file, such as ``2026-11-27T060000Z``."""
    with contextlib.suppress(ValueError):
        moment = datetime.strptime(text, "%Y-%m-%dT%H%M%SZ").replace(tzinfo=UTC)
        return times.from_datetime(moment)
    return None


async def back_up(
    dsn: str, state_dir: Path, file: Path, *, with_key: bool, program: str, now: str
) -> Manifest:
    """Write a backup of a database that may be in use, as it is at one instant.

    ``program`` is the version of this program, ``now`` the current time as text. An existing file
    is replaced.

    :raises HostError: the file cannot be written, or the key cannot be read.
    :raises DatabaseUnavailable: there is no connection, or no ``pg_dump`` of that version.
    """
    standing = await migrating.find_standing(dsn)
    tools = await _tools(dsn)
    identity = identity_in(state_dir)
    keys = _keys(state_dir) if with_key else {}
    with _temporary_directory(file) as work:
        dump = work / _DUMP
        await _run(tools, "pg_dump", dsn, "--format=custom", f"--file={dump}")
        await _run(tools, "pg_restore", None, "--file=/dev/null", str(dump))
        with dump.open("rb") as written:
            digests = {_DUMP: _digest(written)}
        digests |= {name: hashlib.sha256(key).hexdigest() for name, key in keys.items()}
        manifest = Manifest(FORMAT, program, standing.version, identity, now, with_key, digests)
        new = work / "new"
        _write(new, manifest, dump, keys)
        read(new)
        new.rename(file)
    return manifest


def read(file: Path) -> Manifest:
    """Return what a backup says of itself, after comparing all of it with its digests.

    :raises HostError: it cannot be read, is not a backup, or was damaged.
    """
    try:
        with tarfile.open(file, "r:") as archive:
            document = _member(archive, _MANIFEST).read(_MANIFEST_MAX)
            manifest = _manifest(file, document)
            for name, digest in manifest.digests.items():
                if _digest(_member(archive, name)) != digest:
                    msg = f"{file} was damaged: {name} is not what was written; use another backup"
                    raise HostError(msg)
    except (tarfile.TarError, KeyError, EOFError) as error:
        msg = f"{file} is not a backup of a node, or only a part of one; use another file"
        raise HostError(msg) from error
    except OSError as error:
        msg = f"{file} cannot be read: {error.strerror or error}"
        raise HostError(msg) from error
    return manifest


def identity_in(state_dir: Path) -> str:
    """Return the identity of the node that has this state directory.

    :raises HostError: no node has it, or the key cannot be read.
    """
    if read_private(state_dir / _KEY) is None:
        msg = f"{state_dir} has no key of a node; name the state directory of the node"
        raise HostError(msg)
    return NodeKey.load_or_create(state_dir / _KEY).identity


def check_key(manifest: Manifest, state_dir: Path, *, replace: bool) -> None:
    """Check that a backup is of the node whose key a state directory has, if it has one.

    :raises HostError: it is of another node, and nothing is to be replaced.
    """
    if read_private(state_dir / _KEY) is None or replace:
        return
    own = identity_in(state_dir)
    if own != manifest.identity:
        msg = (
            f"the backup is of {manifest.identity}, and {state_dir} has the key of {own}; "
            "name another state directory, or replace what is there with --replace"
        )
        raise HostError(msg)


async def restore_database(dsn: str, file: Path, manifest: Manifest, *, replace: bool) -> None:
    """Put the database of a backup, which was read before, into one that is not in use.

    :raises SchemaMismatch: the backup was made by a later program.
    :raises HostError: the database is not empty, and nothing is to be replaced.
    :raises DatabaseUnavailable: it cannot be done; nothing but an empty database may be left.
    """
    if manifest.schema_version > schema_version():
        msg = (
            f"the backup has schema version {manifest.schema_version}, and this program's is "
            f"{schema_version()}; use a program like the one that made it: {manifest.program}"
        )
        raise SchemaMismatch(msg)
    tools = await _tools(dsn)
    with tempfile.TemporaryDirectory(prefix="parley-restore-") as work:
        dump = Path(work) / _DUMP
        with tarfile.open(file, "r:") as archive, dump.open("wb") as extracted:
            shutil.copyfileobj(_member(archive, _DUMP), extracted)
        await _run(tools, "pg_restore", None, "--file=/dev/null", str(dump))
        if (await maintenance.contents(dsn)).tables:
            if not replace:
                msg = "the database is not empty; replace what is there with --replace"
                raise HostError(msg)
            await maintenance.clear(dsn)
        options = ["--no-owner", "--single-transaction", "--exit-on-error"]
        if not await maintenance.ensure_reader(dsn):
            options.append("--no-privileges")
        await _run(tools, "pg_restore", dsn, *options, str(dump))
        await maintenance.note_placed_by_owner(dsn)


def _keys(state_dir: Path) -> dict[str, bytes]:
    """Return the keys of a node by the name of their file; before its first start it has one."""
    found = {name: read_private(state_dir / name) for name in (_KEY, sealing.FILE)}
    return {name: key for name, key in found.items() if key is not None}


def restore_keys(file: Path, state_dir: Path) -> None:
    """Put the keys of a backup in their place; others that are there are kept beside them."""
    with tarfile.open(file, "r:") as archive:
        members = {_KEY, sealing.FILE} & set(archive.getnames())
        keys = {name: _member(archive, name).read() for name in sorted(members)}
    for name, key in keys.items():
        replaced = read_private(state_dir / name)
        if replaced not in {None, key}:
            replace_private(state_dir / f"{name}.replaced", replaced or b"")
        replace_private(state_dir / name, key)


async def _tools(dsn: str) -> ServerBinaries:
    """Return programs of the server's version, or of the next later one that is installed."""
    server = await maintenance.server_major(dsn)
    found = [inspect(it, programs=CLIENTS) for it in candidates()]
    usable = [it for it in found if isinstance(it, ServerBinaries) and it.major >= server]
    if not usable:
        raise DatabaseUnavailable(
            f"there is no pg_dump of Postgres {server} on this host, the version of the server; "
            f"install it: apt install postgresql-client-{server}"
        )
    return min(usable, key=lambda it: it.major)


async def _run(tools: ServerBinaries, program: str, dsn: str | None, *options: str) -> None:
    """Run a program of Postgres; the password goes by its environment, which only we can read."""
    argv, environment = [tools.program(program), *options], {}
    if dsn is not None:
        try:
            password = urlsplit(dsn).password
        except ValueError as error:
            raise HostError(f"PARLEY_DSN is no URL of a database: {error}") from None
        if password:
            environment["PGPASSWORD"] = unquote(password)
            dsn = dsn.replace(f":{password}@", "@", 1)
        argv.insert(1, f"--dbname={dsn}")
    running = await process.start(argv, env=environment)
    try:
        finished = await running.wait()
    finally:
        await running.end(5)
    if finished.exit_code != 0:
        raise DatabaseUnavailable(f"{program} failed: {process.tail(finished.stderr, 3)}")


def _write(new: Path, manifest: Manifest, dump: Path, keys: Mapping[str, bytes]) -> None:
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, OWNER_ONLY)
    with os.fdopen(descriptor, "wb") as file:
        with tarfile.open(fileobj=file, mode="w") as archive:
            _add(archive, _MANIFEST, orjson.dumps(asdict(manifest)))
            for name, key in keys.items():
                _add(archive, name, key)
            archive.add(dump, _DUMP)
        file.flush()
        os.fsync(file.fileno())


def _add(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    info = tarfile.TarInfo(name)
    info.size, info.mode = len(content), OWNER_ONLY
    archive.addfile(info, io.BytesIO(content))


def _member(archive: tarfile.TarFile, name: str) -> io.BufferedReader:
    content = archive.extractfile(name)
    if content is None:
        raise KeyError(name)
    return cast("io.BufferedReader", content)  # which it is, whatever its annotation says


def _digest(content: io.BufferedReader) -> str:
    return hashlib.file_digest(content, "sha256").hexdigest()


def _manifest(file: Path, document: bytes) -> Manifest:
    try:
        manifest = Manifest(**orjson.loads(document))
    except (orjson.JSONDecodeError, TypeError) as error:
        msg = f"{file} is not a backup of a node"
        raise HostError(msg) from error
    if manifest.format != FORMAT:
        msg = f"{file} was made by a later program ({manifest.program}); upgrade this one"
        raise HostError(msg)
    return manifest


@contextlib.contextmanager
def _temporary_directory(file: Path) -> Iterator[Path]:
    """Yield a directory beside a file, which is on the same disk.

    :raises HostError: nothing can be written there.
    """
    try:
        with tempfile.TemporaryDirectory(dir=file.parent, prefix=".parley-backup-") as work:
            yield Path(work)
    except OSError as error:
        msg = f"{file} cannot be written: {error.strerror or error}"
        raise HostError(msg) from error
