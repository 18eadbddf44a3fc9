"""The schema and every query on the Postgres versions of the wheel, in addition to the host's."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from node.postgres.account import server_account
from node.postgres.binaries import ServerBinaries, inspect, wheel_directories
from node.postgres.cluster import PrivateCluster
from node.store.database import PostgresDatabase
from tests.support.releases import queries


@pytest.fixture
def passable() -> Iterator[Path]:
    """A folder that the server's account may enter."""
    directory = Path(tempfile.mkdtemp(prefix="parley-tests-"))
    directory.chmod(0o711)
    yield directory
    shutil.rmtree(directory)


@pytest.mark.parametrize(
    "directory", wheel_directories(), ids=lambda path: "-".join(path.parts[-3:-1])
)
@pytest.mark.nightly
async def test_schema_and_queries_on_the_wheels(directory: Path, passable: Path) -> None:
    """An empty database is set up, and every named query prepares."""
    binaries = inspect(directory, server_account())
    assert isinstance(binaries, ServerBinaries), binaries
    cluster = await PrivateCluster.create(passable / "cluster", binaries, durable=False)
    await cluster.start()
    try:
        await cluster.create_database("versions")
        database = PostgresDatabase(cluster.dsn("versions"))
        await database.open()
        async with database.connection() as connection:
            for name, query in queries():
                assert (await connection.prepare(query)).get_query() == query, name
        await database.close()
    finally:
        await cluster.stop()
