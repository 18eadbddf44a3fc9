"""Parse mesh files: groups, tests, schedules, and entries of pairs that measure. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Discriminator,
    Field,
    StringConstraints,
    Tag,
    ValidationError,
)

from node.model import times
from node.model.contexts import ContextWord
from node.model.errors import FieldFault, InvalidDocument
from node.model.nesting import DEPTH_MAX, is_too_deep
from node.model.toml import parse_toml
from node.model.unique_json import parse_json
from node.model.wire.alerts import Alerts
from node.model.wire.archives import ArchiveChoice
from node.model.wire.fields import FROM_OUTSIDE, KIND, Document, Host, Name
from node.model.wire.meshes import THRESHOLDS_MAX, FigureName, Threshold
from node.model.wire.pools import Match
from node.model.wire.tasks import (
    ARCHIVES_MAX,
    PRIORITY_MAX,
    TAKES_MAX,
    DependencyTerms,
    ScheduleTerms,
    Taking,
)
from node.model.wire.validation import faults_of

ENTRIES_MAX = 5000
"""Maximum number of entries: a template of ESnet's size has half as many, one for each source."""
Priority = Annotated[int, Field(ge=-PRIORITY_MAX - 1, le=PRIORITY_MAX, strict=True)]
MeshShape = Literal["full-mesh", "star", "pairs", "each"]
Direction = Literal["both", "one", "out", "in"]


class MatchingGroup(Document):
    """The nodes that meet a predicate over their attributes."""

    match: Match


class PoolGroup(Document):
    """The nodes of a pool."""

    pool: Name


class HostGroup(Document):
    """Hosts that are measured but are not nodes: they can only be the far end."""

    hosts: tuple[Host, ...]


_KINDS = {word: f"{KIND}{word}" for word in ("pool", "hosts", "match")}
_NAMES = f"{KIND}names"


def _kind_of_value(value: object) -> str:
    if isinstance(value, Mapping):
        return next((kind for word, kind in _KINDS.items() if word in value), _KINDS["match"])
    return _NAMES


Group = Annotated[
    Annotated[tuple[Host, ...], Tag(_NAMES)]
    | Annotated[MatchingGroup, Tag(_KINDS["match"])]
    | Annotated[PoolGroup, Tag(_KINDS["pool"])]
    | Annotated[HostGroup, Tag(_KINDS["hosts"])],
    Discriminator(_kind_of_value),
]
"""Names of nodes, or nodes that match, or nodes of a pool, or hosts that are not nodes."""


def _as_list(value: object) -> object:
    return (value,) if isinstance(value, str) else value


Words = Annotated[tuple[Host, ...], BeforeValidator(_as_list)]
"""One name of a group or a node, or a list of them."""


class TestEntry(Document):
    """A test and its spec, without the two ends."""

    type: Name
    spec: dict[str, Any] = Field(default_factory=dict)
    tools: tuple[Name, ...] = Field((), max_length=16)
    priority: Priority = 0


class MeshDependency(DependencyTerms):
    """The tasks of the mesh that the tasks of an entry follow."""

    key: Annotated[str, Field(min_length=1, max_length=400)] = Field(
        description="The name of another entry, or its test if it has none: each task follows that "
        "entry's task of the same pair. Or the whole key of one task, label/source/dest."
    )
    reverse: bool = Field(
        default=False,
        strict=True,
        description="Follow the task of the pair the other way round: trace back what was lost.",
    )

    @property
    def label(self) -> str:
        """Return the first part of the key."""
        return self.key.partition("/")[0]

    def of_pair(self, source: str, dest: str) -> str:
        """Return the key of the task that the task of a pair follows."""
        if "/" in self.key:
            return self.key
        return "/".join((self.key, *((dest, source) if self.reverse else (source, dest))))


def _without_null(value: dict[str, Any]) -> dict[str, Any]:
    """Return a reference unchanged.

    :raises ValueError: a member is null, which would remove it when a task is edited.
    """
    for name, each in value.items():
        if each is None:
            msg = f"has null for {name}; leave it out"
            raise ValueError(msg)
        if isinstance(each, dict):
            _without_null(each)
    return value


PairPattern = Annotated[str, StringConstraints(pattern=r"^[^/]+/[^/]+$", max_length=400)]
Reference = Annotated[dict[str, Any], AfterValidator(_without_null)]


class Measure(Document):
    """An entry: which pairs run which test, and when."""

    shape: MeshShape
    test: Name
    name: Name | None = Field(None, description="Distinguishes its tasks from others of this test.")
    schedule: Name | None = Field(None, description="None: once, now.")
    after: MeshDependency | None = Field(None, description="Instead of a schedule.")
    members: Words = ()
    centre: Words = ()
    pairs: tuple[tuple[Host, Host], ...] = ()
    direction: Direction | None = None
    priority: Priority | None = None
    takes: tuple[Taking, ...] = Field(
        (),
        max_length=TAKES_MAX,
        description="Counted resources that each of its runs takes: the name, its keeper, and the "
        "amount if it is not 1.",
        examples=[["link-x@hub"]],
    )
    archives: tuple[Name, ...] = Field(
        (), max_length=ARCHIVES_MAX, description="Where results go, besides the node's archives."
    )
    contexts: dict[Host, ContextWord] = Field(
        default_factory=dict,
        description="Where on its host a node measures, by the node's name, if not as usual.",
    )
    references: dict[PairPattern, Reference] = Field(
        default_factory=dict,
        description="What the references of its tasks have besides, by pair: `*/*` for all pairs, "
        "`a/*` for those from a, `*/b` for those to b, `a/b` for one; the more exact one counts.",
        examples=[{"*/*": {"ticket": 4711}, "a/*": {"site": "Amsterdam"}}],
    )
    thresholds: dict[FigureName, Threshold] = Field(
        default_factory=dict,
        max_length=THRESHOLDS_MAX,
        description="From which values on results are fair or bad, by the name of the figure as "
        "run list -o csv has it; each raises an alert.",
        examples=[{"loss.forward": {"fair": 0.001, "bad": 0.01}}],
    )
    alerts: Alerts = Field(
        default_factory=dict,
        description="When these alerts are raised and over, by the name of the figure; also of "
        "outcome (no answer, no result) and path (a trace goes another way).",
        examples=[{"loss.forward": {"count": 3, "of": 5, "clear": 0.005}, "path": {"count": 1}}],
    )

    @property
    def label(self) -> str:
        """Return the first part of the keys of its tasks."""
        return self.name or self.test


class MeshDocument(Document):
    """The whole file."""

    name: Name
    campaign: Name | None = None
    groups: dict[Name, Group] = Field(default_factory=dict)
    tests: dict[Name, TestEntry] = Field(default_factory=dict)
    schedules: dict[Name, ScheduleTerms] = Field(default_factory=dict)
    archives: dict[Name, ArchiveChoice] = Field(default_factory=dict)
    measure: tuple[Measure, ...] = Field((), max_length=ENTRIES_MAX)


@dataclass(frozen=True)
class ParsedMeshFile:
    """The valid part of a file, with the faults of its fields.

    ``entries`` are the numbers in the file, from 0, of the valid ``[[measure]]`` entries, and
    ``unread`` are the groups that are not valid: their names stand for no nodes.
    """

    document: MeshDocument | None
    faults: tuple[FieldFault, ...] = ()
    entries: tuple[int, ...] = ()
    unread: frozenset[str] = frozenset()


def parse(text: str, *, toml: bool) -> ParsedMeshFile:
    """Parse a file; TOML may have instants without quotes.

    A wrong field is left out, or the part that contains it if nothing valid remains, so that all
    faults of a file are found at once.

    :raises InvalidDocument: it is not TOML or JSON, or nests too deep.
    """
    try:
        raw = _as_json(parse_toml(text)) if toml else parse_json(text)
    except (ValueError, RecursionError) as error:
        raise InvalidDocument(
            [FieldFault("", f"is not {'TOML' if toml else 'JSON'}: {error}")]
        ) from (None)
    if is_too_deep(raw):
        raise InvalidDocument([FieldFault("", f"is nested more than {DEPTH_MAX} times")])
    document, faults = _read(raw)
    if document is not None:
        return ParsedMeshFile(document, entries=tuple(range(len(document.measure))))
    if not isinstance(raw, dict):
        return ParsedMeshFile(None, tuple(faults))
    for fault in faults:
        _remove_field(raw, fault.pointer.split("/")[1:])
    document, remaining = _read(raw)
    parts = {steps for it in remaining if (steps := tuple(it.pointer.split("/")[1:3]))}
    unread = frozenset(name for part, *named in parts if part == "groups" for name in named)
    entries = _empty_parts(raw, parts)
    if document is None:
        document, _ = _read(raw)
    return ParsedMeshFile(document, tuple(faults), entries, unread)


def _read(raw: Any) -> tuple[MeshDocument | None, list[FieldFault]]:
    try:
        return MeshDocument.model_validate(raw, context=FROM_OUTSIDE), []
    except ValidationError as error:
        return None, faults_of(error, MeshDocument)


def _remove_field(raw: Any, steps: Sequence[str]) -> None:
    """Remove the field at this path; items of lists stay."""
    *way, last = steps or [""]
    for step in way:
        if isinstance(raw, dict):
            raw = raw.get(step)
        elif isinstance(raw, list) and step.isdecimal() and int(step) < len(raw):
            raw = raw[int(step)]
        else:
            return
    if isinstance(raw, dict):
        raw.pop(last, None)


def _empty_parts(raw: dict[str, Any], parts: Collection[tuple[str, ...]]) -> tuple[int, ...]:
    """Replace these parts by empty ones; return the numbers of the remaining entries."""
    raw.setdefault("name", "unnamed")
    empty: tuple[tuple[str, Any], ...] = (
        ("archives", {"archiver": "unread"}),
        ("groups", []),
        ("schedules", {}),
        ("tests", {"type": "unread"}),
    )
    for kind, nothing in empty:
        section = raw.get(kind)
        if isinstance(section, dict):
            section.update((p[1], nothing) for p in parts if p[0] == kind and len(p) > 1)
    measures = raw.get("measure")
    if not isinstance(measures, list):
        return ()
    entries = tuple(n for n in range(len(measures)) if ("measure", str(n)) not in parts)
    raw["measure"] = [measures[number] for number in entries]
    return entries


def depths_of(document: MeshDocument) -> dict[str, int]:
    """Return by label how many entries lie before its own in the longest chain of dependencies.

    Entries in a chain that leads back to one of its own have as many before them as there are.
    """
    followed: dict[str, set[str]] = {measure.label: set() for measure in document.measure}
    followers: dict[str, list[str]] = {label: [] for label in followed}
    for measure in document.measure:
        before = None if measure.after is None else measure.after.label
        if before in followers and before not in followed[measure.label]:
            followed[measure.label].add(before)
            followers[before].append(measure.label)
    ready = [label for label, before in followed.items() if not before]
    depths = dict.fromkeys(ready, 0)
    for label in ready:  # which grows
        for follower in followers[label]:
            followed[follower].discard(label)
            if not followed[follower]:
                depths[follower] = depths[label] + 1
                ready.append(follower)
    return {label: depths.get(label, len(document.measure)) for label in followed}


def _as_json(value: Any) -> Any:
    """Convert TOML's instants into the texts of JSON."""
    match value:
        case dict():
            return {name: _as_json(child) for name, child in value.items()}
        case list():
            return [_as_json(child) for child in value]
        case datetime(tzinfo=zone) if zone is not None:
            return times.format_instant(times.from_datetime(value))
        case date() | time():
            return value.isoformat()
        case _:
            return value
