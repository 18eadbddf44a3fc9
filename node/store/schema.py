"""The schema of the database: its version, and the steps that lead to it from earlier ones.

``schema.sql`` is the whole of it, for an empty database. ``migrations/0005_steps.sql`` makes
version 5 of version 4, and so on. Its first line says what it does, in a sentence; its second one
names the oldest version of a program that may use the result.
"""

from __future__ import annotations

import functools
import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from urllib.parse import parse_qsl, urlsplit

from node.model.errors import SchemaMismatch

_FIRST = 4
"""The earliest version from which there are steps."""

_DIGEST_SHOWN = 12
"""Number of a digest's characters that tell it from others."""

_REMARK = re.compile(r"^COMMENT ON .*?';$|--[^\n]*", re.MULTILINE | re.DOTALL)
_HEAD = re.compile(r"-- (?P<title>[^\n]+)\.\n-- Oldest program: (?P<oldest>\d+)\n")


@dataclass(frozen=True)
class Migration:
    """A step to a version of the schema; ``title`` says in a sentence what it does."""

    version: int
    title: str
    oldest_program: int
    text: str

    @property
    def digest(self) -> str:
        """The digest of its statements."""
        return digest_of(self.text)


@dataclass(frozen=True)
class AppliedVersion:
    """A version that a database has or had; ``migration`` is the digest of the step to it."""

    version: int
    digest: str | None
    migration: str | None
    oldest_program: int


def schema_text() -> str:
    """Return the text of ``schema.sql``."""
    return resources.files("node.store").joinpath("schema.sql").read_text("utf-8")


@functools.cache
def digest_of_schema() -> str:
    """Return the digest of ``schema.sql``."""
    return digest_of(schema_text())


def digest_of(statements: str) -> str:
    """Return the SHA-256 of statements; comments and spacing do not matter. Pure."""
    return hashlib.sha256(" ".join(_REMARK.sub(" ", statements).split()).encode()).hexdigest()


@functools.cache
def migrations() -> tuple[Migration, ...]:
    """Return all steps, in their order."""
    folder = resources.files("node.store").joinpath("migrations")
    files = (each for each in folder.iterdir() if each.name.endswith(".sql"))
    return tuple(
        migration_of(file.name, file.read_text("utf-8")) for file in sorted(files, key=str)
    )


def migration_of(name: str, text: str) -> Migration:
    """Read the file of a step. Pure.

    :raises ValueError: its name or its head is not that of a step.
    """
    head = _HEAD.match(text)
    if head is None or not name[:4].isdigit():
        msg = f"{name}: the first two lines do not say what it does, and for which programs"
        raise ValueError(msg)
    return Migration(int(name[:4]), head["title"], int(head["oldest"]), text)


@functools.cache
def schema_version() -> int:
    """Return the version of this program's schema."""
    return migrations()[-1].version


def place_of(dsn: str) -> str:
    """Return where a server of Postgres listens: a socket's file, or host and port.

    >>> place_of("postgresql:///parley?host=/run/postgresql")
    '/run/postgresql/.s.PGSQL.5432'
    """
    try:
        parts = urlsplit(dsn)
        query = dict(parse_qsl(parts.query))
        host = query.get("host") or parts.hostname or "the default socket"
        port = query.get("port") or parts.port or 5432
    except ValueError:  # it is no address of a database, which its driver reports
        return "the given address"
    return f"{host}/.s.PGSQL.{port}" if host.startswith("/") else f"{host}:{port}"


def connection_settings() -> dict[str, str]:
    """Return the settings by which the server knows of a connection which program has it."""
    return {"application_name": f"parley schema {schema_version()}"}


def missing_steps(applied: Sequence[AppliedVersion]) -> tuple[Migration, ...]:
    """Return the steps that a database lacks, given the versions it has had, in their order.

    A newer schema lacks none if it spares programs of this version. Pure.

    :raises SchemaMismatch: this program can neither use nor migrate it.
    """
    own = schema_version()
    if not applied:
        msg = "the database does not say which schema it has"
        raise SchemaMismatch(msg)
    latest = applied[-1]
    known = {each.version: each for each in migrations()}
    for each in applied:
        step = known.get(each.version)
        if step is not None and each.migration not in (None, step.digest):
            _refuse_build(f"step to schema version {each.version}", each.migration, step.digest)
    if latest.version > own:
        later = (each.oldest_program for each in applied if each.version > own)
        if max(later) <= own:
            return ()
        msg = (
            f"the database has schema version {latest.version}, which is newer than this program's "
            f"version {own}; upgrade the program"
        )
        raise SchemaMismatch(msg)
    if latest.version == own and latest.digest != digest_of_schema():
        _refuse_build("schema.sql", latest.digest, digest_of_schema())
    if latest.version < _FIRST:
        msg = (
            f"the database has schema version {latest.version}, from which no step leads to this "
            f"program's version {own}; use the program it was made by, or give this one an empty "
            "database"
        )
        raise SchemaMismatch(msg)
    return tuple(each for each in migrations() if each.version > latest.version)


def _refuse_build(what: str, found: str | None, own: str) -> None:
    made, ours = (it[:_DIGEST_SHOWN] if it else "none" for it in (found, own))
    msg = (
        f"the database was made by another build of this program, with another {what} "
        f"(digest {made} there, {ours} here); use the program it was made by, or give this one an "
        "empty database"
    )
    raise SchemaMismatch(msg)
