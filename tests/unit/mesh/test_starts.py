"""The starts of a mesh's tasks: chosen for those to create, and kept by those that exist."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from node.mesh.comparison import Comparison
from node.mesh.demand import EntryDemand
from node.mesh.document import MeshDocument
from node.mesh.expansion import MeasurementPair
from node.mesh.rounds import MeshRun
from node.mesh.spreading import kept_phase, phase_of
from node.mesh.starts import MeshTasks, Terms
from node.model import times
from node.model.classes import SchedulingClass
from node.model.wire.meshes import MeshTask
from tests.unit.mesh.kept import MESH, a_mesh, all_terms, kept, pairs_of
from tests.unit.mesh.test_rounds import meetings

TIGHT = MESH.replace("PT1H", "PT5M").replace("PT50M", "PT1M")
FILL = EntryDemand(25 * times.SECOND, SchedulingClass.EXCLUSIVE)
SOON = kept(all_terms(a_mesh())[0].document("fill/a/b", "a", "b")).duration


def tasks_of(
    document: MeshDocument,
    existing: Sequence[MeshTask] = (),
    pairs: Mapping[str, MeasurementPair] | None = None,
    *,
    spread: bool = False,
) -> MeshTasks:
    """Return the tasks of a file beside these; ``pairs`` are those of one node."""
    whole, terms = pairs_of(document), tuple(all_terms(document))
    return MeshTasks("lab", pairs or whole, whole, terms, existing, spread)


def decided(tasks: MeshTasks, duration: int = SOON) -> tuple[Terms, Comparison]:
    """Return the terms and the comparison, if runs of entries that are asked for take so long."""
    _, compared = tasks.compared()
    keys = tasks.keys_to_preview(compared)
    demand = EntryDemand(duration, SchedulingClass.EXCLUSIVE)
    previewed = {tasks.pairs[key].measure: demand for key in keys}
    return tasks.decided(compared, previewed)


def created(tasks: MeshTasks, duration: int = SOON) -> list[MeshTask]:
    """Return the tasks that are there once a file was applied."""
    terms, comparison = decided(tasks, duration)
    ended = {ending.task.id for ending in comparison.end}
    edited = {edit.task.id for edit in comparison.edit}
    new = [
        kept(terms[pair.measure].document(key, pair.source, pair.dest), duration=duration)
        for key, pair, _ in (*comparison.create, *_as_created(comparison))
    ]
    return [*(it for it in tasks.existing if it.id not in ended | edited), *new]


def _as_created(comparison: Comparison) -> list[tuple[str, MeasurementPair, None]]:
    return [(edit.task.key, edit.pair, None) for edit in comparison.edit]


def phases(tasks: Sequence[MeshTask], interval: int) -> dict[str, int]:
    """Return where in the interval tasks start, by key."""
    found = {task.key: kept_phase(task.schedule, interval) for task in tasks}
    return {key: phase for key, phase in found.items() if phase is not None}


def runs(tasks: Sequence[MeshTask], interval: int) -> list[MeshRun]:
    """Return the runs of tasks."""
    return [MeshRun(it.key, it.participants, it.duration, interval) for it in tasks]


def test_new_tasks_never_meet_and_stay_as_they_are() -> None:
    """Their starts are chosen together; to apply the file again asks nobody and does nothing."""
    tasks = created(tasks_of(a_mesh(TIGHT)))
    assert meetings(runs(tasks, 5 * times.MINUTE), phases(tasks, 5 * times.MINUTE)) == []
    hashed = {task.key: phase_of("lab", task.key, 5 * times.MINUTE) for task in tasks}
    assert meetings(runs(tasks, 5 * times.MINUTE), hashed)
    again = tasks_of(a_mesh(TIGHT), tasks)
    terms, compared = again.compared()
    assert (compared.nothing, again.keys_to_preview(compared)) == (True, [])
    assert again.decided(compared, {}) == (terms, compared)


def test_a_host_is_added() -> None:
    """The others keep their starts, which nobody has to be asked for, and the new ones fit."""
    before = created(tasks_of(a_mesh(TIGHT)))
    grown = tasks_of(a_mesh(TIGHT.replace('"c"]', '"c", "d"]')), before)
    _, compared = grown.compared()
    assert grown.keys_to_preview(compared) == []
    _, comparison = decided(grown)
    assert (len(comparison.create), comparison.edit, comparison.unchanged) == (6, (), 6)
    after = created(grown)
    assert meetings(runs(after, 5 * times.MINUTE), phases(after, 5 * times.MINUTE)) == []


def test_a_host_goes() -> None:
    """Its tasks end, and no other one is changed."""
    before = created(tasks_of(a_mesh()))
    _, comparison = decided(tasks_of(a_mesh(MESH.replace('"a", ', "")), before))
    assert (len(comparison.end), comparison.create, comparison.edit) == (4, (), ())


def test_an_edit_keeps_starts_unless_runs_take_longer() -> None:
    """A priority changes no start; where runs take longer, all are placed anew."""
    before = created(tasks_of(a_mesh(TIGHT)))
    _, urgent = decided(tasks_of(a_mesh(TIGHT.replace("priority = 3", "priority = 4")), before))
    assert {tuple(edit.differences) for edit in urgent.edit} == {("priority 3 → 4",)}
    longer = tasks_of(a_mesh(TIGHT.replace("PT20S", "PT40S")), before)
    _, compared = longer.compared()
    assert longer.keys_to_preview(compared) == ["fill/a/b"]
    after = created(longer, 45 * times.SECOND)
    assert len(after) == 6
    assert meetings(runs(after, 5 * times.MINUTE), phases(after, 5 * times.MINUTE)) == []


def test_another_interval_has_other_starts() -> None:
    """A task that has a start in an hour has none in five minutes."""
    before = created(tasks_of(a_mesh()))
    after = created(tasks_of(a_mesh(TIGHT), before))
    assert len(phases(after, 5 * times.MINUTE)) == 6
    assert meetings(runs(after, 5 * times.MINUTE), phases(after, 5 * times.MINUTE)) == []


def test_runs_beside_others_start_when_a_hash_says() -> None:
    """Nobody waits for a run that does not take its nodes for itself."""
    tasks = tasks_of(a_mesh())
    _, compared = tasks.compared()
    beside = EntryDemand(FILL.duration, SchedulingClass.BACKGROUND)
    terms, _ = tasks.decided(compared, {0: beside})
    assert terms[0].phase("fill/a/b") == phase_of("lab", "fill/a/b", times.HOUR)
    unknown, _ = tasks.decided(compared, {})
    assert unknown[0].phase("fill/a/b") == phase_of("lab", "fill/a/b", times.HOUR)


def test_tasks_that_start_together_stay_so_until_told_otherwise() -> None:
    """New ones beside tasks of an earlier version are placed alone; ``spread`` places all."""
    document = a_mesh(TIGHT)
    old = [
        task.model_copy(update={"schedule": task.schedule.model_copy(update={"start": None})})
        for task in created(tasks_of(document))
    ]
    _, beside = decided(tasks_of(document, old[:4]))
    assert (beside.together, beside.edit, len(beside.create)) == (4, (), 2)
    _, apart = decided(tasks_of(document, old[:4], spread=True))
    assert (apart.together, len(apart.edit), len(apart.create)) == (0, 4, 2)


def test_each_lead_finds_the_starts_that_one_would() -> None:
    """A lead of a part of a mesh places it beside the parts of the others."""
    document = a_mesh(TIGHT)
    whole = phases(created(tasks_of(document)), 5 * times.MINUTE)
    found: dict[str, int] = {}
    for name in "abc":
        part = {key: pair for key, pair in pairs_of(document).items() if pair.source == name}
        found |= phases(created(tasks_of(document, (), part)), 5 * times.MINUTE)
    assert found == whole


def test_a_task_that_was_cancelled_leaves_its_time() -> None:
    """Such a task is created as if it had never been there; one that has finished stays."""
    document = a_mesh(TIGHT)
    first, second, *others = created(tasks_of(document))
    over = [
        first.model_copy(update={"state": "cancelled"}),
        second.model_copy(update={"state": "finished"}),
    ]
    _, comparison = decided(tasks_of(document, [*over, *others]))
    assert [creation.key for creation in comparison.create] == [first.key]
    assert comparison.edit == ()
