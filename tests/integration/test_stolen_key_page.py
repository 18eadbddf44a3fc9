"""The page on stolen keys: each of its lines, typed where the page says, does what it says."""

from __future__ import annotations

import contextlib
import json
import shlex
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from node.model.errors import NotAuthenticated, PeerAnswered
from node.postgres import backups
from node.runtime.clock import SystemClock
from node.trust.signer import Signer
from tests.architecture.sources import REPOSITORY
from tests.conftest import NewDatabase
from tests.support.command_line import run_command
from tests.support.documented_commands import blocks, command_lines
from tests.support.served_nodes import Served, give_token, served, three_served

PAGE = REPOSITORY / "docs" / "how-to" / "stolen-key.md"
PREPARE = "node revoke --prepare"
REKEY = "node rekey"
SHOW = "node show --jq .keys"
REVOKE_OLD = "node revoke ed25519:OLD --yes"
BACKUP = "admin backup --to /var/backups/parley"
TAKE_IN = "node revoke --file a.revocation"
REVOKE_OTHER = "node revoke a --yes"
REVOKE_SELF = "node revoke --yes"
ADD = "node add https://a.example:8642 --identity ed25519:NEW"


@dataclass
class Hosts:
    """Three nodes that know each other, and the databases by their names."""

    a: Served
    b: Served
    c: Served
    dsns: dict[str, str]

    async def type(self, node: Served, line: str, **words: object) -> str:
        """Type a line of the page on a node's host, with these words instead of those there."""
        typed = [str(words.get(word, word)) for word in shlex.split(line)]
        environment = {
            "PARLEY_SERVER": str(node.card.url),
            "PARLEY_TOKEN": "secret",
            "PARLEY_STATE_DIR": str(node.core.settings.state_dir),
            "PARLEY_DSN": self.dsns[node.card.name],
            "HOME": str(node.core.settings.state_dir),
        }
        result = await run_command(tuple(typed), environment)
        assert result.code == 0, f"parley {line}: {result.err}"
        return result.out

    async def type_for_answer(self, node: Served, line: str, **words: object) -> Any:
        """Type a line whose output a script reads: JSON, since it is no terminal."""
        return json.loads(await self.type(node, line, **words))


@pytest.fixture
async def hosts(new_database: NewDatabase, tmp_path: Path) -> AsyncIterator[Hosts]:
    """Return three nodes, each with an owner."""
    dsns: list[str] = []

    async def new_dsn() -> str:
        dsns.append(await new_database())
        return dsns[-1]

    async with three_served(new_dsn, tmp_path) as nodes:
        for node in nodes:
            await give_token(node)
        a, b, c = nodes
        yield Hosts(a, b, c, dict(zip("abc", dsns, strict=True)))


async def _asks(here: Served, there: Served) -> None:
    known = here.directory.by_identity(there.core.identity)
    await here.peers.client_of(known.identity, known.name, known.url).limits()


def test_each_line_of_the_page_is_typed() -> None:
    """The page has the lines that the other tests here type, and no further one."""
    lines = [" ".join(words) for block in blocks(PAGE) for words in command_lines(block)]
    typed = [
        PREPARE, REKEY, SHOW, REVOKE_OLD, BACKUP, TAKE_IN, REVOKE_OTHER, REVOKE_SELF, ADD,
    ]  # fmt: skip
    assert lines == typed


@pytest.mark.nightly
async def test_only_the_key_was_copied(hosts: Hosts, tmp_path: Path) -> None:
    """The owner goes on with another key, and the thief of the old one can do nothing any more."""
    a, b, _ = hosts.a, hosts.b, hosts.c
    stolen = a.key
    rekeyed = await hosts.type_for_answer(a, REKEY)
    assert rekeyed["told"] == ["b", "c"]
    keys = await hosts.type_for_answer(a, SHOW)
    assert keys == [stolen.public_text, rekeyed["key"]]
    words = {"ed25519:OLD": keys[0]}
    assert (await hosts.type_for_answer(a, REVOKE_OLD, **words))["ended"] == "key"
    await _asks(a, b)
    own, a.peers.signer = a.peers.signer, Signer(stolen, a.clock.now)
    with pytest.raises((NotAuthenticated, PeerAnswered)):
        await _asks(a, b)
    a.peers.signer = own
    (a.core.settings.state_dir / "node.pem").hardlink_to(a.core.settings.state_dir / "a.pem")
    (tmp_path / "backups").mkdir()
    await hosts.type(a, BACKUP, **{"/var/backups/parley": tmp_path / "backups"})
    (file,) = (tmp_path / "backups").iterdir()
    assert backups.read(file).identity == a.core.identity


@pytest.mark.nightly
async def test_the_thief_was_faster(hosts: Hosts, tmp_path: Path) -> None:
    """Signed beforehand, a revocation ends the node of the thief everywhere, from any node."""
    a, b, c = hosts.a, hosts.b, hosts.c
    statement = tmp_path / "a.revocation"
    statement.write_text(await hosts.type(a, PREPARE))
    await a.successions.rekey()  # as the thief does
    await _asks(a, b)
    words = {"a.revocation": statement}
    assert (await hosts.type_for_answer(b, TAKE_IN, **words))["ended"] == "node"
    assert not b.directory.knows(a.core.identity)
    assert not c.directory.knows(a.core.identity)
    with pytest.raises((NotAuthenticated, PeerAnswered), match="was revoked"):
        await _asks(a, b)


async def test_without_a_revocation_each_owner_is_asked(hosts: Hosts) -> None:
    """Another owner ends what the node has there, and it is not taken in again there."""
    a, b, c = hosts.a, hosts.b, hosts.c
    assert (await hosts.type_for_answer(b, REVOKE_OTHER))["ended"] == "node"
    assert not b.directory.knows(a.core.identity)
    assert c.directory.knows(a.core.identity)
    with pytest.raises((NotAuthenticated, PeerAnswered), match="was revoked"):
        await _asks(a, b)


@pytest.mark.nightly
async def test_the_host_was_stolen(hosts: Hosts, new_database: NewDatabase, tmp_path: Path) -> None:
    """The node tells its end to the others; another node begins, and is added by its own key."""
    a, b, c = hosts.a, hosts.b, hosts.c
    assert (await hosts.type_for_answer(a, REVOKE_SELF))["told"] == ["b", "c"]
    assert not any(each.directory.knows(a.core.identity) for each in (b, c))
    again = tmp_path / "again"
    async with contextlib.AsyncExitStack() as stack:
        serving = served("a", await new_database(), SystemClock(), again)
        new = await stack.enter_async_context(serving)
        words = {"https://a.example:8642": new.card.url, "ed25519:NEW": new.core.identity}
        await hosts.type(b, ADD, **words)
        assert b.directory.by_identity(new.core.identity).name == "a"
