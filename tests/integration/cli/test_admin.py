"""``parley admin``: the database of this host's node, whether it runs or not."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from node.postgres import PrivateCluster, ServerBinaries, locate
from node.store import schema
from tests.conftest import NewDatabase
from tests.support.command_line import CommandResult, run_command
from tests.support.releases import restore


async def _migrate(*arguments: str) -> CommandResult:
    environment = {name: it for name, it in os.environ.items() if not name.startswith("PARLEY_")}
    return await run_command(("admin", "migrate", *arguments), environment)


@pytest.fixture
def state() -> Iterator[Path]:
    """A state directory in which the account of Postgres may have one of its own."""
    with TemporaryDirectory(prefix="parley-test-") as directory:
        Path(directory).chmod(0o711)
        yield Path(directory)


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
