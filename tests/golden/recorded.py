"""Recorded output of real tools, from ``tools/<tool>/<case>.json``.

A recording holds the version, the argv, the exit code, and the lines of both streams. The version
is that of Debian 12, unless the folder names another one (``iperf3-3.18``; ``iperf3-3.12-3.18`` has
a client of the former and a server of the latter).
"""

from __future__ import annotations

import json
from pathlib import Path

from node.plugins.contracts import Output

TOOLS = Path(__file__).parent / "tools"


def output(tool: str, case: str) -> Output:
    """Return the output of a tool in one recorded case."""
    recording = json.loads((TOOLS / tool / f"{case}.json").read_text())
    return Output(
        exit_code=recording["exit_code"],
        stdout="".join(f"{line}\n" for line in recording["stdout"]).encode(),
        stderr="".join(f"{line}\n" for line in recording["stderr"]).encode(),
        ended_by=recording["ended_by"],
    )


def cases(tool: str) -> list[str]:
    """Return all recorded cases of a tool."""
    return sorted(path.stem for path in (TOOLS / tool).glob("*.json"))
