"""JMESPath expressions, evaluated in a child process with limited memory and time."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import lru_cache, partial
from pathlib import Path

import jmespath
from jmespath.exceptions import JMESPathError

from node.execution import jmespath_program, transforming
from node.execution.process import Confining, FinishedProcess
from node.execution.transforming import TransformResult

EACH_S = 2.0
"""Maximum processor time for one document, so that one does not use up the time of the others."""


@lru_cache(maxsize=256)
def fault_of(expression: str) -> str | None:
    """Return why an expression is not valid, in one line; None if it is."""
    try:
        jmespath.compile(expression)
    except JMESPathError as error:
        return " ".join(str(error).split())[: transforming.MESSAGE_LENGTH_MAX]
    except RecursionError:
        return "it nests too deep"
    return None


async def transform(
    expression: str, documents: Sequence[bytes], runner: Confining
) -> list[TransformResult]:
    """Return the results of an expression for documents (JSON, one line each)."""
    return await transforming.transform(partial(_run, expression, runner), _read, documents)


async def _run(expression: str, runner: Confining, documents: bytes) -> FinishedProcess:
    argv = [
        *(sys.executable, "-I", str(Path(jmespath_program.__file__)), expression),
        *(str(transforming.MEMORY_MAX), str(int(transforming.TIMEOUT_S)), str(EACH_S)),
    ]
    return await transforming.run_limited_child(argv, documents, "the JMESPath expression", runner)


def _read(answer: bytes) -> TransformResult:
    match answer[:1]:
        case b"v":
            return TransformResult(encoded=answer[1:])
        case b"n":
            return TransformResult(found=False)
        case _:
            return TransformResult(error=answer[1:].decode(errors="replace"))
