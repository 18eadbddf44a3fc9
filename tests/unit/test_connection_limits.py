"""Connections make room for others: the one idle for longest, of whoever has most."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from node.api.connections import ConnectionLimits, CountedConnection


class Wire(asyncio.Transport):
    """A transport that notes what becomes of it."""

    def __init__(self, address: str) -> None:
        """Connect from this address."""
        super().__init__({"peername": (address, 4711)})
        self.sent = b""
        self.waiting = 0
        self.aborted = False

    def write(self, data: Any) -> None:
        """Note what was sent."""
        self.sent += bytes(data)

    def get_write_buffer_size(self) -> int:
        """Return how much is still to be sent."""
        return self.waiting

    def abort(self) -> None:
        """Note the end."""
        self.aborted = True

    def close(self) -> None:
        """Note the end."""
        self.aborted = True


def opened(limits: ConnectionLimits, address: str) -> tuple[CountedConnection, Wire]:
    """Open a connection from an address."""
    connection, wire = limits(), Wire(address)
    connection.connection_made(wire)
    return connection, wire


def test_an_address_makes_room_for_itself() -> None:
    """At the limit of an address its own connection makes way, and no other's."""
    limits = ConnectionLimits(asyncio.Protocol, 100, 3)
    other = opened(limits, "192.0.2.9")
    wires = [opened(limits, "192.0.2.1")[1] for _ in range(5)]
    assert [wire.aborted for wire in wires] == [True, True, False, False, False]
    assert not other[1].aborted


@pytest.mark.parametrize(
    ("first", "second", "one"),
    [
        ("2001:db8::1", "2001:db8::ffff", True),
        ("2001:db8::1", "2001:db8:0:1::1", False),
        ("192.0.2.1", "192.0.2.2", False),
    ],
)
def test_a_network_counts_as_one_address(first: str, second: str, *, one: bool) -> None:
    """All addresses of one IPv6 network of 64 bits count together."""
    limits = ConnectionLimits(asyncio.Protocol, 100, 1)
    _, wire = opened(limits, first)
    opened(limits, second)
    assert wire.aborted is one


def test_this_host_has_no_limit_of_an_address() -> None:
    """Connections over loopback count in all only, because a proxy's are all from there."""
    limits = ConnectionLimits(asyncio.Protocol, 100, 1)
    wires = [opened(limits, "127.0.0.1")[1] for _ in range(50)]
    assert not any(wire.aborted for wire in wires)


def test_who_has_most_makes_room_for_others() -> None:
    """At the limit in all a connection of the address with most idle ones makes way."""
    limits = ConnectionLimits(asyncio.Protocol, 10, 100)
    honest = [opened(limits, f"192.0.2.{number}")[1] for number in range(3)]
    greedy = [opened(limits, "198.51.100.1")[1] for _ in range(7)]
    newcomer = opened(limits, "192.0.2.77")[1]
    assert not any(wire.aborted for wire in [*honest, newcomer])
    assert [wire.aborted for wire in greedy] == [True] + [False] * 6


def test_requests_and_answers_under_way_stay() -> None:
    """Neither a request under way nor an answer being sent is cut off; the new one is refused."""
    limits = ConnectionLimits(asyncio.Protocol, 100, 2)
    busy, wire = opened(limits, "192.0.2.1")
    busy.begin()
    _, sending = opened(limits, "192.0.2.1")
    sending.waiting = 1
    _, refused = opened(limits, "192.0.2.1")
    assert not wire.aborted
    assert not sending.aborted
    assert refused.sent.startswith(b"HTTP/1.1 503 ")
    busy.end()
    opened(limits, "192.0.2.1")
    assert wire.aborted


def test_ended_connections_count_no_more() -> None:
    """A connection that has ended makes room by itself, once."""
    limits = ConnectionLimits(asyncio.Protocol, 2, 2)
    for _ in range(3):
        pairs = [opened(limits, "192.0.2.1") for _ in range(2)]
        assert not any(wire.aborted for _, wire in pairs)
        for connection, _ in pairs:
            connection.connection_lost(None)
            connection.connection_lost(None)
