"""References of a template's tasks, as a mesh file has them. Pure.

psConfig gives each pair a reference of its own, by variables; dashboards choose results by it. Most
members are the same for all pairs, or depend on one end. So a member is written where it is
shortest: for all pairs (``*/*``), for those from a source (``a/*``), for those to a dest (``*/b``),
or pair by pair (``a/b``).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from node.pscheduler.documents import WRAPPED
from node.pscheduler.posted import storable_document
from node.pscheduler.psconfig.shapes import Pair
from node.pscheduler.psconfig.template import Document

_META = "_meta"
_EXACT = 2**53
"""Numbers with decimals are exact below it; infinity and what is no number are not below it."""


def reference_of(task: Document, reference: Any) -> Document:
    """Return the reference of a task of ours: what the template gives, and the task's description.

    ``reference`` has its variables replaced. Members without a value are left out.
    """
    given = reference if isinstance(reference, dict) else {WRAPPED: reference}
    meta = {_META: task[_META]} if _META in task else {}
    kept: Document = _kept(storable_document({**given, **meta}))
    return kept


def _kept(value: Any) -> Any:
    """Return a value without nulls, and with texts for numbers that a database changes."""
    match value:
        case dict():
            return {name: _kept(each) for name, each in value.items() if each is not None}
        case list():
            return [_kept(each) for each in value if each is not None]
        case float() if not abs(value) < _EXACT:
            return str(value)
        case _:
            return value


def shared_references(by_pair: Mapping[Pair, Document]) -> dict[str, Document]:
    """Return the references of these pairs by patterns of pairs."""
    shared: dict[str, Document] = {}
    for member in dict.fromkeys(name for each in by_pair.values() for name in each):
        values = {pair: each.get(member) for pair, each in by_pair.items()}
        ways = (_by_pattern(values, pattern) for pattern in _PATTERNS)
        for place, value in next(way for way in ways if way is not None).items():
            if value is not None:
                shared.setdefault(place, {})[member] = value
    return shared


_PATTERNS: tuple[Callable[[str, str], str], ...] = (
    lambda _source, _dest: "*/*",
    lambda source, _dest: f"{source}/*",
    lambda _source, dest: f"*/{dest}",
    lambda source, dest: f"{source}/{dest}",
)


def _by_pattern(
    values: Mapping[Pair, Any], pattern: Callable[[str, str], str]
) -> dict[str, Any] | None:
    """Return the values by pattern; None if pairs of one pattern have different ones."""
    found: dict[str, Any] = {}
    texts: dict[str, str] = {}
    for pair, value in values.items():
        place, text = pattern(*pair), json.dumps(value, sort_keys=True)
        if texts.setdefault(place, text) != text:
            return None
        found[place] = value
    return found
