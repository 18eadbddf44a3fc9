"""What differs between a mesh file and what exists. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple
from uuid import UUID

from node.mesh.expansion import MeasurementPair
from node.mesh.terms import MeshEntryTerms
from node.model.changes import differences
from node.model.taskstate import OPEN, TaskState
from node.model.wire.meshes import MeshTask

_GONE = "the mesh does not have it any more"
_OTHER = "it measures something else"
_DOUBLE = "there is another one for the same pair"


class Creation(NamedTuple):
    """A task to be made; ``predecessor`` is the newest one of its key, which is over."""

    key: str
    pair: MeasurementPair
    predecessor: UUID | None


class Edit(NamedTuple):
    """A task to be changed by a merge patch, and what differs, field by field."""

    task: MeshTask
    pair: MeasurementPair
    patch: dict[str, Any]
    differences: tuple[str, ...]


class Cancellation(NamedTuple):
    """A task to be cancelled, and why."""

    task: MeshTask
    reason: str


@dataclass(frozen=True)
class Comparison:
    """What to do to make what exists what the file says."""

    create: tuple[Creation, ...]
    edit: tuple[Edit, ...]
    end: tuple[Cancellation, ...]
    unchanged: int
    paused: int
    """So many of those that stay are paused, and stay so."""

    @property
    def nothing(self) -> bool:
        """Whether what exists is what the file says."""
        return not (self.create or self.edit or self.end)


def compare(
    pairs: Mapping[str, MeasurementPair],
    terms: Sequence[MeshEntryTerms],
    existing: Iterable[MeshTask],
) -> Comparison:
    """What the file wants (``terms`` by the number of the entry) against what there is.

    A task that is over because its schedule is counts as there: it is not made again. One that
    was cancelled or refused does not.
    """
    edit: list[Edit] = []
    end: list[Cancellation] = []
    there: set[str] = set()
    over: dict[str, UUID] = {}
    unchanged = paused = 0
    for task in sorted(existing, key=lambda task: task.state not in OPEN):
        pair = pairs.get(task.key)
        wanted = None if pair is None else terms[pair.measure]
        why = _why_not(task, wanted, taken=task.key in there)
        same = pair is not None and wanted is not None and not why and _same(task, pair, wanted)
        if task.state not in OPEN:
            # What is over because its schedule is counts as done, if it is still what is wanted.
            if task.state == TaskState.FINISHED and same:
                there.add(task.key)
                unchanged += 1
            else:
                over[task.key] = task.id
        elif why or pair is None or wanted is None:
            end.append(Cancellation(task, why))
            over[task.key] = task.id
        else:
            there.add(task.key)
            paused += task.state == TaskState.PAUSED
            unchanged += same
            if not same:
                edit.append(_edit(task, pair, wanted))
    create = tuple(
        Creation(key, pair, over.get(key)) for key, pair in pairs.items() if key not in there
    )
    return Comparison(create, tuple(edit), tuple(end), unchanged, paused)


def _why_not(task: MeshTask, wanted: MeshEntryTerms | None, *, taken: bool) -> str:
    """Why a task cannot be the one that is wanted for its pair; nothing if it can."""
    if wanted is None:
        return _GONE
    if taken:
        return _DOUBLE
    return "" if task.test == wanted.test else _OTHER


def _same(task: MeshTask, pair: MeasurementPair, wanted: MeshEntryTerms) -> bool:
    schedule = task.schedule_kept
    return (
        task.priority == wanted.priority
        and task.tools == wanted.tools
        and task.campaign == wanted.kept_campaign
        and task.reference == wanted.reference(task.key)
        and all(schedule.get(name) == value for name, value in wanted.kept.items())
        and not _other_fields(task, pair, wanted)
    )


def _other_fields(task: MeshTask, pair: MeasurementPair, wanted: MeshEntryTerms) -> list[str]:
    """The fields of the spec that differ; one whose default is not known counts if written."""
    spec = {**wanted.filled, **wanted.named(pair.source, pair.dest)}
    return [name for name, value in spec.items() if task.spec.get(name) != value]


def _edit(task: MeshTask, pair: MeasurementPair, wanted: MeshEntryTerms) -> Edit:
    patch: dict[str, Any] = {}
    before: dict[str, Any] = {}
    after: dict[str, Any] = {}
    if fields := _other_fields(task, pair, wanted):
        spec = {**wanted.spec, **wanted.named(pair.source, pair.dest)}
        patch["test"] = {"spec": {name: spec.get(name) for name in fields}}
        full = {**wanted.filled, **wanted.named(pair.source, pair.dest)}
        before["spec"] = {name: task.spec.get(name) for name in fields}
        after["spec"] = {name: full[name] for name in fields}
    schedule = task.schedule_kept
    fields = [name for name, value in wanted.kept.items() if schedule.get(name) != value]
    written = (task.reference or {}).get("moments", {})
    fields += [name for name, value in wanted.moments.items() if written.get(name) != value]
    if fields:
        patch["schedule"] = {name: wanted.schedule.get(name) for name in fields}
        before["schedule"] = {name: written.get(name, schedule.get(name)) for name in fields}
        after["schedule"] = {
            name: wanted.moments.get(name, wanted.kept.get(name)) for name in fields
        }
    plain = {
        "tools": (list(task.tools), list(wanted.tools)),
        "priority": (task.priority, wanted.priority),
        "campaign": (task.campaign, wanted.kept_campaign),
    }
    for name, (old, new) in plain.items():
        if old != new:
            patch[name], before[name], after[name] = new, old, new
    if task.reference != wanted.reference(task.key):
        patch["reference"] = _replaced(task.reference, wanted.reference(task.key))
    return Edit(task, pair, {**patch, "revision": task.revision}, tuple(differences(before, after)))


def _replaced(old: Any, new: Mapping[str, Any]) -> dict[str, Any]:
    """The merge patch that leaves nothing of the old object."""
    moments = new.get("moments", {})
    gone = dict.fromkeys(set(old) - set(new))
    if isinstance(old.get("moments"), Mapping) and moments:
        moments = {**dict.fromkeys(set(old["moments"]) - set(moments)), **moments}
        return {**gone, **new, "moments": moments}
    return {**gone, **new}
