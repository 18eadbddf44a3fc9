"""JSON in which no object has a member twice: readers differ in which one they take. Pure."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any


class RepeatedMember(ValueError):
    """An object has a member twice."""

    def __init__(self, name: str) -> None:
        super().__init__(f"has the member {name[:60]!r} twice; keep one of them")
        self.name = name


def parse_json(text: str | bytes, **settings: Any) -> Any:
    """Return a document of JSON; ``settings`` are further ones of :func:`json.loads`.

    :raises RepeatedMember: an object has a member twice.
    :raises ValueError: it is not JSON.
    :raises RecursionError: it nests too deep.
    """
    return json.loads(text, object_pairs_hook=_unique_members, **settings)


def _unique_members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        raise RepeatedMember(Counter(name for name, _ in pairs).most_common(1)[0][0])
    return members
