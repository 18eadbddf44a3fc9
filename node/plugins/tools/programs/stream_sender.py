"""Connects to one port, trying again until its time is over, and sends one text.

``stream_sender.py '{"address": "192.0.2.2", "port": 5000, "text": "…", …}'``, see :func:`measure`.
"""

from __future__ import annotations

import random
import socket
import sys
import time
from pathlib import Path
from typing import Any

if __name__ == "__main__":  # started by its path and in isolated mode: nothing else is importable
    sys.path.append(str(Path(__file__).resolve().parents[4]))

from node.plugins.tools.programs import stamp_endpoint

_PAUSE_S = 0.2
"""Time between two attempts to connect: the receiver may be late."""


def _connect(arguments: stamp_endpoint.Arguments, left_s: float) -> socket.socket:
    """Return a connection from the own address to the receiver.

    :raises OSError: there is none.
    :raises stamp_endpoint.Unusable: the name is unknown, or the own address cannot be used.
    """
    family, address = stamp_endpoint.addresses(
        arguments["address"], arguments["ip_version"], arguments["port"]
    )[0]
    endpoint = socket.socket(family, socket.SOCK_STREAM)
    device, source = arguments["device"], arguments["source"]
    if device is not None:
        endpoint.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, device.encode())
    if stamp_endpoint.is_address(source):
        own_family, own = stamp_endpoint.addresses(source, None, 0)[0]
        if own_family == family:
            stamp_endpoint.bind(endpoint, own, fixed_port=False)
    endpoint.settimeout(left_s)
    endpoint.connect(address)
    return endpoint


def measure(arguments: stamp_endpoint.Arguments) -> dict[str, Any]:
    """Send the text.

    Arguments: ``address``, ``port``, ``ip_version`` (4, 6 or null), ``device``, ``source`` (the
    address to connect from), ``text``, ``dawdle_ns`` (the longest time to wait before), and by the
    wall clock ``begin_ns`` and ``deadline_ns`` (when to give up).
    Result: ``sent`` and ``dawdled_ns``.

    :raises stamp_endpoint.Unusable: there was no connection in time.
    """
    stamp_endpoint.wait_until(arguments["begin_ns"])
    deadline_ns = time.monotonic_ns() + arguments["deadline_ns"] - time.time_ns()
    dawdled_ns = random.Random().randrange(arguments["dawdle_ns"] + 1)
    time.sleep(dawdled_ns / stamp_endpoint.SECOND_NS)
    reason = "no time was left to connect"
    while (left_ns := deadline_ns - time.monotonic_ns()) > 0:
        try:
            with _connect(arguments, left_ns / stamp_endpoint.SECOND_NS) as endpoint:
                endpoint.sendall(arguments["text"].encode("utf-8", "replace"))
                endpoint.shutdown(socket.SHUT_WR)
        except OSError as fault:
            reason = f"cannot connect: {fault.strerror or fault}"
            time.sleep(min(_PAUSE_S, left_ns / stamp_endpoint.SECOND_NS))
        else:
            return {"sent": arguments["text"], "dawdled_ns": dawdled_ns}
    raise stamp_endpoint.Unusable(reason)


if __name__ == "__main__":
    sys.exit(stamp_endpoint.run(measure))
