"""Runs owping twice at once, for the packets each way, and tells what both printed.

``owamp_client.py '{"at_ns": …, "options": ["-R", …], "forward": ["-t", …], "backward": ["-f", …],
"source": "192.0.2.1", "dest": "192.0.2.2", "port": 8760}'`` prints one JSON document: of each way
the exit code and what came on both streams, and the clock. It is bound to ``source`` if that is an
address; a name may mean another one at its own host.
Two programs, because nothing in what one prints says of which way its lines are.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import FrameType
from typing import Any

if __name__ == "__main__":  # started by its path and in isolated mode: nothing else is importable
    sys.path.append(str(Path(__file__).resolve().parents[4]))

from node.plugins.tools.programs import stamp_endpoint

WAYS = ("forward", "backward")
_SAID_CHARACTERS = 2_000


def main(written: str) -> int:
    """Run both; 127 where they cannot be started."""
    asked = json.loads(written)
    stamp_endpoint.wait_until(asked["at_ns"])
    clock = stamp_endpoint.KernelClock()
    started: dict[str, subprocess.Popen[str]] = {}

    def end(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - as handlers are called
        for program in started.values():
            program.terminate()

    # The whole group is told to end; what is known by then is still to be said.
    signal.signal(signal.SIGTERM, end)
    try:
        for way in WAYS:
            started[way] = _start(_argv(asked, way))
    except OSError as fault:
        end(0, None)
        print(f"owping: {fault.strerror}", file=sys.stderr)
        return 127
    told: dict[str, Any] = {way: _finished(program) for way, program in started.items()}
    print(json.dumps(told | {"clock": clock.state()}, separators=(",", ":")))
    return 0


def _argv(asked: Mapping[str, Any], way: str) -> list[str]:
    source = ["-S", asked["source"]] if stamp_endpoint.is_address(asked["source"]) else []
    there = stamp_endpoint.host_and_port(asked["dest"], asked["port"])
    return ["owping", *asked["options"], *asked[way], *source, "--", there]


def _start(argv: list[str]) -> subprocess.Popen[str]:
    return subprocess.Popen(  # noqa: S603 - an argv, no shell
        argv,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        errors="replace",
    )


def _finished(program: subprocess.Popen[str]) -> dict[str, Any]:
    printed, said = program.communicate()
    code = program.returncode
    return {"exit_code": code, "printed": printed, "said": said[:_SAID_CHARACTERS]}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
