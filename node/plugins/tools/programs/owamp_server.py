"""Runs an owampd of its own from one instant to another, for one client, on given ports.

``owamp_server.py '{"at_ns": …, "until_ns": …, "address": "192.0.2.2", "port": 8760,
"ports": [8761, 8763], "client": "192.0.2.1"}'`` prints one JSON document: whether owampd ended
before it was told to, its exit code, what it said, and the clock. A ``client`` that is a
name is served at all addresses that this host knows of it.

Configuration, data and the number of its process are in a directory that goes with it. Its files
have two names each, as versions before and after 3.5 look for them.
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

_SECOND_NS = 1_000_000_000
_SAID_BYTES = 2_000
_ENDING_S = 0.2
_NAMES = ("owamp-server", "owampd")


def main(written: str) -> int:
    """Run it; 127 where it cannot be started."""
    asked = json.loads(written)
    stamp_endpoint.wait_until(asked["at_ns"])
    try:
        clients = _clients(asked["client"])
    except stamp_endpoint.Unusable as reason:
        print(f"owampd: {reason}", file=sys.stderr)
        return 1
    clock = stamp_endpoint.KernelClock()
    # What is made from here on is removed, also if this is told to end before owampd is there.
    signal.signal(signal.SIGTERM, _leave)
    with tempfile.TemporaryDirectory(prefix="parley-owamp-") as place:
        _configure(Path(place), clients, asked["ports"])
        argv = ["owampd", "-Z", "-a", "O", "-c", place, "-d", place, "-R", place]
        argv += ["-S", stamp_endpoint.host_and_port(asked["address"], asked["port"])]
        argv += ["-f"] if os.geteuid() == 0 else []
        with (Path(place) / "said").open("w+b") as said:
            try:
                server = subprocess.Popen(  # noqa: S603 - an argv, no shell
                    argv, stdin=subprocess.DEVNULL, stdout=said, stderr=said
                )
            except OSError as fault:
                print(f"owampd: {fault.strerror}", file=sys.stderr)
                return 127
            told = _attend(server, asked["until_ns"])
            text = os.pread(said.fileno(), _SAID_BYTES, 0).decode(errors="replace")
    print(json.dumps(told | {"said": text, "clock": clock.state()}, separators=(",", ":")))
    return 0


class _Told(SystemExit):
    """The launcher has told us to end."""


def _leave(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - as handlers are called
    raise _Told(128 + number)


def _attend(server: subprocess.Popen[bytes], until_ns: int) -> dict[str, Any]:
    """Wait for its time to end it, or for the launcher's TERM, or until it ends by itself."""
    early = False
    try:
        server.wait(max(0.0, (until_ns - time.time_ns()) / _SECOND_NS))
        early = True
    except (subprocess.TimeoutExpired, _Told):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        server.terminate()
        _end(server)
    return {"early": early, "exit_code": server.returncode}


def _end(server: subprocess.Popen[bytes]) -> None:
    """Wait for one that was told to end; it shall be gone before the booked time is over."""
    try:
        server.wait(_ENDING_S)
    except subprocess.TimeoutExpired:
        server.kill()
        server.wait()


def _clients(client: str) -> list[str]:
    """The networks of one address each that the client may come from.

    :raises Unusable: its name has no address here.
    """
    found = [client]
    if not stamp_endpoint.is_address(client):
        known = stamp_endpoint.addresses(client, None, 0)
        found = list(dict.fromkeys(str(address[0]) for _, address in known))
    return [f"{host}/{128 if ':' in host else 32}" for host in found]


def _configure(place: Path, clients: Sequence[str], ports: Sequence[int]) -> None:
    """Whom it serves: the client in open mode and without limits, nobody else."""
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
