"""Transforms: what is delivered of a document, all of it or the result of an expression."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from node.execution import jmespath_search, jq
from node.execution.jmespath_program import SIZE_MAX, TOO_LARGE, is_small
from node.execution.process import Confining
from node.execution.transforming import MESSAGE_LENGTH_MAX, TransformResult


class Transforms:
    """Transforms on this host, whose programs are confined like tools."""

    def __init__(self, runner: Confining) -> None:
        """``runner`` starts the programs."""
        self._runner = runner

    async def fault_of(self, transform: Mapping[str, Any]) -> str | None:
        """Return why a transform cannot be used; None if it can.

        :raises HostError: it is one of jq, which is not installed here.
        """
        if (program := transform.get("jq")) is not None:
            return await jq.fault_of(program, self._runner)
        return jmespath_search.fault_of(str(transform["jmespath"]))

    async def apply(
        self, transform: Mapping[str, Any] | None, documents: Sequence[bytes]
    ) -> list[bytes | TransformResult]:
        """Return the documents to deliver; a :class:`TransformResult` says why there is none."""
        if transform is None:
            return list(documents)
        if (program := transform.get("jq")) is not None:
            results = await jq.transform(program, documents, self._runner)
        else:
            expression = str(transform["jmespath"])
            results = await jmespath_search.transform(expression, documents, self._runner)
        return [_encode(result, raw=bool(transform.get("raw"))) for result in results]


def _encode(result: TransformResult, *, raw: bool) -> bytes | TransformResult:
    if result.error is not None or not result.found:
        return result
    if raw and isinstance(text := _text_of(result), str):
        return text.encode() if is_small(text) else TransformResult(error=TOO_LARGE)
    if result.encoded is not None:
        small = len(result.encoded) <= SIZE_MAX
        return result.encoded if small else TransformResult(error=TOO_LARGE)
    if not is_small(result.document):
        return TransformResult(error=TOO_LARGE)
    try:
        return orjson.dumps(result.document)
    except (orjson.JSONEncodeError, RecursionError) as error:
        return TransformResult(error=str(error)[:MESSAGE_LENGTH_MAX])


def _text_of(result: TransformResult) -> object:
    return result.document if result.encoded is None else orjson.loads(result.encoded)
