"""``parley node add`` trusts no key that it finds over http on another host without a look."""

from __future__ import annotations

import asyncio
import contextlib
import os
from pathlib import Path

from tests.conftest import NewDatabase
from tests.integration.cli.conftest import Parley
from tests.support.clocks import ManualClock
from tests.support.served_nodes import Asker, Served, served


async def _add(bare: Parley, a: Asker, url: str, said: str) -> tuple[int | None, str]:
    """Add a node at a terminal; return the exit code and what the terminal shows."""
    terminal, other_end = os.openpty()
    shown = bytearray()

    def read() -> None:
        with contextlib.suppress(OSError):  # the command has closed its end
            while piece := os.read(terminal, 4096):
                shown.extend(piece)

    assert a.node.card.url is not None
    started = await bare.start(
        *("node", "add", url),
        stdin=other_end,
        stderr=other_end,
        PARLEY_SERVER=a.node.card.url,
        PARLEY_TOKEN="secret",
    )
    os.close(other_end)
    os.write(terminal, f"{said}\n".encode())
    await asyncio.gather(asyncio.to_thread(read), started.communicate())
    os.close(terminal)
    return started.returncode, shown.decode()


async def _known(a: Asker) -> list[str]:
    return [row[0] for row in await a.rows("SELECT identity FROM node WHERE NOT is_self")]


def _abroad(node: Served) -> str:
    """Return a URL of this node that is not recognised as one on this host."""
    return f"http://0.0.0.0:{node.settings.listen_port}"


async def test_a_key_is_confirmed(
    bare: Parley, a: Asker, new_database: NewDatabase, clock: ManualClock, tmp_path: Path
) -> None:
    """At a terminal the key is shown, and pinned only if a person confirms it."""
    async with served("b", await new_database(), clock, tmp_path) as b:
        code, shown = await _add(bare, a, _abroad(b), "n")
        assert (code, await _known(a)) == (3, []), shown
        assert b.card.identity in shown
        assert "was not added: its key was not confirmed" in shown
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
