"""irtt's server for a stream of irtt's clients, with a record of the clock per interval.

``irttbg_server.py '{"argv": ["irtt", "server", …], "at_ns": …, …}'``, see :func:`measure`. The
server prints no figures; it tells the clients what it received.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

if __name__ == "__main__":  # started by its path and in isolated mode: nothing else is importable
    sys.path.append(str(Path(__file__).resolve().parents[4]))

from node.plugins.tools.programs import stamp_endpoint


def measure(arguments: stamp_endpoint.Arguments) -> dict[str, Any]:
    """Run one stream.

    Arguments: ``argv`` (of the server), ``at_ns`` and ``until_ns`` (the instants at which it is
    started and ended), ``intervals``, ``each_ns`` (their length), ``first_ns`` (the instant at
    which the first begins).
    Records: the clock, at the end of each interval.
    Result: ``intervals``, the number of records. The server's messages are on standard error.
    """
    argv: list[str] = arguments["argv"]
    stamp_endpoint.wait_until(arguments["at_ns"])
    try:
        server = subprocess.Popen(  # noqa: S603 - an argv
            argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL
        )
    except OSError as fault:
        raise stamp_endpoint.Unusable(f"{argv[0]}: {fault.strerror}") from None
    try:
        for number in range(arguments["intervals"]):
            clock = stamp_endpoint.KernelClock()
            _attend(server, arguments["first_ns"] + (number + 1) * arguments["each_ns"])
            stamp_endpoint.record({"interval": number, "clock": clock.state()})
        _attend(server, arguments["until_ns"])
    finally:
        server.kill()
        server.wait()
    return {"intervals": arguments["intervals"]}


def _attend(server: subprocess.Popen[bytes], until_ns: int) -> None:
    """Return at an instant of the wall clock.

    :raises stamp_endpoint.Unusable: the server ended before.
    """
    while (left_ns := until_ns - time.time_ns()) > 0:
        try:
            exit_code = server.wait(left_ns / stamp_endpoint.SECOND_NS)
        except subprocess.TimeoutExpired:
            continue
        raise stamp_endpoint.Unusable(f"its server ended (exit code {exit_code})")


if __name__ == "__main__":
    sys.exit(stamp_endpoint.run(measure))
