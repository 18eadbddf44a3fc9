"""Runs an owampd of its own from one instant to another, for one client, on fixed ports.

``owamp_server.py '{"at_ns": …, "until_ns": …, "address": "192.0.2.2", "port": 8760,
"ports": [8761, 8763], "client": "192.0.2.1"}'`` prints one JSON document: whether owampd ended
before it was to be ended, its exit code, its messages, and the clock. A ``client`` that is a name
is served at all addresses that this host resolves it to.

Configuration, data and pid file are in a directory that is removed afterwards. Its files have two
names each, because versions before and after 3.5 look for different ones.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import Any

if __name__ == "__main__":  # started by its path and in isolated mode: nothing else is importable
    sys.path.append(str(Path(__file__).resolve().parents[4]))

from node.plugins.tools.programs import stamp_endpoint

_SAID_BYTES = 2_000
_ENDING_S = 0.2
_NAMES = ("owamp-server", "owampd")


def main(document: str) -> int:
    """Run it; return 127 if it cannot be started."""
    arguments = json.loads(document)
    stamp_endpoint.wait_until(arguments["at_ns"])
    try:
        clients = _clients(arguments["client"])
    except stamp_endpoint.Unusable as reason:
        print(f"owampd: {reason}", file=sys.stderr)
        return 1
    clock = stamp_endpoint.KernelClock()
    # The directory is removed even if TERM arrives before owampd is started.
    signal.signal(signal.SIGTERM, _leave)
    with tempfile.TemporaryDirectory(prefix="parley-owamp-") as place:
        _configure(Path(place), clients, arguments["ports"])
        argv = ["owampd", "-Z", "-a", "O", "-c", place, "-d", place, "-R", place]
        argv += ["-S", stamp_endpoint.host_and_port(arguments["address"], arguments["port"])]
        argv += ["-f"] if os.geteuid() == 0 else []
        with (Path(place) / "said").open("w+b") as output:
            # Until the server can be ended, TERM leaves a note only, so as not to break its start.
            signals: list[int] = []
            signal.signal(signal.SIGTERM, lambda number, _: signals.append(number))
            try:
                server = subprocess.Popen(  # noqa: S603 - an argv, no shell
                    argv, stdin=subprocess.DEVNULL, stdout=output, stderr=output
                )
            except OSError as fault:
                print(f"owampd: {fault.strerror}", file=sys.stderr)
                return 127
            status = _attend(server, signals, arguments["until_ns"])
            text = os.pread(output.fileno(), _SAID_BYTES, 0).decode(errors="replace")
    print(json.dumps(status | {"said": text, "clock": clock.state()}, separators=(",", ":")))
    return 0


class _Terminated(SystemExit):
    """The launcher has sent TERM."""


def _leave(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - a signal handler
    raise _Terminated(128 + number)


def _attend(server: subprocess.Popen[bytes], signals: list[int], until_ns: int) -> dict[str, Any]:
    """Wait until ``until_ns``, a TERM of the launcher, or the server's end; then end the server.

    ``signals`` are those that arrived before.
    """
    early = False
    try:
        signal.signal(signal.SIGTERM, _leave)
        if signals:
            _leave(signals[0], None)
        server.wait(max(0.0, (until_ns - time.time_ns()) / stamp_endpoint.SECOND_NS))
        early = True
    except (subprocess.TimeoutExpired, _Terminated):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        server.terminate()
        _end(server)
    return {"early": early, "exit_code": server.returncode}


def _end(server: subprocess.Popen[bytes]) -> None:
    """Wait for a terminated server; it must be gone before the booked time is over."""
    try:
        server.wait(_ENDING_S)
    except subprocess.TimeoutExpired:
        server.kill()
        server.wait()


def _clients(client: str) -> list[str]:
    """Return the networks (of one address each) that the client may connect from.

    :raises Unusable: its name has no address here.
    """
    hosts = [client]
    if not stamp_endpoint.is_address(client):
        addresses = stamp_endpoint.addresses(client, None, 0)
        hosts = list(dict.fromkeys(str(address[0]) for _, address in addresses))
    return [f"{host}/{128 if ':' in host else 32}" for host in hosts]


def _configure(place: Path, clients: Sequence[str], ports: Sequence[int]) -> None:
    """Write a configuration that serves the client in open mode without limits, nobody else."""
    low, high = ports
    limits = [
        "limit root with bandwidth=0, disk=0, delete_on_fetch=on, allow_open_mode=on",
        "limit nobody with parent=root, bandwidth=1, disk=1, allow_open_mode=off",
        "assign default nobody",
        *(f"assign net {network} root" for network in clients),
    ]
    for name in _NAMES:
        (place / f"{name}.conf").write_text(f"testports {low}-{high}\n")
        (place / f"{name}.limits").write_text("\n".join(limits) + "\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
