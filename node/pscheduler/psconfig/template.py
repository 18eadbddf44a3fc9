"""A template of psConfig: its sections, its includes, and what is told about it. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from node.model.errors import FieldFault, InvalidDocument

Document = dict[str, Any]

INCLUDES_MAX = 50
_NAMED = (
    "addresses",
    "address-classes",
    "archives",
    "contexts",
    "groups",
    "hosts",
    "schedules",
    "subtasks",
    "tasks",
    "tests",
)
_REQUIRED = ("addresses", "groups", "tests", "tasks")
"""A template without includes needs these sections."""


@dataclass(frozen=True, order=True)
class Omission:
    """Something of a template that the mesh file does not have, or has differently.

    ``pointer`` (RFC 6901) is its place in the template.
    """

    pointer: str
    why: str


@dataclass
class Report:
    """Collects omissions, each once."""

    _omissions: dict[Omission, None] = field(default_factory=dict)

    def add(self, pointer: str, why: str) -> None:
        """Report a part of the template."""
        self._omissions[Omission(pointer, why)] = None

    @property
    def omissions(self) -> tuple[Omission, ...]:
        """Return what was reported, in that order."""
        return tuple(self._omissions)


def pointer(*steps: object) -> str:
    """Return the pointer (RFC 6901) of these steps."""
    return "".join("/" + str(step).replace("~", "~0").replace("/", "~1") for step in steps)


def is_template(text: str) -> bool:
    """Return whether a text is a template rather than a mesh file of ours."""
    try:
        document = json.loads(text)
    except ValueError:
        return False
    return isinstance(document, dict) and "measure" not in document and "shape" not in document


def parse(text: str) -> Document:
    """Return a template.

    :raises InvalidDocument: it is not JSON, or its sections are not objects.
    """
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidDocument([FieldFault("", f"is not JSON: {error}")]) from None
    if not isinstance(document, dict):
        raise InvalidDocument([FieldFault("", "is not a template: write an object")])
    faults = []
    for name in _NAMED:
        section = document.get(name, {})
        if not isinstance(section, dict):
            faults.append(FieldFault(f"/{name}", "must be an object"))
            continue
        faults += [
            FieldFault(pointer(name, entry), "must be an object")
            for entry, content in section.items()
            if not isinstance(content, dict)
        ]
    includes = includes_of(document)
    if not isinstance(document.get("includes", []), list) or not all(
        isinstance(each, str) for each in includes
    ):
        faults.append(FieldFault("/includes", "must be a list of URLs"))
    if faults:
        raise InvalidDocument(faults)
    return document


def includes_of(template: Document) -> list[str]:
    """Return the URLs of the templates that a template includes."""
    includes = template.get("includes", [])
    return includes if isinstance(includes, list) else []


def with_includes(template: Document, included: Mapping[str, Document], report: Report) -> Document:
    """Return a template with the entries of the templates that it includes.

    Where both have an entry of one name, the including template's counts.

    :raises InvalidDocument: a section that every template needs is missing.
    """
    whole = {**template, **{name: dict(template.get(name, {})) for name in _NAMED}}
    for url, other in included.items():
        for name in _NAMED:
            for entry, content in other.get(name, {}).items():
                if entry in whole[name] and whole[name][entry] != content:
                    report.add(
                        pointer(name, entry),
                        f"the one that {url} has of this name is not used: an entry here counts",
                    )
                whole[name].setdefault(entry, content)
    if faults := [FieldFault(f"/{name}", "is missing") for name in _REQUIRED if not whole[name]]:
        raise InvalidDocument(faults)
    return whole
