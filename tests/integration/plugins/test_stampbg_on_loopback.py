"""The programs of a STAMP stream as they run: on loopback, run after run, on one port."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import signal
import socket
import subprocess
import time
from typing import Any

from node.execution.launcher import PREPARE
from node.model.times import SECOND
from node.plugins.contracts import Interval, Part, PartContext, Party
from node.plugins.tests.latencybg import TEST, LatencyBgSpec
from node.plugins.tools.stampbg import LEAD_IN, TOOL
from tests.integration.plugins.test_stamp_on_loopback import free_port

BRIEF = {"each": "PT1S", "interval": "PT0.01S", "timeout": "PT0.1S"}
RS = b"\x1e"


def stream(starts: int, port: int, seconds: int, **fields: Any) -> list[PartContext]:
    """Both parts of a stream, which may be shorter than anybody may ask for."""
    spec = LatencyBgSpec.model_validate({"dest": "b"} | BRIEF | fields)
    spec = spec.model_copy(update={"duration": seconds * SECOND})
    parties = (Party("a", "127.1.0.1"), Party("b", "127.1.0.2", {"port": port}))
    first = PartContext(spec, 0, parties, starts, starts + TOOL.duration(spec))
    return [first, dataclasses.replace(first, participant=1)]


def wait_until(instant: int) -> None:
    """Return at an instant; nothing ever comes where this listens."""
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        nobody.listen()
        nobody.settimeout(max(0.001, (instant - time.time_ns() // 1000) / SECOND))
        with contextlib.suppress(TimeoutError):
            nobody.accept()


def start(part: PartContext) -> subprocess.Popen[bytes]:
    """A participant's program, long enough before its instant."""
    return subprocess.Popen(TOOL.command(part).argv, stdout=subprocess.PIPE)


def told(part: PartContext, process: subprocess.Popen[bytes]) -> list[Interval]:
    """All that a program told of, once it has ended by itself."""
    stdout, _ = process.communicate(timeout=30)
    lines = stdout.splitlines()
    records = [line.removeprefix(RS) for line in lines if line.startswith(RS)]
    assert json.loads(lines[-1]) == {"intervals": len(records)}
    return [TOOL.read_interval(part, record) for record in records]


def merged(parts: list[PartContext], shares: list[list[Interval]]) -> list[Interval]:
    """The intervals of both."""
    found = []
    for pair in zip(*shares, strict=True):
        named = [Part(at, "ab"[at], it.result, it.reason) for at, it in enumerate(pair)]
        outcome = TEST.merge_interval(parts[0].spec, named)
        found.append(Interval(pair[0].number, outcome.result, outcome.reason))
    return found


def soon() -> int:
    """An instant by which programs that are started now are ready, however busy the machine."""
    return time.time_ns() // 1000 + 3 * SECOND // 2


def test_no_packet_is_lost_between_two_runs() -> None:
    """Where one run ends the next begins: every packet of both comes back, on the same port."""
    port, first = free_port("127.1.0.2"), soon()
    found = []
    for parts in (stream(first, port, 2), stream(first + 2 * SECOND, port, 2)):
        wait_until(parts[0].starts - PREPARE)
        found.append((parts, [start(part) for part in parts]))
    for parts, processes in found:
        shares = [told(part, process) for part, process in zip(parts, processes, strict=True)]
        intervals = merged(parts, shares)
        assert [(each.number, each.reason) for each in intervals] == [(0, None), (1, None)]
        for each in intervals:
            result = each.result or {}
            names = ("sent", "received_at_dest", "received_back", "strays")
            assert [result[name] for name in names] == [100, 100, 100, 0]
            assert result["reordered"] == {"forward": 0, "backward": 0}
        total = TEST.total(parts[0].spec, intervals)
        assert 0 < total["delay_ms"]["round_trip"]["median"] < 50


def test_a_source_that_is_stopped_for_a_while_makes_no_burst() -> None:
    """Packets whose time has long passed are not sent, and are not counted as lost."""
    parts = stream(soon(), free_port("127.1.0.2"), 3, each="PT3S")
    reflector, sender = start(parts[1]), start(parts[0])
    stopped_at = parts[0].starts + LEAD_IN + SECOND // 2
    wait_until(stopped_at)
    sender.send_signal(signal.SIGSTOP)
    wait_until(stopped_at + SECOND * 3 // 2)
    sender.send_signal(signal.SIGCONT)
    [interval] = told(parts[0], sender)
    told(parts[1], reflector)
    result = interval.result or {}
    assert result["sent"] < 270
    assert result["received_back"] + result["late"] == result["sent"]


def test_a_host_without_a_reflector_is_loss_and_is_told() -> None:
    """Without anybody at dest all packets are lost, and the ICMP errors are counted."""
    parts = stream(soon(), free_port("127.1.0.2"), 1)
    [interval] = told(parts[0], start(parts[0]))
    result = interval.result or {}
    assert (result["sent"], result["received_back"]) == (100, 0)
    assert result["unreachable"] > 50
