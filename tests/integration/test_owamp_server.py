"""The server of OWAMP of a node: who is served, what is measured, and what is refused."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, ClassVar

import pytest
import pytest_asyncio

from node.plugins.tools.programs import owamp_client, stamp_packet
from node.plugins.tools.programs import owamp_messages as messages
from node.plugins.tools.programs.owamp_messages import Accept, Request, Slot
from node.plugins.tools.programs.owamp_packets import PacketSocket
from node.pscheduler.owamp import server
from node.pscheduler.owamp.server import listening
from node.runtime.settings import Settings
from tests.conftest import NewDatabase
from tests.support.clocks import ManualClock
from tests.support.limits import limit
from tests.support.loopback import free_port
from tests.support.patience import PATIENCE_S
from tests.support.served_nodes import Asker, asker

LIMITS = """
version = 1

[[cap]]
name = "strangers"
networks = ["127.0.0.0/8"]
bytes = "1000/PT1H"
"""


@pytest_asyncio.fixture
async def node(
    new_database: NewDatabase, clock: ManualClock, tmp_path: Path
) -> AsyncIterator[Asker]:
    """A node with a server of OWAMP."""
    settings = {"owamp_listen": f"127.0.0.1:{free_port()}", "owamp_allow": "127.0.0.1 127.0.0.3"}
    async with (
        asker("a", await new_database(), clock, tmp_path, **settings) as served,
        listening(served.node),
    ):
        Client.opened.clear()
        yield served
        for client in Client.opened:
            client.writer.close()


class Client:
    """A client, message by message; ``opened`` are those of a test."""

    opened: ClassVar[list[Client]] = []

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self.writer = reader, writer
        self.opened.append(self)

    async def read(self, length: int) -> bytes:
        """Return so many octets."""
        async with asyncio.timeout(PATIENCE_S):
            return await self._reader.readexactly(length)

    async def ask(self, message: bytes, length: int) -> bytes:
        """Return the answer of so many octets to a message."""
        self.writer.write(message)
        return await self.read(length)

    async def request(self, request: Request) -> messages.Accepted:
        """Return the answer to a request."""
        return messages.Accepted.unpack(await self.ask(request.pack(), messages.ACCEPT_LENGTH))

    async def ended(self) -> bool:
        """Return whether the server ends the connection without another word."""
        async with asyncio.timeout(PATIENCE_S):
            return await self._reader.read() == b""


async def connected(node: Asker, own: str = "127.0.0.1") -> Client:
    """Return a client that has been greeted."""
    address = node.node.settings.owamp_address
    assert address is not None
    return Client(*await asyncio.open_connection(*address, local_addr=(own, 0)))


async def agreed(node: Asker, own: str = "127.0.0.1") -> Client:
    """Return a client that may ask for sessions."""
    client = await connected(node, own)
    greeting = messages.Greeting.unpack(await client.read(messages.GREETING_LENGTH))
    assert greeting.modes == messages.OPEN_MODE
    start = await client.ask(messages.pack_set_up(1), messages.SERVER_START_LENGTH)
    assert messages.unpack_server_start(start) == Accept.OK
    return client


def session(**changes: Any) -> Request:
    """Return a request of ten packets to the server."""
    request: dict[str, Any] = {
        "ip_version": 4,
        "server_sends": False,
        "packets": 10,
        "sender": ("127.0.0.1", 8803),
        "receiver": ("127.0.0.1", 0),
        "session": bytes(16),
        "padding": 0,
        "start": stamp_packet.ntp_from_ns(time.time_ns()),
        "timeout_ns": 100_000_000,
        "slots": (Slot(exponential=True, pause_ns=10_000_000),),
    }
    return Request(**request | changes)


async def measured(node: Asker, **changes: Any) -> list[dict[str, Any]]:
    """Return what our own client prints of two intervals of ten packets."""
    address = node.node.settings.owamp_address
    assert address is not None
    arguments = {
        "host": address[0],
        "port": address[1],
        "ip_version": None,
        "source": None,
        "device": None,
        "own_port": 8762,
        "own_ports": 2,
        "packets": 10,
        "intervals": 2,
        "interval_ns": 20_000_000,
        "timeout_ns": 500_000_000,
        "length": 44,
        "first_ns": time.time_ns() + 4_000_000_000,
        "opening_ns": 4_000_000_000,
        "closing_ns": 10_000_000_000,
    }
    program = str(Path(owamp_client.__file__))
    running = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-I", "-S", program, json.dumps(arguments | changes)),
        stdout=asyncio.subprocess.PIPE,
    )
    output, _ = await running.communicate()
    *records, last = output.decode().strip().split("\n")
    assert json.loads(last) == {"intervals": len(records)}
    return [json.loads(each.lstrip("\x1e")) for each in records]


@pytest.mark.nightly
async def test_both_ways_are_measured(node: Asker) -> None:
    """Our own client counts all packets of both ways, at its pace, with both clocks."""
    for at, record in enumerate(await measured(node)):
        assert (record["interval"], record["sent"], record["unsent"]) == (at, 10, 0)
        assert (record["received_at_dest"], record["received_back"]) == (10, 10)
        assert record["delay_ms"]["round_trip"]["min"] > 0
        assert record["ttls"] == [255, 255]
        assert record["server"]["synchronised"] == record["clock"]["synchronised"]


@pytest.mark.nightly
async def test_loss_is_told_by_direction(node: Asker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each way counts its own packets that vanish."""
    read, send = PacketSocket.read, PacketSocket.send

    def lossy_read(self: PacketSocket) -> Any:
        return (each for each in read(self) if each[0].number != 3)

    def lossy_send(self: PacketSocket, number: int, to: tuple[str, int], tail: bytes) -> int:
        return 0 if number in {5, 6} else send(self, number, to, tail)

    monkeypatch.setattr(PacketSocket, "read", lossy_read)
    monkeypatch.setattr(PacketSocket, "send", lossy_send)
    for record in await measured(node):
        assert (record["received_at_dest"], record["received_back"]) == (9, 7)


async def test_a_session_is_fetched_with_its_lost_packets(node: Asker) -> None:
    """Packets that never came have records without an arrival; those left out have none."""
    client = await agreed(node)
    accepted = await client.request(session())
    assert accepted.accept == Accept.OK
    sending = PacketSocket(2, None, "127.0.0.1", 0)
    start = messages.unpack_start_ack(await client.ask(messages.pack_start(), 32))
    assert start == Accept.OK
    for number in (1, 0, 0, 4):
        sending.send(number, ("127.0.0.1", accepted.port), b"")
    sending.close()
    stop = messages.unpack_stop(await client.read(messages.STOP_LENGTH))
    assert stop == (Accept.OK, 0)
    await client.read(messages.BLOCK)
    stopped = messages.Stopped(accepted.session, 8, ((2, 3),))
    client.writer.write(messages.pack_stop(0, [stopped]))
    fetch = messages.Fetch(accepted.session).pack()
    ack = messages.FetchAck.unpack(await client.ask(fetch, messages.FETCH_ACK_LENGTH))
    assert (ack.accept, ack.finished, ack.next_number, ack.skips) == (0, 1, 8, 1)
    told = Request.unpack(await client.read(144))
    assert (told.session, told.receiver[1]) == (accepted.session, accepted.port)
    assert messages.unpack_skips(await client.read(ack.skips_length), 1) == ((2, 3),)
    octets = await client.read(ack.records_length)
    records = messages.unpack_records(octets, ack.records)
    assert [each.number for each in records] == [1, 0, 0, 4, 5, 6, 7]
    assert [each.number for each in records if not each.received] == [5, 6, 7]
    other = await agreed(node, "127.0.0.3")
    refused = messages.FetchAck.unpack(await other.ask(fetch, messages.FETCH_ACK_LENGTH))
    assert refused.accept == Accept.FAILURE, "another host has asked for it"


async def test_nobody_has_packets_sent_to_a_third_host(node: Asker) -> None:
    """A request that names another host is refused, and the connection goes on."""
    client = await agreed(node)
    third = session(server_sends=True, sender=("127.0.0.1", 0), receiver=("127.0.0.9", 8803))
    assert (await client.request(third)).accept == Accept.NOT_SUPPORTED
    itself = session(server_sends=True, sender=("", 0), receiver=("", 8803))
    assert (await client.request(itself)).accept == Accept.OK


async def test_other_networks_are_not_served(node: Asker) -> None:
    """A host that the owner has not named is greeted without a mode."""
    client = await connected(node, "127.0.0.2")
    greeting = messages.Greeting.unpack(await client.read(messages.GREETING_LENGTH))
    assert greeting.modes == 0
    assert await client.ended()


async def test_connections_of_one_address_are_bounded(
    node: Asker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beyond its number of connections a host is not served, and others are."""
    monkeypatch.setattr(server, "CONNECTIONS_PER_ADDRESS", 1)
    first = await agreed(node)
    second = await connected(node)
    assert messages.Greeting.unpack(await second.read(64)).modes == 0
    await agreed(node, "127.0.0.3")
    first.writer.close()


async def test_memory_is_reserved_and_given_back(
    node: Asker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Records are reserved for a session, and free again when its connection is gone."""
    monkeypatch.setattr(server, "RECORDS_MAX", 30)
    client = await agreed(node)
    assert (await client.request(session())).accept == Accept.OK
    assert (await client.request(session())).accept == Accept.NO_RESOURCES_NOW
    client.writer.close()
    await client.ended()
    async with asyncio.timeout(PATIENCE_S):
        while (await (await agreed(node)).request(session())).accept != Accept.OK:
            pass


async def test_the_caps_of_the_owner_count_sessions(node: Asker) -> None:
    """A session counts by its packets under the caps of the limits; without room it is refused."""
    await limit(node.node, LIMITS)
    client = await agreed(node)
    assert (await client.request(session(padding=50))).accept == Accept.OK
    assert (await client.request(session(padding=50))).accept == Accept.NO_RESOURCES_NOW


@pytest.mark.parametrize("octets", [bytes(164), b"\xff" * 164, messages.pack_set_up(2)])
async def test_other_modes_are_refused(node: Asker, octets: bytes) -> None:
    """A client that chooses another mode is told so, and the connection ends."""
    client = await connected(node)
    await client.read(messages.GREETING_LENGTH)
    answer = messages.unpack_server_start(await client.ask(octets, 48))
    assert answer == Accept.NOT_SUPPORTED
    assert await client.ended()


@pytest.mark.parametrize(
    "octets", [b"\xff" * 112, bytes(16), b"\x01" + b"\xff" * 111, b"\x03" + bytes(31)]
)
async def test_what_is_no_message_ends_the_connection(node: Asker, octets: bytes) -> None:
    """Octets that are no message end their connection; others go on."""
    other, client = await agreed(node), await agreed(node)
    client.writer.write(octets)
    assert await client.ended()
    assert (await other.request(session())).accept == Accept.OK


async def test_who_says_nothing_is_dropped(node: Asker, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that does not choose a mode, or begins a message only, has seconds."""
    monkeypatch.setattr(server, "SETTING_UP_S", 0.05)
    client = await connected(node)
    await client.read(messages.GREETING_LENGTH)
    assert await client.ended()


def test_settings_are_off_and_checked() -> None:
    """There is no server by default, and nobody may ask it; ports are checked."""
    plain = Settings(name="a")
    assert plain.owamp_address is None
    assert plain.owamp_clients == ()
    assert Settings(name="a", owamp_listen="*:861").owamp_address == (None, 861)
    for ports in ("80-90", "9000-8000", "60000-70000", "x"):
        with pytest.raises(ValueError, match="owamp_ports"):
            Settings(name="a", owamp_ports=ports)
