"""Report errors: the cause, the remedy, and the exit code.

=====  ==========================================================================
code   meaning
=====  ==========================================================================
0      done; where a run was followed, it measured
1      a run was followed and has no result: failed, missed or cancelled
2      usage: the command line or the document is wrong
3      refused: by this node's owner, by a participant, or because a tool is missing
4      no time: the run could not be placed, or lost its place for good
5      the node, or a node it needs, cannot be reached
6      no such task, run or node
7      ``--timeout`` passed first
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
from typing import TYPE_CHECKING

from node.cli.output import sanitise_line
from node.model.errors import (
    InvalidDocument,
    NotAuthenticated,
    ParleyError,
    PeerError,
    RefusedByParticipant,
)

if TYPE_CHECKING:
    from node.cli.invocation import Invocation

TIMED_OUT = 7
INTERRUPTED = 130

_HINTS: dict[type[ParleyError], str] = {
    NotAuthenticated: (
        "give a token with --token or PARLEY_TOKEN; a node stores its own in the file 'token' "
        "in its state directory"
    ),
}

_NAMED = re.compile(r"[\w.-]+: ")
_MISTAKABLE = {"dns": "--server names the node that asks; name the DNS server with --ask"}
"""Hints for commands whose ``--server`` may have been meant for something else."""


def report(error: ParleyError, invocation: Invocation) -> int:
    """Print an error on standard error, and return the exit code."""
    if isinstance(error, PeerError) and invocation.server and invocation.command in _MISTAKABLE:
        error.args = (f"{error.detail}; {_MISTAKABLE[invocation.command]}",)
    if invocation.machine:
        from node.model.wire.problems import problem_of  # loads pydantic

        document = problem_of(error).model_dump(mode="json")
        print_error_lines(json.dumps({**document, "exit_code": error.exit_code}))
    else:
        print_error_lines(sentence(error))
    return error.exit_code


def report_timeout(detail: str, advice: str, invocation: Invocation) -> int:
    """Print that ``--timeout`` has passed, and return the exit code."""
    if invocation.machine:
        title = "Timed out waiting"
        print_error_lines(json.dumps({"title": title, "detail": detail, "exit_code": TIMED_OUT}))
    else:
        print_error_lines(f"✗ {detail}{advice}")
    return TIMED_OUT


def sentence(error: ParleyError) -> str:
    """Format an error for a person: ``✗ cause``, and the remedy on a line of its own."""
    if isinstance(error, InvalidDocument) and len(error.faults) > 1:
        lines = [f"{fault.pointer or '/'}: {fault.detail}" for fault in error.faults]
        return "\n".join([f"✗ {error.title}", *(f"  {line}" for line in lines)])
    refusals = _refusals(error.detail) if isinstance(error, RefusedByParticipant) else []
    if len(refusals) > 1:
        return "\n".join([f"✗ {error.title}", *(f"  {line}" for line in refusals)])
    cause, _, remedy = error.detail.partition("; ")
    remedies = [text for text in (remedy, _HINTS.get(type(error))) if text]
    return "\n".join([f"✗ {cause}", *(f"  {text}" for text in remedies)])


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


def print_error_lines(text: str) -> None:
    """Print lines on standard error."""
    sys.stderr.write("".join(f"{sanitise_line(line)}\n" for line in text.splitlines()))
    sys.stderr.flush()
