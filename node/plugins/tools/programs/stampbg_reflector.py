"""The session-reflector of a continuous STAMP stream, with a record of counts per interval.

``stampbg_reflector.py '{"address": "192.0.2.2", "port": 5000, …}'``, see :func:`measure`. The
number of a packet determines its interval; the sender's pace determines when an interval is over.

The reflector of the next run opens the same port while the last packets of this one are under way.
So each connects to its sender with the first packet, long before: the kernel then delivers to each
of the two what its own sender sends.
"""

from __future__ import annotations

import select
import sys
import time
from pathlib import Path
from typing import Any

if __name__ == "__main__":  # started by its path and in isolated mode: nothing else is importable
    sys.path.append(str(Path(__file__).resolve().parents[4]))

from node.plugins.tools.programs import stamp_endpoint, stamp_packet, stamp_session

_READ_AT_ONCE = 64
_DEAF_NS = 10 * stamp_endpoint.SECOND_NS
"""A sender that is silent for this long may have got another port from an address translation."""
_AHEAD = 4  # intervals that may be open, besides those waiting for late packets
_SHIFT_NS_MAX = 1_500_000_000
"""Clocks further apart than this do not measure together: a pace that implies more is ignored."""


class _Interval:
    """The packets of one interval that arrived."""

    def __init__(self, size: int) -> None:
        self.seen = bytearray(size)
        self.duplicates = 0
        self.reordered = 0
        self.unsent = 0

    def counts(self) -> dict[str, Any]:
        return {
            "received": self.seen.count(1),
            "duplicates": self.duplicates,
            "reordered": self.reordered,
            "unsent": self.unsent,
        }


class ReflectorStream(stamp_session.ReflectingEnd):
    """One stream: its socket, and the intervals that are not over."""

    def __init__(self, arguments: stamp_endpoint.Arguments) -> None:
        """Open the socket.

        :raises stamp_endpoint.Unusable: a name is unknown, or the port cannot be used.
        """
        super().__init__(arguments, shared=True)
        self._arguments = arguments
        self._size: int = arguments["packets"]
        self._count: int = arguments["intervals"]
        self._interval_ns: int = arguments["interval_ns"]
        self._wait_ns: int = arguments["timeout_ns"] + arguments["slack_ns"]
        self._open_max = _AHEAD + self._wait_ns // (self._size * self._interval_ns)
        self._sender: stamp_endpoint.SocketAddress | None = None
        self._heard_ns = time.monotonic_ns()
        self._expected_ns = 0  # the first packet's arrival by our own clock, monotonic
        self._first_ns = 0  # the same by the sender's pace
        self._intervals: dict[int, _Interval] = {}
        self._next = 0  # the first interval that has no record yet
        self._highest = -1

    def run(self, first_ns: int, deadline_ns: int) -> dict[str, Any]:
        """Answer, and record each interval when it is over; the rest at ``deadline_ns``."""
        to_steady_ns = time.monotonic_ns() - time.time_ns()
        self._expected_ns = self._first_ns = first_ns + to_steady_ns
        deadline_ns += to_steady_ns
        while self._next < self._count:
            over_ns = (self._next + 1) * self._size * self._interval_ns + self._wait_ns
            due_ns = min(deadline_ns, self._first_ns + over_ns)
            now_ns = time.monotonic_ns()
            if now_ns >= due_ns:
                self._record()
                continue
            left_ns = min(due_ns - now_ns, _DEAF_NS)
            ready, _, _ = select.select([self._socket], [], [], left_ns / stamp_endpoint.SECOND_NS)
            if ready:
                self._read()
            elif self._sender is not None and now_ns - self._heard_ns > _DEAF_NS:
                self._listen_to_any()
        return {"intervals": self._next}

    def _listen_to_any(self) -> None:
        self._socket.close()
        self._socket = stamp_endpoint.bound_socket(self._arguments, shared=True)
        self._sender = None

    def _record(self) -> None:
        for _ in range(self._size // _READ_AT_ONCE + 1):  # what came during a pause was not lost
            self._read()
        interval = self._intervals.pop(self._next, None) or _Interval(0)
        counts = {"interval": self._next, **interval.counts(), "strays": self._strays}
        stamp_endpoint.record({**counts, "clock": self._clock.state()})
        self._next += 1
        self._strays = 0
        self._look_at_clock()

    def _read(self) -> None:
        for _ in range(_READ_AT_ONCE):
            try:
                received = stamp_endpoint.receive(self._socket)
            except OSError:  # an ICMP error: the sender is gone
                continue
            if received is None:
                return
            self._handle(*received)

    def _handle(
        self, packet: bytes, arrived_ns: int, ttl: int, sender: stamp_endpoint.SocketAddress
    ) -> None:
        answered = self._answer(packet, arrived_ns, ttl, sender)
        if answered is None:
            return
        self._note(*answered)
        self._heard_ns = time.monotonic_ns()
        if self._sender is None:
            self._socket.connect(sender)
            self._sender = sender

    def _belongs(self, test: stamp_packet.SenderPacket) -> bool:
        number = test.sequence // self._size
        expected = self._next <= number < min(self._count, self._next + self._open_max)
        return test.session == self._session and expected

    def _note(self, sequence: int, sent: bool) -> None:  # noqa: FBT001 - as _answer returns it
        number, at = divmod(sequence, self._size)
        interval = self._intervals.get(number)
        if interval is None:
            interval = self._intervals[number] = _Interval(self._size)
            first_ns = time.monotonic_ns() - sequence * self._interval_ns
            if abs(first_ns - self._expected_ns) <= _SHIFT_NS_MAX:
                self._first_ns = first_ns
        interval.unsent += not sent
        if interval.seen[at]:
            interval.duplicates += 1
        else:
            interval.reordered += sequence < self._highest  # RFC 4737
            interval.seen[at] = 1
        self._highest = max(self._highest, sequence)


def measure(arguments: stamp_endpoint.Arguments) -> dict[str, Any]:
    """Run one stream.

    Arguments: ``address`` (our own), ``port``, ``sender`` (the only address that is answered),
    ``ip_version`` (4, 6 or null), ``device`` (an interface or null), ``packets`` (in an interval),
    ``intervals``, ``interval_ns``, ``timeout_ns``, ``slack_ns``, ``session``, ``first_ns`` (the
    instant of the first packet), ``deadline_ns`` (the instant to stop in any case).
    Records: of the packets of one interval, the number received, duplicates, out of order, answers
    that could not be sent; packets of others (``strays``) meanwhile; the clock.
    Result: ``intervals``, the number of records.
    """
    return ReflectorStream(arguments).run(arguments["first_ns"], arguments["deadline_ns"])


if __name__ == "__main__":
    sys.exit(stamp_endpoint.run(measure, undisturbed=True))
