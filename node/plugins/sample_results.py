"""Results as a model allows them, made up: to try what reads them before anything is measured.

Pure. What a JSON schema cannot tell, such as a rule between two fields, is not known here: where it
is not met by chance, nothing is made up.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

from node.plugins.contracts import Result

_TEXTS = {
    "date-time": "2026-12-01T00:00:00Z",
    "duration": "PT1S",
    "uuid": "00000000-0000-4000-8000-000000000000",
}
_DEEPEST = 6
_SEVERAL = ("anyOf", "oneOf", "allOf")

Schema = Mapping[str, Any]


def results_of(model: type[BaseModel]) -> list[Result]:
    """One with all that may be there, and one with as little as may be; fewer where they fail."""
    found: list[Result] = []
    for full in (True, False):
        try:
            schema = model.model_json_schema()
            made = _Maker(schema.get("$defs", {}), full=full).value(schema)
            result = model.model_validate(made).model_dump(mode="json")
        except Exception:  # noqa: BLE001, S112 - a stranger's model: what is wrong, say other checks
            continue
        if result not in found:
            found.append(result)
    return found


class _Maker:
    """Makes values; ``full``: also what may be left out."""

    def __init__(self, kinds: Mapping[str, Schema], *, full: bool) -> None:
        self._kinds = kinds
        self._full = full

    def value(self, schema: Schema, depth: int = 0) -> Any:
        """A value of this schema, which is ``depth`` levels deep."""
        schema = self._chosen(schema)
        if "const" in schema or "enum" in schema:
            return schema.get("const", schema.get("enum", [None])[0])
        kind = schema.get("type")
        if kind == "object":
            return self._object(schema, depth)
        if kind == "array":
            return self._array(schema, depth)
        if kind in ("integer", "number"):
            return _number(schema)
        text = _TEXTS.get(schema.get("format", ""), "x" * schema.get("minLength", 1))
        return {"string": text, "boolean": self._full}.get(str(kind))

    def _chosen(self, schema: Schema) -> Schema:
        """What it refers to; one of several: null where as little as may be is wanted."""
        while not schema.keys().isdisjoint(("$ref", *_SEVERAL)):
            if "$ref" in schema:
                schema = self._kinds[schema["$ref"].rpartition("/")[2]]
                continue
            options = next(schema[word] for word in _SEVERAL if word in schema)
            schema = min(options, key=lambda one: (one.get("type") == "null") is self._full)
        return schema

    def _object(self, schema: Schema, depth: int) -> dict[str, Any]:
        wanted = schema.get("required", ())
        fields = schema.get("properties", {})
        made = {
            name: self.value(one, depth + 1)
            for name, one in fields.items()
            if name in wanted or (self._full and depth < _DEEPEST)
        }
        others = schema.get("additionalProperties")
        if not fields and isinstance(others, Mapping) and self._full and depth < _DEEPEST:
            made["x"] = self.value(others, depth + 1)
        return made

    def _array(self, schema: Schema, depth: int) -> list[Any]:
        if "prefixItems" in schema:
            return [self.value(one, depth + 1) for one in schema["prefixItems"]]
        least = schema.get("minItems", 0)
        wanted = max(least, int(self._full and depth < _DEEPEST))
        count = min(wanted, schema.get("maxItems", wanted))
        return [self.value(schema.get("items", {}), depth + 1) for _ in range(count)]


def _number(schema: Schema) -> float | None:
    """One, or a limit, or what is between the limits: the first of these that is allowed."""
    low = schema.get("minimum", schema.get("exclusiveMinimum"))
    high = schema.get("maximum", schema.get("exclusiveMaximum"))
    between = () if low is None or high is None else ((low + high) / 2,)
    beside = (*(() if low is None else (low, low + 1)), *(() if high is None else (high, high - 1)))
    return next((one for one in (1, *beside, *between) if _allowed(schema, one)), None)


def _allowed(schema: Schema, number: float) -> bool:
    least, most = schema.get("minimum", number), schema.get("maximum", number)
    above = schema.get("exclusiveMinimum", -math.inf)
    below = schema.get("exclusiveMaximum", math.inf)
    return bool(least <= number <= most and above < number < below)
