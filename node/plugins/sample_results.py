"""Artificial results that a model allows, to test their readers before anything is measured.

Pure. Rules that a JSON schema cannot express, such as one between two fields, are unknown here: if
they are not met by chance, no result is returned.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

from node.model import times
from node.plugins.contracts import Result

_TEXTS = {
    "date-time": "2026-12-01T00:00:00Z",
    "uuid": "00000000-0000-4000-8000-000000000000",
}
_DEEPEST = 6
_SEVERAL = ("anyOf", "oneOf", "allOf")

Schema = Mapping[str, Any]


def results_of(model: type[BaseModel]) -> list[Result]:
    """Return one result with all optional fields and one with as few as possible, where valid."""
    results: list[Result] = []
    for full in (True, False):
        try:
            schema = model.model_json_schema()
            value = _Maker(schema.get("$defs", {}), full=full).value(schema)
            result = model.model_validate(value).model_dump(mode="json")
        except Exception:  # noqa: BLE001, S112 - a third-party model: other checks report its faults
            continue
        if result not in results:
            results.append(result)
    return results


class _Maker:
    """Makes values; ``full``: with optional fields."""

    def __init__(self, kinds: Mapping[str, Schema], *, full: bool) -> None:
        self._kinds = kinds
        self._full = full

    def value(self, schema: Schema, depth: int = 0) -> Any:
        """Return a value of this schema, which is ``depth`` levels deep."""
        schema = self._resolve(schema)
        if "const" in schema or "enum" in schema:
            return schema.get("const", schema.get("enum", [None])[0])
        kind = schema.get("type")
        if kind == "object":
            return self._object(schema, depth)
        if kind == "array":
            return self._array(schema, depth)
        if kind in ("integer", "number"):
            return _number(schema)
        if times.describes_duration(schema):
            return "PT1S"
        text = _TEXTS.get(schema.get("format", ""), "x" * schema.get("minLength", 1))
        return {"string": text, "boolean": self._full}.get(str(kind))

    def _resolve(self, schema: Schema) -> Schema:
        """Follow references and choose from alternatives: null, unless ``full``."""
        while not schema.keys().isdisjoint(("$ref", *_SEVERAL)):
            if "$ref" in schema:
                schema = self._kinds[schema["$ref"].rpartition("/")[2]]
                continue
            options = next(schema[word] for word in _SEVERAL if word in schema)
            schema = min(options, key=lambda option: (option.get("type") == "null") is self._full)
        return schema

    def _object(self, schema: Schema, depth: int) -> dict[str, Any]:
        required = schema.get("required", ())
        fields = schema.get("properties", {})
        values = {
            name: self.value(field, depth + 1)
            for name, field in fields.items()
            if name in required or (self._full and depth < _DEEPEST)
        }
        others = schema.get("additionalProperties")
        if not fields and isinstance(others, Mapping) and self._full and depth < _DEEPEST:
            values["x"] = self.value(others, depth + 1)
        return values

    def _array(self, schema: Schema, depth: int) -> list[Any]:
        if "prefixItems" in schema:
            return [self.value(item, depth + 1) for item in schema["prefixItems"]]
        least = schema.get("minItems", 0)
        count = max(least, int(self._full and depth < _DEEPEST))
        count = min(count, schema.get("maxItems", count))
        return [self.value(schema.get("items", {}), depth + 1) for _ in range(count)]


def _number(schema: Schema) -> float | None:
    """Return 1, a limit, or a number between the limits: the first of these that is allowed."""
    low = schema.get("minimum", schema.get("exclusiveMinimum"))
    high = schema.get("maximum", schema.get("exclusiveMaximum"))
    between = () if low is None or high is None else ((low + high) / 2,)
    beside = (*(() if low is None else (low, low + 1)), *(() if high is None else (high, high - 1)))
    candidates = (1, *beside, *between)
    return next((number for number in candidates if _is_allowed(schema, number)), None)


def _is_allowed(schema: Schema, number: float) -> bool:
    least, most = schema.get("minimum", number), schema.get("maximum", number)
    above = schema.get("exclusiveMinimum", -math.inf)
    below = schema.get("exclusiveMaximum", math.inf)
    return bool(least <= number <= most and above < number < below)
