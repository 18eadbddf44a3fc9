"""Runs the command line in a process of its own, forked from one that has imported it.

Importing the command line takes ten times as long as most commands do. The processes differ from
those that a shell starts in nothing else: arguments, environment, standard input and output, and
exit code are their own.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from multiprocessing import forkserver, get_context
from pathlib import Path
from typing import Any

from node.cli.commands import COMMANDS
from node.cli.main import main

_CONTEXT = get_context("forkserver")
_CONTEXT.set_forkserver_preload([__name__, *{place for place, _ in COMMANDS.values()}])

_STREAMS = {
    "stdin": os.O_RDONLY,
    "stdout": os.O_WRONLY | os.O_CREAT,
    "stderr": os.O_WRONLY | os.O_CREAT,
}
"""The files that are a command's standard streams, in the order of their descriptors."""


@dataclass(frozen=True)
class CommandResult:
    """The exit code and the output of a command."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        """The JSON that it printed."""
        return json.loads(self.out)


def ensure_server() -> None:
    """Start the process from which commands are forked, unless it runs."""
    forkserver.ensure_running()


async def run_command(
    arguments: tuple[str, ...], environment: Mapping[str, str], stdin: str = ""
) -> CommandResult:
    """Run ``parley`` with these arguments and nothing but this environment, to its end."""
    with tempfile.TemporaryDirectory(prefix="parley-command-") as directory:
        folder = Path(directory)
        (folder / "stdin").write_text(stdin)
        process = _CONTEXT.Process(target=_run, args=(arguments, dict(environment), folder))
        await asyncio.to_thread(process.start)
        try:
            await asyncio.to_thread(process.join)
            assert process.exitcode is not None
            out, err = ((folder / name).read_text() for name in ("stdout", "stderr"))
            return CommandResult(process.exitcode, out, err)
        finally:
            process.kill()
            process.join()
            process.close()


def _run(arguments: tuple[str, ...], environment: dict[str, str], folder: Path) -> None:
    os.environ.clear()
    os.environ.update(environment)
    time.tzset()
    for number, (name, flags) in enumerate(_STREAMS.items()):
        opened = os.open(folder / name, flags, 0o600)
        os.dup2(opened, number)
        os.close(opened)
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115 - it lasts as long as this process
    sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", encoding="utf-8", closefd=False, buffering=1)  # noqa: SIM115
    sys.argv = ["parley", *arguments]
    main()
