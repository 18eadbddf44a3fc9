"""The named queries of the ``.sql`` files."""

from __future__ import annotations

import re
from importlib import resources
from typing import TypeAlias

import asyncpg

PostgresConnection: TypeAlias = (
    "asyncpg.pool.PoolConnectionProxy[asyncpg.Record] | asyncpg.Connection[asyncpg.Record]"
)
"""A connection on which named queries run."""


class Queries(dict[str, str]):
    """The named queries of one ``.sql`` file: ``queries["fetch_run"]`` is the text of one."""

    def __init__(self, package: str, name: str) -> None:
        """Read ``sql/<name>.sql`` of a store package."""
        text = resources.files(package).joinpath("sql", f"{name}.sql").read_text("utf-8")
        super().__init__(parse_queries(text))


def parse_queries(text: str) -> dict[str, str]:
    """Split at lines ``-- name --``; comment lines after a name stay with its query."""
    parts = re.split(r"^-- (\w+) --$", text, flags=re.MULTILINE)
    names, bodies = parts[1::2], parts[2::2]
    if len(set(names)) != len(names):
        msg = "two queries of one file have the same name"
        raise ValueError(msg)
    return {name: body.strip() for name, body in zip(names, bodies, strict=True)}
