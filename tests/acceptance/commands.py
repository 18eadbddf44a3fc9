"""Run the command line as a process against a node."""

from __future__ import annotations

import os

from tests.acceptance.outsider import Outsider
from tests.support.command_line import CommandResult, run_command


async def parley(node: Outsider, *arguments: str, stdin: str = "") -> CommandResult:
    """Run ``parley …`` against a node."""
    settings = {"PARLEY_SERVER": node.url, "PARLEY_TOKEN": node.token, "COLUMNS": "200"}
    return await run_command(arguments, {**os.environ, **settings}, stdin)
