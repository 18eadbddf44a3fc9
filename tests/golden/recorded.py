"""Reading what real tools printed, as recorded in ``tools/<tool>/<case>.json``.

A recording holds the version, the argv, the exit code and the lines of both streams. The version
is that of Debian 12, unless the folder says another (``iperf3-3.18``; ``iperf3-3.12-3.18`` has a
client of the one and a server of the other). ``owping`` alone was never run: it is from its
documentation.
"""

from __future__ import annotations

import json
from pathlib import Path

from node.plugins.contracts import Output

TOOLS = Path(__file__).parent / "tools"


def output(tool: str, case: str) -> Output:
    """What a tool printed in one recorded case."""
    recording = json.loads((TOOLS / tool / f"{case}.json").read_text())
    return Output(
        exit_code=recording["exit_code"],
        stdout="".join(f"{line}\n" for line in recording["stdout"]).encode(),
        stderr="".join(f"{line}\n" for line in recording["stderr"]).encode(),
        ended_by=recording["ended_by"],
    )


def cases(tool: str) -> list[str]:
    """All recorded cases of a tool."""
    return sorted(path.stem for path in (TOOLS / tool).glob("*.json"))
