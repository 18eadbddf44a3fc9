"""How a command ends when it could not do what was asked: the cause, then the mend, then the code.

=====  ==========================================================================
code   meaning
=====  ==========================================================================
0      done; where a run was followed, it measured
1      a run was followed and gave no result: failed, missed or cancelled
2      usage: the command line or the document is wrong
3      refused: by this node's owner, by a participant, or for want of a tool
4      no time: the run could not be placed, or lost its place for good
5      the node, or a node it needs, cannot be reached
6      no such task, run or node
7      ``--timeout`` was over first
8      the node failed
130    Ctrl-C; nothing is cancelled by it
=====  ==========================================================================

Errors go to standard error as a sentence, or, when ``-o json`` or ``-o jsonl`` was asked for, as
the problem document (RFC 9457) on one line, the last one. Standard output stays empty then: a
program that reads it never takes a problem for an answer.
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
        "give a token with --token or PARLEY_TOKEN; a node keeps its own in the file 'token' "
        "in its state directory"
    ),
}

_NAMED = re.compile(r"[\w.-]+: ")
_MISTAKABLE = {"dns": "--server is the node that is to ask; the DNS server stands after --ask"}
"""Commands whose ``--server`` may have been meant for something else."""


def report(error: ParleyError, invocation: Invocation) -> int:
    """Tell what went wrong on standard error; the exit code."""
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
    """Tell that ``--timeout`` was over; the exit code."""
    if invocation.machine:
        title = "Timed out waiting"
        print_error_lines(json.dumps({"title": title, "detail": detail, "exit_code": TIMED_OUT}))
    else:
        print_error_lines(f"✗ {detail}{advice}")
    return TIMED_OUT


def sentence(error: ParleyError) -> str:
    """The error for a person: ``✗ cause``, and the mend on a line of its own."""
    if isinstance(error, InvalidDocument) and len(error.faults) > 1:
        lines = [f"{fault.pointer or '/'}: {fault.detail}" for fault in error.faults]
        return "\n".join([f"✗ {error.title}", *(f"  {line}" for line in lines)])
    refusals = _refusals(error.detail) if isinstance(error, RefusedByParticipant) else []
    if len(refusals) > 1:
        return "\n".join([f"✗ {error.title}", *(f"  {line}" for line in refusals)])
    cause, _, mend = error.detail.partition("; ")
    mends = [text for text in (mend, _HINTS.get(type(error))) if text]
    return "\n".join([f"✗ {cause}", *(f"  {text}" for text in mends)])


def _refusals(detail: str) -> list[str]:
    """What each participant or tool says, mends included: each begins with its name."""
    found: list[str] = []
    for said in detail.split("; "):
        if found and not _NAMED.match(said):
            found[-1] += f"; {said}"
        else:
            found.append(said)
    return found


def print_error_lines(text: str) -> None:
    """Lines on standard error."""
    sys.stderr.write("".join(f"{sanitise_line(line)}\n" for line in text.splitlines()))
    sys.stderr.flush()
