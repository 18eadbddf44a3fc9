"""Whole numbers of documents have bounds, because a column of the database has some."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from node.api.app import ROUTES

_DEPTH = 8
"""Predicates contain predicates."""


def _unbounded(schema: Any, kinds: Any, pointer: str, depth: int = _DEPTH) -> Iterator[str]:
    """Yield the fields of a schema that are whole numbers without an upper bound."""
    if not depth:
        return
    if "$ref" in schema:
        schema = kinds[schema["$ref"].rpartition("/")[2]]
    if schema.get("type") == "integer" and not {
        "const",
        "enum",
        "maximum",
        "exclusiveMaximum",
    } & set(schema):
        yield pointer
    below = {f"{pointer}/{name}": each for name, each in schema.get("properties", {}).items()}
    for name in ("items", "additionalProperties"):
        if isinstance(schema.get(name), dict):
            below[f"{pointer}/*"] = schema[name]
    for name, each in below.items():
        yield from _unbounded(each, kinds, name, depth - 1)
    for option in [each for name in ("anyOf", "oneOf") for each in schema.get(name, [])]:
        yield from _unbounded(option, kinds, pointer, depth - 1)


def test_every_whole_number_has_a_bound() -> None:
    """Every whole number in a document that a route takes has an upper bound."""
    found = []
    for route in ROUTES:
        if route.body is not None:
            schema = route.body.model_json_schema()
            found += [
                f"{route.body.__name__}: {pointer}"
                for pointer in _unbounded(schema, schema.get("$defs", {}), "")
            ]
    assert sorted(set(found)) == []
