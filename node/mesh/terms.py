"""The common part of the task documents of one entry of a mesh file. Pure.

The JSON schema of the test (``/v1/tests``) says which fields name the ends, which fields are
durations, and the defaults, so that an existing task can be compared with the file.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from node.mesh.document import Measure, MeshDependency, MeshDocument, depths_of
from node.mesh.spreading import is_spread, phase_of, start_of
from node.model import times
from node.model.scheduling import default_slip
from node.model.wire.campaigns import DEFAULT
from node.model.wire.meshes import GIVEN
from node.model.wire.tasks import PER_HOUR, ScheduleTerms, ScheduleTimes

_MOMENTS = ("start", "until")
_ENDS = ("source", "dest")
_SOURCE = ("source",)
_BOTH = "participants"
_CHECKSUM_DIGITS = 5


@dataclass(frozen=True)
class MeshEntryTerms:
    """The common part of the task documents of one entry."""

    mesh: str
    test: str
    spec: Mapping[str, Any]
    """The spec as written, without the ends."""
    filled: Mapping[str, Any]
    """The spec as a node stores it: with every field whose default is known."""
    defaults: Mapping[str, Any]
    """The known defaults: what a field that a stored spec lacks stands for."""
    ends: tuple[str, ...]
    """The fields that name the ends: source and dest, source, participants, or none."""
    tools: tuple[str, ...]
    schedule: Mapping[str, Any]
    kept: Mapping[str, Any]
    """The schedule as a node stores it, without moments relative to the creation of the task."""
    moments: Mapping[str, str]
    """These moments, as written."""
    priority: int
    campaign: str | None
    after: MeshDependency | None = None
    """The tasks that its tasks follow, instead of a schedule."""
    spread_over: int | None = None
    """The interval over which its tasks are spread; None if the file says when they start."""
    phases: Mapping[str, int] = field(default_factory=dict)
    """The distances of starts into the interval (µs), by key; a hash decides on others."""
    archives: tuple[Mapping[str, Any], ...] = ()
    """Destinations of results, besides the node's own archives."""
    contexts: Mapping[str, str] = field(default_factory=dict)
    """The places on their hosts from which nodes measure, by name, if not as usual."""
    references: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Members that the references of its tasks have besides, by patterns of pairs."""
    thresholds: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """From which values on results are fair or bad, by the name of the figure."""
    alerts: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """The terms of alerts, by the name of the figure."""
    literals: Mapping[str, Any] = field(default_factory=dict)
    """Fields of the spec with secrets as the file has them, which no node tells again."""
    takes: tuple[str, ...] = ()
    """The counted resources that each run takes."""
    far_takes_part: bool = True
    """True if the dest takes part: a far end that must be named in the spec is only a target."""
    depth: int = 0
    """The number of entries that its tasks follow, one after the other: these are created first."""

    @property
    def kept_campaign(self) -> str:
        """Return the campaign as a node stores it."""
        return self.campaign or DEFAULT

    def naming_fields(self, source: str, dest: str) -> dict[str, Any]:
        """Return the fields of the spec that name these ends."""
        if self.ends == _ENDS:
            return {"source": source, "dest": dest}
        if self.ends == _SOURCE:
            return {"source": source}
        return {_BOTH: _distinct_ends(source, dest)} if self.ends else {}

    def phase(self, key: str) -> int | None:
        """Return how far into the interval the task of a key starts (µs), None if not spread."""
        if self.spread_over is None:
            return None
        phase = self.phases.get(key)
        return phase_of(self.mesh, key, self.spread_over) if phase is None else phase

    def _with_phase(self, schedule: Mapping[str, Any], key: str) -> dict[str, Any]:
        """Return a schedule with the start that the task of a key gets, if it is spread."""
        phase = self.phase(key)
        return dict(schedule) if phase is None else {**schedule, "start": start_of(phase)}

    def posted_schedule(self, key: str) -> dict[str, Any]:
        """Return the schedule of the task of a key as posted."""
        return self._with_phase(self.schedule, key)

    def kept_schedule(self, key: str) -> dict[str, Any]:
        """Return the schedule of the task of a key as a node stores it, without moments."""
        return self._with_phase(self.kept, key)

    def reference(self, key: str) -> dict[str, Any]:
        """Return the reference by which a task of this key is found again."""
        reference: dict[str, Any] = {"mesh": self.mesh, "key": key}
        if self.archives:
            reference["archives"] = checksum(self.archives)
        if self.literals:
            reference["secrets"] = checksum([self.literals])
        source, dest = key.split("/")[1:]
        if contexts := self.contexts_of(source, dest):
            reference["contexts"] = contexts
        if given := self.given_reference(source, dest):
            reference[GIVEN] = given
        if self.takes:
            reference["takes"] = list(self.takes)
        if self.thresholds:
            reference["thresholds"] = dict(self.thresholds)
        if self.alerts:
            reference["alerts"] = dict(self.alerts)
        return {**reference, "moments": dict(self.moments)} if self.moments else reference

    def given_reference(self, source: str, dest: str) -> dict[str, Any]:
        """Return what the file adds to the reference of a pair's task."""
        given: dict[str, Any] = {}
        for pattern in ("*/*", f"{source}/*", f"*/{dest}", f"{source}/{dest}"):
            given |= self.references.get(pattern, {})
        return given

    def contexts_of(self, source: str, dest: str) -> dict[str, str]:
        """Return where the participants of a pair measure, by name, if not as usual."""
        ends = (source, dest) if self.far_takes_part else (source,)
        return {name: self.contexts[name] for name in ends if name in self.contexts}

    def followed_key(self, source: str, dest: str) -> str | None:
        """Return the key of the task that the task of a pair follows, None if it follows none."""
        return None if self.after is None else self.after.of_pair(source, dest)

    @property
    def least_interval(self) -> int:
        """Return the least time from run to run that a condition leaves (µs); 0 without one."""
        if self.after is None or self.after.when is None:
            return 0
        return times.HOUR // (self.after.per_hour or PER_HOUR)

    def dependency(self, followed: UUID | None) -> dict[str, Any] | None:
        """Return the dependency on this task as a node stores it; None without one."""
        if self.after is None or followed is None:
            return None
        terms = self.after.model_dump(mode="json", exclude={"key", "reverse"})
        return {**terms, "task": str(followed)}

    def document(
        self, key: str, source: str, dest: str, followed: UUID | None = None
    ) -> dict[str, Any]:
        """Return the task document to post; ``followed`` is the task that it follows, if any."""
        document: dict[str, Any] = {
            "test": {"type": self.test, "spec": {**self.spec, **self.naming_fields(source, dest)}},
            "reference": self.reference(key),
        }
        if not self.ends:
            document[_BOTH] = _distinct_ends(source, dest)
        if (after := self.dependency(followed)) is not None:
            document["after"] = after
        if schedule := self.posted_schedule(key):
            document["schedule"] = schedule
        others = {
            "tools": list(self.tools),
            "priority": self.priority,
            "campaign": self.campaign,
            "contexts": self.contexts_of(source, dest),
            "takes": list(self.takes),
            "archives": [dict(archive) for archive in self.archives],
        }
        return document | {name: value for name, value in others.items() if value}


def checksum(written: Sequence[Mapping[str, Any]]) -> str:
    """Return what shows that archives or secrets were changed, too short to find a password by."""
    content = json.dumps(list(written), sort_keys=True)
    return hashlib.sha256(content.encode()).hexdigest()[:_CHECKSUM_DIGITS]


def _distinct_ends(source: str, dest: str) -> list[str]:
    return [source] if source == dest else [source, dest]


def terms_of(
    document: MeshDocument, schemas: Mapping[str, Mapping[str, Any]]
) -> tuple[MeshEntryTerms, ...]:
    """Return the terms of the entries, whose tests and schedules are known."""
    depths = depths_of(document)
    return tuple(
        _terms_of(document, measure, depths[measure.label], schemas) for measure in document.measure
    )


def _terms_of(
    document: MeshDocument, measure: Measure, depth: int, schemas: Mapping[str, Mapping[str, Any]]
) -> MeshEntryTerms:
    test = document.tests[measure.test]
    schedule = (
        ScheduleTerms() if measure.schedule is None else (document.schedules[measure.schedule])
    )
    fields: Mapping[str, Any] = schemas[test.type].get("properties", {})
    moments = {
        name: written for name in _MOMENTS if isinstance(written := getattr(schedule, name), str)
    }
    whole = schedule.at(0)
    stored = whole.model_copy(update={"slip": default_slip(whole)}).model_dump(
        mode="json", exclude={"after"}
    )
    if measure.after is not None:
        stored = ScheduleTimes().model_dump(mode="json")
    ends = end_fields(fields)
    return MeshEntryTerms(
        mesh=document.name,
        test=test.type,
        spec=test.spec,
        filled={
            name: v for name, v in fill_defaults(fields, test.spec).items() if name not in ends
        },
        defaults=fill_defaults(fields, {}),
        ends=ends,
        tools=test.tools,
        schedule=schedule.model_dump(mode="json", exclude_unset=True, exclude_none=True),
        kept={name: value for name, value in stored.items() if name not in moments},
        moments=moments,
        priority=test.priority if measure.priority is None else measure.priority,
        campaign=document.campaign,
        after=measure.after,
        spread_over=schedule.repeat if is_spread(schedule) else None,
        archives=tuple(
            document.archives[name].model_dump(mode="json", exclude_defaults=True)
            for name in measure.archives
        ),
        contexts=measure.contexts,
        references=measure.references,
        takes=measure.takes,
        thresholds={name: dict(each) for name, each in measure.thresholds.items()},
        alerts={
            name: each.model_dump(exclude_defaults=True) for name, each in measure.alerts.items()
        },
        literals={
            name: value
            for name, value in test.spec.items()
            if fields.get(name, {}).get("secret") and _has_literal(value)
        },
        far_takes_part="dest" not in schemas[test.type].get("required", ()),
        depth=depth,
    )


def _has_literal(value: Any) -> bool:
    values = value.values() if isinstance(value, Mapping) else (value,)
    return any(isinstance(each, str) for each in values)


def end_fields(fields: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the fields of a spec that name the ends."""
    if all(name in fields for name in _ENDS):
        return _ENDS
    if "source" in fields:
        return _SOURCE
    return (_BOTH,) if _BOTH in fields else ()


def fill_defaults(fields: Mapping[str, Any], spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return the spec as a node would store it; fields without a known default are left out."""
    filled = {}
    for name, schema in fields.items():
        if name in spec:
            filled[name] = _canonical(schema, spec[name])
        elif "default" in schema:
            filled[name] = _canonical(schema, schema["default"])
    return filled


def _canonical(schema: Mapping[str, Any], value: Any) -> Any:
    if not isinstance(value, str) or not times.describes_duration(schema):
        return value
    try:
        return times.format_duration(times.parse_duration(value))
    except ValueError:  # the node will report the fault
        return value


def idempotency_key(document: Mapping[str, Any], predecessor: UUID | None) -> str:
    """Return a key that is the same for the same task of a mesh, until another replaces it.

    ``predecessor`` is the newest task of this key that is over, so that a task that was cancelled
    manually can be created again, although a node remembers keys for a day.
    """
    content = json.dumps([document, str(predecessor)], sort_keys=True, ensure_ascii=True)
    return f"mesh-{hashlib.sha256(content.encode()).hexdigest()}"
