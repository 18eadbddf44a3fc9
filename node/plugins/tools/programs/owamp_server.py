"""Runs an owampd of its own from one instant to another, for one client, on given ports.

``owamp_server.py '{"at_ns": …, "until_ns": …, "address": "192.0.2.2", "port": 8760,
"ports": [8761, 8763], "client": "192.0.2.1"}'`` prints one JSON document: whether owampd ended
before it was told to, its exit code, what it said, and the clock. If ``client`` is a name it serves
anybody.

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
from pathlib import Path
from types import FrameType
from typing import Any

if __name__ == "__main__":  # started by its path and in isolated mode: nothing else is importable
    sys.path.append(str(Path(__file__).resolve().parents[4]))

from node.plugins.tools.programs import stamp_endpoint

_SECOND_NS = 1_000_000_000
_SAID_BYTES = 2_000
_NAMES = ("owamp-server", "owampd")


def main(written: str) -> int:
    """Run it; 127 where it cannot be started."""
    asked = json.loads(written)
    stamp_endpoint.wait_until(asked["at_ns"])
    clock = stamp_endpoint.Clock()
    with tempfile.TemporaryDirectory(prefix="parley-owamp-") as place:
        _configure(Path(place), asked)
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


def _attend(server: subprocess.Popen[bytes], until_ns: int) -> dict[str, Any]:
    """Wait for its time to end it, or for the launcher's TERM, or until it ends by itself."""

    def end(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - as handlers are called
        server.terminate()
        asked_to.append(number)

    asked_to: list[int] = []
    signal.signal(signal.SIGTERM, end)
    try:
        server.wait(max(0.0, (until_ns - time.time_ns()) / _SECOND_NS))
    except subprocess.TimeoutExpired:
        end(0, None)
        server.wait()
    return {"early": not asked_to, "exit_code": server.returncode}


def _configure(place: Path, asked: dict[str, Any]) -> None:
    """Whom it serves: the client in open mode and without limits, nobody else."""
    low, high = asked["ports"]
    client = asked["client"]
    limits = ["limit root with bandwidth=0, disk=0, delete_on_fetch=on, allow_open_mode=on"]
    if stamp_endpoint.is_address(client):
        limits.append("limit nobody with parent=root, bandwidth=1, disk=1, allow_open_mode=off")
        bits = 128 if ":" in client else 32
        limits += ["assign default nobody", f"assign net {client}/{bits} root"]
    else:
        limits.append("assign default root")
    for name in _NAMES:
        (place / f"{name}.conf").write_text(f"testports {low}-{high}\n")
        (place / f"{name}.limits").write_text("\n".join(limits) + "\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
