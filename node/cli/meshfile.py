"""A mesh file and what there is: read, linted, compared; and nodes asked about some of it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from node.cli.listing import collect_all
from node.cli.retrying import retry_while_silent
from node.mesh import answers as answered
from node.mesh.answers import TaskForecast, forecast_findings, other_bookings
from node.mesh.comparison import Comparison, compare
from node.mesh.demand import (
    Load,
    RunDemand,
    count_tasks,
    interval_of,
    loads,
    overbooked,
    short_slips,
)
from node.mesh.document import MatchingGroup, MeshDocument, ParsedMeshFile, PoolGroup, parse
from node.mesh.expansion import Expansion, MeasurementPair, MeshInventory
from node.mesh.findings import Finding, FindingKind, line_of
from node.mesh.lint import lint
from node.mesh.sampling import first_keys
from node.mesh.terms import MeshEntryTerms, terms_of
from node.model.errors import FieldFault, InvalidDocument, NotFound
from node.model.taskstate import OPEN
from node.model.wire.tasks import ScheduleDocument

if TYPE_CHECKING:
    from node.cli.session import Session
    from node.model.wire.meshes import MeshTask
    from node.model.wire.plans import Plan

CONCURRENCY = 8
_STARTS = 3
_EVERYTHING = 500
_ENTRY = "/measure/"
_EXITS = {
    FindingKind.INVALID: 2,
    FindingKind.REFUSED: 3,
    FindingKind.UNREACHABLE: 5,
    FindingKind.NO_TIME: 4,
}


@dataclass(frozen=True)
class MeshAnalysis:
    """A mesh file against what there is; with findings that stop it, nothing but these."""

    path: str
    text: str
    findings: tuple[Finding, ...]
    document: MeshDocument | None = None
    fleet: MeshInventory = field(default_factory=lambda: MeshInventory({}))
    expansion: Expansion = field(default_factory=lambda: Expansion({}))
    terms: tuple[MeshEntryTerms, ...] = ()
    existing: tuple[MeshTask, ...] = ()
    comparison: Comparison = field(default_factory=lambda: Comparison((), (), (), 0, 0))

    @property
    def name(self) -> str:
        """The mesh's name; nothing if the file cannot be read."""
        return "" if self.document is None else self.document.name

    @property
    def stopped(self) -> bool:
        """Whether nothing can be applied before the file is mended."""
        return any(finding.stops for finding in self.findings)

    @property
    def exit_code(self) -> int:
        """That of the worst finding."""
        causes = {finding.cause for finding in self.findings}
        return next((code for cause, code in _EXITS.items() if cause in causes), 0)

    def record(self, finding: Finding) -> dict[str, Any]:
        """A finding with its place in the file."""
        line = line_of(self.text, finding.pointer) if is_toml(self.path) else None
        return {**vars(finding), "cause": finding.cause.value, "line": line}

    def sentences(self) -> list[str]:
        """All findings for a person: place, what, and the remedy on a line of its own."""
        lines = []
        for finding in self.findings:
            line = self.record(finding)["line"]
            place = f"{self.path}:{line}" if line else self.path
            mark = "✗" if finding.stops else "!"
            lines.append(f"{mark} {place}: {finding.pointer or '/'}: {finding.detail}")
            lines += [f"  {finding.remedy}"] if finding.remedy else []
        return lines


def is_toml(path: str) -> bool:
    """Whether a file is read as TOML: all but ``.json``."""
    return not path.endswith(".json")


def read(path: str) -> str:
    """The text of a mesh file."""
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        msg = f"{path} cannot be read: {error}"
        raise click.BadParameter(msg, param_hint="FILE") from error


async def analyse_mesh(session: Session, path: str) -> MeshAnalysis:
    """Read a file, lint it with what the node says there is, and compare it with its tasks."""
    text = read(path)
    try:
        parsed = parse(text, toml=is_toml(path))
    except InvalidDocument as error:
        return MeshAnalysis(path, text, tuple(map(_finding, error.faults)))
    document, faults = parsed.document, tuple(map(_finding, parsed.faults))
    if document is None:
        return MeshAnalysis(path, text, faults)
    fleet, unknown = await _fleet(session, document, parsed.unread)
    expansion, found = lint(document, fleet, session.clock.now())
    if faults:
        return MeshAnalysis(path, text, (*faults, *unknown, *_beside(found, parsed)))
    begun = MeshAnalysis(path, text, (*unknown, *found), document, fleet, expansion)
    if begun.stopped:
        return begun
    terms = tuple(terms_of(document, n, fleet.tests) for n in range(len(document.measure)))
    what = f"reading the tasks of mesh {document.name}"
    session.progress.status(what, "reading")
    page = partial(session.client.mesh_tasks, document.name)
    existing = tuple(await collect_all(session, page, what))
    comparison = compare(expansion.pairs, terms, existing)
    return replace(begun, terms=terms, existing=existing, comparison=comparison)


def _finding(fault: FieldFault) -> Finding:
    return Finding(FindingKind.INVALID, fault.pointer, fault.detail)


def _beside(found: Iterable[Finding], reading: ParsedMeshFile) -> Iterator[Finding]:
    """What is wrong beside faulty fields, at its place in the file.

    What seems to be left unused, or to have no type, may only be so because of these.
    """
    known = {fault.pointer for fault in reading.faults}
    for finding in found:
        place = finding.pointer
        if place.startswith(_ENTRY):
            number, slash, rest = place.removeprefix(_ENTRY).partition("/")
            place = f"{_ENTRY}{reading.entries[int(number)]}{slash}{rest}"
        told = any(f"{at}/".startswith(f"{place}/") or place.startswith(f"{at}/") for at in known)
        if finding.stops and not told:
            yield replace(finding, pointer=place)


async def _fleet(
    session: Session, document: MeshDocument, unread: frozenset[str]
) -> tuple[MeshInventory, list[Finding]]:
    """What the node says there is, and groups it cannot resolve."""
    client = session.client
    nodes, tests, tools, campaigns = await asyncio.gather(
        client.nodes(), client.tests(), client.tools(), client.campaigns(limit=_EVERYTHING)
    )
    groups: dict[str, tuple[str, ...]] = {}
    unknown = []
    for name, group in document.groups.items():
        try:
            if isinstance(group, PoolGroup):
                groups[name] = (await client.pool(group.pool)).nodes
            elif isinstance(group, MatchingGroup):
                groups[name] = tuple(node.name for node in (await client.nodes(group.match)).items)
        except NotFound as error:
            unknown.append(Finding(FindingKind.INVALID, f"/groups/{name}/pool", error.detail))
        except InvalidDocument as error:
            unknown += [
                Finding(FindingKind.INVALID, f"/groups/{name}/match{f.pointer[6:]}", f.detail)
                for f in error.faults
            ]
    fleet = MeshInventory(
        nodes={node.name: node.lanes for node in nodes.items},
        groups=groups,
        unresolved=unread.union(
            name
            for name, group in document.groups.items()
            if isinstance(group, MatchingGroup | PoolGroup) and name not in groups
        ),
        tests={test.name: test.spec for test in tests.items},
        tools={tool.name: tool.tests for tool in tools.items},
        campaigns=frozenset(campaign.name for campaign in campaigns.items),
    )
    return fleet, unknown


@dataclass(frozen=True)
class MeshForecast:
    """A study with what nodes answered, and how full the whole mesh would make them."""

    study: MeshAnalysis
    answers: tuple[TaskForecast, ...]
    loads: Mapping[str, Load]


async def forecast_mesh(session: Session, study: MeshAnalysis, keys: Sequence[str]) -> MeshForecast:
    """Ask what would happen to these tasks, each alone; and to the first of each other entry.

    Of entries whose tasks exist already, nothing need be asked to know what their runs take.
    """
    document = study.document
    if document is None or study.stopped:
        return MeshForecast(study, (), {})
    pairs = study.expansion.pairs
    known = _shapes_of(study)
    asked = {pairs[key].measure for key in keys}
    wanted = [*keys, *first_keys(pairs, asked | set(known))]
    answers, faults = await _ask(session, study, document, wanted)
    shapes = known | {answer.measure: _shape(answer, pairs[answer.key]) for answer in answers}
    found, nodes = _demand(document, study, shapes, answers, session.clock.now())
    findings = (*study.findings, *faults, *forecast_findings(answers), *found)
    return MeshForecast(replace(study, findings=findings), tuple(answers), nodes)


async def _ask(
    session: Session, study: MeshAnalysis, document: MeshDocument, keys: Sequence[str]
) -> tuple[list[TaskForecast], list[Finding]]:
    faults: dict[Finding, None] = {}
    slots = asyncio.Semaphore(CONCURRENCY)
    done = 0

    async def ask(key: str) -> TaskForecast | None:
        nonlocal done
        pair = study.expansion.pairs[key]
        posted = study.terms[pair.measure].document(key, pair.source, pair.dest)
        async with slots:
            try:
                wanted = partial(session.client.plan, {**posted, "runs": _STARTS})
                plan: Plan = await retry_while_silent(session.progress, session.clock, wanted)
            except InvalidDocument as error:
                for fault in error.faults:
                    faults[answered.fault_in_mesh_file(document, pair.measure, fault)] = None
                return None
            finally:
                done += 1
                told = f"asking the nodes what would happen: {done} of {len(keys)}"
                session.progress.status(told, "asking")
        return TaskForecast(key, pair.measure, plan)

    answers = await asyncio.gather(*(ask(key) for key in keys))
    session.progress.clear()
    return [answer for answer in answers if answer is not None], list(faults)


def _shapes_of(study: MeshAnalysis) -> dict[int, RunDemand]:
    """What the runs of existing tasks take, of the entries that stay as they are."""
    changed = {edit.task.id for edit in study.comparison.edit}
    found: dict[int, RunDemand] = {}
    for task in study.existing:
        pair = study.expansion.pairs.get(task.key)
        if pair is not None and task.id not in changed and task.state in OPEN:
            found.setdefault(pair.measure, _shape_of(task, pair))
    return found


def _shape_of(task: MeshTask, pair: MeasurementPair) -> RunDemand:
    takes_part = set(task.participants)
    return RunDemand(
        task.duration, task.scheduling_class, pair.source in takes_part, pair.dest in takes_part
    )


def _shape(answer: TaskForecast, pair: MeasurementPair) -> RunDemand:
    plan = answer.plan
    takes_part = {participant.name for participant in plan.participants}
    return RunDemand(
        plan.duration, plan.scheduling_class, pair.source in takes_part, pair.dest in takes_part
    )


def schedules_of(document: MeshDocument) -> dict[int, tuple[str, ScheduleDocument]]:
    """The schedule of each entry that has one, with its name."""
    return {
        number: (measure.schedule, document.schedules[measure.schedule])
        for number, measure in enumerate(document.measure)
        if measure.schedule is not None
    }


def _demand(
    document: MeshDocument,
    study: MeshAnalysis,
    shapes: Mapping[int, RunDemand],
    answers: Iterable[TaskForecast],
    now: int,
) -> tuple[list[Finding], dict[str, Load]]:
    """Who would be too full, or has to wait longer than the slip; and how full all would be."""
    schedules = schedules_of(document)
    intervals = {number: interval_of(schedule, now) for number, (_, schedule) in schedules.items()}
    tasks = count_tasks(study.expansion.pairs.values(), shapes)
    nodes = loads(tasks, shapes, intervals, study.fleet.nodes, other_bookings(answers))
    labels = [measure.label for measure in document.measure]
    found = overbooked(nodes, intervals, labels)
    return found + short_slips(tasks, shapes, schedules, now), nodes
