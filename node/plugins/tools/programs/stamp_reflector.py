"""The stateful session-reflector of STAMP (RFC 8762), in its own process.

``stamp_reflector.py '{"address": "192.0.2.2", "port": 5000, "sender": "192.0.2.1", …}'``, see
:func:`measure`. It answers the packets of one session and numbers its answers itself, so that the
sender can distinguish packets lost on the way there from packets lost on the way back.
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

_LINGER_NS = 100_000_000  # for duplicates, once all packets are here


class Reflector(stamp_session.ReflectingEnd):
    """One session, and what arrived of it."""

    def __init__(self, arguments: stamp_endpoint.Arguments) -> None:
        """Open the socket.

        :raises stamp_endpoint.Unusable: a name is unknown, or the port cannot be used.
        """
        super().__init__(arguments)
        self._count: int = arguments["count"]
        self._interval_ns: int = arguments["interval_ns"]
        self._timeout_ns: int = arguments["timeout_ns"]
        self._seen: set[int] = set()
        self._highest = -1
        self._duplicates = 0
        self._reordered = 0
        self._unsent = 0
        self._quiet_ns = 0  # monotonic time after which no more packets are expected

    def run(self, deadline_ns: int) -> dict[str, Any]:
        """Answer until the session is over, at the latest until ``deadline_ns``; return counts."""
        steady_deadline_ns = time.monotonic_ns() + deadline_ns - time.time_ns()
        while True:
            end_ns = min(steady_deadline_ns, self._quiet_ns or steady_deadline_ns)
            left_ns = end_ns - time.monotonic_ns()
            if left_ns <= 0:
                return self._result()
            ready, _, _ = select.select([self._socket], [], [], left_ns / stamp_endpoint.SECOND_NS)
            while ready and (received := stamp_endpoint.receive(self._socket)) is not None:
                answered = self._answer(*received)
                if answered is not None:
                    self._note(*answered)

    def _belongs(self, test: stamp_packet.SenderPacket) -> bool:
        return test.session == self._session and test.sequence < self._count

    def _note(self, sequence: int, sent: bool) -> None:  # noqa: FBT001 - as _answer returns it
        self._unsent += not sent
        if sequence in self._seen:
            self._duplicates += 1
        else:
            self._reordered += sequence < self._highest  # RFC 4737
            self._seen.add(sequence)
        self._highest = max(self._highest, sequence)
        # The rest of the session follows at its pace; after the last packet, once the sender's
        # timeout is over, the sender no longer waits for answers.
        left_ns = (self._count - 1 - self._highest) * self._interval_ns + self._timeout_ns
        if len(self._seen) == self._count:
            left_ns = min(_LINGER_NS, self._timeout_ns)
        self._quiet_ns = time.monotonic_ns() + left_ns

    def _result(self) -> dict[str, Any]:
        return {
            "received": len(self._seen),
            "duplicates": self._duplicates,
            "reordered": self._reordered,
            "strays": self._strays,
            "unsent": self._unsent,
            "clock": self._clock.state(),
        }


def measure(arguments: stamp_endpoint.Arguments) -> dict[str, Any]:
    """Run one session.

    Arguments: ``address`` (our own), ``port``, ``sender`` (the only address that is answered),
    ``device`` (the interface to bind to, or null), ``ip_version`` (4, 6 or null), ``count``,
    ``interval_ns``, ``timeout_ns``, ``session``, ``deadline_ns`` (the instant to stop in any case).
    Result: the number of different packets received, duplicates, packets out of order, packets of
    others (``strays``), answers that could not be sent, and the clock.
    """
    return Reflector(arguments).run(arguments["deadline_ns"])


if __name__ == "__main__":
    sys.exit(stamp_endpoint.run(measure, undisturbed=True))
