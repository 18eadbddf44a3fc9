"""jq in a child process without environment, with limited memory and time.

jq's ``env`` and ``$ENV`` would show the service's environment, and its ``include`` reads files. The
child gets no environment, and the program is put into brackets, where ``include`` is not allowed.
So a program can at most spoil the document it was given.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from functools import partial

import orjson

from node.execution import process, transforming
from node.execution.process import Confining
from node.execution.transforming import MESSAGE_LENGTH_MAX, TransformResult
from node.model.errors import HostError

_DOES_NOT_COMPILE = 3
_FAULT = re.compile(
    r"error: (?P<what>.*?)(?: \(Unix shell quoting issues\?\))? at <top-level>, line (?P<line>\d+):"
)
_AT_END = re.compile(r"\$end|end of file")
"""The end of a program in the words of jq 1.6, and of jq from 1.7 on."""


async def fault_of(program: str, runner: Confining) -> str | None:
    """Return why jq rejects a program, which is only compiled; None if it accepts it.

    :raises HostError: jq is not installed, or hangs.
    """
    finished = await _run(program, runner, b"null", before="empty | ")
    if finished.exit_code == _DOES_NOT_COMPILE:
        return _in_words(_first_line(finished), program)
    return None


async def transform(
    program: str, documents: Sequence[bytes], runner: Confining | None
) -> list[TransformResult]:
    """Run a program on each document (JSON, one line each) and return the results."""
    return await transforming.transform(partial(_run, program, runner), _read, documents)


async def _run(
    program: str, runner: Confining | None, documents: bytes, before: str = ""
) -> process.FinishedProcess:
    jq = shutil.which("jq", path=process.PATH_DEFAULT)
    limits = shutil.which("prlimit", path=process.PATH_DEFAULT)
    if jq is None or limits is None:
        msg = "jq is not installed; apt install jq, or use jmespath"
        raise HostError(msg)
    # The line break ends a comment at the end of the program.
    wrapped = f"{before}try {{v: [{program}\n]}} catch {{e: (.|tostring)}}"
    memory, seconds = transforming.MEMORY_MAX, int(transforming.TIMEOUT_S)
    argv = [
        *("env", "-i", limits, f"--as={memory}", f"--cpu={seconds}", "--core=0"),
        *(jq, "--compact-output", "--monochrome-output", wrapped),
    ]
    return await transforming.run_limited_child(argv, documents, "jq", runner)


def _read(answer: bytes) -> TransformResult:
    reply = orjson.loads(answer)
    if "e" in reply:
        return TransformResult(error=str(reply["e"])[:MESSAGE_LENGTH_MAX])
    values = reply["v"]
    if len(values) > 1:
        return TransformResult(error=f"the program output {len(values)} documents instead of one")
    return TransformResult(values[0]) if values else TransformResult(found=False)


def _first_line(finished: process.FinishedProcess) -> str:
    return transforming.first_line(finished).removeprefix("jq: ")


def _in_words(line: str, program: str) -> str:
    """Return the compiler's message as its author would see it, without our wrapping."""
    fault = _FAULT.fullmatch(line)
    if fault is None:
        return line
    lines = program.count("\n") + 1
    if int(fault["line"]) > lines or _AT_END.search(fault["what"]):
        return "syntax error at its end: something is left open, or closed twice"
    return fault["what"] if lines == 1 else f"{fault['what']} in line {fault['line']}"
