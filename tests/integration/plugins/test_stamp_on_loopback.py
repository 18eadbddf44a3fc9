"""The running STAMP programs: two processes on loopback, started by the tool's own argv."""

from __future__ import annotations

import dataclasses
import json
import socket
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from node.model.errors import ToolOutputError
from node.plugins import registry
from node.plugins.contracts import Merged, Output, Part, PartContext, Party
from node.plugins.tools.programs import stamp_packet
from node.plugins.tools.stamp import TOOL
from tests.support.loopback import free_port
from tests.support.patience import PATIENCE_S

SOCKETS = (Path("/proc/net/udp"), Path("/proc/net/udp6"))
BRIEF = {"count": 20, "interval": "PT0.005S", "timeout": "PT0.2S"}
PATIENCE_US = 10_000_000


def session(
    source: str, dest: str, test: str = "latency", longer: int = PATIENCE_US, **fields: Any
) -> list[PartContext]:
    """Return both parts of a session that starts now.

    It ends ``longer`` microseconds later than booked, so that a busy machine ends nothing too soon.
    """
    spec: Any = registry.tests()[test].spec_model.model_validate({"dest": "b"} | BRIEF | fields)
    starts = time.time_ns() // 1000
    parties = (Party("a", source), Party("b", dest, {"port": free_port()}))
    first = PartContext(spec, 0, parties, starts, starts + TOOL.duration(spec) + longer)
    return [first, dataclasses.replace(first, participant=1)]


def start(part: PartContext) -> subprocess.Popen[bytes]:
    """Start a participant's program."""
    argv = TOOL.command(part).argv
    return subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def output(process: subprocess.Popen[bytes]) -> Output:
    """Return the output of a program, once it has ended."""
    stdout, stderr = process.communicate(timeout=PATIENCE_S)
    return Output(process.returncode, stdout, stderr)


def run(parts: list[PartContext], test: str = "latency") -> Merged:
    """Start the sender once the reflector listens, and return the merged result."""
    source, dest = parts
    reflector = start(dest)
    listening = f":{dest.parties[1].data['port']:04X} "
    while not any(listening in table.read_text() for table in SOCKETS):
        assert reflector.poll() is None
    outputs = [output(start(source)), output(reflector)]
    results = [TOOL.read(part, told) for part, told in zip(parts, outputs, strict=True)]
    named = [Part(at, "ab"[at], result) for at, result in enumerate(results)]
    return registry.tests()[test].merge(parts[0].spec, named)


@pytest.mark.parametrize(
    ("source", "dest", "fields"),
    [
        ("127.1.0.1", "127.1.0.2", {}),
        ("127.1.0.1", "127.1.0.2", {"length": 1000}),
        ("127.1.0.1", "127.1.0.2", {"interval": "PT0.001S", "count": 200}),
        ("::1", "::1", {}),
        ("localhost", "localhost", {"ip_version": 4}),
    ],
)
@pytest.mark.mostly_nightly
def test_every_packet_comes_back(source: str, dest: str, fields: dict[str, Any]) -> None:
    """On loopback all packets come back once and in order, within 50 ms."""
    outcome = run(session(source, dest, **fields))
    assert outcome.reason is None
    result = outcome.result or {}
    count = fields.get("count", BRIEF["count"])
    assert (result["sent"], result["received_at_dest"], result["received_back"]) == (count,) * 3
    assert result["duplicates"] == result["reordered"] == {"forward": 0, "backward": 0}
    assert result["loss"] == {"forward": 0, "backward": 0, "round_trip": 0}
    assert 0 < result["delay_ms"]["round_trip"]["median"] < 50
    assert result["delay_ms"]["forward"]["min"] > 0
    assert result["hops"] == {"forward": 0, "backward": 0}
    assert result["clock_error_ms"] == 0  # one host, one clock


def test_one_clock_is_compared_with_itself() -> None:
    """On one host the offset is 0 within the bound, and the result says that there is one clock."""
    outcome = run(session("127.1.0.1", "127.1.0.2", "clock", interval="PT0.01S"), "clock")
    assert outcome.reason is None
    result = outcome.result or {}
    assert abs(result["offset_ms"]) <= result["bound_ms"] < 50
    assert (result["same_clock"], result["plausible"], result["received"]) == (True, True, 20)


def test_a_clock_that_is_ahead_is_found_to_be() -> None:
    """A reflector whose clock is 250 ms ahead is measured as such, within the bound."""
    ahead_ns = 250_000_000
    source, _ = session("127.1.0.1", "127.1.0.2", "clock", count=5, interval="PT0.01S")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as reflector:
        reflector.bind(("127.1.0.2", source.parties[1].data["port"]))
        reflector.settimeout(10)
        sender = start(source)
        for number in range(5):
            octets, whom = reflector.recvfrom(2048)
            now = stamp_packet.ntp_from_ns(time.time_ns() + ahead_ns)
            sent = stamp_packet.unpack_sender(octets)
            assert sent is not None
            answer = stamp_packet.ReflectorPacket(
                number, now, 1, sent.session, now, sent.sequence, sent.timestamp, 1, 0, 255
            )
            reflector.sendto(stamp_packet.pack_reflector(answer), whom)
        part = TOOL.read(source, output(sender))
    assert part["offset_ms"] == pytest.approx(250, abs=part["round_trip_ms"] / 2 + 0.001)


def test_a_missing_reflector_is_noticed() -> None:
    """Without a reflector nothing comes back, and ICMP says that nothing listens."""
    source, _ = session("127.1.0.1", "127.1.0.2")
    part = TOOL.read(source, output(start(source)))
    assert (part["sent"], part["received_back"]) == (20, 0)
    assert part["unreachable"] > 0


def test_the_reflector_ends_at_its_deadline() -> None:
    """A reflector that receives nothing ends by itself at its deadline."""
    _, dest = session("127.1.0.1", "127.1.0.2", longer=0, count=1)
    assert TOOL.read(dest, output(start(dest)))["received"] == 0
    assert time.time_ns() // 1000 >= json.loads(TOOL.command(dest).argv[4])["deadline_ns"] // 1000


@pytest.mark.parametrize("count", [1, 1000])
@pytest.mark.nightly
def test_a_sender_without_time_to_wait_says_nothing_of_loss(count: int) -> None:
    """A sender whose run ends before its last packet's timeout reports that, not a lost packet."""
    source, _ = session("127.1.0.1", "127.1.0.2", longer=0, count=count, timeout="PT20S")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as silent:
        silent.bind(("127.1.0.2", source.parties[1].data["port"]))
        late = dataclasses.replace(source, ends=source.starts + PATIENCE_US // 5)
        printed = output(start(late))
    with pytest.raises(ToolOutputError, match="STAMP: this host was too busy"):
        TOOL.read(late, printed)
    assert time.time_ns() // 1000 < late.ends + PATIENCE_US


def test_foreign_packets_are_not_answered() -> None:
    """Packets of another sender, another session, or without STAMP count as strays."""
    _, dest = session("127.1.0.1", "127.1.0.2", count=1)
    params = json.loads(TOOL.command(dest).argv[4])
    reflector = start(dest)
    mine = stamp_packet.SenderPacket(0, 1, 1, params["session"])
    right = stamp_packet.pack_sender(mine)
    other = stamp_packet.pack_sender(mine._replace(session=params["session"] ^ 1))
    beyond = stamp_packet.pack_sender(mine._replace(sequence=1))
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as friend,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger,
    ):
        friend.bind(("127.1.0.1", 0))
        friend.settimeout(0.02)
        stranger.bind(("127.1.0.3", 0))
        answer = None
        while answer is None:  # until the reflector is up
            for endpoint, octets in ((stranger, right), (friend, other), (friend, beyond)):
                endpoint.sendto(octets, ("127.1.0.2", params["port"]))
            friend.sendto(b"hello", ("127.1.0.2", params["port"]))
            friend.sendto(right, ("127.1.0.2", params["port"]))
            answer = received(friend)
    reflected = stamp_packet.unpack_reflector(answer)
    assert reflected is not None
    assert (reflected.sequence, reflected.sender_sequence, reflected.sender_timestamp) == (0, 0, 1)
    part = TOOL.read(dest, output(reflector))
    assert part["received"] == 1
    assert part["strays"] >= 4


def received(endpoint: socket.socket) -> bytes | None:
    """Return the next packet, if one arrives soon."""
    try:
        return endpoint.recv(2048)
    except TimeoutError:
        return None


def test_a_port_in_use_is_told() -> None:
    """A reflector whose port is taken reports that instead of measuring."""
    _, dest = session("127.1.0.1", "127.1.0.2")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
        taken.bind(("127.1.0.2", dest.parties[1].data["port"]))
        printed = output(start(dest))
    assert printed.exit_code == 1
    assert b"Address already in use" in printed.stdout


def test_the_first_packet_leaves_in_time() -> None:
    """The first packet leaves at its instant, not before, however early the program started."""
    source, _ = session("127.1.0.1", "127.1.0.2", count=1)
    params = json.loads(TOOL.command(source).argv[4])
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as reflector:
        reflector.bind(("127.1.0.2", params["port"]))
        reflector.settimeout(20)
        process = start(source)
        sent = stamp_packet.unpack_sender(reflector.recv(2048))
        output(process)
    assert sent is not None
    sent_ns = stamp_packet.ns_from_ntp(sent.timestamp, params["first_ns"])
    assert 0 <= sent_ns - params["first_ns"] < 1_000_000_000
