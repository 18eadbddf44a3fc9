"""Databases and queries of earlier programs; ``python -m tests.releases`` writes those of one."""

from __future__ import annotations

import contextlib
import gzip
import json
from collections.abc import Iterator
from pathlib import Path

import asyncpg

from node.store.queries import Queries

_ROOT = Path(__file__).parents[2]
_RELEASES = _ROOT / "tests/releases"
RELEASES = sorted(_RELEASES.glob("schema_*.sql.gz"))


def queries_file(version: int) -> Path:
    """Return the file of the queries of the program whose schema has this version."""
    return _RELEASES / f"queries_{version}.json.gz"


def queries() -> Iterator[tuple[str, str]]:
    """Yield the named queries of this program: package, file and name, and the statement."""
    for store in ("node.store", "lead.store"):
        for file in sorted((_ROOT / store.replace(".", "/") / "sql").glob("*.sql")):
            for name, query in Queries(store, file.stem).items():
                yield f"{store}/{file.stem}/{name}", query


def queries_of(version: int) -> dict[str, str]:
    """Return the named queries of an earlier program."""
    read: dict[str, str] = json.loads(gzip.decompress(queries_file(version).read_bytes()))
    return read


async def restore(dsn: str, release: Path = RELEASES[0]) -> None:
    """Restore what an earlier program wrote into an empty database."""
    connection = await asyncpg.connect(dsn)
    with contextlib.suppress(asyncpg.DuplicateObjectError):
        await connection.execute("CREATE ROLE parley_reader NOLOGIN")  # of the server: in no dump
    await connection.execute(gzip.decompress(release.read_bytes()).decode())
    await connection.close()
