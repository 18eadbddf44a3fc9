"""Runs owping twice at once, for the packets each way, and prints the output of both.

``owamp_client.py '{"at_ns": …, "options": ["-R", …], "forward": ["-t", …], "backward": ["-f", …],
"source": "192.0.2.1", "dest": "192.0.2.2", "port": 8760}'`` prints one JSON document: the exit code
and both streams of each way, and the clock. It binds to ``source`` if that is an address; a name
may resolve to another address on its own host.
There are two programs because nothing in their output shows which way its lines are about.
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


def main(document: str) -> int:
    """Run both; return 127 if they cannot be started."""
    arguments = json.loads(document)
    stamp_endpoint.wait_until(arguments["at_ns"])
    clock = stamp_endpoint.KernelClock()
    programs: dict[str, subprocess.Popen[str]] = {}

    def end(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - a signal handler
        for program in programs.values():
            program.terminate()

    # The launcher ends the whole process group; the output must still be printed then.
    signal.signal(signal.SIGTERM, end)
    try:
        for way in WAYS:
            programs[way] = _start(_argv(arguments, way))
    except OSError as fault:
        end(0, None)
        print(f"owping: {fault.strerror}", file=sys.stderr)
        return 127
    outputs: dict[str, Any] = {way: _output(program) for way, program in programs.items()}
    print(json.dumps(outputs | {"clock": clock.state()}, separators=(",", ":")))
    return 0


def _argv(arguments: Mapping[str, Any], way: str) -> list[str]:
    own = arguments["source"]
    source = ["-S", own] if stamp_endpoint.is_address(own) else []
    there = stamp_endpoint.host_and_port(arguments["dest"], arguments["port"])
    return ["owping", *arguments["options"], *arguments[way], *source, "--", there]


def _start(argv: list[str]) -> subprocess.Popen[str]:
    return subprocess.Popen(  # noqa: S603 - an argv, no shell
        argv,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        errors="replace",
    )


def _output(program: subprocess.Popen[str]) -> dict[str, Any]:
    printed, complaints = program.communicate()
    code = program.returncode
    return {"exit_code": code, "printed": printed, "said": complaints[:_SAID_CHARACTERS]}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
