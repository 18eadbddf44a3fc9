"""``parley node introduce``: one signed file instead of a command for each node."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from node.trust.keys import NodeKey
from tests.conftest import NewDatabase
from tests.integration.cli.conftest import Parley
from tests.integration.cli.test_first_contact import at_terminal
from tests.support.clocks import ManualClock
from tests.support.command_line import CommandResult
from tests.support.served_nodes import Asker, Served, give_token, served


@pytest.fixture
async def others(
    a: Asker, new_database: NewDatabase, clock: ManualClock, tmp_path: Path
) -> AsyncIterator[list[Served]]:
    """Return two more nodes, which know nobody; nor does a."""
    async with contextlib.AsyncExitStack() as stack:
        made = []
        for name in ("b", "c"):
            folder = tmp_path / name
            folder.mkdir()
            opened = served(name, await new_database(), clock, folder)
            made.append(await stack.enter_async_context(opened))
            await give_token(made[-1])
        yield made


def at(node: Any) -> dict[str, str]:
    """Return the environment of a command that asks this node."""
    return {"PARLEY_SERVER": str(node.card.url), "PARLEY_TOKEN": "secret"}


def triples(*nodes: Any) -> list[str]:
    """Return what the coordinator types for these nodes."""
    return [word for node in nodes for word in (node.card.name, node.card.url, node.card.identity)]


def states(result: CommandResult) -> dict[str, str]:
    """Return what came of each node of a directory."""
    return {node["name"]: node["state"] for node in json.loads(result.out)}


@pytest.mark.nightly
async def test_one_command_for_each_owner(
    bare: Parley, a: Asker, others: list[Served], tmp_path: Path
) -> None:
    """After one command at each node, all know each other; a second time nothing is added."""
    file, (b, c) = str(tmp_path / "nodes.json"), others
    written = await bare(
        "node", "introduce", "--write", file, *triples(b, c), "-o", "json", **at(a.node)
    )
    assert (written.code, json.loads(written.out)["nodes"]) == (0, ["a", "b", "c"]), written.err
    signer = ("--identity", a.node.card.identity, "--yes", "-o", "json")

    trial = await bare("node", "introduce", file, *signer, "--dry-run", **at(b))
    assert states(trial) == {"a": "added", "b": "self", "c": "added"}
    assert len(b.directory.all) == 1

    outcomes = [
        await bare("node", "introduce", file, *signer, **at(node)) for node in (a.node, b, c)
    ]
    for name, done in zip("abc", outcomes, strict=True):
        assert (done.code, states(done)) == (0, dict.fromkeys("abc", "added") | {name: "self"})
    assert {node["name"]: node["knows_this"] for node in json.loads(outcomes[-1].out)} == {
        "a": True,
        "b": True,
        "c": None,
    }
    again = await bare("node", "introduce", file, "-o", "json", **at(b))
    assert states(again) == {"a": "known", "b": "self", "c": "known"}
    assert "known here as a" in again.err


@pytest.mark.nightly
async def test_what_is_refused(
    bare: Parley, a: Asker, others: list[Served], tmp_path: Path
) -> None:
    """An altered file, an unknown signer, and nodes that are not what the file says are refused."""
    file, (b, c) = tmp_path / "nodes.json", others
    command = ("node", "introduce", str(file))
    here, signed_by = at(c), ("--identity", a.node.card.identity)
    gone = ("gone", "http://127.0.0.1:9", "ed25519:" + "A" * 43)
    misnamed = ("z", *triples(b)[1:])
    fetching = ("p", "pull", NodeKey.generate().identity)
    await bare(*command, "--write", *misnamed, *gone, *fetching, **at(a.node))

    nobody = await bare(*command, "--yes", **here)
    assert (nobody.code, "a key that is not known here" in nobody.err) == (2, True), nobody.err
    other = await bare(*command, "--identity", b.card.identity, **here)
    assert (other.code, "is signed with" in other.err) == (3, True), other.err

    done = await bare(*command, *signed_by, "-o", "json", **here)
    came = {"a": "added", "p": "added", "z": "refused", "gone": "refused"}
    assert (done.code, states(done)) == (1, came)
    reasons = {node["name"]: node["reason"] for node in json.loads(done.out)}
    assert "calls itself b, not z" in reasons["z"]
    assert "gone" not in {node.name for node in await c.directory.known()}

    document = json.loads(file.read_text())
    document["nodes"][1]["name"] = "b"
    file.write_text(json.dumps(document))
    altered = await bare(*command, *signed_by, **here)
    assert (altered.code, "was altered or damaged" in altered.err) == (2, True), altered.err
    names = [node.name for node in await c.directory.known()]
    assert (names[:2], len(names)) == (["c", "a"], 3)
    assert c.directory.by_identity(fetching[2]).url is None


@pytest.mark.nightly
async def test_a_changed_url_is_told_and_followed(
    bare: Parley, a: Asker, others: list[Served], tmp_path: Path
) -> None:
    """A known node with another URL is shown with the old one, and a person is asked."""
    file, (b, _) = tmp_path / "nodes.json", others
    await bare("node", "add", str(b.card.url), **at(a.node))
    await a.rows("UPDATE node SET url = 'http://127.0.0.1:9' WHERE name = 'b' RETURNING name")
    await bare("node", "introduce", "--write", str(file), **at(b))
    await a.node.directory.refresh()
    command = ("node", "introduce", str(file))
    code, shown = await at_terminal(bare, *command, said="n", **at(a.node))
    assert (code, "its URL was http://127.0.0.1:9" in shown) == (0, True), shown
    assert a.node.directory.by_identity(b.card.identity).url == "http://127.0.0.1:9"
    code, shown = await at_terminal(bare, *command, said="y", **at(a.node))
    assert (code, a.node.directory.by_identity(b.card.identity).url) == (0, b.card.url), shown
