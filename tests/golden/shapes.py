"""Selection of the fields that the shape of an answer lists."""

from __future__ import annotations

from typing import Any


def shaped(answer: Any, shape: Any) -> Any:
    """Return the listed fields, at every depth; a list of one shape matches any number of items.

    If no field of a map has a name in the shape, the names of the shape are placeholders for any.
    """
    if isinstance(answer, dict) and isinstance(shape, dict) and answer.keys() & shape.keys():
        return {key: shaped(answer.get(key), inner) for key, inner in shape.items()}
    if isinstance(answer, list) and isinstance(shape, list) and shape:
        return [shaped(each, shape[0]) for each in answer]
    return answer
