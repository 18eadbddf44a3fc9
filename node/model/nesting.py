"""The depth to which documents nest that somebody else has written. Pure."""

from __future__ import annotations

from typing import Any

DEPTH_MAX = 40
"""Maximum depth of objects and lists: far less than what readers and writers of JSON can take."""


def is_too_deep(value: Any, most: int = DEPTH_MAX) -> bool:
    """Return whether objects and lists of a JSON value lie in each other more than ``most`` times.

    No more of a deeper value is looked at.
    """
    inner = value.values() if isinstance(value, dict) else value
    if not isinstance(value, dict | list):
        return False
    return most == 0 or any(is_too_deep(each, most - 1) for each in inner)
