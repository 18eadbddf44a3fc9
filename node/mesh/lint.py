"""Find faults in a mesh file without asking other nodes. Pure.

Each function ``_…_findings`` looks at one part of the file (groups, tests, schedules, entries,
dependencies) and yields what is wrong with it, at its pointer; :func:`lint` runs all of them in the
order of the file, and none of them stops the others, so that one look shows every fault.

A finding here either stops the file from being applied (``INVALID``), or tells of a part without
effect (``IDLE``). Fields of a wrong type were removed by :mod:`.document` before; what only seems
unused because of them is left out by :func:`findings_elsewhere`. Whether nodes accept the tasks,
and have time, is asked elsewhere (:mod:`.answers`, :mod:`.demand`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

from node.mesh.document import (
    Group,
    HostGroup,
    MatchingGroup,
    Measure,
    MeshDependency,
    MeshDocument,
    ParsedMeshFile,
    PoolGroup,
    TestEntry,
    depths_of,
)
from node.mesh.expansion import (
    TASKS_MAX,
    Expansion,
    MeasurementPair,
    MeshInventory,
    direction_of,
    ends_of,
    expand,
    members_of,
    spread,
    words,
)
from node.mesh.findings import Finding, FindingKind, similar_names
from node.mesh.terms import end_fields
from node.model.errors import FieldFault
from node.model.figure_names import condition_fault, figure_faults
from node.model.scheduling import schedule_faults
from node.model.similar import first_names, similar_words

_FIELDS = {
    "full-mesh": (("members",), ("centre", "pairs"), ("both", "one")),
    "star": (("centre", "members"), ("pairs",), ("both", "out", "in")),
    "pairs": (("pairs",), ("members", "centre"), ("one", "both")),
    "each": (("members",), ("centre", "pairs"), ("both",)),
}
"""By shape: required fields, forbidden fields, and possible directions."""

FINDINGS_MAX = 50
"""Maximum number of findings of a file that stop it, and of others: similar names take time."""

_ENDS = {"source", "dest", "participants"}
_ENTRY = "/measure/"


def finding_of(fault: FieldFault) -> Finding:
    """Return the finding of a field that is wrong."""
    return Finding(FindingKind.INVALID, fault.pointer, fault.detail)


def findings_elsewhere(findings: Iterable[Finding], file: ParsedMeshFile) -> Iterator[Finding]:
    """Yield the findings besides faulty fields, at their place in the file.

    A field that seems unused, or without a type, may seem so only because of a faulty field, so
    findings at, above or below a faulty field are left out.
    """
    faulty = {fault.pointer for fault in file.faults}
    for finding in findings:
        place = finding.pointer
        if place.startswith(_ENTRY):
            number, slash, rest = place.removeprefix(_ENTRY).partition("/")
            place = f"{_ENTRY}{file.entries[int(number)]}{slash}{rest}"
        related = any(f"{p}/".startswith(f"{place}/") or place.startswith(f"{p}/") for p in faulty)
        if finding.stops and not related:
            yield replace(finding, pointer=place)


def lint(
    document: MeshDocument, fleet: MeshInventory, now: int, most: int = TASKS_MAX
) -> tuple[Expansion, list[Finding]]:
    """Return the tasks of the file, and the first findings in the order of the file.

    Of one that has more than ``most`` tasks that is the only finding.
    """
    groups = members_of(document, fleet)
    expansion = expand(document, groups, most)
    if expansion.is_too_large:
        detail = f"has more than {most:,} tasks, or as many nodes that are none"
        remedy = "divide the file; parley mesh apply takes more"
        return expansion, [_error_finding("/measure", detail, remedy)]
    findings = chain(
        _campaign_findings(document, fleet),
        _group_findings(document, fleet, groups),
        _test_findings(document, fleet),
        _schedule_findings(document, now),
        _archive_findings(document),
        _entry_findings(document, fleet, groups),
        expansion.findings,
        _dependency_findings(document, expansion),
    )
    return expansion, list(_first(findings))


def _first(findings: Iterable[Finding]) -> Iterator[Finding]:
    """Yield the first findings of each kind, and look for no more than these."""
    left = {True: FINDINGS_MAX, False: FINDINGS_MAX}
    for finding in findings:
        if left[finding.stops]:
            left[finding.stops] -= 1
            yield finding
        elif finding.stops:
            return


def _error_finding(pointer: str, detail: str, remedy: str) -> Finding:
    return Finding(FindingKind.INVALID, pointer, detail, remedy)


def _idle_finding(pointer: str, detail: str, remedy: str) -> Finding:
    return Finding(FindingKind.IDLE, pointer, detail, remedy)


def _campaign_findings(document: MeshDocument, fleet: MeshInventory) -> Iterator[Finding]:
    name = document.campaign
    if name is not None and name not in fleet.campaigns:
        remedy = f"{similar_names(name, fleet.campaigns)} Or add it: parley campaign add {name}"
        yield _error_finding("/campaign", f"there is no campaign {name}", remedy)


def _group_findings(
    document: MeshDocument, fleet: MeshInventory, groups: Mapping[str, Sequence[str]]
) -> Iterator[Finding]:
    used = {word for measure in document.measure for word in words(measure)}
    for name, group in document.groups.items():
        at = f"/groups/{name}"
        if name in fleet.nodes:
            detail = f"{name} is the name of a group and of a node"
            yield _error_finding(at, detail, "give the group another name")
        empty = not groups[name] and name not in fleet.unresolved
        if empty and name in used:
            yield _error_finding(at, "is empty", _remedy_for_empty(group))
        if name not in used:
            detail = "is not used, and empty" if empty else "is not used"
            yield _idle_finding(at, detail, "remove it, or name it in a [[measure]]")
        yield from _name_list_findings(at, group, fleet)


def _name_list_findings(at: str, group: Group, fleet: MeshInventory) -> Iterator[Finding]:
    """Find faults in the names of a list, which no predicate or pool has resolved."""
    if isinstance(group, MatchingGroup | PoolGroup):
        return
    names = group.hosts if isinstance(group, HostGroup) else group
    for name, count in Counter(names).items():
        if count > 1:
            yield _idle_finding(at, f"names {name} {count} times", "name it once")
    for index, word in enumerate(() if isinstance(group, HostGroup) else names):
        if word not in fleet.nodes:
            yield _unknown_node_finding(f"{at}/{index}", word, fleet)


def _remedy_for_empty(group: object) -> str:
    if isinstance(group, MatchingGroup):
        return "no node meets its predicate; compare with: parley node list -o json"
    if isinstance(group, PoolGroup):
        return f"no node is in the pool now; see: parley pool show {group.pool}"
    return "name the nodes in it"


def _unknown_node_finding(
    pointer: str, word: str, fleet: MeshInventory, groups: Sequence[str] = ()
) -> Finding:
    remedy = (
        f"{similar_names(word, [*fleet.nodes, *groups])} Or make it known: parley node add URL; "
        "a far end that is not a node goes into a group of its own: { hosts = [ … ] }"
    )
    kind = "a node known here" if not groups else "a group of this file or a node known here"
    return _error_finding(pointer, f"{word} is not {kind}", remedy)


def _test_findings(document: MeshDocument, fleet: MeshInventory) -> Iterator[Finding]:
    used = {measure.test for measure in document.measure}
    for name, test in document.tests.items():
        at = f"/tests/{name}"
        if name not in used:
            yield _idle_finding(at, "is not used", "remove it, or name it in a [[measure]]")
        if test.type not in fleet.tests:
            detail = f"there is no test {test.type}"
            yield _error_finding(f"{at}/type", detail, similar_names(test.type, fleet.tests))
            for alike in similar_words(test.type, fleet.tests, most=1):
                yield from _spec_findings(at, test, fleet.tests[alike].get("properties", {}))
            continue
        yield from _spec_findings(at, test, fleet.tests[test.type].get("properties", {}))
        for index, tool in enumerate(test.tools):
            able = [each for each, tests in fleet.tools.items() if test.type in tests]
            if tool not in able:
                detail = f"there is no tool {tool} for {test.type}"
                yield _error_finding(f"{at}/tools/{index}", detail, similar_names(tool, able))


def _spec_findings(at: str, test: TestEntry, fields: Mapping[str, object]) -> Iterator[Finding]:
    for field in test.spec:
        if field in _ENDS & set(fields):
            detail = "names an end, but the ends come from the shape"
            yield _error_finding(f"{at}/spec/{field}", detail, "remove it")
        elif field not in fields:
            detail = f"{test.type} has no field {field}"
            yield _error_finding(
                f"{at}/spec/{field}", detail, similar_names(field, set(fields) - _ENDS)
            )


def _schedule_findings(document: MeshDocument, now: int) -> Iterator[Finding]:
    used = {measure.schedule for measure in document.measure}
    for name, schedule in document.schedules.items():
        at = f"/schedules/{name}"
        if name not in used:
            yield _idle_finding(at, "is not used", "remove it, or name it in a [[measure]]")
        for fault in schedule_faults(schedule, now):
            place = at + fault.pointer.removeprefix("/schedule")
            yield _error_finding(place, fault.detail, "correct it so that there is a future run")


def _archive_findings(document: MeshDocument) -> Iterator[Finding]:
    used = {name for measure in document.measure for name in measure.archives}
    for name in document.archives:
        if name not in used:
            remedy = "remove it, or name it in the archives of a [[measure]]"
            yield _idle_finding(f"/archives/{name}", "is not used", remedy)


def _entry_findings(
    document: MeshDocument, fleet: MeshInventory, groups: Mapping[str, Sequence[str]]
) -> Iterator[Finding]:
    if not document.measure:
        yield _error_finding("/measure", "is empty", "add a [[measure]] with a shape and a test")
    hosts = {
        host
        for name, group in document.groups.items()
        if isinstance(group, HostGroup)
        for host in groups[name]
        if host not in fleet.nodes
    }
    by_label = {measure.label: measure for measure in reversed(document.measure)}
    for number, measure in enumerate(document.measure):
        at = f"/measure/{number}"
        yield from _entry_name_findings(document, measure, by_label, at)
        is_sound = True
        for finding in chain(
            _unknown_word_findings(measure, fleet, groups, at), _shape_findings(measure, at)
        ):
            is_sound = False
            yield finding
        nobody = any(word in groups and not groups[word] for word in words(measure))
        if is_sound and not nobody:
            yield from _end_findings(document, measure, fleet, groups, hosts, at)


def _entry_name_findings(
    document: MeshDocument, measure: Measure, by_label: Mapping[str, Measure], at: str
) -> Iterator[Finding]:
    if measure.test not in document.tests:
        remedy = (
            f"{similar_names(measure.test, document.tests)} Or add a section [tests.{measure.test}]"
        )
        yield _error_finding(f"{at}/test", f"there is no [tests.{measure.test}]", remedy)
    if measure.schedule is not None and measure.schedule not in document.schedules:
        name = measure.schedule
        remedy = f"{similar_names(name, document.schedules)} Or add a section [schedules.{name}]"
        yield _error_finding(f"{at}/schedule", f"there is no [schedules.{name}]", remedy)
    for fault in (
        *_figure_faults(document, measure, at),
        *_condition_faults(document, measure, by_label, at),
    ):
        yield _error_finding(fault.pointer, fault.detail, "name figures as run list -o csv does")
    for index, name in enumerate(measure.archives):
        if name not in document.archives:
            remedy = f"{similar_names(name, document.archives)} Or add a section [archives.{name}]"
            yield _error_finding(f"{at}/archives/{index}", f"there is no [archives.{name}]", remedy)


def _figure_faults(document: MeshDocument, measure: Measure, at: str) -> Iterator[FieldFault]:
    """Yield the thresholds and alerts of an entry that no result of its test can meet."""
    if (test := document.tests.get(measure.test)) is None:
        return
    yield from figure_faults(test.type, _reference_of(measure), at)


def _reference_of(measure: Measure) -> dict[str, Any]:
    """Return the thresholds and alerts of an entry as the reference of its tasks has them."""
    return {
        "thresholds": {name: dict(each) for name, each in measure.thresholds.items()},
        "alerts": {name: dict(each) for name, each in measure.alerts.items()},
    }


def _condition_faults(
    document: MeshDocument, measure: Measure, by_label: Mapping[str, Measure], at: str
) -> Iterator[FieldFault]:
    """Yield the condition of an entry, if no run of those that it follows can meet it."""
    if measure.after is None:
        return
    followed = by_label.get(measure.after.label)
    test = None if followed is None else document.tests.get(followed.test)
    if followed is None or test is None:
        return
    fault = condition_fault(measure.after.when, test.type, _reference_of(followed))
    if fault is not None:
        yield FieldFault(f"{at}/after/when", fault)


def _dependency_findings(document: MeshDocument, expansion: Expansion) -> Iterator[Finding]:
    """Find entries that follow nothing, or themselves, or have a schedule besides."""
    labels = {measure.label for measure in document.measure}
    depths = depths_of(document)
    by_entry: dict[int, list[MeasurementPair]] = {}
    for pair in expansion.pairs.values():
        by_entry.setdefault(pair.measure, []).append(pair)
    for number, measure in enumerate(document.measure):
        if measure.after is None:
            continue
        at = f"/measure/{number}/after/key"
        if measure.schedule is not None:
            detail = "is not for an entry that follows another one"
            yield _error_finding(f"/measure/{number}/schedule", detail, "remove it, or after")
        if measure.after.label not in labels:
            detail = f"there is no entry {measure.after.label}"
            yield _error_finding(at, detail, similar_names(measure.after.label, labels))
        elif depths[measure.label] >= len(document.measure):
            yield _error_finding(at, f"{measure.label} would follow itself", "follow another entry")
        else:
            own = by_entry.get(number, ())
            yield from _followed_task_findings(number, own, measure.after, expansion)


def _followed_task_findings(
    number: int, own: Sequence[MeasurementPair], after: MeshDependency, expansion: Expansion
) -> Iterator[Finding]:
    """Find pairs of an entry whose followed task the mesh does not have."""
    keys = [after.of_pair(pair.source, pair.dest) for pair in own]
    if lacking := [key for key in keys if key not in expansion.pairs]:
        detail = f"{len(lacking)} of {len(keys)} pairs would follow a task that is not in the mesh"
        remedy = f"measure {lacking[0]} too, or follow one task of the mesh by its whole key"
        yield _error_finding(f"/measure/{number}/after/key", detail, remedy)


def _unknown_word_findings(
    measure: Measure, fleet: MeshInventory, groups: Mapping[str, Sequence[str]], at: str
) -> Iterator[Finding]:
    for field in ("members", "centre"):
        for index, word in enumerate(getattr(measure, field)):
            if word not in groups and word not in fleet.nodes:
                yield _unknown_node_finding(f"{at}/{field}/{index}", word, fleet, tuple(groups))
    for index, pair in enumerate(measure.pairs):
        for end, word in enumerate(pair):
            if word not in groups and word not in fleet.nodes:
                yield _unknown_node_finding(f"{at}/pairs/{index}/{end}", word, fleet, tuple(groups))


def _shape_findings(measure: Measure, at: str) -> Iterator[Finding]:
    needed, foreign, ways = _FIELDS[measure.shape]
    for field in needed:
        if not getattr(measure, field):
            detail = f"a {measure.shape} needs {field}"
            yield _error_finding(f"{at}/{field}", detail, "name a group, or nodes in a list")
    for field in foreign:
        if getattr(measure, field):
            detail = f"a {measure.shape} has no {field}"
            yield _error_finding(f"{at}/{field}", detail, "remove it, or choose another shape")
    if direction_of(measure) not in ways:
        detail = f"a {measure.shape} has no direction {measure.direction}"
        yield _error_finding(f"{at}/direction", detail, f"possible are: {', '.join(ways)}")


def _end_findings(
    document: MeshDocument,
    measure: Measure,
    fleet: MeshInventory,
    groups: Mapping[str, Sequence[str]],
    hosts: set[str],
    at: str,
) -> Iterator[Finding]:
    """Find entries without any pair, and ends that cannot be source or dest."""
    members = spread(measure.members, groups)
    if measure.shape == "full-mesh" and len(members) == 1:
        detail = f"a full mesh of {members[0]} alone measures nothing"
        yield _error_finding(f"{at}/members", detail, "name another node, or remove the entry")
        return
    ends = _both_ends(measure, groups)
    if not ends[0]:
        detail = "has no pair of different ends, so it measures nothing"
        yield _error_finding(at, detail, "name different nodes at the two ends")
        return
    yield from _reference_findings(measure, ends, at)
    test = document.tests.get(measure.test)
    schema = {} if test is None else fleet.tests.get(test.type, {})
    fields = end_fields(schema.get("properties", {}))
    both = "dest" not in fields
    if measure.shape != "each" and fields == ("source",):
        detail = f"{measure.test} has no far end"
        yield _error_finding(at, detail, 'choose shape = "each", with members')
    if measure.shape == "each" and not both:
        detail = f"{measure.test} measures to a far end, and each has none"
        yield _error_finding(at, detail, "choose the shape star, pairs or full-mesh")
    for what, names in (("source", ends[0]), ("dest", ends[1] if both else ())):
        if wrong := [name for name in names if name in hosts]:
            detail = f"{first_names(wrong)} cannot be the {what}: no node has this name"
            yield _error_finding(
                at, detail, 'put such hosts at the far end, with direction = "out"'
            )


def _reference_findings(
    measure: Measure, ends: Sequence[Collection[str]], at: str
) -> Iterator[Finding]:
    """Find references of pairs that an entry has not."""
    for place in measure.references:
        if not all(
            name in {"*", *names} for name, names in zip(place.split("/"), ends, strict=True)
        ):
            detail = f"{place} is no pair of this entry"
            yield _idle_finding(f"{at}/references", detail, "remove it, or correct the names")


def _both_ends(
    measure: Measure, groups: Mapping[str, Sequence[str]]
) -> tuple[dict[str, None], dict[str, None]]:
    sources: dict[str, None] = {}
    dests: dict[str, None] = {}
    for source, dest in ends_of(measure, groups):
        sources[source] = None
        dests[dest] = None
    return sources, dests
