"""Another host of a node, for tests in which its files or its backup go there."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from dataclasses import asdict, replace
from pathlib import Path

import aiohttp
import asyncpg

from node.cli.lab.nodes import NodePlan
from node.cli.lab.supervisor import Lab
from tests.acceptance.outsider import Outsider
from tests.integration.host_leftovers import nothing_left
from tests.support.patience import PATIENCE_S


@contextlib.asynccontextmanager
async def lab_of(count: int) -> AsyncIterator[Lab]:
    """Start a lab of so many nodes that speak TLS."""
    with nothing_left():
        async with Lab(count, tls=True) as lab:
            yield lab


@contextlib.asynccontextmanager
async def outsiders(lab: Lab) -> AsyncIterator[list[Outsider]]:
    """Yield the nodes of a lab as somebody outside sees them, whatever their certificates."""
    waits = aiohttp.ClientTimeout(total=PATIENCE_S)
    connector = aiohttp.TCPConnector(ssl=False)
    async with aiohttp.ClientSession(timeout=waits, connector=connector) as session:
        yield [Outsider(**asdict(node), session=session) for node in lab.nodes]


async def execute(dsn: str, statement: str) -> None:
    """Execute a statement in a database."""
    connection = await asyncpg.connect(dsn)
    await connection.execute(statement)
    await connection.close()


def elsewhere(plan: NodePlan, place: Path, name: str) -> NodePlan:
    """Return the same node with another address, database, and state directory, of this name."""
    address = plan.address.rpartition(".")[0] + ".99"
    listen = plan.listen.replace(plan.address, address)
    return replace(
        plan,
        listen=listen,
        url=f"https://{listen}",
        address=address,
        dsn=plan.dsn.replace(f"/{plan.name}?", f"/{name}?"),
        state=place / name,
        log=place / f"{name}.log",
    )
