"""The mesh file: groups, tests, schedules, and who measures what to whom. Pure."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from datetime import date, datetime, time
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Discriminator, Field, Tag, ValidationError

from node.model import times
from node.model.errors import FieldFault, InvalidDocument
from node.model.wire.fields import FROM_OUTSIDE, KIND, Document, Host, Name
from node.model.wire.pools import Match
from node.model.wire.tasks import PRIORITY_MAX, ScheduleDocument
from node.model.wire.validation import faults_of

Priority = Annotated[int, Field(ge=-PRIORITY_MAX - 1, le=PRIORITY_MAX, strict=True)]
Shape = Literal["full-mesh", "star", "pairs"]
Direction = Literal["both", "one", "out", "in"]


class Matching(Document):
    """The nodes that meet a predicate over their attributes."""

    match: Match


class OfPool(Document):
    """The nodes of a pool."""

    pool: Name


class Hosts(Document):
    """Hosts that are measured but are no nodes: they can only be the far end."""

    hosts: tuple[Host, ...]


_KINDS = {word: f"{KIND}{word}" for word in ("pool", "hosts", "match")}
_NAMES = f"{KIND}names"


def _kind(value: object) -> str:
    if isinstance(value, Mapping):
        return next((kind for word, kind in _KINDS.items() if word in value), _KINDS["match"])
    return _NAMES


Group = Annotated[
    Annotated[tuple[Host, ...], Tag(_NAMES)]
    | Annotated[Matching, Tag(_KINDS["match"])]
    | Annotated[OfPool, Tag(_KINDS["pool"])]
    | Annotated[Hosts, Tag(_KINDS["hosts"])],
    Discriminator(_kind),
]
"""Names of nodes; or those that match, or belong to a pool; or hosts that are no nodes."""


def _several(value: object) -> object:
    return (value,) if isinstance(value, str) else value


Words = Annotated[tuple[Host, ...], BeforeValidator(_several)]
"""One name of a group or a node, or a list of them."""


class TestEntry(Document):
    """What is measured, without the two ends."""

    type: Name
    spec: dict[str, Any] = Field(default_factory=dict)
    tools: tuple[Name, ...] = Field((), max_length=16)
    priority: Priority = 0


class Measure(Document):
    """Who measures what to whom, and when."""

    shape: Shape
    test: Name
    name: Name | None = Field(None, description="Keeps its tasks apart from others of this test.")
    schedule: Name | None = Field(None, description="None: once, now.")
    members: Words = ()
    centre: Words = ()
    pairs: tuple[tuple[Host, Host], ...] = ()
    direction: Direction | None = None
    priority: Priority | None = None

    @property
    def label(self) -> str:
        """The first word of the keys of its tasks."""
        return self.name or self.test


class MeshDocument(Document):
    """The whole file."""

    name: Name
    campaign: Name | None = None
    groups: dict[Name, Group] = Field(default_factory=dict)
    tests: dict[Name, TestEntry] = Field(default_factory=dict)
    schedules: dict[Name, ScheduleDocument] = Field(default_factory=dict)
    measure: tuple[Measure, ...] = Field((), max_length=1000)


def parse(text: str, *, toml: bool) -> MeshDocument:
    """A file as a document; TOML may write instants without quotes.

    :raises InvalidDocument: it is not TOML or JSON, or a field is wrong; each has its pointer.
    """
    try:
        raw = _plain(tomllib.loads(text)) if toml else json.loads(text)
    except ValueError as error:
        raise InvalidDocument(
            [FieldFault("", f"is not {'TOML' if toml else 'JSON'}: {error}")]
        ) from (None)
    try:
        return MeshDocument.model_validate(raw, context=FROM_OUTSIDE)
    except ValidationError as error:
        raise InvalidDocument(faults_of(error, MeshDocument)) from None


def _plain(value: Any) -> Any:
    """TOML's own instants as they would be written in JSON."""
    match value:
        case dict():
            return {name: _plain(child) for name, child in value.items()}
        case list():
            return [_plain(child) for child in value]
        case datetime(tzinfo=zone) if zone is not None:
            return times.format_instant(times.from_datetime(value))
        case date() | time():
            return value.isoformat()
        case _:
            return value
