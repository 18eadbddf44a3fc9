"""The tutorial and the how-tos do what they say: their commands, typed at a lab.

Blocks of the language ``console`` are what a reader can type as it is; a page's commands are one
shell, as they are for a reader. Blocks of ``sh`` need another host, a service, or root: their
command lines are parsed by tests/architecture/test_documented_commands.py.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import asyncpg
import pytest
import pytest_asyncio

from docs.generator import metrics
from node.execution import process
from tests.architecture.sources import REPOSITORY, where
from tests.integration.host_leftovers import nothing_left
from tests.support.documented_commands import blocks, command_lines
from tests.support.patience import PATIENCE_S

pytestmark = [pytest.mark.timeout(180), pytest.mark.needs("ping", "iperf3", "cubic")]

DOCS = REPOSITORY / "docs"
TUTORIAL = DOCS / "tutorial.md"
GRAFANA = DOCS / "how-to" / "grafana.md"
PAGES = [
    page
    for page in [TUTORIAL, *sorted((DOCS / "how-to").glob("*.md")), DOCS / "plugins.md"]
    if any(block.language == "console" for block in blocks(page))
]
SERVER = Path(__file__).with_name("command_server.py")
SHELL = """\
set -euo pipefail
trap 'echo "FAILED: $BASH_COMMAND" >&2' ERR
parley() { "$PYTHON" -I -S "$SERVER" "$SOCKET" "$@"; }
"""
QUERY = re.compile(r"^```sql\n(.*?)^```$", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True)
class DocumentedLab:
    """The lab of the tutorial: what its first terminal has printed."""

    server: str
    token: str
    dsn: str


def lab_words() -> list[str]:
    """Return the words of the command by which the tutorial starts its lab."""
    lines = [line for block in blocks(TUTORIAL) for line in command_lines(block)]
    return next(line for line in lines if line[:2] == ["lab", "up"])


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def documented_lab() -> AsyncIterator[DocumentedLab]:
    """Start the lab as the tutorial does."""
    with nothing_left():
        argv = [sys.executable, "-m", "node.cli.main", *lab_words(), "--json"]
        lab = await process.start(argv, env={**os.environ, "PYTHONPATH": str(REPOSITORY)})
        async with asyncio.timeout(PATIENCE_S):
            await lab.wait_for_output(b"}]}\n")
        assert lab._stdout is not None
        first = json.loads(bytes(lab._stdout.kept))["nodes"][0]
        yield DocumentedLab(first["url"], first["token"], first["dsn"])
        lab.send(signal.SIGTERM)
        ended = await asyncio.wait_for(lab.wait(), PATIENCE_S)
        assert ended.exit_code == 0, ended.stderr.decode()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def commands(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Path]:
    """Start the process from which commands are forked; return its socket."""
    path = tmp_path_factory.mktemp("commands") / "socket"
    argv = [sys.executable, str(SERVER), "serve", str(path)]
    server = await process.start(argv, env={**os.environ, "PYTHONPATH": str(REPOSITORY)})
    async with asyncio.timeout(PATIENCE_S):
        await server.wait_for_output(b"ready\n")
    yield path
    server.send(signal.SIGTERM)
    await asyncio.wait_for(server.wait(), PATIENCE_S)


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("page", PAGES, ids=where)
@pytest.mark.nightly
async def test_the_commands_of_a_page_work(
    page: Path, documented_lab: DocumentedLab, commands: Path, tmp_path: Path
) -> None:
    """Every command of a page that a reader can type as it is ends well."""
    typed = "".join(block.commands for block in blocks(page) if block.language == "console")
    environment = {
        **os.environ,
        "PARLEY_SERVER": documented_lab.server,
        "PARLEY_TOKEN": documented_lab.token,
        "PYTHON": sys.executable,
        "SERVER": str(SERVER),
        "SOCKET": str(commands),
        "HOME": str(tmp_path),
        "PARLEY_STATE_DIR": str(tmp_path / "state"),
    }
    shell = await asyncio.create_subprocess_exec(
        "bash",
        "-c",
        SHELL + typed,
        env=environment,
        cwd=tmp_path,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    printed, _ = await shell.communicate()
    assert shell.returncode == 0, printed.decode()[-3000:]


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.nightly
async def test_the_queries_of_the_panels_work(documented_lab: DocumentedLab) -> None:
    """The database answers each query of the page on Grafana, with Grafana's filter of times."""
    queries = QUERY.findall(GRAFANA.read_text(encoding="utf-8"))
    assert queries
    connection = await asyncpg.connect(documented_lab.dsn)
    try:
        for query in queries:
            await connection.fetch(re.sub(r"\$__timeFilter\((\w+)\)", r"\1 < now()", query))
    finally:
        await connection.close()


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.nightly
async def test_the_metrics_of_a_node_are_described(documented_lab: DocumentedLab) -> None:
    """Each metric that a node serves is in the reference, but for the figures of results."""
    token = {"Authorization": f"Bearer {documented_lab.token}"}
    async with aiohttp.ClientSession(documented_lab.server, headers=token) as session:
        served = await (await session.get("/metrics")).text()
    kinds = re.findall(r"^# TYPE (parley_\w+) ", served, re.MULTILINE)
    names = {name.removesuffix("_created") for name in kinds if "_result_" not in name}
    assert "parley_runs" in names
    described = {name.removesuffix("_total") for name, _, _ in metrics.found()}
    assert {name for name in names if name.removesuffix("_total") not in described} == set()
