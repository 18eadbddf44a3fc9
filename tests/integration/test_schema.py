"""The schema: setting up or refusing a database, and the constraints that it enforces."""

from __future__ import annotations

import asyncio
import re
from itertools import product
from pathlib import Path
from typing import get_args
from uuid import UUID, uuid4

import asyncpg
import pytest

from node.model import runstate, times
from node.model.classes import SchedulingClass, blockers
from node.model.errors import DatabaseUnavailable, SchemaMismatch
from node.model.runstate import RunState
from node.model.wire.archives import ArchivingState, RunsKept
from node.store.database import PostgresDatabase
from node.store.queries import PostgresConnection
from node.store.schema import digest_of, digest_of_schema, place_of, schema_text, schema_version
from tests.conftest import NewDatabase
from tests.support.clocks import START
from tests.support.patience import PATIENCE_S

VIEWS = (
    "run_known",
    "run_now",
    "run_upcoming",
    "run_missed",
    "run_gap",
    "mesh_gap",
    "run_history",
    "interval_history",
    "node_occupancy",
    "reserved_time",
    "campaign_node_day",
    "campaign_usage",
    "decision_trace",
    "mesh_task",
    "mesh_delivery",
)
INTERNAL = (
    "limit_account",
    "limit_used",
    "resource_taken",
)
"""Views that triggers use."""

PAIRS = list(product(SchedulingClass, repeat=2))

_INSERT_TASK = """
INSERT INTO task (id, lead, test, spec, scheduling_class, duration, participants, created_at)
VALUES ($1, 'ed25519:x', 'idle', '{}', 'normal', interval '1 min', '[]', now())
"""
_INSERT_RUN = """
INSERT INTO run (
    id, task_id, slot, attempt, scheduling_class, priority, starts_at, ends_at, lane, state, reason,
    created_at, changed_at
)
VALUES (
    gen_random_uuid(), $1, $2, $3::smallint, $4::scheduling_class, 0, $2, $5,
    CASE $4::scheduling_class
        WHEN 'exclusive' THEN int8range(NULL, NULL) WHEN 'normal' THEN int8range($3, $3, '[]')
    END,
    $6::run_state, 'because', $2, $2
)
RETURNING id
"""


async def _task(connection: PostgresConnection) -> UUID:
    task = uuid4()
    await connection.execute(_INSERT_TASK, task)
    return task


async def _run(
    connection: PostgresConnection,
    task: UUID,
    scheduling_class: SchedulingClass,
    number: int,
    start: int = START,
    state: RunState = RunState.BOOKED,
) -> UUID:
    end = start + times.MINUTE
    run: UUID = await connection.fetchval(
        _INSERT_RUN, task, start, number, scheduling_class, end, state
    )
    return run


async def test_an_empty_database_is_set_up_by_two_at_once(empty_dsn: str) -> None:
    """Two services that open an empty database concurrently both find the schema."""
    both = [PostgresDatabase(empty_dsn), PostgresDatabase(empty_dsn)]
    await asyncio.gather(*(database.open() for database in both))
    for database in both:
        async with database.connection() as connection:
            versions = await connection.fetch("SELECT version FROM schema_version")
        assert [row[0] for row in versions] == [schema_version()]
        await database.close()


async def test_a_newer_version_is_refused(dsn: str) -> None:
    """A database that only later programs can use is refused with the remedy."""
    connection = await asyncpg.connect(dsn)
    await connection.execute(
        "UPDATE schema_version SET version = version + 1, oldest_program = version + 1"
    )
    await connection.close()
    with pytest.raises(SchemaMismatch, match="newer than this program's version") as caught:
        await PostgresDatabase(dsn).open()
    assert f"schema version {schema_version() + 1}" in caught.value.detail
    assert "upgrade the program" in caught.value.detail


async def test_another_schema_of_the_same_version_is_refused(dsn: str) -> None:
    """A database whose schema.sql was another one is refused when it is opened."""
    connection = await asyncpg.connect(dsn)
    await connection.execute("UPDATE schema_version SET digest = 'c0ffee'")
    await connection.close()
    own = digest_of_schema()[:12]
    with pytest.raises(SchemaMismatch, match="made by another build") as caught:
        await PostgresDatabase(dsn).open()
    assert f"(digest c0ffee there, {own} here); use the program it was made by" in str(caught.value)


async def test_a_database_from_before_digests_is_refused(empty_dsn: str) -> None:
    """A database of a version from which no step leads here is refused with the remedy."""
    connection = await asyncpg.connect(empty_dsn)
    await connection.execute("CREATE TABLE schema_version (version integer PRIMARY KEY)")
    await connection.execute("INSERT INTO schema_version VALUES (3)")
    await connection.close()
    with pytest.raises(SchemaMismatch, match="schema version 3, from which no step leads"):
        await PostgresDatabase(empty_dsn).open()


@pytest.mark.parametrize(
    ("before", "after", "alike"),
    [
        ("    participant smallint,", "    participant integer,", False),
        ("INSERT INTO campaign (name", "INSERT INTO campaign (description, name", False),
        ("'Every task this node leads or takes part in.'", "'Tasks.'", True),
        ("    'cancelled',  -- ended by its owner", "    'cancelled', -- by a person", True),
        ("CREATE TABLE task (", "CREATE TABLE\n    task (", True),
    ],
)
def test_the_digest_is_of_what_matters(before: str, after: str, *, alike: bool) -> None:
    """The digest of the schema changes with its statements, not with comments and spacing."""
    changed = schema_text().replace(before, after)
    assert changed != schema_text()
    assert (digest_of(changed) == digest_of_schema()) is alike


async def test_a_foreign_database_is_refused_and_left_alone(empty_dsn: str) -> None:
    """A database with other tables is refused and left unchanged."""
    connection = await asyncpg.connect(empty_dsn)
    await connection.execute("CREATE TABLE theirs (id integer)")
    with pytest.raises(SchemaMismatch, match="not empty and is not Parley's; create one"):
        await PostgresDatabase(empty_dsn).open()
    tables = await connection.fetch("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")
    await connection.close()
    assert [row[0] for row in tables] == ["theirs"]


async def test_a_database_that_is_away_is_named_by_its_address(tmp_path: Path) -> None:
    """The refusal names the socket or the host and the port that were tried."""
    for dsn, place in (
        (f"postgresql:///x?host={tmp_path}&user=y", f"{tmp_path}/.s.PGSQL.5432"),
        ("postgresql://y@127.0.0.1:1/x", "127.0.0.1:1"),
    ):
        with pytest.raises(DatabaseUnavailable, match=f"at {re.escape(place)}: "):
            await PostgresDatabase(dsn, size=1).open()
    assert place_of("postgresql:///x") == "the default socket:5432"
    assert place_of("postgresql://[::") == "the given address"


async def test_a_refused_database_is_not_open(dsn: str) -> None:
    """A refused database is closed."""
    connection = await asyncpg.connect(dsn)
    await connection.execute("UPDATE schema_version SET version = 99, oldest_program = 99")
    await connection.close()
    database = PostgresDatabase(dsn)
    with pytest.raises(SchemaMismatch):
        await database.open()
    with pytest.raises(DatabaseUnavailable, match="not open"):
        async with database.connection():
            pass


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("scheduling_class", [str(value) for value in SchedulingClass]),
        ("run_state", [str(value) for value in RunState]),
        ("exchange_state", ["held", "committed", "released"]),
        ("negotiation_state", ["open", "committed", "aborted"]),
        ("archived_runs", list(get_args(RunsKept))),
        ("archiving_state", list(get_args(ArchivingState))),
    ],
)
async def test_enums_are_the_same_in_sql_and_python(
    rolled_back: PostgresConnection, name: str, words: list[str]
) -> None:
    """The enums of the database have the values of the program in the same order."""
    rows = await rolled_back.fetch(f"SELECT unnest(enum_range(NULL::{name}))::text")
    assert [row[0] for row in rows] == words


async def test_the_reader_reads_every_view_and_no_table(rolled_back: PostgresConnection) -> None:
    """The role parley_reader can read the documented views and nothing else."""
    views = await rolled_back.fetch("SELECT viewname FROM pg_views WHERE schemaname = 'public'")
    tables = await rolled_back.fetch("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")
    assert {row[0] for row in views} == {*VIEWS, *INTERNAL}
    await rolled_back.execute("SET ROLE parley_reader")
    for view in VIEWS:
        await rolled_back.fetch(f"SELECT * FROM {view}")
    for name in (*(row[0] for row in tables), *INTERNAL):
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            async with rolled_back.transaction():
                await rolled_back.fetch(f"SELECT * FROM {name}")
    await rolled_back.execute("RESET ROLE")


@pytest.mark.nightly
async def test_two_databases_of_a_server_may_be_set_up_at_once(
    new_database: NewDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second one waits until the role of the first is there, and then may use it."""
    role = f"reader_{uuid4().hex}"
    text = schema_text().replace("parley_reader", role)
    monkeypatch.setattr("node.store.schema.schema_text", lambda: text)
    first, second = await new_database(empty=True), await new_database(empty=True)
    database = PostgresDatabase(second)
    connection: PostgresConnection = await asyncpg.connect(first)
    try:
        creating = connection.transaction()
        await creating.start()
        await connection.execute(text)
        opening = asyncio.create_task(database.open())
        watching: PostgresConnection = await asyncpg.connect(first)
        waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'transactionid'"
        async with asyncio.timeout(PATIENCE_S):
            while not opening.done() and not await watching.fetchval(waiting):
                pass
        await watching.close()
        await creating.commit()
        await opening
        async with database.connection() as ours:
            granted = await ours.fetchval(
                "SELECT has_table_privilege($1, 'run_now', 'SELECT')", role
            )
            assert granted
            await ours.execute(f"DROP OWNED BY {role}")
    finally:
        await database.close()
        await connection.execute(f"DROP OWNED BY {role}")
        await connection.execute(f"DROP ROLE {role}")
        await connection.close()


async def test_every_table_and_view_says_what_it_is(rolled_back: PostgresConnection) -> None:
    """Each table, view and sequence has a comment."""
    query = """
    SELECT relname FROM pg_class
    WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'v', 'S')
        AND obj_description(oid) IS NULL
        AND NOT EXISTS (SELECT FROM pg_depend WHERE objid = pg_class.oid AND deptype IN ('a', 'i'))
    """
    assert await rolled_back.fetch(query) == []


async def test_every_view_answers_about_rows(rolled_back: PostgresConnection) -> None:
    """The views can be read with runs of every class and state in the tables."""
    task = await _task(rolled_back)
    for number, (scheduling_class, state) in enumerate(product(SchedulingClass, RunState)):
        start = START + number * times.HOUR
        await _run(rolled_back, task, scheduling_class, number, start, state)
    known = await rolled_back.fetchval("SELECT count(*) FROM run_known")
    for view in VIEWS:
        await rolled_back.fetch(f"SELECT * FROM {view}")
    assert known == len(SchedulingClass) * len(RunState)


@pytest.mark.parametrize(("first", "second"), PAIRS)
@pytest.mark.mostly_nightly
async def test_classes_overlap_as_the_rule_says(
    rolled_back: PostgresConnection, first: SchedulingClass, second: SchedulingClass
) -> None:
    """Exclusive excludes exclusive and normal, normal overlaps normal, background overlaps all."""
    task = await _task(rolled_back)
    await _run(rolled_back, task, first, 1)
    if second in blockers(first):
        with pytest.raises(asyncpg.ExclusionViolationError, match="run_no_overlap"):
            await _run(rolled_back, task, second, 2, START + times.SECOND)
    else:
        await _run(rolled_back, task, second, 2, START + times.SECOND)


@pytest.mark.parametrize(("first", "second"), PAIRS)
@pytest.mark.mostly_nightly
async def test_runs_that_only_touch_do_not_overlap(
    rolled_back: PostgresConnection, first: SchedulingClass, second: SchedulingClass
) -> None:
    """A run may start at the instant at which another one ends."""
    task = await _task(rolled_back)
    await _run(rolled_back, task, first, 1)
    await _run(rolled_back, task, second, 2, START + times.MINUTE)
    await _run(rolled_back, task, second, 3, START - times.MINUTE)


@pytest.mark.parametrize(("first", "second"), PAIRS)
@pytest.mark.mostly_nightly
async def test_a_run_that_does_not_happen_frees_its_time(
    rolled_back: PostgresConnection, first: SchedulingClass, second: SchedulingClass
) -> None:
    """Only booked and running runs block their time."""
    task = await _task(rolled_back)
    for hour, state in enumerate(sorted(set(RunState) - runstate.LIVE)):
        start = START + hour * times.HOUR
        await _run(rolled_back, task, first, 1, start, state)
        await _run(rolled_back, task, second, 2, start)


async def test_a_running_run_blocks(rolled_back: PostgresConnection) -> None:
    """A booked run still blocks its time when it runs."""
    task = await _task(rolled_back)
    run = await _run(rolled_back, task, SchedulingClass.EXCLUSIVE, 1)
    await rolled_back.execute("UPDATE run SET state = 'running' WHERE id = $1", run)
    with pytest.raises(asyncpg.ExclusionViolationError):
        await _run(rolled_back, task, SchedulingClass.NORMAL, 2)


async def test_a_run_that_failed_has_a_reason(rolled_back: PostgresConnection) -> None:
    """A run that did not happen cannot be stored without a reason."""
    task = await _task(rolled_back)
    run = await _run(rolled_back, task, SchedulingClass.NORMAL, 1)
    with pytest.raises(asyncpg.CheckViolationError):
        await rolled_back.execute(
            "UPDATE run SET state = 'missed', reason = NULL WHERE id = $1", run
        )


@pytest.mark.nightly
async def test_nodes_of_one_server_share_the_reader(new_database: NewDatabase) -> None:
    """Two databases of one server can be set up concurrently although they share a role."""
    both = [PostgresDatabase(await new_database(empty=True)) for _ in range(2)]
    await asyncio.gather(*(database.open() for database in both))
    for database in both:
        async with database.connection() as connection:
            assert await connection.fetchval("SELECT count(*) FROM schema_version") == 1
        await database.close()


_INSERT_NODE = """
INSERT INTO node (identity, name, url, address, added_at)
VALUES ('ed25519:' || $1, $1, $2, $3, now())
"""


@pytest.mark.parametrize(
    ("name", "url", "address"),
    [
        ("x", None, "B"),
        ("x", "https://b:8642", "x"),
        ("192.0.2.2", None, "x"),
        ("b.example", None, "x"),
        ("2001:db8::2", None, "x"),
    ],
)
async def test_a_name_stands_for_one_node(
    rolled_back: PostgresConnection, name: str, url: str | None, address: str
) -> None:
    """A name is no other node's address or host; nodes may share addresses and hosts."""
    await rolled_back.execute(_INSERT_NODE, "b", "http://b.example:8642", "192.0.2.2")
    await rolled_back.execute(_INSERT_NODE, "c", "http://b.example:8643", "192.0.2.2")
    await rolled_back.execute(_INSERT_NODE, "d", "http://[2001:db8::2]:8643", "d")
    with pytest.raises(asyncpg.UniqueViolationError, match="is an address of the other"):
        await rolled_back.execute(_INSERT_NODE, name, url, address)
