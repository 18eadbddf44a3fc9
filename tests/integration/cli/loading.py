"""Runs commands that it reads as JSON, and prints for each its exit code and what it has loaded.

Starting Python takes longer than what most commands do, so each runs in a process that is forked
from one that has loaded the entry point only.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile

from node.cli.main import main


def _run(command: list[str]) -> None:
    """Run a command, and print a line with its exit code, the bytes it wrote, and the modules."""
    line = sys.stdout.fileno()
    with tempfile.TemporaryFile() as out:
        if child := os.fork():
            os.waitpid(child, 0)
            return
        told = os.dup(line)
        os.dup2(out.fileno(), line)
        sys.argv = ["parley", *command]
        code: object = None
        try:
            main()
        except SystemExit as end:
            code = end.code
        sys.stdout.flush()
        written = os.fstat(line).st_size
        os.write(told, json.dumps([code, written, sorted(sys.modules)]).encode() + b"\n")
        os._exit(0)


if __name__ == "__main__":
    for each in json.load(sys.stdin):
        _run(each)
