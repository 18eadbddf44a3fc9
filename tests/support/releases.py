"""The databases that earlier programs wrote; ``python -m tests.releases`` writes one."""

from __future__ import annotations

import contextlib
import gzip
from pathlib import Path

import asyncpg

RELEASES = sorted((Path(__file__).parents[1] / "releases").glob("schema_*.sql.gz"))


async def restore(dsn: str, release: Path = RELEASES[0]) -> None:
    """Restore what an earlier program wrote into an empty database."""
    connection = await asyncpg.connect(dsn)
    with contextlib.suppress(asyncpg.DuplicateObjectError):
        await connection.execute("CREATE ROLE parley_reader NOLOGIN")  # of the server: in no dump
    await connection.execute(gzip.decompress(release.read_bytes()).decode())
    await connection.close()
