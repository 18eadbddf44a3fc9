"""A template of psConfig: its sections, its includes, and what is told about it. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from node.model.errors import FieldFault, InvalidDocument
from node.model.nesting import DEPTH_MAX, is_too_deep

Document = dict[str, Any]

INCLUDES_MAX = 50


@dataclass(frozen=True)
class _Kind:
    """A type of values, in words; ``members`` are those of each entry of an object of objects."""

    words: str
    kind: type
    item: type | None = None
    members: Mapping[str, _Kind] | None = None

    def fits(self, value: Any) -> bool:
        """Return whether a value has this type."""
        if not isinstance(value, self.kind) or (self.kind is int and isinstance(value, bool)):
            return False
        item = self.item
        if item is None or not isinstance(value, list):
            return True
        return all(isinstance(each, item) for each in value)


_TEXT = _Kind("a text", str)
_TEXTS = _Kind("a list of texts", list, str)
_OBJECTS = _Kind("a list of objects", list, dict)
_OBJECT = _Kind("an object", dict)
_NUMBER = _Kind("a whole number", int)
_FLAG = _Kind("true or false", bool)

_PLACE = {
    "address": _TEXT,
    "pscheduler-address": _TEXT,
    "contexts": _TEXTS,
    "disabled": _FLAG,
    "no-agent": _FLAG,
}
_LABELS = _Kind("an object of objects", dict, members=_PLACE)
MEMBERS: Mapping[str, Mapping[str, _Kind]] = {
    "addresses": {
        **_PLACE,
        "host": _TEXT,
        "tags": _TEXTS,
        "labels": _LABELS,
        "remote-addresses": _Kind(
            "an object of objects", dict, members={**_PLACE, "labels": _LABELS}
        ),
    },
    "address-classes": {
        "data-source": _OBJECT,
        "match-filter": _OBJECT,
        "exclude-filter": _OBJECT,
    },
    "archives": {
        "archiver": _TEXT,
        "data": _OBJECT,
        "transform": _OBJECT,
        "ttl": _TEXT,
        "label": _TEXT,
        "runs": _TEXT,
        "schema": _NUMBER,
        "uri-host": _TEXT,
    },
    "contexts": {"context": _TEXT, "data": _OBJECT},
    "groups": {
        "type": _TEXT,
        "addresses": _OBJECTS,
        "a-addresses": _OBJECTS,
        "b-addresses": _OBJECTS,
        "default-address-label": _TEXT,
        "unidirectional": _FLAG,
        "excludes-self": _TEXT,
        "excludes": _OBJECTS,
    },
    "hosts": {"archives": _TEXTS, "tags": _TEXTS, "no-agent": _FLAG, "disabled": _FLAG},
    "schedules": {
        "start": _TEXT,
        "until": _TEXT,
        "repeat": _TEXT,
        "repeat-cron": _TEXT,
        "slip": _TEXT,
        "sliprand": _FLAG,
        "max-runs": _NUMBER,
    },
    "subtasks": {},
    "tasks": {
        "group": _TEXT,
        "test": _TEXT,
        "schedule": _TEXT,
        "archives": _TEXTS,
        "tools": _TEXTS,
        "priority": _NUMBER,
        "scheduled-by": _NUMBER,
        "disabled": _FLAG,
        "reference": _Kind("anything", object),
        "_meta": _Kind("anything", object),
        "subtasks": _TEXTS,
    },
    "tests": {"type": _TEXT, "spec": _OBJECT},
}
"""The sections of a template, and the members of their entries that are known here."""

_NAMED = tuple(MEMBERS)
_REQUIRED = ("addresses", "groups", "tests", "tasks")
"""A template needs these sections, or what it includes; they may be empty."""


@dataclass(frozen=True, order=True)
class Omission:
    """Something of a template that the mesh file does not have, or has differently.

    ``pointer`` (RFC 6901) is its place in the template, ``tasks`` how many tasks are left out
    because of it.
    """

    pointer: str
    why: str
    tasks: int = 0

    @property
    def sentence(self) -> str:
        """Return its place, why, and its effect."""
        effect = f" ({tasks_text(self.tasks)} left out)" if self.tasks else ""
        return f"{self.pointer or '/'}: {self.why}{effect}"


def tasks_text(count: int) -> str:
    """Return a number of tasks in words."""
    return "1 task" if count == 1 else f"{count:,} tasks"


@dataclass
class Report:
    """Collects omissions, each once."""

    _tasks: dict[tuple[str, str], int] = field(default_factory=dict)

    def add(self, pointer: str, why: str, tasks: int = 0) -> None:
        """Report why a part of the template is left out or changed; the same is kept once.

        ``tasks`` are left out because of it, besides those for which it was reported before.
        """
        self._tasks[pointer, why] = self._tasks.get((pointer, why), 0) + tasks

    @property
    def omissions(self) -> tuple[Omission, ...]:
        """Return what was reported, in that order."""
        return tuple(Omission(*place, tasks) for place, tasks in self._tasks.items())

    @property
    def tasks_left_out(self) -> int:
        """Return how many tasks are left out."""
        return sum(self._tasks.values())


def pointer(*steps: object) -> str:
    """Return the pointer (RFC 6901) of these steps."""
    return "".join("/" + str(step).replace("~", "~0").replace("/", "~1") for step in steps)


def is_template(text: str) -> bool:
    """Return whether a text is a template rather than a mesh file of ours."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return False
    return isinstance(document, dict) and "measure" not in document and "shape" not in document


def parse(text: str) -> Document:
    """Return a template.

    :raises InvalidDocument: it is not JSON, or its sections are not objects.
    """
    try:
        document = json.loads(text, parse_constant=_no_number)
        json.dumps(document, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        raise InvalidDocument([FieldFault("", f"is not JSON: {error}")]) from None
    if not isinstance(document, dict):
        raise InvalidDocument([FieldFault("", "is not a template: write an object")])
    if is_too_deep(document):
        raise InvalidDocument([FieldFault("", f"is nested more than {DEPTH_MAX} times")])
    faults = list(_faults(document))
    if faults:
        raise InvalidDocument(faults)
    return document


def _no_number(text: str) -> None:
    msg = f"{text} is no number"
    raise ValueError(msg)


def _faults(document: Document) -> Iterator[FieldFault]:
    """Yield a fault for each known member of the wrong type; unknown members may be anything."""
    for name, members in MEMBERS.items():
        section = document.get(name, {})
        if not isinstance(section, dict):
            yield FieldFault(f"/{name}", "must be an object")
            continue
        for entry, content in section.items():
            yield from _entry_faults(content, members, pointer(name, entry))
    if not _TEXTS.fits(document.get("includes", [])):
        yield FieldFault("/includes", f"must be {_TEXTS.words}")


def _entry_faults(entry: Any, members: Mapping[str, _Kind], at: str) -> Iterator[FieldFault]:
    if not isinstance(entry, dict):
        yield FieldFault(at, "must be an object")
        return
    for name, kind in members.items():
        if name in entry and not kind.fits(entry[name]):
            yield FieldFault(f"{at}/{name}", f"must be {kind.words}")
        elif name in entry and kind.members is not None:
            for inner, content in entry[name].items():
                yield from _entry_faults(content, kind.members, f"{at}{pointer(name, inner)}")


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
    given = {name for each in (template, *included.values()) for name in each}
    if faults := [FieldFault(f"/{name}", "is missing") for name in _REQUIRED if name not in given]:
        raise InvalidDocument(faults)
    return whole
