"""Tests of the WAN emulator at chosen instants; its devices are sockets."""

from __future__ import annotations

import contextlib
import ipaddress
import json
import socket
from collections.abc import Iterator

import pytest

from node.cli.lab import wan
from node.cli.lab.wan import Site, Wan, WanSettings

SITES = [
    Site("a", ("10.88.0.1", "fd00::1")),
    Site("b", ("10.88.0.2", "fd00::2")),
    Site("c", ("10.88.0.3", "fd00::3")),
]


Ends = list[tuple[socket.socket, socket.socket]]


@pytest.fixture(name="ends")
def _ends() -> Iterator[Ends]:
    pairs = [socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET) for _ in SITES]
    for outer, _ in pairs:
        outer.settimeout(0)
    yield pairs
    for pair in pairs:
        for end in pair:
            end.close()


def packet(destination: str, size: int = 100) -> bytes:
    """The bytes of an IP packet, of which only version and destination mean anything."""
    address = ipaddress.ip_address(destination)
    head = bytes([address.version << 4]) + bytes(15 if address.version == 4 else 23)
    return (head + address.packed).ljust(size, b"\0")


def bench(ends: Ends, **settings: float) -> Wan:
    """A WAN of these settings whose devices are the sockets' inner ends."""
    chosen = WanSettings(**settings)  # type: ignore[arg-type]
    return Wan(SITES, [inner.fileno() for _, inner in ends], chosen)


def came(end: socket.socket) -> int:
    """Return how many packets have left here since the last call."""
    count = 0
    with contextlib.suppress(BlockingIOError):
        while end.recv(65_536):
            count += 1
    return count


@pytest.mark.parametrize("destination", ["10.88.0.3", "fd00::3"])
def test_a_packet_arrives_after_the_delay_where_it_is_addressed(
    ends: Ends, destination: str
) -> None:
    """Not a microsecond early, at the right device only, in both versions of IP."""
    one = bench(ends, delay_ms=20)
    one.take(0, packet(destination), now=5.0)
    assert one.release(5.019_999) == pytest.approx(5.020)
    assert came(ends[2][0]) == 0
    assert one.release(5.020_001) is None
    assert [came(outer) for outer, _ in ends] == [0, 0, 1]


def test_a_packet_to_nowhere_is_counted_and_dropped(ends: Ends) -> None:
    """Multicast and strangers' addresses lead nowhere."""
    one = bench(ends)
    one.take(0, packet("ff02::2"), now=0)
    assert one.release(9) is None
    assert json.loads(one.report())["stray"] == 1


def test_the_rate_spaces_packets_by_their_size(ends: Ends) -> None:
    """At 1 Mbit/s a packet of 1250 bytes takes 10 ms, whoever it goes to."""
    one = bench(ends, delay_ms=20, rate_mbit=1)
    one.take(0, packet("10.88.0.2", 1250), now=0)
    one.take(0, packet("10.88.0.3", 1250), now=0)
    one.take(1, packet("10.88.0.3", 1250), now=0)  # an uplink of its own
    assert one.release(0) == pytest.approx(0.030)
    assert one.release(0.0301) == pytest.approx(0.040)
    assert [came(outer) for outer, _ in ends] == [0, 1, 1]


def test_a_full_queue_drops_at_the_tail(ends: Ends) -> None:
    """A packet that would wait longer than the queue allows is dropped and counted as such."""
    one = bench(ends, rate_mbit=1, queue_ms=25)
    for _ in range(5):
        one.take(0, packet("10.88.0.2", 1250), now=0)
    one.take(0, packet("10.88.0.2", 1250), now=0.02)
    assert one.tallies[0, 1].tail == 2
    one.release(9)
    assert came(ends[1][0]) == 4


def test_loss_is_the_probability_asked_for(ends: Ends) -> None:
    """The loss of 10000 packets at 10 % is within five standard deviations."""
    one = bench(ends, loss=0.1)
    for _ in range(10_000):
        one.take(0, packet("10.88.0.2"), now=0)
    assert abs(one.tallies[0, 1].lost - 1000) < 5 * 30


def test_the_same_seed_loses_the_same_packets(ends: Ends) -> None:
    """Losses of one direction repeat with the seed, whatever else is sent in between."""

    def lost(seed: int, *, disturbed: bool) -> list[int]:
        one = bench(ends, loss=0.3, seed=seed)
        found = []
        for index in range(100):
            before = one.tallies[0, 1].lost
            one.take(0, packet("10.88.0.2"), now=0)
            if disturbed:
                one.take(1, packet("10.88.0.1"), now=0)
            if one.tallies[0, 1].lost > before:
                found.append(index)
        return found

    assert lost(1, disturbed=False) == lost(1, disturbed=True) != lost(2, disturbed=False)


def test_the_report_counts_each_direction(ends: Ends) -> None:
    """Only directions that carried something are reported, and how late packets left."""
    one = bench(ends, delay_ms=20, loss=1)
    one.take(2, packet("10.88.0.1"), now=0)
    direction = {"sender": "c", "receiver": "a", "taken": 1, "lost": 1, "tail": 0}
    expected = {"directions": [direction], "stray": 0, "late_ms_max": 0.0}
    assert json.loads(one.report()) == expected


def test_lateness_is_measured(ends: Ends) -> None:
    """A packet handed out after its time shows in the report."""
    one = bench(ends, delay_ms=20)
    one.take(0, packet("10.88.0.2"), now=0)
    one.release(0.0215)
    assert json.loads(one.report())["late_ms_max"] == 1.5


@pytest.mark.parametrize(
    "settings", [WanSettings(), WanSettings(0.5, 0.25, rate_mbit=1.5, queue_ms=3, seed=9)]
)
def test_settings_survive_the_way_to_the_program(settings: WanSettings) -> None:
    """The program reads from its arguments what was put into them."""
    assert wan.parse(wan.arguments(SITES, settings)) == (SITES, settings)


@pytest.mark.parametrize(
    "wrong", [{"delay_ms": -1}, {"loss": 1.1}, {"rate_mbit": 0}, {"queue_ms": -1}]
)
def test_an_impossible_wan_is_refused(wrong: dict[str, float]) -> None:
    """No negative delay, no loss beyond all, no rate of nothing."""
    with pytest.raises(ValueError, match=r"delay|loss|rate|queue"):
        WanSettings(**wrong)  # type: ignore[arg-type]
