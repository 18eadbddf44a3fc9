"""Starting our own measuring programs, those in ``tools/programs/``. Pure."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path

from node.plugins.contracts import Command

_PROGRAMS = Path(__file__).resolve().parent / "tools" / "programs"


def own_program(
    name: str, arguments: Mapping[str, object], *, libraries: bool = False, stdin: bytes = b""
) -> Command:
    """Return the command of a program of ours; its arguments are one JSON object.

    The program itself waits for its instant. It runs isolated, and without site packages unless it
    needs ``libraries``: a bare Python starts in some 40 ms, whatever is installed. ``stdin`` is for
    what must not be visible in a list of processes, or in a result.
    """
    isolated = ("-I",) if libraries else ("-I", "-S")
    document = json.dumps(arguments, separators=(",", ":"))
    program = str(_PROGRAMS / name)
    return Command((sys.executable, *isolated, program, document), waits_itself=True, stdin=stdin)
