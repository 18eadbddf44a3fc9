"""The named queries on a real server."""

from __future__ import annotations

import re
from itertools import chain
from pathlib import Path

import pytest

from node.store.database import PostgresDatabase
from node.store.queries import Queries

ROOT = Path(__file__).parents[2]
FILES = sorted(chain(ROOT.glob("node/store/sql/*.sql"), ROOT.glob("lead/store/sql/*.sql")))


def _package(file: Path) -> str:
    return ".".join(file.relative_to(ROOT).parts[:2])


@pytest.mark.parametrize("file", FILES, ids=lambda file: f"{_package(file)}:{file.stem}")
async def test_every_query_prepares(database: PostgresDatabase, file: Path) -> None:
    """Postgres accepts each named query with its tables, columns and types."""
    queries = Queries(_package(file), file.stem).items()
    assert queries
    async with database.connection() as connection:
        for _, query in queries:
            await connection.prepare(query)


@pytest.mark.parametrize("file", FILES, ids=lambda file: f"{_package(file)}:{file.stem}")
def test_every_query_is_used(file: Path) -> None:
    """Every query in the files is used by the Python modules beside them."""
    folder = ROOT / _package(file).replace(".", "/")
    python = "".join(path.read_text("utf-8") for path in folder.glob("*.py"))
    used = set(re.findall(r'"(\w+)"', "".join(re.findall(r"(?:_SQL|queries)\[[^\]]+\]", python))))
    names = {name for name, _ in Queries(_package(file), file.stem).items()}
    assert names - used == set()
