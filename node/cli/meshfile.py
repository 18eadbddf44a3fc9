"""Read and lint a mesh file, compare it with existing tasks, and ask nodes for a forecast.

A mesh file is expanded to pairs, and each pair of an entry has a key, which the tasks of the node
carry in their reference. So the file and the tasks are compared key by key, and what was applied
needs to be stored nowhere else: applying a file twice changes nothing, and after an interruption it
does what is left. Findings of the lint with exit codes stop the command before anything changes.
A forecast adds what nodes answer: new tasks are previewed together, in lists, as if they were
created; entries whose tasks exist unchanged need no preview, because their demand is known.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from node.cli.failures import file_text
from node.cli.listing import collect_all
from node.cli.retrying import retry_while_silent
from node.mesh.answers import (
    TaskForecast,
    fault_in_mesh_file,
    forecast_findings,
    other_bookings,
)
from node.mesh.comparison import Comparison
from node.mesh.demand import (
    EntryDemand,
    Load,
    count_tasks,
    interval_of,
    loads,
    meeting_starts,
    overbooking_findings,
    short_slips,
)
from node.mesh.document import MatchingGroup, MeshDocument, PoolGroup, parse
from node.mesh.expansion import Expansion, MeshInventory
from node.mesh.findings import Finding, FindingKind, line_of
from node.mesh.lint import finding_of, findings_elsewhere, lint
from node.mesh.sampling import first_keys
from node.mesh.starts import MeshTasks, planned_demand
from node.mesh.terms import MeshEntryTerms, terms_of
from node.model.errors import InvalidDocument, NotAllowed, NotFound, ParleyError
from node.model.wire.plans import PLANS_MAX
from node.model.wire.tasks import ScheduleTerms

if TYPE_CHECKING:
    from node.cli.session import Session
    from node.model.wire.meshes import MeshTask
    from node.model.wire.plans import Plan

CONCURRENCY = 8
_STARTS = 3
_EVERYTHING = 500
_EXITS = {
    FindingKind.INVALID: 2,
    FindingKind.REFUSED: 3,
    FindingKind.UNREACHABLE: 5,
    FindingKind.NO_TIME: 4,
}


@dataclass(frozen=True)
class MeshAnalysis:
    """A mesh file compared with the existing tasks; with findings that stop it, only these."""

    path: str
    text: str
    findings: tuple[Finding, ...]
    document: MeshDocument | None = None
    fleet: MeshInventory = field(default_factory=lambda: MeshInventory({}))
    expansion: Expansion = field(default_factory=lambda: Expansion({}))
    terms: tuple[MeshEntryTerms, ...] = ()
    existing: tuple[MeshTask, ...] = ()
    comparison: Comparison = field(default_factory=lambda: Comparison((), (), (), 0, 0))
    demands: Mapping[int, EntryDemand] = field(default_factory=dict)
    """The demand of a run of each entry whose tasks exist unchanged, by its number."""

    @property
    def name(self) -> str:
        """Return the name of the mesh; empty if the file cannot be parsed."""
        return "" if self.document is None else self.document.name

    @property
    def stopped(self) -> bool:
        """Return whether the file must be corrected before anything can be applied."""
        return any(finding.stops for finding in self.findings)

    @property
    def exit_code(self) -> int:
        """Return the exit code of the worst finding."""
        causes = {finding.cause for finding in self.findings}
        return next((code for cause, code in _EXITS.items() if cause in causes), 0)

    def record(self, finding: Finding) -> dict[str, Any]:
        """Return a finding as JSON, with the line of the file at which it is."""
        line = line_of(self.text, finding.pointer) if is_toml(self.path) else None
        return {**vars(finding), "cause": finding.cause.value, "line": line}

    def sentences(self) -> list[str]:
        """Format all findings for a person: place, fault, and the remedy on a line of its own."""
        lines = []
        for finding in self.findings:
            line = self.record(finding)["line"]
            place = f"{self.path}:{line}" if line else self.path
            mark = "✗" if finding.stops else "!"
            lines.append(f"{mark} {place}: {finding.pointer or '/'}: {finding.detail}")
            lines += [f"  {finding.remedy}"] if finding.remedy else []
        return lines


def is_toml(path: str) -> bool:
    """Return whether a file is read as TOML: any file except ``.json``."""
    return not path.endswith(".json")


async def analyse_mesh(session: Session, path: str, *, spread: bool = False) -> MeshAnalysis:
    """Read a file, lint it against the node's inventory, and compare it with its tasks.

    ``spread``: all starts are chosen anew, also those of tasks that exist.
    """
    return await analyse_text(session, path, file_text(path), spread=spread)


async def analyse_text(
    session: Session, path: str, text: str, *, spread: bool = False, part: str | None = None
) -> MeshAnalysis:
    """Lint a text as the file of this name, and compare it with the tasks of its mesh.

    ``part`` is the node whose tasks alone count, those of which it is the source.
    """
    try:
        parsed = parse(text, toml=is_toml(path))
    except InvalidDocument as error:
        return MeshAnalysis(path, text, tuple(map(finding_of, error.faults)))
    document, faults = parsed.document, tuple(map(finding_of, parsed.faults))
    if document is None:
        return MeshAnalysis(path, text, faults)
    fleet, unknown = await _fetch_inventory(session, document, parsed.unread)
    expansion, findings = lint(document, fleet, session.clock.now())
    if faults:
        return MeshAnalysis(path, text, (*faults, *unknown, *findings_elsewhere(findings, parsed)))
    analysis = MeshAnalysis(path, text, (*unknown, *findings), document, fleet, expansion)
    if analysis.stopped:
        return analysis
    whole = expansion.pairs
    if part is not None:
        pairs = {key: pair for key, pair in whole.items() if pair.source == part}
        expansion = replace(expansion, pairs=pairs)
        analysis = replace(analysis, expansion=expansion)
    terms = terms_of(document, fleet.tests)
    what = f"reading the tasks of mesh {document.name}"
    session.progress.status(what, "reading")
    page = partial(session.client.mesh_tasks, document.name)
    existing = tuple(await collect_all(session, page, what))
    tasks = MeshTasks(document.name, expansion.pairs, whole, terms, existing, spread)
    terms, comparison = tasks.compared()
    analysis = replace(analysis, terms=terms, existing=existing, comparison=comparison)
    return await _with_starts(session, analysis, document, tasks)


async def _with_starts(
    session: Session, analysis: MeshAnalysis, document: MeshDocument, tasks: MeshTasks
) -> MeshAnalysis:
    """Decide when the tasks to create start; nodes are asked how long a run takes, if need be."""
    keys = tasks.keys_to_preview(analysis.comparison)
    answers: list[TaskForecast] = []
    with contextlib.suppress(NotAllowed):  # who only reads creates nothing, and may ask nobody
        answers, _ = await _fetch_forecasts(session, analysis, document, keys)
    what = f"choosing when {len(analysis.comparison.create)} tasks start"
    session.progress.status(what, "choosing")
    demands = tasks.demands(analysis.comparison)
    previewed = _previewed_demands(analysis, answers)
    terms, comparison = tasks.decided(analysis.comparison, previewed)
    session.progress.clear()
    return replace(analysis, terms=terms, comparison=comparison, demands=demands)


async def _fetch_inventory(
    session: Session, document: MeshDocument, unread: frozenset[str]
) -> tuple[MeshInventory, list[Finding]]:
    """Return the node's inventory, and findings for groups that it cannot resolve."""
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
    """An analysis with the nodes' answers, and the load that the whole mesh would cause."""

    analysis: MeshAnalysis
    answers: tuple[TaskForecast, ...]
    loads: Mapping[str, Load]


async def forecast_mesh(
    session: Session, analysis: MeshAnalysis, keys: Sequence[str]
) -> MeshForecast:
    """Preview these tasks together, and the first task of each other entry.

    Entries whose tasks exist already need no preview: their runs' demand is known.
    """
    document = analysis.document
    if document is None or analysis.stopped:
        return MeshForecast(analysis, (), {})
    pairs = analysis.expansion.pairs
    previewed = {pairs[key].measure for key in keys}
    wanted = [*keys, *first_keys(pairs, previewed | set(analysis.demands))]
    answers, faults = await _fetch_forecasts(session, analysis, document, wanted)
    demands = {**analysis.demands, **_previewed_demands(analysis, answers)}
    overload, nodes = _load(document, analysis, demands, answers, session.clock.now())
    findings = (*analysis.findings, *faults, *forecast_findings(answers), *overload)
    return MeshForecast(replace(analysis, findings=findings), tuple(answers), nodes)


async def _fetch_forecasts(
    session: Session, analysis: MeshAnalysis, document: MeshDocument, keys: Sequence[str]
) -> tuple[list[TaskForecast], list[Finding]]:
    """Return the forecasts of these tasks, and findings for documents with faults.

    The tasks are previewed as if they were created together, in lists of as many as a node takes. A
    task that follows one that does not exist yet is previewed alone, after them.
    """
    faults: dict[Finding, None] = {}
    answers: dict[str, TaskForecast] = {}
    posted = {key: _posted_task(analysis, key) for key in keys}
    together = [key for key in keys if not posted[key].follows]
    alone = [[key] for key in keys if posted[key].follows]
    for some in (*_preview_batches(together), *alone):
        text = f"asking the nodes what would happen: {len(answers)} of {len(keys)}"
        session.progress.status(text, "asking")
        documents = [posted[key].document for key in some]
        wanted = partial(session.client.plan_together, documents)
        plans = await retry_while_silent(session.progress, session.clock, wanted)
        for key, plan in zip(some, plans, strict=True):
            measure = analysis.expansion.pairs[key].measure
            if isinstance(plan, InvalidDocument):
                for fault in plan.faults:
                    faults[fault_in_mesh_file(document, measure, fault)] = None
            elif isinstance(plan, ParleyError):
                raise plan
            else:
                answers[key] = TaskForecast(key, measure, posted[key].forecast_plan(plan))
    session.progress.clear()
    return [answers[key] for key in keys if key in answers], list(faults)


@dataclass(frozen=True)
class _Posted:
    """The document of a task to preview; ``follows`` is what it follows that does not exist yet."""

    document: dict[str, Any]
    follows: str | None
    condition: str | None

    def forecast_plan(self, plan: Plan) -> Plan:
        """Return its plan: if its times are not known, one run of it was tried instead."""
        if self.follows is None:
            return plan
        asked = f" when {self.condition}" if self.condition else ""
        words = (
            f"follows {self.follows}{asked}, which does not exist yet; a run now: {plan.sentence}"
        )
        return plan.model_copy(update={"sentence": words})


def _posted_task(analysis: MeshAnalysis, key: str) -> _Posted:
    pair = analysis.expansion.pairs[key]
    terms = analysis.terms[pair.measure]
    followed = terms.followed_key(pair.source, pair.dest)
    present = analysis.comparison.present.get(followed or "")
    document = terms.document(key, pair.source, pair.dest, present)
    condition = None if terms.after is None else terms.after.when
    return _Posted({**document, "runs": _STARTS}, followed if present is None else None, condition)


def _preview_batches(keys: Sequence[str]) -> Iterable[Sequence[str]]:
    """Yield the keys in lists of as many tasks as one preview takes."""
    return (keys[at : at + PLANS_MAX] for at in range(0, len(keys), PLANS_MAX))


def _previewed_demands(
    analysis: MeshAnalysis, answers: Iterable[TaskForecast]
) -> dict[int, EntryDemand]:
    """Return what a run of each entry takes of which a task was previewed, by its number."""
    pairs = analysis.expansion.pairs
    return {answer.measure: planned_demand(answer.plan, pairs[answer.key]) for answer in answers}


def schedules_of(document: MeshDocument) -> dict[int, tuple[str, ScheduleTerms]]:
    """Return the schedule of each entry that has one, with its name."""
    return {
        number: (measure.schedule, document.schedules[measure.schedule])
        for number, measure in enumerate(document.measure)
        if measure.schedule is not None
    }


def _followed_intervals(
    analysis: MeshAnalysis, intervals: Mapping[int, int | None]
) -> dict[int, int | None]:
    """Return the interval of each entry that follows another one: that one's.

    With a condition it is the least one that the bound of runs an hour allows.
    """
    found = dict(intervals)
    pairs = analysis.expansion.pairs
    for pair in sorted(pairs.values(), key=lambda it: analysis.terms[it.measure].depth):
        followed = analysis.terms[pair.measure].followed_key(pair.source, pair.dest)
        if followed is not None:
            interval = found.get(pairs[followed].measure)
            least = analysis.terms[pair.measure].least_interval
            found[pair.measure] = interval and max(interval, least)
    return found


def _load(
    document: MeshDocument,
    analysis: MeshAnalysis,
    demands: Mapping[int, EntryDemand],
    answers: Iterable[TaskForecast],
    now: int,
) -> tuple[list[Finding], dict[str, Load]]:
    """Return findings about overload and too short slips, and the load of each node."""
    schedules = schedules_of(document)
    intervals = {number: interval_of(schedule, now) for number, (_, schedule) in schedules.items()}
    intervals |= _followed_intervals(analysis, intervals)
    tasks = count_tasks(analysis.expansion.pairs.values(), demands)
    bookings = other_bookings(answers)
    nodes = loads(tasks, demands, intervals, analysis.fleet.nodes, bookings)
    labels = [measure.label for measure in document.measure]
    overload = overbooking_findings(nodes, intervals, labels)
    slips = short_slips(tasks, demands, schedules, now)
    phases = {
        key: phase
        for key, pair in analysis.expansion.pairs.items()
        if (phase := analysis.terms[pair.measure].phase(key)) is not None
    }
    meeting = meeting_starts(analysis.expansion.pairs, demands, schedules, phases)
    return overload + slips + meeting, nodes
