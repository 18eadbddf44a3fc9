"""A lab of three nodes for the acceptance tests of a folder: real processes and databases."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import count
from pathlib import Path

import aiohttp
import pytest
import pytest_asyncio

from node.cli.lab.nodes import NodePlan, node_command
from node.cli.lab.supervisor import Lab
from node.postgres.cluster import PrivateCluster
from tests.acceptance import evil
from tests.acceptance.hostility import newest
from tests.acceptance.outsider import Json, Outsider
from tests.acceptance.wire import ALLOWED, wire
from tests.integration.host_leftovers import nothing_left
from tests.support.loopback import free_port
from tests.support.patience import PATIENCE_S

HOLD_LIFE_S = 8
"""Life of a hold in seconds, shorter than the default, so that tests can wait for its end."""

PART_GRACE_S = 120
"""Seconds that a lead waits for parts: a node that was killed comes back late on a busy host."""

NAMED_PORT = free_port()
"""The port of the archives that clients of the façades may name."""

NAMED_ARCHIVES = (
    f"http://127.0.0.1:{NAMED_PORT}/in",
    f"tcp://127.0.0.1:{NAMED_PORT + 1}",
    f"udp://127.0.0.1:{NAMED_PORT + 1}",
    "syslog",
)

OWAMP_PORT = 8610

IDLE_S = 5
"""Seconds after which a client closes an idle connection, before its node does it.

A node closes one after 10 s. A POST that crosses this is lost, and aiohttp does not repeat it.
"""

_LAST = ["test_cron_comes_round", "test_tables.py"]


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run last the tests that wait for a full minute or read the complete run tables."""
    for last in _LAST:
        items.sort(key=lambda item: last in {item.name, item.path.name})
    _begin_with_the_tutorial(items)


def _begin_with_the_tutorial(items: list[pytest.Item]) -> None:
    """Let the tutorial be the first of the pages that are typed: its lab is new."""
    pages = Path(__file__).parent / "own_lab" / "test_documentation.py"
    places = [at for at, item in enumerate(items) if item.path == pages]
    typed = sorted((items[at] for at in places), key=lambda item: "tutorial" not in item.name)
    for at, item in zip(places, typed, strict=True):
        items[at] = item


def facade_of(listen: str) -> str:
    """Return where the façade for clients of pScheduler listens, by where the API does."""
    return f"{listen.removeprefix('http://').rpartition(':')[0]}:8443"


def owamp_of(listen: str) -> str:
    """Return where clients of OWAMP are served, by where the API listens."""
    return f"{listen.removeprefix('http://').rpartition(':')[0]}:{OWAMP_PORT}"


def _command(plan: NodePlan, evil_place: Path) -> list[str]:
    settings = [f"PARLEY_HOLD_LIFE=PT{HOLD_LIFE_S}S", f"PARLEY_LEASE=PT{HOLD_LIFE_S}S"]
    settings += [f"PARLEY_PART_GRACE=PT{PART_GRACE_S}S"]
    settings += [f"PARLEY_CONTEXTS={ALLOWED.get(plan.name, '')}"]
    settings += [f"PARLEY_PSCHEDULER_LISTEN={facade_of(plan.listen)}"]
    settings += ["PARLEY_PSCHEDULER_ALLOW=127.0.0.0/8"]
    settings += [f"PARLEY_PSCHEDULER_ARCHIVES={' '.join(NAMED_ARCHIVES)}"]
    settings += [f"PARLEY_OWAMP_LISTEN={owamp_of(plan.listen)}", "PARLEY_OWAMP_ALLOW=127.0.0.0/8"]
    if plan.name == evil.NODE:
        settings += [f"PATH={evil_place}:{os.environ['PATH']}"]
    return ["env", *settings, *node_command(plan)]


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def lab(cluster: PrivateCluster) -> AsyncIterator[Lab]:
    """Start three nodes that know each other; the tests' own Postgres outlives them."""
    assert cluster.running
    with nothing_left(), wire(), evil.folder() as place:
        async with Lab(3, command=partial(_command, evil_place=place)) as running:
            yield running


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def nodes(lab: Lab) -> AsyncIterator[list[Outsider]]:
    """Return a client of each node of the lab."""
    timeout = aiohttp.ClientTimeout(total=PATIENCE_S)
    connector = aiohttp.TCPConnector(keepalive_timeout=IDLE_S)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:
        yield [Outsider(**asdict(node), session=session) for node in lab.nodes]


@pytest.fixture(scope="session")
def a(nodes: list[Outsider]) -> Outsider:
    """Return the client of the first node."""
    return nodes[0]


@pytest.fixture(scope="session")
def b(nodes: list[Outsider]) -> Outsider:
    """Return the client of the second node."""
    return nodes[1]


@pytest.fixture(scope="session")
def c(nodes: list[Outsider]) -> Outsider:
    """Return the client of the third node."""
    return nodes[2]


@pytest_asyncio.fixture(loop_scope="session")
async def tidy(nodes: list[Outsider]) -> AsyncIterator[None]:
    """Cancel the tasks that a test has left active, so that the next one finds the nodes free."""
    yield
    await asyncio.gather(*(_cancel_all(node) for node in nodes))


async def _cancel_all(node: Outsider) -> None:
    page = await node.get("/v1/tasks", state="active", limit=500)
    for task in page["items"]:
        if task["led_here"] and task["campaign"] != "minutely":
            await node.cancel(task)
            await node.until(f"/v1/tasks/{task['id']}", lambda found: found["state"] != "active")


@pytest.fixture(scope="session")
def _hours() -> Iterator[int]:
    return count(2)


@pytest.fixture
def free_hour(_hours: Iterator[int]) -> datetime:
    """Return the beginning of a future hour that no other test uses."""
    return datetime.now(UTC).replace(microsecond=0) + timedelta(hours=next(_hours))


Everywhere = Callable[[Json], Awaitable[list[Json]]]


@pytest.fixture(scope="session")
def everywhere(nodes: list[Outsider]) -> Everywhere:
    """Return a function that reads a run from each of its participants."""

    async def seen(run: Json) -> list[Json]:
        return [
            await node.get(f"/v1/runs/{run['id']}")
            for node in nodes
            if node.name in run["participants"]
        ]

    return seen


@pytest_asyncio.fixture(loop_scope="session")
async def nothing_made(nodes: list[Outsider]) -> AsyncIterator[None]:
    """Check that the requests of a test created no task, and that all nodes are ready."""
    before = await newest(nodes)
    yield
    assert await newest(nodes) == before
    for node in nodes:
        assert (await node.get("/readyz"))["status"] == "ready"
