"""The table of the settings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic_core import PydanticUndefined

from docs.generator.markdown import code, plain, table
from node.model import times
from node.runtime.settings import Settings


def settings_table() -> str:
    """Return the table of all settings, in the order of the code."""
    schema = Settings.model_json_schema()["properties"]
    rows = (
        (
            code(f"PARLEY_{name.upper()}"),
            code(_shown(field.default, schema[name])),
            plain(f"{field.description or ''}{_bounds(schema[name])}"),
        )
        for name, field in Settings.model_fields.items()
    )
    return table(("setting", "default", ""), rows)


def _shown(default: Any, schema: dict[str, Any]) -> str:
    """Return a default as it would be written in the environment."""
    if default is None or default is PydanticUndefined:
        return ""
    if isinstance(default, bool):
        return str(int(default))
    if _is_duration(schema):
        return times.format_duration(default)
    return str(default) if isinstance(default, str | int | Path) else ""


def _is_duration(schema: dict[str, Any]) -> bool:
    if schema.get("format") == "duration":
        return True
    default = schema.get("default")
    return isinstance(default, int) and default >= times.SECOND and default % times.MILLISECOND == 0


def _bounds(schema: dict[str, Any]) -> str:
    words = {"minimum": "at least", "maximum": "at most"}
    if _is_duration(schema):
        return ""
    found = [f"{word} {schema[name]}" for name, word in words.items() if name in schema]
    return f" ({', '.join(found)})" if found else ""
