"""Damage to the files of a Postgres while it is down: noise in an index, no ids left."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import asyncpg

from node.execution import process
from node.postgres import PrivateCluster, ServerBinaries

PAGE = 8192
SEGMENT_IDS = PAGE * 4 * 32
"""Transactions whose outcomes are in one file of ``pg_xact``."""
WRAP = 1 << 31
RESERVED_IDS = 3_000_000
"""Postgres gives no more ids once so many are left."""
_RESET_S = 60.0


async def execute(dsn: str, *statements: str) -> str | int | None:
    """Execute statements, each by itself; return the first value of the last."""
    connection = await asyncpg.connect(dsn, timeout=60)
    try:
        value: str | int | None = None
        for statement in statements:
            value = await connection.fetchval(statement)
        return value
    finally:
        await connection.close()


async def overwrite(cluster: PrivateCluster, dsn: str, relation: str) -> None:
    """Overwrite all pages of an index, and start the server again."""
    path = await execute(dsn, f"SELECT pg_relation_filepath('{relation}')")
    file = cluster.data / str(path)
    await cluster.stop()
    try:
        noise = random.Random(1).randbytes(PAGE)
        with file.open("r+b") as opened:
            for page in range(file.stat().st_size // PAGE):
                opened.seek(page * PAGE)
                opened.write(noise)
    finally:
        await cluster.start()


async def use_up_ids(binaries: ServerBinaries, cluster: PrivateCluster, dsn: str) -> Path:
    """Go on with an id close to the last, at a server that cannot vacuum one of its tables.

    Postgres starts a vacuum for new ids even where it is turned off, and that can be quicker than
    whoever looks. Return the file that :func:`let_vacuum` gives back. A server survives this once:
    its ids are not counted beyond the end of their number.
    """
    path = await execute(
        cluster.dsn("postgres"), "CREATE TABLE away ()", "SELECT pg_relation_filepath('away')"
    )
    oldest = await execute(
        dsn,
        # Otherwise nobody but that vacuum could get at the template.
        "ALTER DATABASE template0 ALLOW_CONNECTIONS true",
        "SELECT min(datfrozenxid::text::bigint) FROM pg_database",
    )
    last = int(oldest or 0) + WRAP - 1 - RESERVED_IDS
    away = cluster.data / str(path)
    await cluster.stop()
    try:
        away.rename(away.with_suffix(".away"))
        segment = cluster.data / "pg_xact" / f"{last // SEGMENT_IDS:04X}"
        segment.write_bytes(bytes(SEGMENT_IDS // 4))
        if cluster.account is not None:
            shutil.chown(segment, cluster.account)
        argv = [binaries.program("pg_resetwal"), "-x", str(last + 5), str(cluster.data)]
        done = await process.finish(argv, timeout_s=_RESET_S, user=cluster.account, cwd=Path("/"))
        assert done.exit_code == 0, done.stderr.decode()
    finally:
        await cluster.start()
    return away


def let_vacuum(away: Path) -> None:
    """Give a server the table back that it could not vacuum."""
    away.with_suffix(".away").rename(away)
