"""The checks between two nodes find what is wrong, and tell the cause and the next command."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from node.api import diagnosis
from node.execution import port_probes
from node.model.errors import TooManyRequests
from node.model.times import MINUTE, SECOND
from tests.conftest import NewDatabase
from tests.support.clocks import START, ManualClock
from tests.support.served_nodes import Asker, Served, asker, know, served

NONCE = "0123456789abcdef" * 2


@pytest.fixture
async def a(new_database: NewDatabase, clock: ManualClock, tmp_path: Path) -> AsyncIterator[Asker]:
    """Return a node to query, with a token."""
    async with asker("a", await new_database(), clock, tmp_path) as client:
        yield client
        await client.node.port_probes.close()


@pytest.fixture
async def b(new_database: NewDatabase, clock: ManualClock, tmp_path: Path) -> AsyncIterator[Served]:
    """Return the other node."""
    (tmp_path / "b").mkdir()
    async with served("b", await new_database(), clock, tmp_path / "b") as node:
        await node.own_card.look_again()
        yield node
        await node.port_probes.close()


async def checks(a: Asker, **ends: str) -> dict[tuple[str, str], Any]:
    """Return the checks of each view that are not fine, by node and subject."""
    status, answer = await a.ask("POST", "/v1/checks", ends)
    assert status == 200, answer
    return {
        (view["node"], check["subject"]): check
        for view in answer["views"]
        for check in view["checks"]
        if check["state"] != "ok"
    }


async def test_one_sided_peering_is_told_with_the_command(a: Asker, b: Served) -> None:
    """If b does not know a, the owner of b is to add it: with its URL and key."""
    await know(a.node, b)
    found = await checks(a, to="b")
    told = found["a", "peering"]
    assert told["state"] == "fault"
    assert told["what"].startswith("b does not know this node")
    card = a.node.card
    assert told["command"] == f"parley node add {card.url} --identity {card.identity}"
    assert told["where"] == "b"


async def test_a_node_that_is_away_is_told(a: Asker, b: Served) -> None:
    """If nothing answers at the URL of b, that is a fault, and b is not asked for its view."""
    await know(a.node, b)
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        port = nobody.getsockname()[1]
        await a.rows("UPDATE node SET url = $1 WHERE name = 'b'", f"http://127.0.0.1:{port}")
        await a.node.directory.refresh()
        found = await checks(a, to="b")
    told = found["a", "peering"]
    assert (told["state"], told["command"]) == (
        "fault",
        f"curl -sk http://127.0.0.1:{port}/healthz",
    )
    assert found["b", "view"]["state"] == "skipped"


@pytest.mark.nightly
async def test_clocks_that_differ_are_told(a: Asker, b: Served, clock: ManualClock) -> None:
    """A difference beyond the limit is a fault, with the limit."""
    await know(a.node, b)
    await know(b, a.node)
    b.clock = ManualClock(clock.now() - 5 * SECOND)
    found = await checks(a, to="b")
    assert found["a", "clock"]["state"] == "fault"
    assert found["a", "clock"]["what"] == (
        "the clock of b is 5 s behind this one, or by up to 0 ms more or less; nodes plan "
        "together up to 1 s (PARLEY_CLOCK_LIMIT)"
    )


async def test_a_port_that_nobody_answers_is_told(a: Asker) -> None:
    """A probe is answered over TCP and UDP while it is open, and by nobody at another port."""
    port = await a.node.port_probes.open(NONCE)
    settings = a.node.settings
    assert settings.port_first <= port <= settings.port_last
    address = settings.measurement_address
    assert await port_probes.reach(address, port, NONCE, 5) == port_probes.PortReach(
        port, None, None
    )
    with pytest.raises(TooManyRequests, match="being probed already"):
        await a.node.port_probes.open(NONCE)
    await a.node.port_probes.close()
    closed = await port_probes.reach(address, port, NONCE, 5)
    assert closed.tcp == f"Connect call failed ('127.0.0.1', {port})"
    assert closed.udp == "Connection refused"


async def test_a_probe_ends_once_it_was_reached(a: Asker, clock: ManualClock) -> None:
    """A moment after it was reached over both protocols, the next probe can be opened."""
    port = await a.node.port_probes.open(NONCE)
    assert await port_probes.reach("127.0.0.1", port, NONCE, 5) == port_probes.PortReach(
        port, None, None
    )
    opened = a.node.port_probes._open
    assert opened is not None
    while not opened.done():
        clock.advance(SECOND)
        await clock.sleep(0)
    assert await a.node.port_probes.open(NONCE)


async def test_a_probe_says_nothing_to_strangers(a: Asker) -> None:
    """Without the number that was agreed on, nothing is answered."""
    port = await a.node.port_probes.open(NONCE)
    strange = await port_probes.reach("127.0.0.1", port, NONCE[::-1], 0.3)
    assert "0 bytes read" in str(strange.tcp)
    assert strange.udp == "no answer within 0.3 s"


async def test_what_other_nodes_ask_of_a_host_counts_as_work(
    a: Asker, b: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The state of a host tells nothing of what its own tasks measure, and is not asked at will."""
    await know(a.node, b)
    await know(b, a.node)

    async def read(*_: object) -> None:
        raise AssertionError

    monkeypatch.setattr("node.operation.status.read_troubles", read)
    to_a, work = b.peer(a.node.card.identity), a.node.settings.peer_work
    route = next(each for each in diagnosis.ROUTES if each.path.endswith("/facts"))
    for _ in range(2):
        assert (await to_a.facts()).needs_attention >= 0
    left = work * MINUTE // SECOND * 10 - 2 * route.cost
    assert a.node.request_rates.spend_of_peer(b.card.identity, left, 0) == 0
    with pytest.raises(TooManyRequests, match="PARLEY_PEER_WORK"):
        await to_a.facts()


@pytest.mark.parametrize("address", ["127.0.0.1", "127.0.0.2"])
@pytest.mark.nightly
async def test_no_probe_goes_to_a_port_that_is_not_the_nodes(
    a: Asker, b: Served, monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    """Nothing is sent to an address and port that a node names, unless its API answers there."""
    connected: list[bytes] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connected.append(await reader.read(100))
        writer.close()

    async def told(_nonce: str) -> int:
        return int(inner.sockets[0].getsockname()[1])

    monkeypatch.setattr(b.port_probes, "open", told)
    at_home = address == a.node.settings.measurement_address
    await know(a.node, b)
    await know(b, a.node)
    await a.rows("UPDATE node SET address = $1 WHERE name = 'b'", address)
    await a.node.directory.refresh()
    inner = await asyncio.start_server(answer, address, 0)
    async with inner:
        found = await checks(a, to="b")
        asked = await b.peer(a.node.card.identity).check(b.card.identity)
    for_peer = [it.what for it in asked.checks if it.subject == "ports"]
    assert for_peer
    for what in (found["a", "ports"]["what"], *for_peer):
        assert ("which is not among the ports of tools" in what) is not at_home
    assert bool(connected) is at_home


@pytest.mark.nightly
async def test_nodes_ask_one_after_the_other(a: Asker, b: Served) -> None:
    """One check for other nodes is made at a time, and a moment passes between two."""
    await know(a.node, b)
    await know(b, a.node)
    to_a = b.peer(a.node.card.identity)
    outcomes = await asyncio.gather(
        *(to_a.check(b.card.identity) for _ in range(2)), return_exceptions=True
    )
    assert sorted(type(outcome).__name__ for outcome in outcomes) == [
        "Diagnosis",
        "TooManyRequests",
    ]


@pytest.mark.nightly
async def test_a_node_that_was_checked_is_no_longer_away(a: Asker, b: Served) -> None:
    """A check that a node answers shows that it is there, whatever was known before."""
    await know(a.node, b)
    await know(b, a.node)
    await a.rows("UPDATE node SET unreachable_since = $1 WHERE name = 'b'", START)
    await a.node.directory.refresh()
    await checks(a, to="b")
    _, answer = await a.ask("GET", "/v1/nodes")
    [seen] = [node for node in answer["items"] if node["name"] == "b"]
    assert seen["unreachable_since"] is None
