"""Holds a program under the restrictions of the unit of the tools.

``python -m tests.architecture.held UNIT [CALL…]`` drops the system calls that the unit does not
allow, and those named, and has a program loaded and begun as a node does. It prints what the
process is before its instant, and what it prints then.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

from node.execution import process
from node.execution.process import Confinement, Needs
from node.execution.tool_runner import ToolRunner
from node.model import times
from node.runtime.clock import SystemClock
from node.runtime.settings import Settings
from tests.architecture.confined import allowed_by, confine


async def _main(unit: Path, forbidden: frozenset[str]) -> None:
    confine(allowed_by(unit.read_text()) - forbidden)
    runner, clock = ToolRunner(Settings()), SystemClock()
    confinement = Confinement(runner, Needs(60.0))
    held = await process.start(["echo", "begun"], confinement=confinement, held=True)
    loaded = Path(f"/proc/{held.pid}/exe").readlink().name
    held.release(clock.now, clock.now(), clock.now() + times.MINUTE)
    begun = await held.begun(clock.now, 60.0)
    finished = await held.wait()
    await runner.close()
    sys.stdout.write(json.dumps([loaded, begun, finished.stdout.decode()]))


if __name__ == "__main__":
    asyncio.run(_main(Path(sys.argv[1]), frozenset(sys.argv[2:])))
