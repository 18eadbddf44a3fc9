"""What is asked for, out of what was found: the fields that the shape of an answer names."""

from __future__ import annotations

from typing import Any


def shaped(found: Any, shape: Any) -> Any:
    """The named fields, at every depth; a list of one shape stands for any number of them.

    Where no field of a map has a name in the shape, the shape's names are stand-ins for any.
    """
    if isinstance(found, dict) and isinstance(shape, dict) and found.keys() & shape.keys():
        return {key: shaped(found.get(key), inner) for key, inner in shape.items()}
    if isinstance(found, list) and isinstance(shape, list) and shape:
        return [shaped(each, shape[0]) for each in found]
    return found
