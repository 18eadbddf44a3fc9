"""Transforms: what is delivered of a document, all of it or the result of an expression."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import jmespath
import orjson
from jmespath.exceptions import JMESPathError

from node.execution import jq
from node.execution.jq import TransformResult

SIZE_MAX = 8_000_000
"""Maximum bytes of a transformed document: an expression can make it larger than its input."""
_VALUES_MAX = 500_000
_SAID_MAX = 300


@lru_cache(maxsize=256)
def compiled(expression: str) -> Any:
    """Return a compiled JMESPath expression.

    :raises ValueError: it is not valid; says why in one line.
    """
    try:
        return jmespath.compile(expression)
    except JMESPathError as error:
        raise ValueError(" ".join(str(error).split())[:_SAID_MAX]) from None
    except RecursionError:
        msg = "it nests too deep"
        raise ValueError(msg) from None


async def fault_of(transform: Mapping[str, str | None]) -> str | None:
    """Return why a transform cannot be used; None if it can.

    :raises HostError: it is one of jq, which is not installed here.
    """
    if (program := transform.get("jq")) is not None:
        return await jq.fault_of(program)
    try:
        compiled(str(transform["jmespath"]))
    except ValueError as error:
        return str(error)
    return None


async def apply_transform(
    transform: Mapping[str, str | None] | None, documents: Sequence[bytes]
) -> list[bytes | TransformResult]:
    """Return the documents to deliver; a :class:`TransformResult` says why there is none."""
    if transform is None:
        return list(documents)
    if (program := transform.get("jq")) is not None:
        results = await jq.transform(program, documents)
        return [_encoded(result) for result in results]
    expression = str(transform["jmespath"])
    return await asyncio.to_thread(lambda: [_search(expression, each) for each in documents])


def _search(expression: str, document: bytes) -> bytes | TransformResult:
    try:
        value = compiled(expression).search(orjson.loads(document))
    except (JMESPathError, ValueError) as error:
        return TransformResult(error=" ".join(str(error).split())[:_SAID_MAX])
    except (RecursionError, TypeError, ArithmeticError) as error:
        return TransformResult(error=repr(error)[:_SAID_MAX])
    return TransformResult(found=False) if value is None else _encoded(TransformResult(value))


def _encoded(result: TransformResult) -> bytes | TransformResult:
    if result.error is not None or not result.found:
        return result
    if not _is_small(result.document):
        return TransformResult(error=f"it made more than {SIZE_MAX} bytes or {_VALUES_MAX} values")
    try:
        return orjson.dumps(result.document)
    except (orjson.JSONEncodeError, RecursionError) as error:
        return TransformResult(error=str(error)[:_SAID_MAX])


def _is_small(document: Any) -> bool:
    """Return whether it can be encoded: references to the same list multiply when encoded."""
    left, values, stack = SIZE_MAX, _VALUES_MAX, [document]
    while stack and left > 0 and values > 0:
        value = stack.pop()
        values -= 1
        if isinstance(value, str):
            left -= len(value)
        elif isinstance(value, Mapping):
            stack.extend(value.values())
        elif isinstance(value, list):
            stack.extend(value)
    return left > 0 and values > 0
