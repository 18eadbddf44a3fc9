"""Compare a mesh file with the existing tasks. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from uuid import UUID

from node.mesh.expansion import MeasurementPair
from node.mesh.spreading import start_in_words
from node.mesh.terms import MeshEntryTerms
from node.model.changes import differences
from node.model.secrets import REDACTED
from node.model.taskstate import OPEN, TaskState
from node.model.wire.meshes import GIVEN, MeshTask

_GONE = "the mesh does not have it any more"
_OTHER = "it measures something else"
_ELSEWHERE = "it measures from another place on a host, which cannot be edited"
_TAKING = "it takes other resources, which cannot be edited"
_DOUBLE = "there is another one for the same pair"
_ANEW = "the task that it follows is created anew"


class Creation(NamedTuple):
    """A task to create; ``predecessor`` is the newest one of its key that is over."""

    key: str
    pair: MeasurementPair
    predecessor: UUID | None


class Edit(NamedTuple):
    """A task to change by a merge patch, and its differences field by field."""

    task: MeshTask
    pair: MeasurementPair
    patch: dict[str, Any]
    differences: tuple[str, ...]


class Cancellation(NamedTuple):
    """A task to cancel, and the reason."""

    task: MeshTask
    reason: str


@dataclass(frozen=True)
class Comparison:
    """The changes that make the existing tasks match the file."""

    create: tuple[Creation, ...]
    edit: tuple[Edit, ...]
    end: tuple[Cancellation, ...]
    unchanged: int
    paused: int
    """Number of unchanged or edited tasks that are paused, and stay paused."""
    present: Mapping[str, UUID] = field(default_factory=dict)
    """The tasks that stay, by key."""
    together: int = 0
    """Number of unchanged or edited tasks that start together, as an earlier version made them."""

    @property
    def nothing(self) -> bool:
        """Return whether there is nothing to do."""
        return not (self.create or self.edit or self.end)


def compare(
    pairs: Mapping[str, MeasurementPair],
    terms: Sequence[MeshEntryTerms],
    existing: Iterable[MeshTask],
    *,
    spread: bool = False,
) -> Comparison:
    """Compare the file's tasks with the existing ones; ``terms`` are by the number of the entry.

    A task that is over because of its schedule counts as existing: it is not created again. A
    task that was cancelled or refused does not. Versions before 0.3 did not spread starts; the
    tasks that they created start as they did, unless ``spread``.
    """
    edit: list[Edit] = []
    end: list[Cancellation] = []
    present: dict[str, UUID] = {}
    over: dict[str, UUID] = {}
    unchanged = paused = together = 0
    depths = {key: terms[pair.measure].depth for key, pair in pairs.items()}
    # Tasks that others follow come first, so that it is known which of them stay.
    order = sorted(existing, key=lambda it: (depths.get(it.key, 0), it.state not in OPEN))
    for task in order:
        pair = pairs.get(task.key)
        wanted = None if pair is None else terms[pair.measure]
        why = _mismatch(task, pair, wanted, present)
        after = None if pair is None or wanted is None else _dependency(pair, wanted, present)
        same = (
            pair is not None
            and wanted is not None
            and not why
            and _is_same(task, pair, wanted, spread=spread)
            and _kept_dependency(task) == after
        )
        if task.state not in OPEN:
            # A finished task counts as done if the file still describes it.
            if task.state == TaskState.FINISHED and same:
                present[task.key] = task.id
                unchanged += 1
            else:
                over[task.key] = task.id
        elif why or pair is None or wanted is None:
            end.append(Cancellation(task, why))
            over[task.key] = task.id
        else:
            present[task.key] = task.id
            paused += task.state == TaskState.PAUSED
            unchanged += same
            together += is_unspread(task, wanted) and not spread
            if not same:
                edit.append(_edit(task, pair, wanted, after, spread=spread))
    create = tuple(
        Creation(key, pair, over.get(key)) for key, pair in pairs.items() if key not in present
    )
    return Comparison(create, tuple(edit), tuple(end), unchanged, paused, present, together)


def _mismatch(
    task: MeshTask,
    pair: MeasurementPair | None,
    wanted: MeshEntryTerms | None,
    present: Mapping[str, UUID],
) -> str:
    """Return why a task cannot be the wanted one of its pair; an empty text if it can."""
    if pair is None or wanted is None:
        return _GONE
    if task.key in present:
        return _DOUBLE
    if task.test != wanted.test:
        return _OTHER
    contexts = wanted.contexts_of(pair.source, pair.dest)
    if (task.reference or {}).get("contexts", {}) != contexts:
        return _ELSEWHERE
    if (task.reference or {}).get("takes", []) != list(wanted.takes):
        return _TAKING
    followed = wanted.followed_key(pair.source, pair.dest)
    return "" if followed is None or followed in present else _ANEW


def _dependency(
    pair: MeasurementPair, wanted: MeshEntryTerms, present: Mapping[str, UUID]
) -> dict[str, Any] | None:
    return wanted.dependency(present.get(wanted.followed_key(pair.source, pair.dest) or ""))


def _kept_dependency(task: MeshTask) -> dict[str, Any] | None:
    return None if task.after is None else task.after.model_dump(mode="json")


def is_unspread(task: MeshTask, wanted: MeshEntryTerms) -> bool:
    """Return whether a task of an entry whose tasks are spread was created when none were."""
    return wanted.spread_over is not None and task.schedule.start is None


def _differing_times(task: MeshTask, wanted: MeshEntryTerms, *, spread: bool) -> list[str]:
    """Return the fields of the schedule that differ, except for moments."""
    schedule = task.schedule_kept
    stays = {"start"} if is_unspread(task, wanted) and not spread else set()
    return [
        name
        for name, value in wanted.kept_schedule(task.key).items()
        if schedule.get(name) != value and name not in stays
    ]


def _is_same(
    task: MeshTask, pair: MeasurementPair, wanted: MeshEntryTerms, *, spread: bool
) -> bool:
    return (
        task.priority == wanted.priority
        and task.tools == wanted.tools
        and task.campaign == wanted.kept_campaign
        and task.reference == wanted.reference(task.key)
        and not _differing_times(task, wanted, spread=spread)
        and not _differing_fields(task, pair, wanted)
    )


def _differing_fields(task: MeshTask, pair: MeasurementPair, wanted: MeshEntryTerms) -> list[str]:
    """Return the fields of the spec that differ; a field without a known default, if written.

    The node of an earlier version does not store a field that came later: it has its default.
    """
    spec = {**wanted.filled, **wanted.naming_fields(pair.source, pair.dest)}
    kept = {**wanted.defaults, **task.spec}
    return [name for name, value in spec.items() if not _is_shown_by_node(kept.get(name), value)]


def _is_shown_by_node(kept: Any, written: Any) -> bool:
    """Return whether a value of the file is one that a node stores, and tells so."""
    if isinstance(kept, Mapping) and isinstance(written, Mapping):
        return kept.keys() == written.keys() and all(
            _is_shown_by_node(kept[n], written[n]) for n in kept
        )
    return bool(kept == written or (kept == REDACTED and isinstance(written, str)))


def _redact(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _redact(each) for name, each in value.items()}
    return REDACTED if isinstance(value, str) else value


def _add_spec_edit(
    task: MeshTask,
    pair: MeasurementPair,
    wanted: MeshEntryTerms,
    edit: tuple[dict[str, Any], dict[str, Any], dict[str, Any]],
) -> None:
    """Add the fields of the spec that differ to a patch, and to what was before and is after."""
    patch, before, after = edit
    secrets = (task.reference or {}).get("secrets")
    anew = secrets != wanted.reference(task.key).get("secrets")
    if anew:
        before["secrets"], after["secrets"] = secrets and "others", "as in the file"
    fields = _differing_fields(task, pair, wanted)
    if fields or anew:
        # A node keeps no secret for a spec that is otherwise another one.
        fields = list(dict.fromkeys([*fields, *wanted.literals]))
    if fields:
        spec = {**wanted.spec, **wanted.naming_fields(pair.source, pair.dest)}
        patch["test"] = {"spec": {name: spec.get(name) for name in fields}}
        full = {**wanted.filled, **wanted.naming_fields(pair.source, pair.dest)}
        before["spec"] = {name: task.spec.get(name) for name in fields}
        after["spec"] = {
            name: _redact(full[name]) if name in wanted.literals else full[name] for name in fields
        }


def _edit(
    task: MeshTask,
    pair: MeasurementPair,
    wanted: MeshEntryTerms,
    dependency: dict[str, Any] | None,
    *,
    spread: bool,
) -> Edit:
    patch: dict[str, Any] = {}
    before: dict[str, Any] = {}
    after: dict[str, Any] = {}
    _add_spec_edit(task, pair, wanted, (patch, before, after))
    schedule, kept = task.schedule_kept, wanted.kept_schedule(task.key)
    fields = _differing_times(task, wanted, spread=spread)
    written = (task.reference or {}).get("moments", {})
    fields += [name for name, value in wanted.moments.items() if written.get(name) != value]
    if fields:
        posted = wanted.posted_schedule(task.key)
        patch["schedule"] = {name: posted.get(name) for name in fields}
        before["schedule"] = {name: written.get(name, schedule.get(name)) for name in fields}
        after["schedule"] = {name: wanted.moments.get(name, kept.get(name)) for name in fields}
        _write_phases(wanted, before["schedule"], after["schedule"])
    plain: dict[str, tuple[Any, Any]] = {
        "tools": (list(task.tools), list(wanted.tools)),
        "priority": (task.priority, wanted.priority),
        "campaign": (task.campaign, wanted.kept_campaign),
        "after": (_kept_dependency(task), dependency),
    }
    for name, (old, new) in plain.items():
        if old != new:
            patch[name], before[name], after[name] = _replaced(old, new), old, new
    archived = (task.reference or {}).get("archives")
    if archived != wanted.reference(task.key).get("archives"):
        patch["archives"] = [dict(archive) for archive in wanted.archives]
        before["archives"] = None if archived is None else "others"
        after["archives"] = [archive["archiver"] for archive in wanted.archives]
    told: dict[str, tuple[Mapping[str, Any], Callable[[Any], Any]]] = {
        "thresholds": (wanted.thresholds, _thresholds_text),
        "alerts": (wanted.alerts, _alerts_text),
        GIVEN: (wanted.given_reference(pair.source, pair.dest), dict),
    }
    for name, (new, in_words) in told.items():
        if (old := (task.reference or {}).get(name, {})) != new:
            before[name], after[name] = in_words(old), in_words(new)
    if task.reference != wanted.reference(task.key):
        patch["reference"] = _replaced(task.reference, wanted.reference(task.key))
    return Edit(task, pair, {**patch, "revision": task.revision}, tuple(differences(before, after)))


def _replaced(old: Any, new: Any) -> Any:
    """Return the merge patch that makes a value of another one, of which it may keep nothing."""
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        nested = {name: _replaced(old.get(name), value) for name, value in new.items()}
        return {**dict.fromkeys(set(old) - set(new)), **nested}
    return new


def _write_phases(wanted: MeshEntryTerms, *schedules: dict[str, Any]) -> None:
    """Write the starts of tasks that are spread as what they are: distances into the interval."""
    for schedule in schedules if wanted.spread_over is not None else ():
        if "start" in schedule:
            schedule["start"] = start_in_words(schedule["start"])


def _thresholds_text(thresholds: Mapping[str, Mapping[str, float]]) -> list[str]:
    """Return thresholds in words: ``loss 0.001 / 0.01``."""
    return [f"{name} {each['fair']:g} / {each['bad']:g}" for name, each in thresholds.items()]


def _alerts_text(alerts: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return the terms of alerts in words: ``loss count=3 of=5``."""
    return [" ".join([name, *(f"{k}={v}" for k, v in it.items())]) for name, it in alerts.items()]
