"""Which version of a program is installed: asked of it once, and again when its file changes."""

from __future__ import annotations

import asyncio
import re
import shutil
from pathlib import Path

from node.capability.catalog import program_version
from node.execution import process
from node.model.errors import HostError
from node.plugins.contracts import Requirement, Tool

_ANSWER_S = 5.0
_LENGTH_MAX = 64

_File = tuple[str, int, int, int]
"""Path, inode, size, nanosecond of the last change: another file, if one differs."""


class Versions:
    """The versions of the programs on this host."""

    def __init__(self) -> None:
        """Nothing is asked before it is needed."""
        self._known: dict[str, tuple[_File, asyncio.Task[str | None]]] = {}

    async def of(self, tool: Tool) -> str | None:
        """The version of a tool's program; None if it does not say. Our own have Parley's."""
        if tool.requirement is None:
            return program_version()
        file = _file(tool.requirement.program)
        if file is None or not tool.requirement.version_argv:
            return None
        known = self._known.get(tool.requirement.program)
        if known is None or known[0] != file:
            # Kept as a task: those who ask at the same time wait for one and the same answer.
            known = file, asyncio.create_task(_asked(tool.requirement), name=f"version {file[0]}")
            self._known[tool.requirement.program] = known
        return await asyncio.shield(known[1])


def _file(program: str) -> _File | None:
    path = shutil.which(program)
    if path is None:
        return None
    try:
        found = Path(path).stat()
    except OSError:
        return None
    return path, found.st_ino, found.st_size, found.st_mtime_ns


async def _asked(requirement: Requirement) -> str | None:
    try:
        said = await process.finish(requirement.version_argv, timeout_s=_ANSWER_S, chased=True)
    except HostError:
        return None
    text = (said.stdout + b"\n" + said.stderr).decode(errors="replace")
    found = re.search(requirement.version_pattern, text)
    return found.group(1)[:_LENGTH_MAX] if found else None
