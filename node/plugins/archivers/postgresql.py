"""``postgresql``: results as rows of a table in any Postgres, TimescaleDB among them.

One row for each whole document, under its key, so that a repeated delivery adds no row. The view
``parley_metric`` has one row for each figure. Table, index and view are created if they are
missing; to create them yourself, use ``node/store/results/sql/results.sql``.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Self

from pydantic import AfterValidator, Field, StringConstraints, model_validator

from node.model import times
from node.model.errors import ArchiverFailed
from node.model.wire.fields import Document, Host
from node.plugins.contracts import (
    ArchivingHost,
    DeliveryItem,
    DeliveryOutcome,
)
from node.plugins.fields import SECRET, ArchiverTimeout, flag_field, whole_field
from node.plugins.transport.batches import (
    ACCEPTED,
    OwnArchiver,
    again,
    deliver_by_bisection,
    refused_outcome,
    timeout_field,
)
from node.store.results import Address, ResultRow, ResultTable, Tls

_Word = Annotated[str, StringConstraints(pattern=r"^[^\x00\s][^\x00\n]{0,62}$")]


def _check_directory(value: str) -> str:
    if not value.startswith("/") or ".." in Path(value).parts or "\0" in value:
        msg = "must be the absolute path of a directory, such as /run/postgresql"
        raise ValueError(msg)
    return value


class PostgresqlSpec(Document):
    """The database and the user."""

    host: Host = Field("127.0.0.1", description="Name or address.")
    port: int = whole_field(5432, 1, 65_535, "The server's port.")
    socket: (
        Annotated[str, StringConstraints(max_length=90), AfterValidator(_check_directory)] | None
    ) = Field(
        None,
        description="Instead of the host: the directory of the server's socket, in one that "
        "the node's owner allows (PARLEY_ARCHIVE_DIRECTORIES).",
    )
    database: _Word = Field(description="The name of the database.")
    user: _Word = Field(description="A user who may insert into the table.")
    password: Annotated[str, StringConstraints(max_length=500)] | None = Field(
        None, description="Never shown.", json_schema_extra=SECRET
    )
    tls: Tls = Field(
        "prefer", description="verify-full also compares the certificate with the host's name."
    )
    namespace: Annotated[str, StringConstraints(pattern=r"^[a-z_][a-z0-9_]{0,62}$")] = Field(
        "public", description="The schema of the table parley_result."
    )
    create: bool = flag_field("Create the table if missing.", default=True)
    table: _Word | None = Field(
        None,
        description="Another table than parley_result, which must exist: a row with the document "
        "for each delivery, so that a repeated one adds a row.",
    )
    column: _Word | None = Field(
        None, description="With table: its column for documents, json, jsonb or text."
    )
    timeout: ArchiverTimeout = timeout_field("a batch")

    @model_validator(mode="after")
    def _check_table_and_column(self) -> Self:
        if (self.table is None) != (self.column is None):
            msg = "needs table and column together"
            raise ValueError(msg)
        return self


class PostgresqlDestination:
    """The table into which rows are inserted."""

    def __init__(self, spec: PostgresqlSpec, host: ArchivingHost, where: str) -> None:
        self._where = where
        self._table = ResultTable(
            Address(
                spec.socket or spec.host,
                spec.port,
                spec.database,
                spec.user,
                spec.password,
                "disable" if spec.socket else spec.tls,
                spec.namespace,
                spec.create,
                spec.timeout / times.SECOND,
                None if spec.table is None or spec.column is None else (spec.table, spec.column),
            )
        )
        self._name = spec.table or "parley_result"

    async def deliver(self, batch: Sequence[DeliveryItem]) -> list[DeliveryOutcome]:
        """Insert the batch in one statement; if a document cannot be stored, bisect the batch."""
        rows = [
            ResultRow(item.at, item.key, item.series, item.succeeded, item.body.decode())
            for item in batch
        ]
        try:
            return await deliver_by_bisection(rows, self._insert)
        except ArchiverFailed as error:
            return [again(error.detail)] * len(batch)

    async def _insert(self, rows: Sequence[ResultRow]) -> tuple[DeliveryOutcome, bool]:
        if (fault := await self._table.insert(rows)) is None:
            return ACCEPTED, False
        return refused_outcome(fault), True

    async def test(self) -> str:
        """Connect, and check that the table exists and accepts rows.

        :raises ArchiverFailed: it does not.
        """
        await self._table.test()
        return f"{self._where} has a table {self._name} that takes rows; none was added"

    async def close(self) -> None:
        """Close the connection."""
        self._table.close()


class PostgresqlArchiver(OwnArchiver):
    """Inserts rows into a table."""

    name = "postgresql"
    title = "Rows in a table of PostgreSQL or TimescaleDB"
    spec_model: type[Document] = PostgresqlSpec
    destination = PostgresqlDestination

    def label(self, spec: PostgresqlSpec) -> str:
        """Return the server, the database and the schema."""
        table = "" if spec.table is None else f".{spec.table}"
        return f"{_server_text(spec)}, {spec.database}.{spec.namespace}{table}"

    def refusal(self, spec: PostgresqlSpec, host: ArchivingHost) -> tuple[str, str] | None:
        """Refuse sockets outside the directories that the owner allows: they may imply a login."""
        if spec.socket is None:
            return None
        path = Path(spec.socket).resolve()
        if any(path.is_relative_to(each.resolve()) for each in host.directories):
            return None
        return "socket", f"{path} is in no directory of PARLEY_ARCHIVE_DIRECTORIES"


def _server_text(spec: PostgresqlSpec) -> str:
    return spec.socket or f"{spec.host} port {spec.port}"


ARCHIVER = PostgresqlArchiver()
