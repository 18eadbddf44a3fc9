"""Runs a long command and reports its progress in a few lines, or its last output if it fails."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence

PAUSE_S = 5.0
"""Minimum time between two lines of progress."""
LINES = 40
"""Number of lines shown from the end of a failed command's output."""


def print_line(line: str) -> None:
    """Print a line and flush, so that it appears at once even in a pipe."""
    print(line, flush=True)


def run(
    argv: Sequence[str],
    stage: Callable[[str], str | None],
    environment: Mapping[str, str] | None = None,
    *,
    landmark: str = "",
) -> bool:
    """Run a command and return whether it succeeded.

    ``stage`` turns a line of its output into a report, or into ``None``. A line that begins with
    ``landmark`` is reported without a pause.
    """
    printed: list[str] = []
    due = time.monotonic() + PAUSE_S
    with subprocess.Popen(
        argv,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    ) as process:
        assert process.stdout is not None  # noqa: S101 - PIPE was passed above
        for line in process.stdout:
            printed.append(line)
            progress = stage(line)
            at_once = bool(landmark) and line.startswith(landmark)
            if progress is not None and (at_once or time.monotonic() >= due):
                print_line(f"  {progress}")
                due = time.monotonic() + PAUSE_S
    if process.returncode:
        sys.stderr.writelines(printed[-LINES:])
    return process.returncode == 0
