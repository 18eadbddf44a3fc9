"""Run the command line as a process against a node."""

from __future__ import annotations

import os
from pathlib import Path

from node.trust.keys import NodeKey
from tests.acceptance.outsider import Outsider
from tests.support.command_line import CommandResult, run_command


async def parley(node: Outsider, *arguments: str, stdin: str = "", **more: str) -> CommandResult:
    """Run ``parley …`` against a node; ``more`` goes into its environment."""
    settings = {"PARLEY_SERVER": node.url, "PARLEY_TOKEN": node.token, "COLUMNS": "200"} | more
    if node.url.startswith("https:"):
        key = NodeKey.load_or_create(Path(node.state) / "node.pem")
        settings["PARLEY_IDENTITY"] = key.identity
    return await run_command(arguments, {**os.environ, **settings}, stdin)
