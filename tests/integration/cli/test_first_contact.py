"""Commands trust no key that they find on another host without a look."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from node.runtime.clock import SystemClock
from node.trust.keys import NodeKey
from tests.conftest import NewDatabase
from tests.integration.cli.conftest import Parley
from tests.support.clocks import ManualClock
from tests.support.served_nodes import Asker, Served, give_token, served


async def at_terminal(
    bare: Parley, *words: str, said: str, **environment: str
) -> tuple[int | None, str]:
    """Run a command at a terminal; return the exit code and what the terminal shows."""
    terminal, other_end = os.openpty()
    shown = bytearray()

    def read() -> None:
        with contextlib.suppress(OSError):  # the command has closed its end
            while piece := os.read(terminal, 4096):
                shown.extend(piece)

    started = await bare.start(*words, stdin=other_end, stderr=other_end, **environment)  # type: ignore[arg-type] # all are text
    os.close(other_end)
    os.write(terminal, f"{said}\n".encode())
    await asyncio.gather(asyncio.to_thread(read), started.communicate())
    os.close(terminal)
    return started.returncode, shown.decode()


async def _add(bare: Parley, a: Asker, url: str, said: str) -> tuple[int | None, str]:
    """Add a node at a terminal; return the exit code and what the terminal shows."""
    assert a.node.card.url is not None
    server = {"PARLEY_SERVER": a.node.card.url, "PARLEY_TOKEN": "secret"}
    return await at_terminal(bare, "node", "add", url, said=said, **server)


async def _known(a: Asker) -> list[str]:
    return [row[0] for row in await a.rows("SELECT identity FROM node WHERE NOT is_self")]


def _abroad(node: Served) -> str:
    """Return a URL of this node that is not recognised as one on this host."""
    return f"http://0.0.0.0:{node.settings.listen_port}"


@pytest.mark.nightly
async def test_a_key_is_confirmed(
    bare: Parley, a: Asker, new_database: NewDatabase, clock: ManualClock, tmp_path: Path
) -> None:
    """At a terminal the key is shown, and pinned only if a person confirms it."""
    async with served("b", await new_database(), clock, tmp_path) as b:
        code, shown = await _add(bare, a, _abroad(b), "n")
        assert (code, await _known(a)) == (3, []), shown
        assert b.card.identity in shown
        assert "is not trusted: its key was not confirmed" in shown
        code, shown = await _add(bare, a, _abroad(b), "y")
        assert (code, await _known(a)) == (0, [b.card.identity])
        assert "compare all of it" in shown
        code, shown = await _add(bare, a, "http://0.0.0.0:9", "y")
        assert (code, "so its key cannot be shown" in shown) == (5, True)


async def test_without_a_terminal(ask: Parley, a: Asker) -> None:
    """A script gives the identity, or is told how; a node on the same host needs none."""
    refused = await ask("node", "add", "http://203.0.113.7:8642")
    assert (refused.code, refused.out) == (2, "")
    assert "parley node add http://203.0.113.7:8642 --identity ed25519:KEY" in refused.err
    assert await _known(a) == []
    for url in ("https://0.0.0.0:9", "http://127.0.0.1:9", "http://localhost:9"):
        assert (await ask("node", "add", url)).code == 5


async def test_the_identity_given_is_that_of_the_new_node(
    bare: Parley, a: Asker, new_database: NewDatabase, clock: ManualClock, tmp_path: Path
) -> None:
    """The key that is given with the URL of a new node is not taken for that of the server."""
    async with served("b", await new_database(), clock, tmp_path) as b:
        server = {"PARLEY_SERVER": str(a.node.card.url), "PARLEY_TOKEN": "secret"}
        key = b.card.identity
        added = await bare("node", "add", _abroad(b), "--identity", key, **server)
        assert (added.code, await _known(a)) == (0, [key]), added.err


@pytest.mark.nightly
async def test_who_adds_a_node_is_told_what_the_other_side_types(
    bare: Parley, a: Asker, new_database: NewDatabase, clock: ManualClock, tmp_path: Path
) -> None:
    """A node that is known here and not there is shown as such, until its owner adds this one."""
    async with served("b", await new_database(), clock, tmp_path) as b:
        await give_token(b)
        here = {"PARLEY_SERVER": str(a.node.card.url), "PARLEY_TOKEN": "secret"}
        there = {"PARLEY_SERVER": str(b.card.url), "PARLEY_TOKEN": "secret"}
        added = await bare("node", "add", str(b.card.url), **here)
        assert added.code == 0, added.err
        typed = f"parley node add {a.node.card.url} --identity {a.node.card.identity}"
        assert "! Known here, not there" in added.err
        assert typed in added.err
        for line in (("node", "list"), ("node", "show", "b")):
            assert "known here, not there, since " in (await bare(*line, "-o", "table", **here)).out
        mutual = await bare(*typed.split()[1:], **there)
        assert "a knows b, too: they can measure together." in mutual.err
        await a.node.peer_monitor.run_once()
        listed = await bare("node", "list", "-o", "table", **here)
        assert "known here, not there" not in listed.out
        again = await bare("node", "add", str(b.card.url), **here)
        assert "b knows a, too: they can measure together." in again.err


@pytest.fixture
async def secured(new_database: NewDatabase, tmp_path: Path) -> AsyncIterator[Served]:
    """Return a node with TLS and a token."""
    folder = tmp_path / "secured"
    folder.mkdir()
    async with served("b", await new_database(), SystemClock(), folder, tls=True) as node:
        await give_token(node)
        yield node


@pytest.mark.nightly
async def test_a_server_is_asked_who_it_is(bare: Parley, secured: Served) -> None:
    """The key of a server is confirmed once and kept; nothing goes to one with another key."""
    url, listing = secured.card.url, ("node", "list", "-o", "ids")
    assert url is not None
    refused = await bare(*listing, PARLEY_SERVER=url, PARLEY_TOKEN="secret")
    assert (refused.code, "--server-identity ed25519:KEY" in refused.err) == (2, True)

    given = {"PARLEY_SERVER": url, "PARLEY_TOKEN": "secret"}
    code, shown = await at_terminal(bare, *listing, said="n", **given)
    assert (code, secured.card.identity in shown) == (3, True), shown
    code, shown = await at_terminal(bare, *listing, said="y", **given)
    assert (code, "compare all of it" in shown) == (0, True), shown

    asked = await bare(*listing, PARLEY_SERVER=url, PARLEY_TOKEN="secret")
    assert (asked.code, asked.out) == (0, "b\n"), asked.err
    elsewhere = {"PARLEY_SERVER": "http://127.0.0.1:1", "PARLEY_TOKEN": "secret"}
    borrowed = await bare(*listing, "--server", url, **elsewhere)
    assert (borrowed.code, borrowed.out) == (0, "b\n"), borrowed.err

    other = NodeKey.generate().identity
    wrong = await bare(*listing, PARLEY_SERVER=url, PARLEY_IDENTITY=other)
    assert (wrong.code, "is not the node with the key" in wrong.err) == (5, True)
    senseless = await bare(*listing, PARLEY_SERVER=url, PARLEY_IDENTITY="ed25519:x")
    assert senseless.code == 2


async def test_a_known_server_that_speaks_no_tls_is_named(bare: Parley, a: Asker) -> None:
    """The command says what failed where a known node had TLS, whatever answers."""
    url = str(a.node.card.url).replace("http:", "https:")
    asked = await bare(
        "node",
        "list",
        PARLEY_SERVER=url,
        PARLEY_TOKEN="secret",
        PARLEY_IDENTITY=a.node.card.identity,
    )
    assert (asked.code, f"{url} cannot be reached" in asked.err) == (5, True), asked.err


async def test_a_token_does_not_stray_over_plain_http(bare: Parley, a: Asker) -> None:
    """A token that is meant for another server goes only where the key is known, also in clear."""
    url = _abroad(a.node)
    elsewhere = {"PARLEY_SERVER": "https://192.0.2.1", "PARLEY_TOKEN": "secret"}
    words = ("node", "list", "-o", "ids", "--plain-http", "--server", url)
    refused = await bare(*words, **elsewhere)
    assert (refused.code, "--server-identity ed25519:KEY" in refused.err) == (2, True), refused.err
    given = await bare(*words, "--server-identity", a.node.card.identity, **elsewhere)
    assert (given.code, given.out) == (0, "a\n"), given.err


async def test_a_server_without_tls_is_asked_for_a_key_that_was_given(
    bare: Parley, a: Asker
) -> None:
    """Over http a server that has another key than the one that was given gets no token."""
    listing, own = ("node", "list", "-o", "ids"), a.node.card
    assert own.url is not None
    given = {"PARLEY_SERVER": own.url, "PARLEY_TOKEN": "secret"}
    right = await bare(*listing, PARLEY_IDENTITY=own.identity, **given)
    assert (right.code, right.out) == (0, "a\n"), right.err
    other = NodeKey.generate().identity
    wrong = await bare(*listing, PARLEY_IDENTITY=other, **given)
    assert (wrong.code, wrong.out) == (5, "")
    assert f"has the key {own.identity}, not {other}" in wrong.err


@pytest.mark.nightly
async def test_a_node_with_tls_is_added_by_its_key(bare: Parley, a: Asker, secured: Served) -> None:
    """A node whose certificate only its key vouches for is added once a person confirms the key."""
    url = f"https://0.0.0.0:{secured.settings.listen_port}"
    code, shown = await _add(bare, a, url, "n")
    assert (code, await _known(a)) == (3, []), shown
    code, shown = await _add(bare, a, url, "y")
    assert (code, await _known(a)) == (0, [secured.card.identity]), shown


@pytest.mark.nightly
async def test_lists_of_a_known_node_are_quick(
    bare: Parley, secured: Served, tmp_path: Path
) -> None:
    """Once the key is known its certificate is enough; another one is told as by any command."""
    url = str(secured.card.url)
    given = {"PARLEY_SERVER": url, "PARLEY_TOKEN": "secret"}
    first = await bare("run", "list", PARLEY_IDENTITY=secured.card.identity, **given)
    assert (first.code, first.out) == (0, "[]\n"), first.err
    again = await bare.start("run", "list", PYTHONPROFILEIMPORTTIME="1", **given)  # type: ignore[arg-type] # all are text
    out, err = await again.communicate()
    assert (again.returncode, out) == (0, b"[]\n"), err
    assert b"http.client" in err
    assert b"aiohttp" not in err
    other = NodeKey.generate().identity
    wrong = await bare("run", "list", PARLEY_IDENTITY=other, **given)
    assert (wrong.code, wrong.out) == (5, "")
    keys = tmp_path / ".config/parley/servers.json"
    keys.write_text(json.dumps({url: other}))
    wrong = await bare("run", "list", **given)
    assert (wrong.code, wrong.out) == (5, "")
    assert "is not the node with the key" in wrong.err
