"""Databases of earlier programs are migrated, with what they hold, and to the same schema."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import asyncpg
import pytest

from node.execution import process
from node.model import times
from node.model.errors import DatabaseInUse, SchemaMismatch
from node.postgres import ServerBinaries, locate
from node.store import audit, meshes, migrating, schema
from node.store.database import PostgresDatabase
from tests.conftest import NewDatabase
from tests.support.releases import RELEASES, queries_file, queries_of, restore

_TOLD_OF_MESHES = """
SELECT
    (SELECT count(*) FROM mesh_delivery WHERE outcome <> 'open'),
    (SELECT sum(sums[24]) FROM mesh_day)
"""

Tables = dict[str, list[dict[str, Any]]]


async def _restored(new_database: NewDatabase, release: Path = RELEASES[0]) -> str:
    dsn = await new_database(empty=True)
    await restore(dsn, release)
    return dsn


async def _catalogue(dsn: str) -> str:
    """Return the statements that make the schema of a database, without data."""
    server = locate()
    assert isinstance(server, ServerBinaries)
    argv = [server.program("pg_dump"), "--schema-only", "--no-owner", dsn]
    finished = await process.finish(argv, timeout_s=60, cwd=Path("/"))
    assert not finished.exit_code, finished.stderr
    return re.sub(r"^(\\|--).*\n", "", finished.stdout.decode(), flags=re.MULTILINE)


async def _contents(dsn: str) -> Tables:
    connection = await asyncpg.connect(dsn)
    names = await connection.fetch(
        "SELECT tablename FROM pg_tables WHERE schemaname = 'public' "
        "AND tablename <> 'schema_version'"
    )
    contents = {}
    for (name,) in names:
        rows = await connection.fetch(f'SELECT to_jsonb(it)::text FROM public."{name}" AS it')
        contents[str(name)] = [json.loads(row[0]) for row in rows]
    await connection.close()
    return contents


@pytest.fixture
async def own_dsn(empty_dsn: str) -> str:
    """A database with this program's schema, that no other test gets."""
    database = PostgresDatabase(empty_dsn)
    await database.open()
    await database.close()
    return empty_dsn


def _kept(before: Tables, after: Tables) -> dict[str, list[str]]:
    """Return what is in the tables afterwards, of the columns that they had before."""
    return {
        name: sorted(json.dumps({key: row[key] for key in rows[0]}) for row in after[name])
        for name, rows in before.items()
        if rows
    }


PARSED = """
SELECT proname FROM pg_proc INNER JOIN pg_type ON pg_type.oid = ANY (proargtypes)
WHERE typtype = 'c' AND prosqlbody IS NOT NULL AND pronamespace = 'public'::regnamespace
"""
"""The functions of rows whose bodies are kept parsed: Postgres 17 alters no table of these."""


async def _versions(dsn: str) -> list[int]:
    connection = await asyncpg.connect(dsn)
    rows = await connection.fetch("SELECT version FROM public.schema_version ORDER BY 1")
    await connection.close()
    return [row[0] for row in rows]


def _with_step(monkeypatch: pytest.MonkeyPatch, oldest: int, statements: str) -> schema.Migration:
    """Give the program a step to a later version."""
    version = schema.schema_version() + 1
    head = f"-- Try something.\n-- Oldest program: {oldest}\n"
    step = schema.migration_of(f"{version:04}_try.sql", head + statements)
    steps = (*schema.migrations(), step)
    monkeypatch.setattr(schema, "migrations", lambda: steps)
    monkeypatch.setattr(schema, "schema_version", lambda: version)
    return step


@pytest.mark.parametrize("release", RELEASES, ids=lambda path: path.name.partition(".")[0])
@pytest.mark.nightly
async def test_a_release_is_migrated(new_database: NewDatabase, release: Path) -> None:
    """The schema becomes that of schema.sql, and every row is kept."""
    dsn = await _restored(new_database, release)
    before = await _contents(dsn)
    assert min(len(before[name]) for name in ("task", "run", "part", "campaign", "audit")) > 1
    await migrating.migrate(dsn)
    assert _kept(before, await _contents(dsn)) == _kept(before, before)
    assert await _catalogue(dsn) == await _catalogue(await new_database())
    database = PostgresDatabase(dsn)
    await database.open()
    await meshes.sum_up_all(database)
    async with database.connection() as connection:
        [(told, summed_up)] = await connection.fetch(_TOLD_OF_MESHES)
    assert told == summed_up > 0
    await database.close()


@pytest.mark.nightly
async def test_services_that_start_at_once_migrate_once(new_database: NewDatabase) -> None:
    """Node and lead may start together: one does the steps, and the other one waits."""
    dsn = await _restored(new_database)
    both = [PostgresDatabase(dsn, migrate=True) for _ in range(2)]
    await asyncio.gather(*(each.open() for each in both))
    for each in both:
        await each.close()
    assert await _versions(dsn) == [4, *(step.version for step in schema.migrations())]


async def test_nothing_is_migrated_unasked(new_database: NewDatabase) -> None:
    """A program that may not migrate says which versions there are, and what to do."""
    dsn = await _restored(new_database)
    with pytest.raises(SchemaMismatch) as caught:
        await PostgresDatabase(dsn).open()
    own = schema.schema_version()
    assert f"has schema version 4, and this program's is {own}" in caught.value.detail
    assert "parley admin migrate, or set PARLEY_MIGRATE=1" in caught.value.detail
    assert await _versions(dsn) == [4]


async def test_no_function_keeps_a_step_from_altering_its_table(database: PostgresDatabase) -> None:
    """The bodies of functions of rows are texts, which depend on no table."""
    async with database.connection() as connection:
        assert await connection.fetch(PARSED) == []


@pytest.mark.nightly
async def test_earlier_programs_must_be_stopped(new_database: NewDatabase) -> None:
    """A step after which earlier programs would fail is not done while one of them runs."""
    dsn = await _restored(new_database)
    earlier = await asyncpg.connect(dsn)
    with pytest.raises(DatabaseInUse, match="1 connection to the database; stop parley-node"):
        await migrating.migrate(dsn)
    await earlier.close()
    assert await _versions(dsn) == [4]
    await migrating.migrate(dsn)


async def test_programs_that_a_step_spares_go_on(
    own_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Node and lead can be changed one after the other, if the step allows the earlier one."""
    earlier = PostgresDatabase(own_dsn)
    await earlier.open()
    with monkeypatch.context() as later:
        step = _with_step(later, schema.schema_version(), "ALTER TABLE task ADD COLUMN tried int;")
        await migrating.migrate(own_dsn)
        assert (await _versions(own_dsn))[-1] == step.version
    async with earlier.connection() as connection:
        assert await connection.fetchval("SELECT count(*) FROM task") == 0
    await earlier.close()
    await earlier.open()
    await earlier.close()


async def test_programs_that_a_step_does_not_spare_are_refused(
    own_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An earlier program does not open what it would misunderstand."""
    with monkeypatch.context() as later:
        step = _with_step(later, schema.schema_version() + 1, "DROP TABLE idempotency;")
        await migrating.migrate(own_dsn)
    with pytest.raises(SchemaMismatch, match=f"schema version {step.version}, which is newer"):
        await PostgresDatabase(own_dsn).open()


@pytest.mark.nightly
async def test_a_step_that_fails_changes_nothing(
    own_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The database is as before: all that the step did before its fault is undone."""
    before = await _catalogue(own_dsn)
    _with_step(monkeypatch, 5, "DROP TABLE idempotency; SELECT 1 / 0;")
    with pytest.raises(asyncpg.DivisionByZeroError):
        await migrating.migrate(own_dsn)
    assert await _catalogue(own_dsn) == before


@pytest.mark.nightly
async def test_a_step_does_not_wait_long_for_a_table(
    own_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A table in use is not waited for, since all who come later would wait behind the step."""
    _with_step(monkeypatch, schema.schema_version(), "ALTER TABLE task ADD COLUMN tried int;")
    user = await asyncpg.connect(own_dsn, server_settings={"application_name": "psql"})
    async with user.transaction():
        await user.execute("LOCK TABLE task IN ACCESS SHARE MODE")
        with pytest.raises(DatabaseInUse, match="so nothing was changed; try again"):
            await migrating.migrate(own_dsn)
    await user.close()
    await migrating.migrate(own_dsn)


async def test_another_step_of_the_same_number_is_refused(new_database: NewDatabase) -> None:
    """A database that another build has migrated is not taken for one of this program."""
    dsn = await _restored(new_database)
    await migrating.migrate(dsn)
    connection = await asyncpg.connect(dsn)
    await connection.execute("UPDATE schema_version SET migration = 'c0ffee' WHERE version = 5")
    await connection.close()
    with pytest.raises(SchemaMismatch, match=r"another step to schema version 5 \(digest c0ffee"):
        await PostgresDatabase(dsn).open()


def test_every_step_must_spare_a_program() -> None:
    """A database is opened if all of its later steps allow that, not only the last one."""
    own = schema.schema_version()
    spared = schema.AppliedVersion(own + 2, None, None, own)
    assert schema.missing_steps([spared]) == ()
    with pytest.raises(SchemaMismatch, match="upgrade the program"):
        schema.missing_steps([schema.AppliedVersion(own + 1, None, None, own + 1), spared])


def test_steps_have_consecutive_numbers() -> None:
    """Each step leads from one version to the next one."""
    numbers = [step.version for step in schema.migrations()]
    assert numbers == list(range(5, 5 + len(numbers)))


def test_a_file_without_head_is_not_a_step() -> None:
    """A step says what it does, and for which programs the result is."""
    with pytest.raises(ValueError, match="do not say what it does"):
        schema.migration_of("0009_x.sql", "SELECT 1;")


@pytest.mark.nightly
async def test_ordinary_roles_are_enough(empty_dsn: str) -> None:
    """A role that is no superuser sets up its database, and purges its audit."""
    parts = urlsplit(empty_dsn)
    name, role = parts.path.removeprefix("/"), "ordinary"
    owner = await asyncpg.connect(empty_dsn)
    await owner.execute(f"DROP ROLE IF EXISTS {role}")
    await owner.execute(f"CREATE ROLE {role} LOGIN")
    await owner.execute(f"ALTER DATABASE {name} OWNER TO {role}")
    database = PostgresDatabase(re.sub(r"user=[^&]+", f"user={role}", empty_dsn))
    await database.open()
    try:
        async with database.transaction() as connection:
            await audit.purge(connection, times.LATEST, 1000)
    finally:
        await database.close()
        await owner.execute(f"ALTER DATABASE {name} OWNER TO CURRENT_USER")
        await owner.execute(f"REASSIGN OWNED BY {role} TO CURRENT_USER")
        await owner.execute(f"DROP OWNED BY {role}")
        await owner.execute(f"DROP ROLE {role}")
        await owner.close()


@pytest.mark.nightly
async def test_the_program_before_finds_all_that_it_asks_for(own_dsn: str) -> None:
    """Every query of the programs that are let into this schema prepares in it."""
    connection = await asyncpg.connect(own_dsn)
    oldest = await connection.fetchval(
        "SELECT oldest_program FROM schema_version ORDER BY version DESC LIMIT 1"
    )
    released = [n for n in range(oldest, schema.schema_version()) if queries_file(n).exists()]
    assert released
    for version in released:
        for name, query in queries_of(version).items():
            assert (await connection.prepare(query)).get_query() == query, (version, name)
    await connection.close()
