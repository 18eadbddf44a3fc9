"""One run of a test on this host alone: no node, no booking, nothing kept.

For who writes a plugin. All participants' parts run here at once, on the loopback address; mere
targets are asked as they are written, but those of examples, where nobody answers. What a long run
tells of its intervals is merged when it has ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import socket
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from node.clock import Clock
from node.execution import process
from node.execution.forwarder import IntervalForwarder
from node.execution.intervals import over_all
from node.execution.process import RunningProcess
from node.model import times
from node.model.errors import HostError, ToolOutputError
from node.model.intervals import Interval
from node.plugins.contracts import (
    Merged,
    Output,
    Part,
    PartContext,
    Party,
    StreamingTest,
    StreamingTool,
    Test,
    Tool,
)

LOOPBACK = "127.0.0.1"
_EXAMPLES = tuple(
    ipaddress.ip_network(network)
    for network in ("192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24", "2001:db8::/32")
)
"""Addresses for documentation, RFC 5737 and RFC 3849; names for it end in .example (RFC 2606)."""
_AHEAD = times.SECOND
_DRAWN = 100
"""So often a row of free ports is looked for from a port that the kernel says is free."""
_PAUSE_S = 0.1
"""Between two looks at what a long run tells."""
_LATE = 2 * times.SECOND
"""How much longer than booked a program may take before it is ended; a launcher ends it earlier."""


@dataclass(frozen=True)
class PartTrial:
    """What one participant's part came to."""

    participant: str
    argv: Sequence[str]
    output: Output
    part: Part
    intervals: Sequence[Interval] = ()


@dataclass(frozen=True)
class Trial:
    """The parts and what they, and their intervals if they have such, were merged to."""

    parts: Sequence[PartTrial]
    merged: Merged
    intervals: Sequence[Interval] = ()


async def run_trial(
    test: Test, tool: Tool, spec: Any, clock: Clock, places: Mapping[str, str] | None = None
) -> Trial:
    """Run all parts of one run now; ``places`` are addresses of hosts, before those found here.

    :raises HostError: a program is not there, or cannot be started.
    """
    names = [name or "this-host" for name in test.participants(spec)]
    addresses = {host: _address(host) for host in test.hosts(spec)}
    addresses |= dict.fromkeys(names, LOOPBACK) | dict(places or {})
    starts = clock.now() + _AHEAD
    taken: set[int] = set()
    parties = tuple(
        Party(name, addresses[name], ports_for(tool.needs_port(spec, at), taken))
        for at, name in enumerate(names)
    )
    ends = starts + tool.duration(spec)
    count = test.rhythm(spec).count if isinstance(test, StreamingTest) else 0
    tried = await asyncio.gather(
        *(
            _part(tool, PartContext(spec, at, parties, starts, ends, addresses), count, clock)
            for at in range(len(parties))
        )
    )
    intervals = list(_merged_intervals(test, spec, count, tried))
    ended = test.merge(spec, [each.part for each in tried])
    return Trial(tried, over_all(test, spec, ended, intervals), intervals)


def _merged_intervals(
    test: Test, spec: Any, count: int, tried: Sequence[PartTrial]
) -> Iterator[Interval]:
    if not isinstance(test, StreamingTest):
        return
    for number in range(count):
        parts = []
        for each in tried:
            told = next((it for it in each.intervals if it.number == number), None)
            told = told or Interval(number, None, each.part.reason or "was not told of")
            at, name = each.part.participant, each.participant
            parts.append(Part(at, name, told.result, told.reason))
        merged = test.merge_interval(spec, parts)
        yield Interval(number, merged.result, merged.reason)


async def _part(tool: Tool, context: PartContext, count: int, clock: Clock) -> PartTrial:
    command = tool.command(context)
    if not command.waits_itself:
        await clock.sleep_until(context.starts + command.delay)
    running = await process.start(
        command.argv,
        now=clock.now,
        stdin=command.stdin,
        streams=command.streams,
        chased=True,
    )
    relaying = asyncio.create_task(_relay(tool, context, running, count, clock))
    left = (context.ends + command.overtime + _LATE - clock.now()) / times.SECOND
    ended_by = "itself"
    try:
        await asyncio.wait_for(running.wait(), left)
    except TimeoutError:
        ended_by = "end"
    finally:
        await running.end(1.0)
    finished = await running.wait()
    intervals = await relaying
    output = Output(finished.exit_code, finished.stdout, finished.stderr, ended_by)
    name = context.parties[context.participant].name
    result: Mapping[str, Any] | None = None
    reason = None
    try:
        result = tool.read(context, output)
    except ToolOutputError as error:
        reason = error.detail
    part = Part(context.participant, name, None if result is None else dict(result), reason)
    return PartTrial(name, command.argv, output, part, intervals)


async def _relay(
    tool: Tool, context: PartContext, running: RunningProcess, count: int, clock: Clock
) -> Sequence[Interval]:
    """What the program has told of its intervals by its end, if it is one that does."""
    told: list[Interval] = []

    async def keep(given: Sequence[Interval]) -> None:
        told.extend(given)

    if count and isinstance(tool, StreamingTool):
        read = partial(tool.read_interval, context)
        await IntervalForwarder(read, keep, count, clock, pause_s=_PAUSE_S).run(running)
    return told


def _address(host: str) -> str:
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return LOOPBACK if host.endswith(".example") else host
    return LOOPBACK if any(address in network for network in _EXAMPLES) else host


def ports_for(count: int, taken: set[int]) -> dict[str, int]:
    """What a node would add: so many ports in a row, free on loopback; they join ``taken``.

    :raises HostError: no such row was found.
    """
    for _ in range(_DRAWN if count else 0):
        port = _free_port()
        row = range(port, port + count)
        if taken.isdisjoint(row) and all(map(_is_free, row)):
            taken.update(row)
            return {"port": port} | ({"ports": count} if count > 1 else {})
    if count:
        raise HostError(f"no {count} ports in a row are free on {LOOPBACK}")
    return {}


def _free_port() -> int:
    with socket.socket() as chosen:
        chosen.bind((LOOPBACK, 0))
        port: int = chosen.getsockname()[1]
    return port


def _is_free(port: int) -> bool:
    """For TCP and for UDP."""
    with contextlib.ExitStack() as stack:
        for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
            tried = stack.enter_context(socket.socket(type=kind))
            try:
                tried.bind((LOOPBACK, port))
            except (OSError, OverflowError):
                return False
    return True
