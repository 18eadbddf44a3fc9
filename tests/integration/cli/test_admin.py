"""``parley admin``: the database of this host's node, whether it runs or not."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import asyncpg
import pytest

from node.postgres import PrivateCluster, ServerBinaries, locate
from node.store import nodes, schema
from node.store.database import PostgresDatabase
from node.trust.keys import NodeKey
from tests.conftest import NewDatabase
from tests.support.command_line import CommandResult, run_command
from tests.support.releases import restore


async def _admin(*arguments: str | Path) -> CommandResult:
    environment = {name: it for name, it in os.environ.items() if not name.startswith("PARLEY_")}
    return await run_command(("admin", *map(str, arguments)), environment)


async def _migrate(*arguments: str) -> CommandResult:
    return await _admin("migrate", *arguments)


@pytest.fixture
def state() -> Iterator[Path]:
    """A state directory in which the account of Postgres may have one of its own."""
    with TemporaryDirectory(prefix="parley-test-") as directory:
        Path(directory).chmod(0o711)
        yield Path(directory)


@pytest.mark.nightly
async def test_steps_are_shown_and_done_on_demand(new_database: NewDatabase) -> None:
    """Without --yes, where nobody can be asked, the steps are shown only."""
    dsn = await new_database(empty=True)
    await restore(dsn)
    shown = json.loads((await _migrate("--dsn", dsn)).out)
    assert (shown["version"], shown["done"]) == (4, False)
    assert [step["version"] for step in shown["steps"]] == [
        it.version for it in schema.migrations()
    ]
    table = (await _migrate("--dsn", dsn, "-o", "table")).out
    assert table.startswith(
        "The database has schema version 4. To be done:\n  5  Remember the steps"
    )
    done = await _migrate("--dsn", dsn, "--yes", "-o", "table")
    assert done.out.startswith("The database had schema version 4. Done:\n  5  ")
    again = await _migrate("--dsn", dsn, "--yes", "-o", "table")
    own = schema.schema_version()
    assert again.out == f"The database has schema version {own}; there is nothing to do.\n"


@pytest.mark.nightly
async def test_a_private_postgres_is_migrated_whether_it_runs_or_not(state: Path) -> None:
    """The command uses the server of a running service, and starts one where none runs."""
    server = locate()
    assert isinstance(server, ServerBinaries)
    cluster = await PrivateCluster.create(state / "postgres", server)
    await cluster.start()
    await cluster.create_database("parley")
    await restore(cluster.dsn("parley"))
    assert json.loads((await _migrate("--state-dir", str(state))).out)["version"] == 4
    await cluster.stop()
    assert json.loads((await _migrate("--state-dir", str(state), "--yes")).out)["done"]
    await cluster.start()
    own = schema.schema_version()
    assert json.loads((await _migrate("--state-dir", str(state))).out)["version"] == own
    await cluster.stop()


async def test_a_host_without_a_database_is_told_so(state: Path, empty_dsn: str) -> None:
    """The message says what to name, or to do, if there is nothing to migrate."""
    nothing = await _migrate("--state-dir", str(state))
    assert nothing.code == 8
    assert f"there is no database in {state}/postgres" in nothing.err
    assert not list(state.iterdir())
    empty = await _migrate("--dsn", empty_dsn)
    assert (empty.code, "no schema yet; start the node" in empty.err) == (8, False)
    assert "the database has no schema yet\n  start the node, which sets it up" in empty.err


@pytest.fixture
async def node(new_database: NewDatabase, state: Path) -> tuple[str, ...]:
    """The options that name a node, which has a campaign; its database and key."""
    dsn = await new_database(empty=True)
    database = PostgresDatabase(dsn)
    await database.open()
    await database.close()
    await _add_campaign(dsn, "ops")
    NodeKey.load_or_create(state / "node.pem")
    return "--dsn", dsn, "--state-dir", str(state)


async def _add_campaign(dsn: str, name: str) -> None:
    connection = await asyncpg.connect(dsn)
    await connection.execute(
        "INSERT INTO campaign (name, created_at, changed_at) VALUES ($1, now(), now())", name
    )
    await connection.close()


async def _campaigns(dsn: str) -> list[str]:
    connection = await asyncpg.connect(dsn)
    rows = await connection.fetch("SELECT name FROM public.campaign ORDER BY name")
    await connection.close()
    return [row[0] for row in rows]


@pytest.mark.nightly
async def test_a_node_moves_to_another_host(
    node: tuple[str, ...], new_database: NewDatabase, tmp_path: Path
) -> None:
    """A backup brings database and key, and the database begins a new generation."""
    file, dsn, moved = tmp_path / "a.parley", node[1], tmp_path / "moved"
    before = PostgresDatabase(dsn)
    await before.open()
    written = json.loads((await _admin("backup", file, *node)).out)
    await before.close()
    assert (written["file"], written["with_key"]) == (str(file), True)
    assert file.stat().st_mode & 0o777 == 0o600
    new = await new_database(empty=True)
    done = await _admin("restore", file, "--dsn", new, "--state-dir", moved, "-o", "table")
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith(f"Restored: {file}\n  node    {written['identity']}\n")
    assert await _campaigns(new) == ["default", "ops"]
    assert NodeKey.load_or_create(moved / "node.pem").identity == written["identity"]
    after = PostgresDatabase(new)
    await after.open()
    assert after.generation != before.generation
    await after.close()


async def test_a_host_takes_a_node_back_on_demand(node: tuple[str, ...]) -> None:
    """Its next start makes a newer generation than the host has that took it over."""
    service = PostgresDatabase(node[1])
    await service.open()
    before = service.generation
    async with service.connection() as connection:
        await nodes.note_moved_away(connection, before, "an announcement")
        assert await nodes.successor(connection) == ("an announcement", None)
    refused = await _admin("reclaim", *node)
    assert (refused.code, "stop them first" in refused.err) == (8, True)
    await service.close()
    done = await _admin("reclaim", *node, "-o", "table")
    assert (done.code, done.out.endswith(" goes on here at its next start.\n")) == (0, True)
    await service.open()
    assert service.generation != before
    async with service.connection() as connection:
        assert await nodes.successor(connection) == (None, None)
    await service.close()


@pytest.mark.nightly
async def test_a_database_is_repaired_while_nobody_uses_it(node: tuple[str, ...]) -> None:
    """The command is refused while a service runs, and makes all indexes anew otherwise."""
    service = PostgresDatabase(node[1])
    await service.open()
    refused = await _admin("repair", *node)
    assert (refused.code, "stop them first" in refused.err) == (8, True)
    query = "SELECT pg_relation_filepath('run_no_overlap')"
    async with service.connection() as connection:
        before = await connection.fetchval(query)
    await service.close()
    done = json.loads((await _admin("repair", *node)).out)
    assert "public.run" in done["indexed"]
    await service.open()
    async with service.connection() as connection:
        assert await connection.fetchval(query) != before
    await service.close()


@pytest.mark.nightly
async def test_an_earlier_state_replaces_a_later_one_on_demand_only(
    node: tuple[str, ...], tmp_path: Path
) -> None:
    """Nothing is replaced unasked, nor while a service uses it; another key is kept."""
    file, dsn, state = tmp_path / "a.parley", node[1], Path(node[3])
    assert (await _admin("backup", file, *node)).code == 0
    await _add_campaign(dsn, "late")
    refused = await _admin("restore", file, *node)
    assert (refused.code, "the database is not empty" in refused.err) == (8, True)
    (state / "node.pem").unlink()
    other = NodeKey.load_or_create(state / "node.pem").identity
    assert f"has the key of {other}" in (await _admin("restore", file, *node)).err
    service = PostgresDatabase(dsn)
    await service.open()
    in_use = await _admin("restore", "--replace", file, *node)
    assert (in_use.code, "stop them first" in in_use.err) == (8, True)
    await service.close()
    assert await _campaigns(dsn) == ["default", "late", "ops"]
    assert (await _admin("restore", "--replace", file, *node)).code == 0
    assert await _campaigns(dsn) == ["default", "ops"]
    assert NodeKey.load_or_create(state / "node.pem.replaced").identity == other


@pytest.mark.nightly
async def test_backups_in_a_directory_are_kept_in_number(
    node: tuple[str, ...], tmp_path: Path
) -> None:
    """The oldest of this node are deleted; files of others, and a failed one, are left alone."""
    foreign = tmp_path / "parley-other-2026.parley"
    foreign.write_text("theirs")
    first = json.loads((await _admin("backup", "--to", tmp_path, *node)).out)["file"]
    older = Path(first).with_name(Path(first).name.replace("-20", "-19"))
    shutil.move(first, older)
    done = await _admin("backup", "--to", tmp_path, "--keep", "1", "--without-key", *node)
    newest = json.loads(done.out)
    assert sorted(tmp_path.iterdir()) == sorted([foreign, Path(newest["file"])])
    assert newest["with_key"] is False
    nowhere = await _admin("backup", tmp_path / "no" / "a.parley", *node)
    assert (nowhere.code, "cannot be written: No such file or directory" in nowhere.err) == (
        8,
        True,
    )


@pytest.mark.nightly
async def test_damaged_backups_are_refused_before_anything_is_replaced(
    node: tuple[str, ...], tmp_path: Path
) -> None:
    """A file that is cut off, altered, or something else leaves the node as it is."""
    file = tmp_path / "a.parley"
    assert (await _admin("backup", file, *node)).code == 0
    content = file.read_bytes()
    altered = bytearray(content)
    altered[len(content) // 2] ^= 1
    for damaged, says in (
        (content[: len(content) // 2], "only a part of one"),
        (bytes(altered), "was damaged: database.dump is not what was written"),
        (b"words", "is not a backup of a node"),
    ):
        file.write_bytes(damaged)
        refused = await _admin("restore", "--replace", file, *node)
        assert (refused.code, says in refused.err) == (8, True), refused.err
    assert await _campaigns(node[1]) == ["default", "ops"]


@pytest.mark.nightly
async def test_a_backup_of_an_earlier_program_is_migrated_afterwards(
    state: Path, new_database: NewDatabase, tmp_path: Path
) -> None:
    """A backup that was made before an upgrade can be restored after it."""
    NodeKey.load_or_create(state / "node.pem")
    file, old, new = tmp_path / "a.parley", await new_database(empty=True), tmp_path / "new"
    await restore(old)
    made = json.loads((await _admin("backup", file, "--dsn", old, "--state-dir", state)).out)
    assert made["schema_version"] == 4
    dsn = await new_database(empty=True)
    assert (await _admin("restore", file, "--dsn", dsn, "--state-dir", new)).code == 0
    assert json.loads((await _migrate("--dsn", dsn, "--yes")).out)["done"]
