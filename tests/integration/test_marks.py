"""A database that went back to an earlier state in its place is noticed by its mark."""

from __future__ import annotations

from pathlib import Path

import pytest
from structlog.testing import capture_logs

from node.model import times
from node.store import maintenance
from node.store.database import PostgresDatabase
from node.store.mark import HostMarks, MarkFile


async def _open(dsn: str, path: Path | None) -> PostgresDatabase:
    """Open the database as a new process does."""
    database = PostgresDatabase(dsn, mark=MarkFile(path) if path else None)
    await database.open()
    return database


async def _go_back(database: PostgresDatabase) -> None:
    """Give the database the mark that it had an hour ago."""
    async with database.connection() as connection:
        await connection.execute(
            "UPDATE generation SET marked_at = marked_at - interval '1 hour',"
            " made_at = made_at - interval '1 hour'"
        )


async def test_a_file_tells_that_the_database_went_back(dsn: str, tmp_path: Path) -> None:
    """Data older than the file say get a new generation, once, and a mark above the file's."""
    path = tmp_path / "database-mark"
    database = await _open(dsn, path)
    first, marked_at = database.generation, database.marked_at
    await database.close()
    database = await _open(dsn, path)
    assert database.generation == first
    await _go_back(database)
    await database.close()
    database = await _open(dsn, path)
    second = database.generation
    assert second != first
    assert database.fresh
    assert (database.marked_at or 0) > (marked_at or 0)
    await database.close()
    database = await _open(dsn, path)
    assert database.generation == second
    await database.close()


async def test_a_running_process_tells_that_the_database_went_back(dsn: str) -> None:
    """A server that is restored under a running process is noticed at the next look."""
    database = await _open(dsn, None)
    first = database.generation
    assert not await database.check_mark()
    await _go_back(database)
    assert await database.check_mark()
    assert database.generation != first
    assert not await database.check_mark()
    await database.close()


async def test_the_other_process_takes_over_the_generation(dsn: str, tmp_path: Path) -> None:
    """Two services of a node notice it once, and have the same generation afterwards."""
    path = tmp_path / "database-mark"
    node, lead = await _open(dsn, path), await _open(dsn, path)
    await _go_back(lead)
    assert [await node.check_mark(), await lead.check_mark()] == [True, False]
    assert node.generation == lead.generation
    for database in (node, lead):
        await database.close()


async def test_a_mark_stays_behind_what_others_know(dsn: str) -> None:
    """Data that went back do not catch up with their old mark before all others were asked."""
    database = await _open(dsn, None)
    seen = database.marked_at or 0
    await _go_back(database)
    await database.close()
    database = await _open(dsn, None)
    first = database.generation
    assert not await database.check_mark(step=2 * times.MINUTE)
    assert (database.marked_at or 0) < seen
    assert await database.check_mark(seen)
    assert database.generation != first
    await database.close()


async def test_a_mark_from_the_future_is_not_believed(dsn: str) -> None:
    """Another node cannot make up a mark that this database has never had."""
    database = await _open(dsn, None)
    marked_at = database.marked_at or 0
    first = database.generation
    assert not await database.check_mark(marked_at + times.HOUR)
    assert not await database.check_mark(marked_at - 1)
    assert database.generation == first
    await database.close()


@pytest.mark.parametrize("content", [None, "", "yesterday"])
async def test_a_file_that_is_missing_or_useless_does_not_matter(
    dsn: str, tmp_path: Path, content: str | None
) -> None:
    """Without a mark in the file the database opens, and the file is written."""
    path = tmp_path / "database-mark"
    if content is not None:
        path.write_text(content)
        path.chmod(0o600)
    database = await _open(dsn, path)
    await database.close()
    assert MarkFile(path).read() == database.marked_at


async def test_a_file_that_cannot_be_written_is_told(dsn: str, tmp_path: Path) -> None:
    """An unwritable directory is reported once, and prevents nothing."""
    (tmp_path / "file").write_text("")
    with capture_logs() as logs:
        database = await _open(dsn, tmp_path / "file" / "database-mark")
        await database.check_mark()
        await database.close()
    told = [entry["event"] for entry in logs if entry["log_level"] == "warning"]
    assert sum("is not kept outside of it" in event for event in told) == 1


@pytest.fixture(name="host")
async def _host(dsn: str, tmp_path: Path) -> tuple[str, HostMarks]:
    """Return a database that a host has opened, and the marks of the host."""
    marks = HostMarks.of(tmp_path)
    database = PostgresDatabase(dsn, host=marks)
    await database.open()
    assert database.copy_of is None
    await database.close()
    return dsn, marks


async def test_data_on_another_host_are_a_new_generation_in_doubt(
    host: tuple[str, HostMarks], tmp_path: Path
) -> None:
    """Files that were copied to another host are told from restored ones by the host's marks."""
    dsn, marks = host
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    generations = []
    for where, doubt in ((marks, None), (HostMarks.of(elsewhere), ""), (None, "")):
        database = PostgresDatabase(dsn, host=where)
        await database.open()
        await database.check_mark()
        assert database.was_elsewhere == (where not in {marks, None})
        generations.append((database.generation, database.copy_of == doubt))
        await database.close()
    ids = [generation for generation, _ in generations]
    assert [as_told for _, as_told in generations] == 3 * [True]
    assert (ids[0] != ids[1], ids[1] == ids[2]) == (True, True)


async def test_the_word_of_the_owner_is_enough(host: tuple[str, HostMarks], tmp_path: Path) -> None:
    """A restored backup, and a copy that is to take over, ask nobody."""
    dsn, _ = host
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    for word in (maintenance.begin_generation_at_next_start, maintenance.note_placed_by_owner):
        database = PostgresDatabase(dsn, host=HostMarks.of(elsewhere))
        await database.open()
        async with database.connection() as connection:
            await connection.execute("UPDATE generation SET copy_of = 'https://a.example'")
        await database.close()
        await word(dsn)
        await database.open()
        assert (database.copy_of, database.was_elsewhere) == (None, False)
        await database.close()


async def test_only_the_word_of_the_owner_outweighs_what_others_know(dsn: str) -> None:
    """A node of a minute may be a copy as an old one may; who was put here by the owner is none."""
    database = await _open(dsn, None)
    for word, doubt in ((None, ""), (maintenance.note_placed_by_owner, None)):
        if word is not None:
            await database.close()
            await word(dsn)
            database = await _open(dsn, None)
        seen = database.marked_at
        assert seen is not None
        async with database.connection() as connection:
            await connection.execute(
                "UPDATE generation SET marked_at = marked_at - '1 minute'::interval"
            )
            await connection.execute(
                "UPDATE schema_version SET applied_at = generation.made_at - $1::interval"
                " FROM generation",
                times.HOUR if word else times.SECOND,
            )
        assert await database.check_mark(seen)
        assert database.copy_of == doubt
    await database.close()
