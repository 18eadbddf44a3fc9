"""Run the command line as a process against a node."""

from __future__ import annotations

import asyncio
import os
import sys
from dataclasses import dataclass

from tests.acceptance.outsider import Outsider


@dataclass(frozen=True)
class CommandResult:
    """The exit code and the output of a command."""

    code: int
    out: str
    err: str


async def parley(node: Outsider, *arguments: str, stdin: str = "") -> CommandResult:
    """Run ``parley …`` against a node."""
    settings = {"PARLEY_SERVER": node.url, "PARLEY_TOKEN": node.token, "COLUMNS": "200"}
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "node.cli.main",
        *arguments,
        env={**os.environ, **settings},
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate(stdin.encode())
    assert process.returncode is not None
    return CommandResult(process.returncode, out.decode(), err.decode())
