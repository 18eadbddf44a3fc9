"""Tables of the fields of documents, from their JSON schemas."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import BaseModel

from docs.generator.markdown import code, page, plain, table

Schema = Mapping[str, Any]

_BOUNDS = {
    "minimum": "at least",
    "exclusiveMinimum": "more than",
    "maximum": "at most",
    "exclusiveMaximum": "less than",
    "minItems": "items: at least",
    "maxItems": "items: at most",
}


def field_table(model: type[BaseModel]) -> str:
    """Return the table of a document's own fields."""
    schema = model.model_json_schema()
    return _table(schema, schema.get("$defs", {}))


def document_tables(model: type[BaseModel], names: Mapping[str, str]) -> str:
    """Return a section for each part of a document: ``names`` are their headings by model."""
    schema = model.model_json_schema()
    parts = {model.__name__: schema, **schema.get("$defs", {})}
    named = {name: {**part, "heading": names.get(name, "object")} for name, part in parts.items()}
    return page(*_sections(named, names))


def _sections(parts: Mapping[str, Schema], names: Mapping[str, str]) -> Iterator[str]:
    for name, heading in names.items():
        yield f"### {heading}"
        yield plain(" ".join(parts[name].get("description", "").replace("``", "").split()))
        yield _table(parts[name], parts)


def _table(schema: Schema, parts: Mapping[str, Schema]) -> str:
    needed = set(schema.get("required", ()))
    rows = (
        (
            code(name) + (" (required)" if name in needed else ""),
            plain(_kind(field, parts)),
            code(_default(field, name in needed)),
            plain(_says(field)),
        )
        for name, field in schema.get("properties", {}).items()
    )
    return table(("field", "value", "default", ""), rows)


def _default(field: Schema, needed: bool) -> str:  # noqa: FBT001 - beside the field
    if needed or field.get("default") is None:
        return ""
    default = field["default"]
    return default if isinstance(default, str) else json.dumps(default, ensure_ascii=False)


def _says(field: Schema) -> str:
    bounds = [f"{word} {field[name]}" for name, word in _BOUNDS.items() if name in field]
    sentence = field.get("description", "")
    return sentence if not bounds else f"{sentence} ({', '.join(bounds)})".strip()


def _kind(field: Schema, parts: Mapping[str, Schema]) -> str:
    """Return what a field holds, in words."""
    if "$ref" in field:
        name = field["$ref"].rsplit("/", 1)[-1]
        part = parts.get(name, {})
        return part.get("heading", "object") if part.get("type") == "object" else _kind(part, parts)
    for union in ("anyOf", "oneOf"):
        if union in field:
            kinds = [_kind(each, parts) for each in field[union] if each.get("type") != "null"]
            return " or ".join(dict.fromkeys(kinds))
    if "allOf" in field:
        return _kind(field["allOf"][0], parts)
    if "enum" in field:
        return ", ".join(map(str, field["enum"]))
    if "const" in field:
        return str(field["const"])
    return _simple(field, parts)


def _simple(field: Schema, parts: Mapping[str, Schema]) -> str:
    kind = field.get("type", "any value")
    if kind == "array":
        item: Schema = field.get("items") or next(iter(field.get("prefixItems", ())), {})
        return f"list of: {_kind(item, parts)}"
    if kind == "object":
        value = field.get("additionalProperties")
        return f"{_kind(value, parts)}, by name" if isinstance(value, dict) and value else "object"
    if kind == "string":
        words = {"date-time": "time", "duration": "duration", "uuid": "id"}
        return words.get(field.get("format", ""), "text")
    words = {"boolean": "true or false", "integer": "integer"}
    return words.get(kind, str(kind))
