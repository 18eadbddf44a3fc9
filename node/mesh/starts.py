"""Compare a mesh file with the existing tasks, and decide when those to create start. Pure.

Tasks that exist keep their starts. Where exclusive runs are placed beside one another
(``rounds.py``) depends on how long they take, which only nodes know: it is told by the tasks of an
entry that exist, or by a preview of one of those to create. So a caller compares first
(:meth:`MeshTasks.compared`), previews what is asked for (:meth:`MeshTasks.keys_to_preview`), and
decides with the answers (:meth:`MeshTasks.decided`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from node.mesh.comparison import Comparison, compare, is_unspread
from node.mesh.demand import EntryDemand
from node.mesh.expansion import MeasurementPair
from node.mesh.rounds import MeshRun, place
from node.mesh.sampling import first_keys
from node.mesh.spreading import kept_phase
from node.mesh.terms import MeshEntryTerms
from node.model.classes import SchedulingClass
from node.model.taskstate import OPEN, TaskState
from node.model.wire.meshes import MeshTask
from node.model.wire.plans import Plan

Terms = tuple[MeshEntryTerms, ...]


@dataclass(frozen=True)
class MeshTasks:
    """The tasks of a mesh file by their keys, and those that exist.

    ``pairs`` are those that this node has to lead, ``whole`` are all of the file. With ``spread``
    all tasks get starts anew.
    """

    mesh: str
    pairs: Mapping[str, MeasurementPair]
    whole: Mapping[str, MeasurementPair]
    terms: Terms
    existing: Sequence[MeshTask]
    spread: bool = False

    def compared(self, phases: Mapping[str, int] | None = None) -> tuple[Terms, Comparison]:
        """Return the terms and the comparison with these starts, or with those that tasks have."""
        chosen = self._kept if phases is None else phases
        terms = tuple(replace(each, phases=chosen) for each in self.terms)
        return terms, compare(self.pairs, terms, self.existing, spread=self.spread)

    @cached_property
    def _by_key(self) -> dict[str, MeshTask]:
        """The task of each key that is open, or else one that is over."""
        return {it.key: it for it in sorted(self.existing, key=lambda it: it.state in OPEN)}

    @cached_property
    def _kept(self) -> dict[str, int]:
        """The starts that tasks have and keep, by key."""
        if self.spread:
            return {}
        kept: dict[str, int] = {}
        for task in self._by_key.values():
            pair = self.whole.get(task.key)
            over = None if pair is None else self.terms[pair.measure].spread_over
            if over is not None and (task.state in OPEN or task.state == TaskState.FINISHED):
                phase = kept_phase(task.schedule, over)
                kept |= {} if phase is None else {task.key: phase}
        return kept

    def demands(self, comparison: Comparison) -> dict[int, EntryDemand]:
        """Return what a run of each entry takes whose tasks exist unchanged, by its number."""
        changed = {edit.task.id for edit in comparison.edit}
        found: dict[int, EntryDemand] = {}
        for task in self.existing:
            pair = self.pairs.get(task.key)
            if pair is not None and task.id not in changed and task.state in OPEN:
                found.setdefault(pair.measure, _demand_of(task, task.participants, pair))
        return found

    def keys_to_preview(self, comparison: Comparison) -> list[str]:
        """Return a key of each entry with tasks whose starts are to be decided, if it is unknown.

        There are none if no start is to be decided.
        """
        entries = {pair.measure for pair in self._undecided(comparison)}
        return first_keys(
            {key: pair for key, pair in self.pairs.items() if pair.measure in entries},
            self.demands(comparison),
        )

    def _undecided(self, comparison: Comparison) -> Iterator[MeasurementPair]:
        """Yield the pairs of the tasks whose starts are to be decided."""
        kept = self._kept
        for creation in comparison.create:
            if creation.key not in kept and self._is_spread(creation.pair):
                yield creation.pair
        for edit in comparison.edit:
            if self._is_spread(edit.pair) and (
                not self._stays(edit.task, edit.pair)
                and (edit.task.key not in kept or _may_take_longer(edit.patch))
            ):
                yield edit.pair

    def _is_spread(self, pair: MeasurementPair) -> bool:
        return self.terms[pair.measure].spread_over is not None

    def _stays(self, task: MeshTask, pair: MeasurementPair) -> bool:
        """Return whether a task of an earlier version goes on to start with all others."""
        return is_unspread(task, self.terms[pair.measure]) and not self.spread

    def decided(
        self, comparison: Comparison, previewed: Mapping[int, EntryDemand]
    ) -> tuple[Terms, Comparison]:
        """Return the terms and the comparison with all starts.

        ``previewed`` is what a run of each entry takes that was asked for.
        """
        if next(self._undecided(comparison), None) is None:
            return self.compared()
        demands = {**self.demands(comparison), **previewed}
        anew = {edit.task.key for edit in comparison.edit if _may_take_longer(edit.patch)}
        before = self._kept
        kept = {key: phase for key, phase in before.items() if key not in anew}
        runs = list(self._runs(demands, kept))
        placed = place(self.mesh, runs, {run.key: kept[run.key] for run in runs if run.key in kept})
        return self.compared({**before, **placed.phases})

    def _runs(
        self, demands: Mapping[int, EntryDemand], kept: Mapping[str, int]
    ) -> Iterator[MeshRun]:
        """Yield the exclusive runs whose starts are spread; what keeps its start, as it is."""
        tasks = self._by_key
        for key, pair in self.whole.items():
            demand, over = demands.get(pair.measure), self.terms[pair.measure].spread_over
            task = tasks.get(key)
            if demand is None or over is None or (task is not None and self._is_aside(task, pair)):
                continue
            ends = ((pair.source, demand.source), (pair.dest, demand.dest))
            nodes = tuple(dict.fromkeys(name for name, takes_part in ends if takes_part))
            if nodes and over and demand.scheduling_class is SchedulingClass.EXCLUSIVE:
                duration = demand.duration if task is None or key not in kept else task.duration
                yield MeshRun(key, nodes, duration, over)

    def _is_aside(self, task: MeshTask, pair: MeasurementPair) -> bool:
        """Return whether a task has no run in an interval, or starts together with all others."""
        is_open = task.state in OPEN
        return (is_open and self._stays(task, pair)) or task.state == TaskState.FINISHED


def planned_demand(plan: Plan, pair: MeasurementPair) -> EntryDemand:
    """Return the demand of a task that is planned for a pair."""
    return _demand_of(plan, [each.name for each in plan.participants], pair)


def _demand_of(
    it: MeshTask | Plan, participants: Sequence[str], pair: MeasurementPair
) -> EntryDemand:
    """Return the demand of a task, or of one that is planned, in which these take part."""
    others = set(participants) - {pair.source}
    return EntryDemand(
        it.duration, it.scheduling_class, pair.source in participants, pair.dest in others
    )


def _may_take_longer(patch: Mapping[str, object]) -> bool:
    return "test" in patch or "tools" in patch
