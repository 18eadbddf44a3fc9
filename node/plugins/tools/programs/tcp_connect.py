"""Opens TCP connections to one port, one after the other, and prints how long each took.

``tcp_connect.py '{"host": "192.0.2.7", "port": 22, "count": 3, …}'``, see :func:`measure`.
Attempts begin at a fixed pace, however long the earlier ones take.
"""

from __future__ import annotations

import contextlib
import errno
import os
import selectors
import socket
import sys
import time
from pathlib import Path
from typing import Any

if __name__ == "__main__":  # started by its path and in isolated mode: nothing else is importable
    sys.path.append(str(Path(__file__).resolve().parents[4]))

from node.plugins.tools.programs import stamp_endpoint, target

_BANNER_BYTES_MAX = 256


class Connector:
    """The attempts: those under way, and the outcomes of the others."""

    def __init__(self, address: target.Address, arguments: stamp_endpoint.Arguments) -> None:
        """Prepare attempts with the arguments of :func:`measure`."""
        self._family, self._address = address
        self._arguments = arguments
        self._timeout_ns: int = arguments["timeout_ns"]
        self._needs_banner: bool = arguments["banner"]
        self._selector = selectors.DefaultSelector()
        self._begun: dict[socket.socket, tuple[int, int]] = {}
        """Attempts under way: number, and monotonic nanoseconds of their beginning."""
        self._listening: dict[socket.socket, int] = {}
        """The connection whose banner is awaited: since when, in monotonic nanoseconds."""
        self._connected: list[tuple[int, int]] = []
        self._failures: dict[str, int] = {}
        self._banner = b""
        self._banner_ns: int | None = None

    def run(self, count: int, interval_ns: int) -> dict[str, Any]:
        """Make all attempts, and return their outcomes."""
        began_ns = time.monotonic_ns()
        for number in range(count):
            self._watch_until(began_ns + number * interval_ns)
            self._begin(number)
        self._watch_until(None)
        return {
            "connected": self._connected,
            "failures": list(self._failures.items()),
            "banner": _first_line(self._banner) if self._banner else None,
            "banner_ns": self._banner_ns,
        }

    def _begin(self, number: int) -> None:
        endpoint = target.endpoint_of(self._family, socket.SOCK_STREAM, self._arguments)
        endpoint.settimeout(0)  # never blocks
        self._begun[endpoint] = (number, time.monotonic_ns())
        error = endpoint.connect_ex(self._address)
        if error in {0, errno.EINPROGRESS}:
            self._selector.register(endpoint, selectors.EVENT_WRITE)
        else:
            self._fail(endpoint, os.strerror(error))

    def _watch_until(self, due_ns: int | None) -> None:
        """Handle events until an instant, or until nothing is under way any more."""
        while due_ns is not None or self._begun or self._listening:
            self._give_up()
            now_ns = time.monotonic_ns()
            if due_ns is not None and now_ns >= due_ns:
                return
            instants = [since_ns + self._timeout_ns for since_ns in self._waiting_since()]
            next_ns = min([*instants, *([] if due_ns is None else [due_ns])], default=now_ns)
            for key, _ in self._selector.select(
                max(0, next_ns - now_ns) / stamp_endpoint.SECOND_NS
            ):
                endpoint = key.fileobj
                if isinstance(endpoint, socket.socket):
                    self._handle(endpoint, time.monotonic_ns())

    def _waiting_since(self) -> list[int]:
        return [began_ns for _, began_ns in self._begun.values()] + list(self._listening.values())

    def _give_up(self) -> None:
        now_ns = time.monotonic_ns()
        for endpoint, (_, began_ns) in list(self._begun.items()):
            if now_ns - began_ns >= self._timeout_ns:
                self._selector.unregister(endpoint)
                self._fail(
                    endpoint, f"no answer within {self._timeout_ns / stamp_endpoint.SECOND_NS:g} s"
                )
        for endpoint, since_ns in list(self._listening.items()):
            if now_ns - since_ns >= self._timeout_ns:
                self._end_listening(endpoint)

    def _handle(self, endpoint: socket.socket, now_ns: int) -> None:
        if endpoint in self._listening:
            with contextlib.suppress(OSError):
                self._banner = endpoint.recv(_BANNER_BYTES_MAX)
            if self._banner:
                self._banner_ns = now_ns - self._listening[endpoint]
            self._end_listening(endpoint)
            return
        self._selector.unregister(endpoint)
        error = endpoint.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if error:
            self._fail(endpoint, os.strerror(error))
            return
        number, began_ns = self._begun.pop(endpoint)
        self._connected.append((number, now_ns - began_ns))
        if self._needs_banner:
            self._needs_banner = False
            self._listening[endpoint] = now_ns
            self._selector.register(endpoint, selectors.EVENT_READ)
        else:
            endpoint.close()

    def _end_listening(self, endpoint: socket.socket) -> None:
        self._selector.unregister(endpoint)
        del self._listening[endpoint]
        endpoint.close()

    def _fail(self, endpoint: socket.socket, reason: str) -> None:
        del self._begun[endpoint]
        endpoint.close()
        self._failures[reason] = self._failures.get(reason, 0) + 1


def _first_line(banner: bytes) -> str:
    """Return the first line, as far as it is text."""
    return banner.decode(errors="replace").strip().split("\n", 1)[0].strip()


def measure(arguments: stamp_endpoint.Arguments) -> dict[str, Any]:
    """Make all attempts.

    Arguments: ``host``, ``port``, ``ip_version`` (4, 6 or null), ``device``, ``source`` (the
    address to connect from, or null), ``count``, ``interval_ns``, ``timeout_ns`` (for the name, for
    each attempt, and for the banner), ``banner`` (whether to wait for it), ``first_ns`` (the
    instant of the first attempt), ``private`` (see :class:`.target.Private`).
    Result: the address, nanoseconds to resolve the name, ``connected`` (number and nanoseconds of
    each attempt), ``failures`` (reasons and their counts), the banner and nanoseconds until it
    came; or ``failure``, if the name has no address.
    """
    rules = target.Private(arguments).rules
    stamp_endpoint.wait_until(arguments["first_ns"])
    began_ns = time.monotonic_ns()
    timeout_ns = arguments["timeout_ns"]
    host, port = arguments["host"], arguments["port"]
    try:
        deadline = target.Deadline(timeout_ns)
        addresses = target.look_up(host, port, arguments["ip_version"], deadline, rules)
    except target.TargetUnreachable as reason:
        return {"failure": str(reason)}
    result = {"address": addresses[0][1][0], "name_ns": time.monotonic_ns() - began_ns}
    connector = Connector(addresses[0], arguments)
    return result | connector.run(arguments["count"], arguments["interval_ns"])


if __name__ == "__main__":
    sys.exit(stamp_endpoint.run(measure, undisturbed=True))
