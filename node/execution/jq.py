"""jq in a child process without environment, with limited memory and time.

jq's ``env`` and ``$ENV`` would show the service's environment, and its ``include`` reads files. The
child gets no environment, and the program is put into brackets, where ``include`` is not allowed.
So a program can at most spoil the document it was given.
"""

from __future__ import annotations

import asyncio
import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from node.execution import process
from node.model.errors import HostError

MEMORY_MAX = 512 * 2**20
TIMEOUT_S = 10.0
OUTPUT_MAX = 32_000_000
_DOES_NOT_COMPILE = 3
_MESSAGE_LENGTH_MAX = 300
_FAULT = re.compile(
    r"error: (?P<what>.*?)(?: \(Unix shell quoting issues\?\))? at <top-level>, line (?P<line>\d+):"
)


@dataclass(frozen=True)
class TransformResult:
    """The result for one document: a document, nothing (``found`` is False), or an error."""

    document: Any = None
    found: bool = True
    error: str | None = None


async def fault_of(program: str) -> str | None:
    """Return why jq rejects a program; None if it accepts it.

    :raises HostError: jq is not installed, or hangs.
    """
    finished = await _run(program, b"null")
    if finished.exit_code == _DOES_NOT_COMPILE:
        return _in_words(_first_line(finished), program)
    return None


async def transform(program: str, documents: Sequence[bytes]) -> list[TransformResult]:
    """Run a program on each document (JSON, one line each) and return the results.

    All documents go through one child. If it does not answer for each of them, every document gets
    a child of its own.
    """
    try:
        finished = await _run(program, b"\n".join(documents))
        answers = finished.stdout.splitlines()
        if len(answers) == len(documents) and not finished.truncated:
            return [_read(answer) for answer in answers]
        fault = _first_line(finished) or "it did not answer for each document"
    except HostError as error:
        fault = error.detail
    if len(documents) == 1:
        return [TransformResult(error=fault)]
    return [(await transform(program, [each]))[0] for each in documents]


async def _run(program: str, documents: bytes) -> process.FinishedProcess:
    jq = shutil.which("jq", path=process.PATH_DEFAULT)
    limits = shutil.which("prlimit", path=process.PATH_DEFAULT)
    if jq is None or limits is None:
        msg = "jq is not installed; apt install jq, or use jmespath"
        raise HostError(msg)
    # The line break ends a comment at the end of the program.
    wrapped = f"try {{v: [{program}\n]}} catch {{e: (.|tostring)}}"
    argv = [
        *("env", "-i", limits, f"--as={MEMORY_MAX}", f"--cpu={int(TIMEOUT_S)}", "--core=0"),
        *(jq, "--compact-output", "--monochrome-output", wrapped),
    ]
    running = await process.start(argv, stdin=documents, output_bytes_max=OUTPUT_MAX)
    try:
        return await asyncio.wait_for(running.wait(), TIMEOUT_S)
    except TimeoutError:
        msg = f"jq was killed because it did not finish within {TIMEOUT_S:g} s"
        raise HostError(msg) from None
    finally:
        await running.end(0)


def _read(answer: bytes) -> TransformResult:
    reply = orjson.loads(answer)
    if "e" in reply:
        return TransformResult(error=str(reply["e"])[:_MESSAGE_LENGTH_MAX])
    values = reply["v"]
    if len(values) > 1:
        return TransformResult(error=f"the program output {len(values)} documents instead of one")
    return TransformResult(values[0]) if values else TransformResult(found=False)


def _first_line(finished: process.FinishedProcess) -> str:
    lines = finished.stderr.decode(errors="replace").strip().splitlines()
    return lines[0].removeprefix("jq: ")[:_MESSAGE_LENGTH_MAX] if lines else ""


def _in_words(line: str, program: str) -> str:
    """Return the compiler's message as its author would see it, without our wrapping."""
    fault = _FAULT.fullmatch(line)
    if fault is None:
        return line
    lines = program.count("\n") + 1
    if int(fault["line"]) > lines or "$end" in fault["what"]:
        return "syntax error at its end: something is left open, or closed twice"
    return fault["what"] if lines == 1 else f"{fault['what']} in line {fault['line']}"
