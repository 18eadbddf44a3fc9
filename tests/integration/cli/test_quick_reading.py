"""Commands that only read load little, and read what nodes of other versions answer."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.integration.cli.conftest import START, a_run

RUN = "11111111-1111-4111-8111-111111111111"
TASK = "aaaaaaaa-aaaa-4aaa-8aaa-aaaaaaaaaaaa"
SLOW = {"aiohttp", "asyncio", "pydantic", "rich", "cryptography", "portion", "orjson"}
"""Modules whose loading takes longer than reading may take."""


LISTS = {
    "task list": "tasks",
    "run list": "runs",
    "node list": "nodes",
    "node share": "shares",
    "mesh list": "meshes",
    "campaign list": "campaigns",
    "campaign usage": "usage",
    "pool list": "pools",
    "pool sets": "policysets",
    "policy list": "policysets",
    "reservation list": "reservations",
    "archive list": "archives",
    "archive kinds": "archivers",
    "archive backlog": "archivings/backlog",
    "archive deliveries": "archivings",
    "webhook list": "webhooks",
    "token list": "tokens",
    "audit": "audit",
    "test list": "tests",
    "tool list": "tools",
    "schedule": "schedule",
    "schedule diff": "schedule/changes",
    "status": "status",
}
"""By command, the path that it reads."""

SHOWN = {
    f"task show {TASK}": f"tasks/{TASK}",
    f"run show {RUN}": f"runs/{RUN}",
    f"run result {RUN}": f"runs/{RUN}",
    f"explain {RUN}": f"runs/{RUN}/explain",
    f"reservation show {RUN}": f"reservations/{RUN}",
    "archive show x": "archives/x",
    "campaign show x": "campaigns/x",
    "pool show x": "pools/x",
    "limits show": "limits",
    "test show x": "tests/x",
}
"""The same for commands that show one thing."""


@pytest.mark.nightly
async def test_what_only_reads_loads_nothing_that_is_slow_to_load(bare: Any, node: Any) -> None:
    """Reading needs no loop, no client of all requests, and no models of documents."""
    node.add_task(TASK)
    node.add_run(RUN, TASK)
    commands = LISTS | SHOWN
    instants = dict.fromkeys(("now", "from", "to", "since", "until", "kept_since"), START)
    empty: dict[str, Any] = {
        "items": [],
        "next": None,
        "complete": True,
        "reserved": [],
        **instants,
    }
    node.documents |= {f"/v1/{path}": empty for path in commands.values()}
    forms = dict.fromkeys(LISTS, "table") | dict.fromkeys(("status", *SHOWN), "json")
    typed = [[*command.split(), "-o", form] for command, form in forms.items()]
    process = await bare.start(
        program="tests.integration.cli.loading", PARLEY_SERVER=node.url, PARLEY_TOKEN=node.token
    )
    out, err = await process.communicate(json.dumps(typed).encode())
    for command, line in zip(commands, out.splitlines(), strict=True):
        code, written, modules = json.loads(line)
        assert code == 0, (command, err.decode()[-1000:])
        assert written > 0, command
        assert "http.client" in modules, command
        assert set(modules) & SLOW == set(), command
    asked = {path.partition("?")[0] for _, path, _ in node.asked}
    assert asked == {f"/v1/{path}" for path in commands.values()}


async def test_members_that_a_node_does_not_have_are_empty(parley: Any, node: Any) -> None:
    """A member that another version of a node does not send is an empty cell."""
    run = a_run(RUN, TASK)
    for name in ("headline", "verdict", "tool"):
        run.pop(name, None)
    node.runs.append(run)
    ended = await parley("run", "list", "-o", "table")
    assert ended.code == 0
    assert ended.out.splitlines()[1].split()[:2] == [RUN[:8], "finished"]
    assert "None" not in ended.out


async def test_problems_are_told(parley: Any, bare: Any, node: Any) -> None:
    """A problem document of the node, a closed port and a name without address have their codes."""
    ended = await parley("run", "list", "--task", "bbbb")
    assert ended.code == 6
    assert "no task begins with bbbb" in ended.err
    whole = await parley("run", "list", "--task", TASK, "-o", "json")
    assert whole.code == 6
    assert json.loads(whole.err.splitlines()[-1])["type"] == "/problems/not-found"
    closed = await bare("run", "list", "--server", "http://127.0.0.1:1")
    assert closed.code == 5
    assert "no node answers at http://127.0.0.1:1: connection refused" in closed.err
    nowhere = await bare("run", "list", "--server", "http://nowhere.invalid:1", "--plain-http")
    assert nowhere.code == 5
    assert "its name cannot be resolved" in nowhere.err
    exposed = await bare("run", "list", "--server", "http://192.0.2.1:1", "--token", "t")
    assert exposed.code == 3
    assert "the token was not sent" in exposed.err
