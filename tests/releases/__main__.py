"""Write the database of a node that this version of the program has filled, and its queries.

``python -m tests.releases FILE`` starts two nodes, has them do a little of everything, and writes
the database of the first one to FILE, compressed, and the named queries of this version beside it.
A release adds both to this folder. ``tests/integration/test_migrations.py`` migrates each database,
and prepares the queries of each program that is let into the present schema.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import os
import shlex
import sys
import tempfile
from pathlib import Path

import asyncpg

from node.cli.lab.nodes import LabNode, NodePlan, node_command
from node.cli.lab.supervisor import Lab
from node.execution import process
from node.postgres import ServerBinaries, locate
from node.runtime.clock import SystemClock
from node.store.schema import schema_version
from tests.support.command_line import run_command
from tests.support.releases import queries, queries_file

_HERE = Path(__file__).parent
_TIME_S = 300.0
_CLOCK = SystemClock()
_ENOUGH = """
SELECT count(*) FILTER (WHERE state = 'finished') > 5
    AND count(*) FILTER (WHERE state = 'failed') > 0
    AND count(*) FILTER (WHERE state = 'cancelled') > 0
    AND count(*) FILTER (WHERE state = 'booked') > 5
FROM run HAVING EXISTS (SELECT FROM run_interval) AND EXISTS (SELECT FROM seat)
"""


async def main(file: Path) -> None:
    """Fill a node, and write its database to a file."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o777)

        def command(plan: NodePlan) -> list[str]:
            settings = [f"PARLEY_ARCHIVE_DIRECTORIES={folder}", "PARLEY_HORIZON=PT90M"]
            return ["env", *settings, *node_command(plan)]

        async with Lab(2, command=command) as lab:
            node = lab.nodes[0]
            await _fill(node, folder)
            await _wait_for(node)
            text = await _dump(node)
    file.write_bytes(gzip.compress(text, mtime=0))
    written = json.dumps(dict(queries()), indent=0, sort_keys=True).encode()
    queries_file(schema_version()).write_bytes(gzip.compress(written, mtime=0))
    sys.stdout.write(f"{file}: {len(text)} bytes, {file.stat().st_size} compressed\n")


async def _fill(node: LabNode, folder: str) -> None:
    """Do a little of everything, as an operator does."""
    for line in (
        "campaign add ops --weight 3 --level 7 --owner lab --quota bytes=50G/P1D",
        "campaign add ops-lab --parent ops --limit runs=10,50",
        f"archive add files file --spec path={folder}/results",
        "archive add nowhere http --spec url=http://127.0.0.1:9/ --runs all",
        "node set tier=edge",
        "pool add all --match name=a,b --set campaign-default",
        "reservation add works --kind maintenance --start +3d --for 2h",
        "reservation add night --kind quiet --cron '0 22 * * *' --for 8h --class background",
        "token add --label alice --role run",
        "token add --label bob --role read --expires P30D",
        "task create rtt --spec dest=127.0.0.1 --spec count=2 --repeat 20s --slip 15s --max-runs 4",
        "task create http --spec url=http://127.0.0.1:9/ --repeat 10m --slip 5m",
        "task create latency --spec source=a --spec dest=b --spec count=20 --repeat 1m --slip 30s",
        "task create idle --spec duration=PT1H --spec class=exclusive --participant b --start +2h",
        "task create idle --spec duration=PT1S --spec class=normal --campaign ops-lab --repeat 5m",
        "task create trace --spec dest=127.0.0.1 --after @-1",
        "task create rtt --spec dest=127.0.0.1 --pool all -k 1 --repeat 5m --slip 2m",
        "task create latencybg --spec source=a --spec dest=b",
    ):
        await _parley(node, line)
    await _parley(node, f"mesh apply {_HERE / 'mesh.toml'}")
    await _parley(node, "task create idle --spec duration=PT1S --spec class=normal --repeat 1h")
    await _parley(node, "task pause @-1")
    await _parley(node, "task create idle --spec duration=PT1S --spec class=normal --repeat 2h")
    await _wait_for(node, "SELECT count(*) > 3 FROM run WHERE state = 'booked'")
    await _parley(node, "task cancel @-1")


async def _parley(node: LabNode, line: str) -> None:
    settings = {**os.environ, "PARLEY_SERVER": node.url, "PARLEY_TOKEN": node.token}
    result = await run_command(tuple(shlex.split(line)), settings)
    if result.code:
        raise SystemExit(f"parley {line}: {result.err}")


async def _wait_for(node: LabNode, condition: str = _ENOUGH) -> None:
    connection = await asyncpg.connect(node.dsn)
    async with asyncio.timeout(_TIME_S):
        while not await connection.fetchval(condition):
            await _CLOCK.sleep(0.5)
    await connection.close()


async def _dump(node: LabNode) -> bytes:
    """Return the statements that make the database again, without those of psql."""
    server = locate()
    assert isinstance(server, ServerBinaries)
    argv = [server.program("pg_dump"), "--inserts", "--rows-per-insert=100", "--no-owner", node.dsn]
    finished = await process.finish(argv, timeout_s=60, cwd=Path("/"))
    if finished.exit_code:
        raise SystemExit(finished.stderr.decode())
    return b"".join(
        line for line in finished.stdout.splitlines(keepends=True) if not line.startswith(b"\\")
    )


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
