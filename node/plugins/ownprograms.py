"""Starting our own measuring programs, those in ``tools/programs/``. Pure."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path

from node.model.targets import TargetRules
from node.plugins.contracts import Command

_PROGRAMS = Path(__file__).resolve().parent / "tools" / "programs"


def checking_program(
    name: str,
    arguments: Mapping[str, object],
    rules: TargetRules | None,
    private: Mapping[str, object] | None = None,
    *,
    libraries: bool = False,
) -> Command:
    """Return the command of a program of ours that measures a target, as :func:`own_program`.

    The rules for its targets, which name this host's addresses, and what else is ``private`` are
    read from standard input, as one JSON object: lists of processes and results show the argv.
    """
    secret = dict(private or {})
    if rules is not None:
        secret["rules"] = rules.as_document()
    stdin = json.dumps(secret).encode() if secret else b""
    return own_program(
        name, {**arguments, "private": bool(secret)}, libraries=libraries, stdin=stdin
    )


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
