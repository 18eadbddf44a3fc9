"""jq in a child that has no environment, little memory and little time.

Its ``env`` and ``$ENV`` would show the service's environment, and its ``include`` reads files: the
child gets no environment, and a program that is put into brackets can include nothing. Whatever a
program does, it can only spoil the document it was given.
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
_SAID_MAX = 300
_FAULT = re.compile(
    r"error: (?P<what>.*?)(?: \(Unix shell quoting issues\?\))? at <top-level>, line (?P<line>\d+):"
)


@dataclass(frozen=True)
class TransformResult:
    """What came of one document: a document, nothing (``found`` is False), or why it failed."""

    document: Any = None
    found: bool = True
    error: str | None = None


async def fault_of(program: str) -> str | None:
    """Why jq does not take a program; None if it does.

    :raises HostError: jq is not installed, or hangs.
    """
    finished = await _run(program, b"null")
    if finished.exit_code == _DOES_NOT_COMPILE:
        return _in_words(_first_line(finished), program)
    return None


async def transform(program: str, documents: Sequence[bytes]) -> list[TransformResult]:
    """What a program makes of each document (JSON, one line each).

    All go through one child; if it does not answer for each of them, every one gets its own.
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
    # The line break ends a comment at the program's end.
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
    said = orjson.loads(answer)
    if "e" in said:
        return TransformResult(error=str(said["e"])[:_SAID_MAX])
    values = said["v"]
    if len(values) > 1:
        return TransformResult(error=f"it gave {len(values)} documents instead of one")
    return TransformResult(values[0]) if values else TransformResult(found=False)


def _first_line(finished: process.FinishedProcess) -> str:
    lines = finished.stderr.decode(errors="replace").strip().splitlines()
    return lines[0].removeprefix("jq: ")[:_SAID_MAX] if lines else ""


def _in_words(line: str, program: str) -> str:
    """Why it does not compile, as its writer sees it: without what we have put around it."""
    fault = _FAULT.fullmatch(line)
    if fault is None:
        return line
    lines = program.count("\n") + 1
    if int(fault["line"]) > lines or "$end" in fault["what"]:
        return "syntax error at its end: something is left open, or closed twice"
    return fault["what"] if lines == 1 else f"{fault['what']} in line {fault['line']}"
