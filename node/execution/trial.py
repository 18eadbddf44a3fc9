"""One run of a test on this host alone, for authors of plugins: no node, no booking, no storage.

All participants' parts run here at once, on the loopback address. Mere targets are used as given,
except for example addresses and names, which do not answer. The intervals of a long run are merged
when it has ended.
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

from node.execution import process
from node.execution.forwarder import IntervalForwarder
from node.execution.merging import merged_over_intervals
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
from node.runtime.clock import Clock

LOOPBACK = "127.0.0.1"
_EXAMPLES = tuple(
    ipaddress.ip_network(network)
    for network in ("192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24", "2001:db8::/32")
)
"""Addresses for documentation, RFC 5737 and RFC 3849; example names end in .example (RFC 2606)."""
_AHEAD = times.SECOND
_PORT_TRIES = 100
"""Maximum number of ports that the kernel calls free to try as the first of consecutive ones."""
_PAUSE_S = 0.1
"""Pause between two batches of intervals."""
_LATE = 2 * times.SECOND
"""Time beyond the booked end after which a program is ended; a launcher ends it earlier."""


@dataclass(frozen=True)
class PartTrial:
    """The trial of one participant's part."""

    participant: str
    argv: Sequence[str]
    output: Output
    part: Part
    intervals: Sequence[Interval] = ()


@dataclass(frozen=True)
class Trial:
    """The parts, and the results of merging them and their intervals, if any."""

    parts: Sequence[PartTrial]
    merged: Merged
    intervals: Sequence[Interval] = ()


async def run_trial(
    test: Test, tool: Tool, spec: Any, clock: Clock, places: Mapping[str, str] | None = None
) -> Trial:
    """Run all parts of one run now; ``places`` are addresses of hosts that override the defaults.

    :raises HostError: a program is not installed, or cannot be started.
    """
    names = [name or "this-host" for name in test.participants(spec)]
    addresses = {host: _address(host) for host in test.hosts(spec)}
    addresses |= dict.fromkeys(names, LOOPBACK) | dict(places or {})
    starts = clock.now() + _AHEAD
    used_ports: set[int] = set()
    parties = tuple(
        Party(name, addresses[name], ports_for(tool.needs_port(spec, at), used_ports))
        for at, name in enumerate(names)
    )
    ends = starts + tool.duration(spec)
    count = test.rhythm(spec).count if isinstance(test, StreamingTest) else 0
    trials = await asyncio.gather(
        *(
            _try_part(tool, PartContext(spec, at, parties, starts, ends, addresses), count, clock)
            for at in range(len(parties))
        )
    )
    intervals = list(_merged_intervals(test, spec, count, trials))
    ended = test.merge(spec, [each.part for each in trials])
    return Trial(trials, merged_over_intervals(test, spec, ended, intervals), intervals)


def _merged_intervals(
    test: Test, spec: Any, count: int, trials: Sequence[PartTrial]
) -> Iterator[Interval]:
    if not isinstance(test, StreamingTest):
        return
    for number in range(count):
        parts = []
        for each in trials:
            interval = next((it for it in each.intervals if it.number == number), None)
            interval = interval or Interval(number, None, each.part.reason or "was not reported")
            at, name = each.part.participant, each.participant
            parts.append(Part(at, name, interval.result, interval.reason))
        merged = test.merge_interval(spec, parts)
        yield Interval(number, merged.result, merged.reason)


async def _try_part(tool: Tool, context: PartContext, count: int, clock: Clock) -> PartTrial:
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
    forwarding = asyncio.create_task(_forward(tool, context, running, count, clock))
    remaining = (context.ends + command.overtime + _LATE - clock.now()) / times.SECOND
    ended_by = "itself"
    try:
        async with asyncio.timeout(remaining):
            await running.wait()
    except TimeoutError:
        ended_by = "end"
    finally:
        await running.end(1.0)
    finished = await running.wait()
    intervals = await forwarding
    output = Output(finished.exit_code, finished.stdout, finished.stderr, ended_by)
    name = context.parties[context.participant].name
    result: Mapping[str, Any] | None = None
    reason = None
    try:
        result = tool.read(context, output)
    except ToolOutputError as error:
        result, reason = error.result, error.detail
    part = Part(context.participant, name, None if result is None else dict(result), reason)
    return PartTrial(name, command.argv, output, part, intervals)


async def _forward(
    tool: Tool, context: PartContext, running: RunningProcess, count: int, clock: Clock
) -> Sequence[Interval]:
    """Return the intervals that the program reported until its end; none if it has none."""
    intervals: list[Interval] = []

    async def keep(batch: Sequence[Interval]) -> None:
        intervals.extend(batch)

    if count and isinstance(tool, StreamingTool):
        read = partial(tool.read_interval, context)
        await IntervalForwarder(read, keep, count, clock, pause_s=_PAUSE_S).run(running)
    return intervals


def _address(host: str) -> str:
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return LOOPBACK if host.endswith(".example") else host
    return LOOPBACK if any(address in network for network in _EXAMPLES) else host


def ports_for(count: int, used: set[int]) -> dict[str, int]:
    """Return a node's data for ``count`` consecutive ports, free on loopback; add them to ``used``.

    :raises HostError: no such ports were found.
    """
    for _ in range(_PORT_TRIES if count else 0):
        port = _free_port()
        ports = range(port, port + count)
        if used.isdisjoint(ports) and all(map(_is_free, ports)):
            used.update(ports)
            return {"port": port} | ({"ports": count} if count > 1 else {})
    if count:
        raise HostError(f"no {count} ports in a row are free on {LOOPBACK}")
    return {}


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        port: int = probe.getsockname()[1]
    return port


def _is_free(port: int) -> bool:
    """Return whether the port is free for TCP and for UDP."""
    with contextlib.ExitStack() as stack:
        for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
            probe = stack.enter_context(socket.socket(type=kind))
            try:
                probe.bind((LOOPBACK, port))
            except (OSError, OverflowError):
                return False
    return True
