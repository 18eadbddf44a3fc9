"""A name server that swallows questions changes nothing for nodes whose addresses are known."""

from __future__ import annotations

import asyncio
import shlex
import time
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from pathlib import Path

import aiohttp
import asyncpg
import pytest

from node.cli.lab.nodes import NodePlan, node_command
from node.cli.lab.supervisor import Lab
from node.trust.keys import NodeKey
from tests.acceptance.outsider import Outsider
from tests.integration.host_leftovers import nothing_left
from tests.support.name_servers import EVERYTHING, name_server

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(120), pytest.mark.needs("root")]

SERVER = "127.0.0.99"
DEAD = 100
LOOKS = 20
QUICK_S = 2.0
"""No look-up of a name ends so quickly. Alone on the host an answer takes some 20 ms."""


async def _know_dead_nodes(node: Outsider) -> None:
    """Enter nodes whose names nobody will find."""
    connection = await asyncpg.connect(node.dsn)
    await connection.executemany(
        "INSERT INTO node (identity, name, url, address, added_at) "
        "VALUES ($1, $2, $3, $2, clock_timestamp())",
        [
            (NodeKey.generate().identity, f"dead-{each}", f"http://dead-{each}.test:8642")
            for each in range(DEAD)
        ],
    )
    await connection.close()


async def test_a_swallowing_name_server_holds_nothing_up(tmp_path: Path) -> None:
    """Readiness, status, planning and runs are as quick as ever beside a hundred dead names."""
    tmp_path.chmod(0o755)
    (tmp_path / "resolv.conf").write_text(f"nameserver {SERVER}\n")

    def blind(plan: NodePlan) -> list[str]:
        mounting = f"mount --bind {tmp_path}/resolv.conf /etc/resolv.conf"
        service = shlex.join(node_command(plan))
        return ["unshare", "--mount", "sh", "-c", f"{mounting} && exec {service}"]

    with nothing_left():
        async with (
            name_server(SERVER, 53) as server,
            Lab(2, command=blind) as lab,
            aiohttp.ClientSession() as session,
        ):
            server.swallowed = EVERYTHING
            a, b = (Outsider(**asdict(node), session=session) for node in lab.nodes)
            await _know_dead_nodes(a)
            a = Outsider(**asdict(await lab.restart("a")), session=session)
            async with asyncio.timeout(30):
                while sum(name.startswith("dead-") for name, _ in server.asked) < DEAD:
                    server.heard.clear()
                    await server.heard.wait()
            until = (datetime.now(UTC) + timedelta(minutes=1)).isoformat()
            often = {"repeat": "PT2S", "until": until}
            task = await a.create("idle", a, b, spec={"duration": "PT1S"}, schedule=often)
            began = time.monotonic()
            waits = [await _answered(a, path) for _ in range(LOOKS) for path in _PATHS]
            print(f"slowest of {len(waits)}: {max(waits):.3f} s")  # noqa: T201 - with pytest -s
            assert max(waits) < QUICK_S
            await a.until(
                f"/v1/tasks/{task['id']}/runs?state=finished", lambda page: len(page["items"]) >= 3
            )
            assert time.monotonic() - began < 30


_PATHS = ("/readyz", "/v1/status", "/v1/nodes")


async def _answered(node: Outsider, path: str) -> float:
    """Return how long an answer took (s)."""
    began = time.monotonic()
    await node.get(path)
    return time.monotonic() - began
