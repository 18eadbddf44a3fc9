"""Report errors: the cause, the remedy, and the exit code.

=====  ==========================================================================
code   meaning
=====  ==========================================================================
0      done; where a run was followed, it measured
1      a run was followed and has no result (failed, missed, cancelled), nothing arrived, or it is
       bad by its thresholds; ``status`` found something that needs attention
2      usage: the command line or the document is wrong
3      refused: by this node's owner, by a participant, or because a tool is missing
4      no time: the run could not be placed, or lost its place for good
5      the node, or a node it needs, cannot be reached
6      no such task, run or node
7      ``--timeout`` passed first; 3, 4 or 5 if it is known that this is why
8      the node failed
130    Ctrl-C; it cancels nothing
=====  ==========================================================================

Errors go to standard error as a sentence, or, with ``-o json`` or ``-o jsonl``, as the problem
document (RFC 9457) on one line, the last one. Standard output stays empty then, so a program that
reads it never takes a problem for an answer.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from node.cli.output import sanitise_line
from node.cli.times import with_local_times
from node.model.errors import (
    InvalidDocument,
    NotAuthenticated,
    ParleyError,
    PeerError,
    RefusedByParticipant,
)

if TYPE_CHECKING:
    from node.cli.invocation import Invocation

NO_TIME = 4
TIMED_OUT = 7
INTERRUPTED = 130

_NAMED = re.compile(r"[\w.-]+: ")
_MISTAKABLE = {"dns": "--server names the node that asks; name the DNS server with --ask"}
"""Hints for commands whose ``--server`` may have been meant for something else."""


def report(error: ParleyError, invocation: Invocation) -> int:
    """Print an error on standard error, as JSON for programs; return its exit code."""
    if isinstance(error, PeerError) and invocation.server and invocation.command in _MISTAKABLE:
        error.args = (f"{error.detail}; {_MISTAKABLE[invocation.command]}",)
    if type(error) is NotAuthenticated:
        error.args = (invocation.token_refusal(error.detail),)
    if invocation.wants_json:
        from node.model.wire.problems import problem_of  # loads pydantic

        document = problem_of(error).model_dump(mode="json")
        print_error_lines(json.dumps({**document, "exit_code": error.exit_code}))
    else:
        print_error_lines(error_text(error))
    return error.exit_code


def report_timeout(detail: str, advice: str, invocation: Invocation, code: int = TIMED_OUT) -> int:
    """Print that ``--timeout`` has passed, and return the exit code.

    ``detail`` has the reason as far as it is known, and ``code`` says the same.
    """
    if invocation.wants_json:
        document = {"title": "Timed out waiting", "detail": detail, "exit_code": code}
        print_error_lines(json.dumps(document))
    else:
        print_error_lines(f"✗ {with_local_times(detail)} (exit code {code}){advice}")
    return code


def error_text(error: ParleyError) -> str:
    """Format an error for a person: ``✗ cause``, and the remedy on a line of its own."""
    if isinstance(error, InvalidDocument) and len(error.faults) > 1:
        lines = [f"{fault.pointer or '/'}: {fault.detail}" for fault in error.faults]
        return "\n".join([f"✗ {error.title}", *(f"  {line}" for line in lines)])
    refusals = _refusals(error.detail) if isinstance(error, RefusedByParticipant) else []
    if len(refusals) > 1:
        return with_local_times(
            "\n".join([f"✗ {error.title}", *(f"  {line}" for line in refusals)])
        )
    cause, _, remedy = error.detail.partition("; ")
    text = "\n".join([f"✗ {cause}", *([f"  {remedy}"] if remedy else [])])
    # What is wrong with a document is said in its own words: PT5M is what to write there.
    return text if error.exit_code == InvalidDocument.exit_code else with_local_times(text)


def _refusals(detail: str) -> list[str]:
    """Split a detail into what each participant or tool says, remedies included.

    Each part begins with a name.
    """
    refusals: list[str] = []
    for part in detail.split("; "):
        if refusals and not _NAMED.match(part):
            refusals[-1] += f"; {part}"
        else:
            refusals.append(part)
    return refusals


def unreadable_message(place: object, error: OSError | UnicodeDecodeError) -> str:
    """Return that a file is not readable, and why, without Python's words.

    >>> unreadable("x.toml", FileNotFoundError(2, "No such file or directory", "x.toml"))
    'x.toml cannot be read: no such file or directory'
    """
    why = "it is no text in UTF-8"
    if isinstance(error, OSError):
        why = (error.strerror or str(error)).lower()
    return f"{place} cannot be read: {why}"


def file_text(path: str, hint: str = "FILE") -> str:
    """Return the text of a file; ``hint`` names the argument in an error.

    :raises click.BadParameter: it cannot be read.
    """
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise click.BadParameter(unreadable_message(path, error), param_hint=hint) from error


def can_ask() -> bool:
    """Return whether a person can be asked: standard input and error are a terminal."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def print_error_lines(text: str) -> None:
    """Print lines on standard error, without their control characters."""
    sys.stderr.write("".join(f"{sanitise_line(line)}\n" for line in text.splitlines()))
    sys.stderr.flush()
