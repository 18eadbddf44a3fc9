"""Listens at one port, reads one stream to its end, and prints the text.

``stream_receiver.py '{"address": "192.0.2.2", "port": 5000, …}'``, see :func:`measure`. Only the
first connection is read, and only so much of it.
"""

from __future__ import annotations

import socket
import sys
import time
from pathlib import Path
from typing import Any

if __name__ == "__main__":  # started by its path and in isolated mode: nothing else is importable
    sys.path.append(str(Path(__file__).resolve().parents[4]))

from node.plugins.tools.programs import stamp_endpoint

_BYTES_MAX = 60_000
_AT_ONCE = 65_536


def listening_socket(arguments: stamp_endpoint.Arguments) -> socket.socket:
    """Return a socket that listens at the address; for a name, whose address may differ, at any.

    :raises stamp_endpoint.Unusable: the port cannot be used.
    """

    def opened(family: int) -> socket.socket:
        endpoint = socket.socket(family, socket.SOCK_STREAM)
        endpoint.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        stamp_endpoint.bind_to_device(endpoint, arguments["device"])
        return endpoint

    endpoint = stamp_endpoint.bind_at_own_address(arguments, opened)
    endpoint.listen(1)
    return endpoint


def measure(arguments: stamp_endpoint.Arguments) -> dict[str, Any]:
    """Read one stream.

    Arguments: ``address``, ``port``, ``ip_version`` (4, 6 or null), ``device``, ``begin_ns`` (the
    agreed start), ``deadline_ns`` (when to give up), both by the wall clock.
    Result: ``received``, and ``elapsed_ns`` from the start until the end of the stream.

    :raises stamp_endpoint.Unusable: the port cannot be used, or nobody sent anything in time.
    """
    endpoint = listening_socket(arguments)
    deadline_ns = time.monotonic_ns() + arguments["deadline_ns"] - time.time_ns()
    octets = bytearray()
    try:
        endpoint.settimeout(_left_s(deadline_ns))
        connection, _ = endpoint.accept()
        with connection:
            while len(octets) < _BYTES_MAX:
                connection.settimeout(_left_s(deadline_ns))
                piece = connection.recv(_AT_ONCE)
                if not piece:
                    break
                octets += piece
    except TimeoutError:
        what = "the stream did not end" if octets else "nobody connected and sent anything"
        raise stamp_endpoint.Unusable(f"{what} in time") from None
    except OSError as fault:
        raise stamp_endpoint.Unusable(f"the connection was lost: {fault.strerror}") from None
    finally:
        endpoint.close()
    return {
        "received": octets[:_BYTES_MAX].decode("utf-8", "replace"),
        "elapsed_ns": max(0, time.time_ns() - arguments["begin_ns"]),
    }


def _left_s(deadline_ns: int) -> float:
    """Return the seconds until a monotonic instant.

    :raises TimeoutError: it has passed.
    """
    left_ns = deadline_ns - time.monotonic_ns()
    if left_ns <= 0:
        raise TimeoutError
    return left_ns / stamp_endpoint.SECOND_NS


if __name__ == "__main__":
    sys.exit(stamp_endpoint.run(measure))
