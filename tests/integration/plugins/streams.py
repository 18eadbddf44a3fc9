"""Running streams: both ends as processes of their own, on loopback."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import socket
import subprocess
import time
from collections.abc import Iterator
from typing import Any

from node.execution.launcher import PREPARATION_TIME
from node.model.intervals import Interval
from node.model.times import SECOND
from node.plugins.contracts import Part, PartContext, Party, StreamingTool, Tool
from node.plugins.tests.latencybg import TEST, LatencyBgSpec
from tests.support.loopback import free_port
from tests.support.patience import PATIENCE_S

BRIEF = {"each": "PT1S", "interval": "PT0.01S", "timeout": "PT0.5S"}
RS = b"\x1e"


def spec_of(seconds: int, **fields: Any) -> LatencyBgSpec:
    """Return the spec of a stream, which may be shorter than the API allows."""
    spec = LatencyBgSpec.model_validate({"dest": "b"} | BRIEF | fields)
    return spec.model_copy(update={"duration": seconds * SECOND})


def stream(tool: Tool, starts: int, port: int, seconds: int, **fields: Any) -> list[PartContext]:
    """Return both parts of a stream."""
    spec = spec_of(seconds, **fields)
    parties = (Party("a", "127.1.0.1"), Party("b", "127.1.0.2", {"port": port}))
    first = PartContext(spec, 0, parties, starts, starts + tool.duration(spec))
    return [first, dataclasses.replace(first, participant=1)]


def wait_until(instant: int) -> None:
    """Return at an instant, by waiting on a socket that never receives anything."""
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        nobody.listen()
        nobody.settimeout(max(0.001, (instant - time.time_ns() // 1000) / SECOND))
        with contextlib.suppress(TimeoutError):
            nobody.accept()


def start(tool: Tool, part: PartContext) -> subprocess.Popen[bytes]:
    """Start a participant's program, long enough before its instant."""
    return subprocess.Popen(tool.command(part).argv, stdout=subprocess.PIPE)


def told(
    tool: StreamingTool, part: PartContext, process: subprocess.Popen[bytes]
) -> list[Interval]:
    """Return all records of a program, once it has ended by itself."""
    stdout, _ = process.communicate(timeout=PATIENCE_S)
    lines = stdout.splitlines()
    records = [line.removeprefix(RS) for line in lines if line.startswith(RS)]
    assert json.loads(lines[-1]) == {"intervals": len(records)}
    return [tool.read_interval(part, record) for record in records]


def merged(parts: list[PartContext], shares: list[list[Interval]]) -> list[Interval]:
    """Merge the intervals of both ends."""
    intervals = []
    for pair in zip(*shares, strict=True):
        named = [Part(at, "ab"[at], it.result, it.reason) for at, it in enumerate(pair)]
        outcome = TEST.merge_interval(parts[0].spec, named)
        intervals.append(Interval(pair[0].number, outcome.result, outcome.reason))
    return intervals


def soon() -> int:
    """Return an instant by which programs that are started now are ready on a busy machine."""
    return time.time_ns() // 1000 + 3 * SECOND // 2


def run_after_run(tool: StreamingTool) -> Iterator[list[Interval]]:
    """Yield the intervals of two runs on one port; the second begins where the first ends."""
    port, first = free_port(), soon()
    intervals = []
    for parts in (stream(tool, first, port, 2), stream(tool, first + 2 * SECOND, port, 2)):
        wait_until(parts[0].starts - PREPARATION_TIME)
        intervals.append((parts, [start(tool, part) for part in parts]))
    for parts, processes in intervals:
        pairs = zip(parts, processes, strict=True)
        yield merged(parts, [told(tool, part, process) for part, process in pairs])
