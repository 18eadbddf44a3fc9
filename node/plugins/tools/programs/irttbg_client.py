"""A stream by irtt clients, one per interval, with a record of figures for each.

``irttbg_client.py '{"argv": ["irtt", "client", …], "packets": 600, …}'``, see :func:`measure`. irtt
reports its figures only at its end. So each interval has a client of its own, which sends a few
packets more than are counted: answers to them show what became of the last ones. Meanwhile the next
client is already sending; it is started ahead of its instant by the time that the clients before it
took to negotiate with the server. No packet is left out between the two.

A client that gets no answer at all has sent nothing. Another one is tried until the interval is
over; the packets that were due in the meantime are reported as not sent.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import IO, Any, cast

if __name__ == "__main__":  # started by its path and in isolated mode: nothing else is importable
    sys.path.append(str(Path(__file__).resolve().parents[4]))

from node.plugins import irttprogram
from node.plugins.distribution import both_ways
from node.plugins.tools.programs import stamp_endpoint

_AHEAD_NS = stamp_endpoint.SECOND_NS
"""A client's thread exists this long before the client's first packet is due."""
_START_NS = 10_000_000
"""Assumed time to start a client and to negotiate with the server, until it has been measured."""
_REMEMBERED = 5
_AT_ONCE = 4  # clients: one sending, those waiting for late packets, those being prepared
_PAUSE_S = 1.0
_LATER_S = 0.5  # a client is killed this long after it should have ended
_COMPLAINT_MAX = 200
_COMPLAINT_BYTES = 4096


class _Failed(Exception):
    """A client sent nothing; the message is the reason."""


class IrttStream:
    """One stream: the arguments of its clients, and how long they took to begin."""

    def __init__(self, arguments: stamp_endpoint.Arguments) -> None:
        """Store the arguments of :func:`measure`; nothing is started yet."""
        self._argv: list[str] = arguments["argv"]
        self._size: int = arguments["packets"]
        self._count: int = arguments["intervals"]
        self._extra: int = arguments["extra"]
        self._length: int = arguments["length"]
        self._interval_ns: int = arguments["interval_ns"]
        self._timeout_ns: int = arguments["timeout_ns"]
        self._opening_ns: int = arguments["opening_ns"]
        self._openings: deque[int] = deque(maxlen=_REMEMBERED)

    def run(self, first_ns: int) -> dict[str, Any]:
        """Run all clients, the first packet at ``first_ns``; record each interval once known."""
        stamp_endpoint.wait_until(first_ns - _AHEAD_NS)
        # Paced on steady time from here on: no drift, no step.
        began_ns = time.monotonic_ns() + first_ns - time.time_ns()
        waiting: deque[Future[dict[str, Any]]] = deque()
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            for number in range(self._count):
                due_ns = began_ns + number * self._size * self._interval_ns
                _record_until(waiting, due_ns - _AHEAD_NS)
                waiting.append(pool.submit(self._measure, number, due_ns))
            while waiting:
                stamp_endpoint.record(waiting.popleft().result())
        return {"intervals": self._count}

    def _measure(self, number: int, due_ns: int) -> dict[str, Any]:
        """Return the record of an interval whose first packet is due at ``due_ns`` (monotonic)."""
        stamp_endpoint.sleep_until(due_ns - self._opening_time())
        clock = stamp_endpoint.KernelClock()
        document, missed, complaint = irttprogram.IrttDocument((), 0), 0, ""
        while missed < self._size:
            try:
                document, early = self._client(self._size - missed, due_ns)
            except _Failed as reason:
                complaint = str(reason)
            except ValueError as reason:  # it has sent packets; which, is unknown
                complaint = str(reason)
                break
            else:
                # A client may skip packets when it does not get the CPU in time; only an early end
                # is an error.
                sent = len(document.trips)
                if early and sent < self._size - missed:
                    complaint = complaint or f"irtt ended after {sent} packets"
                break
            time.sleep(_PAUSE_S)
            late_ns = time.monotonic_ns() + self._opening_time() - due_ns
            missed = max(0, -(-late_ns // self._interval_ns))
        counted = document.trips[: max(0, self._size - missed)]
        seen = irttprogram.observe_trips(counted, self._timeout_ns)
        return {
            "interval": number,
            "sent": len(counted),
            "unsent": self._size - len(counted),
            "received_at_dest": seen.at_dest if counted else None,
            "received_back": len(seen.in_time),
            "late": seen.late,
            # It counts them without saying on which way they were duplicated.
            "duplicates_backward": None if document.duplicates else 0,
            "reordered_backward": seen.reordered,
            **both_ways(seen.in_time),
            "complaint": complaint[:_COMPLAINT_MAX],
            "clock": clock.state(),
        }

    def _opening_time(self) -> int:
        """Return how long before its first packet to start a client: the fastest recent start."""
        return min(self._openings, default=_START_NS)

    def _client(self, packets: int, due_ns: int) -> tuple[irttprogram.IrttDocument, bool]:
        """Run a client that sends ``packets`` counted ones; return if it also ended too early.

        :raises _Failed: it has sent nothing.
        :raises ValueError: its output is impossible.
        """
        lasts_ns = (packets + self._extra) * self._interval_ns
        over_ns = due_ns + (self._size + self._extra) * self._interval_ns
        over_ns += self._opening_ns + self._timeout_ns
        argv = irttprogram.with_sending_time(self._argv, lasts_ns)
        started_ns, began_ns = time.time_ns(), time.monotonic_ns()
        left_s = (over_ns - began_ns) / stamp_endpoint.SECOND_NS + _LATER_S
        exit_code, printed, complaints = _run(argv, left_s)
        lived_ns = time.monotonic_ns() - began_ns
        if exit_code != 0 or not printed.strip():
            raise _Failed(_complaint(complaints, exit_code))
        document = irttprogram.parse_irtt_document(
            _document(printed), self._interval_ns, self._length
        )
        opening_ns = document.trips[0].sent_ns - started_ns
        self._openings.append(min(self._opening_ns, max(0, opening_ns)))
        return document, lived_ns < lasts_ns - 2 * self._interval_ns


def _record_until(waiting: deque[Future[dict[str, Any]]], until_ns: int) -> None:
    """Record intervals in order as they become known, until a monotonic instant."""
    while waiting and (left_ns := until_ns - time.monotonic_ns()) > 0:
        try:
            interval = waiting[0].result(left_ns / stamp_endpoint.SECOND_NS)
        except TimeoutError:
            return
        waiting.popleft()
        stamp_endpoint.record(interval)
    stamp_endpoint.sleep_until(until_ns)


def _run(argv: list[str], left_s: float) -> tuple[int, bytes, bytes]:
    """Run a program; return its exit code, output, and the beginning of its standard error.

    :raises stamp_endpoint.Unusable: it cannot be started.
    :raises ValueError: it printed too much, or had not ended after ``left_s`` seconds.
    """
    try:
        program = subprocess.Popen(  # noqa: S603 - an argv
            argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
    except OSError as fault:
        raise stamp_endpoint.Unusable(f"{argv[0]}: {fault.strerror}") from None
    timer = threading.Timer(left_s, program.kill)
    timer.start()
    with program:
        printed = cast(IO[bytes], program.stdout).read(irttprogram.BYTES_MAX + 1)
        if len(printed) > irttprogram.BYTES_MAX:
            program.kill()
        complaints = cast(IO[bytes], program.stderr).read(_COMPLAINT_BYTES)
        exit_code = program.wait()
    timer.cancel()
    if len(printed) > irttprogram.BYTES_MAX:
        raise ValueError("irtt printed too much to be read")
    if exit_code == -signal.SIGKILL:
        raise ValueError("irtt did not end in time")
    return exit_code, printed, complaints


def _document(printed: bytes) -> object:
    try:
        return json.loads(printed)
    except (ValueError, RecursionError):
        raise ValueError("irtt printed something that is not a document") from None


def _complaint(stderr: bytes, exit_code: int) -> str:
    """Return the first line that irtt printed on standard error."""
    lines = stderr.decode(errors="replace").split("\n", 1)
    message = lines[0].strip().removeprefix("Error: ")
    return f"irtt: {message or f'it failed without a reason (exit code {exit_code})'}"


def measure(arguments: stamp_endpoint.Arguments) -> dict[str, Any]:
    """Run one stream.

    Arguments: ``argv`` (of the client, without how long it sends), ``packets`` (in an interval),
    ``extra`` (further packets that each client sends), ``intervals``, ``interval_ns`` (from packet
    to packet), ``timeout_ns``, ``opening_ns`` (the maximum wait for the server's first reply),
    ``length`` (octets of UDP payload), ``first_ns`` (the instant of the first packet).
    Records: counts, figures and histograms of the packets of one interval, and the clock.
    Result: ``intervals``, the number of records.
    """
    return IrttStream(arguments).run(arguments["first_ns"])


if __name__ == "__main__":
    sys.exit(stamp_endpoint.run(measure))
