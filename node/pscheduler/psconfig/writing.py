"""A mesh file as TOML. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from node.pscheduler.psconfig.template import Omission

_BARE = re.compile(r"[A-Za-z0-9_-]+")
_WIDE = 96
_SECTIONS = ("groups", "tests", "schedules", "archives")


def to_toml(mesh: Mapping[str, Any], omissions: Sequence[Omission], origin: str) -> str:
    """Return the text of a mesh file; what it does not have is told at its beginning."""
    return "\n".join([*_head_lines(mesh, omissions, origin), *_body_lines(mesh)]) + "\n"


def _head_lines(
    mesh: Mapping[str, Any], omissions: Sequence[Omission], origin: str
) -> Iterator[str]:
    yield f"# Made from the psConfig template {_single_line(origin)}"
    if omissions:
        yield "#"
        yield "# What this file does not have, or has differently, by its place in the template:"
        for omission in omissions:
            yield f"#   {_single_line(omission.sentence)}"
    yield f"name = {_toml_value(mesh['name'])}"


def _body_lines(mesh: Mapping[str, Any]) -> Iterator[str]:
    if groups := mesh.get("groups"):
        yield from ("", "[groups]")
        yield from (f"{_toml_key(name)} = {_toml_value(group)}" for name, group in groups.items())
    for section in _SECTIONS[1:]:
        for name, entry in mesh.get(section, {}).items():
            yield from ("", f"[{section}.{_toml_key(name)}]")
            yield from _field_lines(entry)
    for measure in mesh.get("measure", ()):
        yield from ("", "[[measure]]")
        yield from _field_lines(measure)


def _field_lines(entry: Mapping[str, Any]) -> Iterator[str]:
    for name, value in entry.items():
        line = f"{_toml_key(name)} = {_toml_value(value)}"
        if isinstance(value, list) and len(line) > _WIDE:
            yield f"{_toml_key(name)} = ["
            yield from (f"    {_toml_value(each)}," for each in value)
            yield "]"
        else:
            yield line


def _toml_key(name: str) -> str:
    return name if _BARE.fullmatch(name) else _toml_string(name)


def _toml_value(value: Any) -> str:
    match value:
        case str():
            return _toml_string(value)
        case list() | tuple():
            return f"[{', '.join(_toml_value(each) for each in value)}]"
        case dict():
            pairs = (f"{_toml_key(name)} = {_toml_value(child)}" for name, child in value.items())
            inner = ", ".join(pairs)
            return f"{{ {inner} }}" if inner else "{}"
        case _:
            return json.dumps(value)


def _toml_string(text: str) -> str:
    """Return a basic string; TOML has JSON's escapes, and does not allow DEL."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007F")


def _single_line(text: str) -> str:
    return "".join(char if char.isprintable() else " " for char in text)
