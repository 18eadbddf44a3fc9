"""Transforms of documents in a child process, with limited memory and time.

A transform is written by a user and may need any amount of both, so it never runs in the service.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from node.execution import process
from node.execution.process import Confinement, Confining, FinishedProcess, Needs
from node.model.errors import HostError

MEMORY_MAX = 512 * 2**20
TIMEOUT_S = 10.0
OUTPUT_MAX = 32_000_000
MESSAGE_LENGTH_MAX = 300


@dataclass(frozen=True)
class TransformResult:
    """The result for one document: a document, nothing (``found`` is False), or an error.

    ``encoded`` is the document as JSON, if the child has encoded it.
    """

    document: Any = None
    found: bool = True
    error: str | None = None
    encoded: bytes | None = None


async def transform(
    run: Callable[[bytes], Awaitable[FinishedProcess]],
    read: Callable[[bytes], TransformResult],
    documents: Sequence[bytes],
) -> list[TransformResult]:
    """Return the results of documents (JSON, one line each), which go through one child.

    ``run`` starts the child and waits for its end, ``read`` reads its answer to one document. If it
    does not answer for each of them, every document gets a child of its own.
    """
    try:
        finished = await run(b"\n".join(documents))
        answers = finished.stdout.splitlines()
        if len(answers) == len(documents) and not finished.truncated:
            return [read(answer) for answer in answers]
        fault = first_line(finished) or "it did not answer for each document"
    except HostError as error:
        fault = error.detail
    if len(documents) == 1:
        return [TransformResult(error=fault)]
    return [(await transform(run, read, [each]))[0] for each in documents]


async def run_limited_child(
    argv: Sequence[str], documents: bytes, name: str, runner: Confining | None
) -> FinishedProcess:
    """Run a child that limits its memory, confined by ``runner`` if given; return how it ended.

    :raises HostError: it was killed because it did not end in time.
    """
    running = await process.start(
        argv,
        stdin=documents,
        output_bytes_max=OUTPUT_MAX,
        confinement=None
        if runner is None
        else Confinement(runner, Needs(TIMEOUT_S, connects=False)),
    )
    try:
        async with asyncio.timeout(TIMEOUT_S):
            return await running.wait()
    except TimeoutError:
        msg = f"{name} was killed because it did not finish within {TIMEOUT_S:g} s"
        raise HostError(msg) from None
    finally:
        await running.end(0)


def first_line(finished: FinishedProcess) -> str:
    """Return the first line of what the child says is wrong."""
    lines = finished.stderr.decode(errors="replace").strip().splitlines()
    return lines[0][:MESSAGE_LENGTH_MAX] if lines else ""
