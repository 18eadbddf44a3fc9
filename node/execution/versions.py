"""Versions of installed programs: asked once, and again when the program's file changes."""

from __future__ import annotations

import asyncio
import contextlib
import re
import shutil
from pathlib import Path

from node.execution import process
from node.execution.process import Confinement, Confining, Needs
from node.model.errors import HostError
from node.plugins.contracts import Requirement, Tool
from node.runtime.version import program_version

_ANSWER_S = 5.0
_LENGTH_MAX = 64

_File = tuple[str, int, int, int]
"""Path, inode, size, and nanosecond of the last change; if one differs, the file is another."""


class Versions:
    """The versions of the programs on this host."""

    def __init__(self, tool_runner: Confining) -> None:
        """Start without asking any program; they are asked as confined as they measure."""
        self._tool_runner = tool_runner
        self._cache: dict[str, tuple[_File, asyncio.Task[str | None]]] = {}

    async def of(self, tool: Tool) -> str | None:
        """Return the version of a tool's program; None if unknown. Our own have Parley's."""
        if tool.requirement is None:
            return program_version()
        asked = self._asked(tool.requirement)
        return None if asked is None else await asyncio.shield(asked)

    def known(self, requirement: Requirement) -> str | None:
        """Return the version of a program as far as it has answered; None if it has not.

        A program that was not asked yet, or is another one by now, is asked beside everything else.
        """
        with contextlib.suppress(RuntimeError):  # no loop runs: nothing can be asked
            asyncio.get_running_loop()
            asked = self._asked(requirement)
            if asked is not None and asked.done() and not asked.cancelled():
                return asked.result()
        return None

    def _asked(self, requirement: Requirement) -> asyncio.Task[str | None] | None:
        """Return the answer of a program, which may be under way; None if there is no program."""
        file = _file_state(requirement.program)
        if file is None or not requirement.version_argv:
            return None
        entry = self._cache.get(requirement.program)
        if entry is None or entry[0] != file:
            # Cached as a task, so that concurrent callers wait for the same answer.
            entry = (file, asyncio.create_task(self._ask(requirement), name=f"version {file[0]}"))
            self._cache[requirement.program] = entry
        return entry[1]

    async def _ask(self, requirement: Requirement) -> str | None:
        try:
            answer = await process.finish(
                requirement.version_argv,
                timeout_s=_ANSWER_S,
                confinement=Confinement(self._tool_runner, Needs(_ANSWER_S)),
            )
        except HostError:
            return None
        text = (answer.stdout + b"\n" + answer.stderr).decode(errors="replace")
        match = re.search(requirement.version_pattern, text)
        return match.group(1)[:_LENGTH_MAX] if match else None


def _file_state(program: str) -> _File | None:
    path = shutil.which(program)
    if path is None:
        return None
    try:
        status = Path(path).stat()
    except OSError:
        return None
    return path, status.st_ino, status.st_size, status.st_mtime_ns
