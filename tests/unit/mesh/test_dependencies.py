"""Entries of a mesh that follow other entries: keys, documents, comparison, and faults."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from node.mesh.comparison import Comparison, compare
from node.mesh.document import MeshDocument, depths_of
from node.mesh.lint import lint
from node.model.changes import patched_document
from node.model.wire.meshes import MeshTask
from tests.unit.mesh.kept import MESH, NOW, a_fleet, a_mesh, all_terms, kept, pairs_of

FOLLOWING = (
    MESH.replace('["a", "b", "c"]', '["a", "b"]')
    + """
[tests.path]
type = "trace"

[[measure]]
shape = "full-mesh"
members = "all"
test = "path"
after = { key = "fill", within = "PT10M" }
"""
)


def _apply(document: MeshDocument, existing: list[MeshTask]) -> tuple[Comparison, list[MeshTask]]:
    """Return a comparison, and the tasks after it was applied as the command does it."""
    terms = all_terms(document)
    compared = compare(pairs_of(document), terms, existing)
    ended = {ending.task.id for ending in compared.end}
    edited = {edit.task.id: edit for edit in compared.edit}
    tasks = []
    for task in existing:
        if task.id in ended:
            tasks.append(task.model_copy(update={"state": "cancelled"}))
        elif task.id in edited:
            changes = {k: v for k, v in edited[task.id].patch.items() if k != "revision"}
            tasks.append(kept(patched_document(_document(task), changes), id=task.id, revision=2))
        else:
            tasks.append(task)
    present = dict(compared.present)
    for creation in sorted(compared.create, key=lambda it: terms[it.pair.measure].depth):
        of, (_, source, dest) = terms[creation.pair.measure], creation.pair
        followed = present.get(of.followed_key(source, dest) or "")
        made = kept(of.document(creation.key, source, dest, followed), NOW + len(tasks))
        present[creation.key] = made.id
        tasks.append(made)
    return compared, tasks


def _document(task: MeshTask) -> dict[str, Any]:
    after = None if task.after is None else task.after.model_dump(mode="json")
    return {
        "test": {"type": task.test, "spec": task.spec},
        "schedule": task.schedule_kept,
        "after": after,
        "priority": task.priority,
        "reference": task.reference,
    }


def _by_key(tasks: list[MeshTask]) -> dict[str, MeshTask]:
    return {task.key: task for task in tasks if task.state == "active"}


def test_each_task_follows_that_of_its_pair() -> None:
    """A task of an entry that follows another one follows that entry's task of the same pair."""
    compared, tasks = _apply(a_mesh(FOLLOWING), [])
    assert len(compared.create) == 4
    found = _by_key(tasks)
    for source, dest in (("a", "b"), ("b", "a")):
        after = found[f"path/{source}/{dest}"].after
        assert after is not None
        assert after.task == found[f"fill/{source}/{dest}"].id
        assert (after.outcome, after.within) == ("succeeded", 600_000_000)
    assert compare(pairs_of(a_mesh(FOLLOWING)), all_terms(a_mesh(FOLLOWING)), tasks).nothing


def test_a_task_may_follow_that_of_the_way_back() -> None:
    """With reverse, the task of a pair follows that of the pair the other way round."""
    text = FOLLOWING.replace('key = "fill"', 'key = "fill", reverse = true, when = "failed"')
    _, tasks = _apply(a_mesh(text), [])
    found = _by_key(tasks)
    after = found["path/a/b"].after
    assert after is not None
    assert after.task == found["fill/b/a"].id
    assert (after.when, after.per_hour) == ("failed", 2)


def test_a_whole_key_names_one_task() -> None:
    """A whole key makes all tasks of an entry follow one task."""
    text = FOLLOWING.replace('key = "fill"', 'key = "fill/a/b"')
    _, tasks = _apply(a_mesh(text), [])
    found = _by_key(tasks)
    followed = {task.after.task for task in found.values() if task.after is not None}
    assert followed == {found["fill/a/b"].id}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('within = "PT10M"', 'within = "PT20M"'),
        ('within = "PT10M"', 'within = "PT10M", outcome = "ended"'),
        ('key = "fill"', 'key = "fill/a/b"'),
        ('key = "fill"', 'key = "fill", reverse = true'),
        ('within = "PT10M"', 'within = "PT10M", when = "failed", per_hour = 4'),
        ('after = { key = "fill", within = "PT10M" }', 'schedule = "hourly"'),
    ],
)
@pytest.mark.parametrize("back", [False, True])
def test_a_changed_dependency_is_an_edit(before: str, after: str, *, back: bool) -> None:
    """A dependency that is changed, added, or removed in the file is edited, and once is enough."""
    texts = [FOLLOWING, FOLLOWING.replace(before, after)]
    one, other = map(a_mesh, reversed(texts) if back else texts)
    _, tasks = _apply(one, [])
    compared, tasks = _apply(other, tasks)
    assert not compared.create
    assert not compared.end
    assert {edit.task.key for edit in compared.edit} <= {"path/a/b", "path/b/a"}
    assert compared.edit
    compared, _ = _apply(other, tasks)
    assert compared.nothing


def test_a_task_is_created_anew_with_the_one_that_it_follows() -> None:
    """If a followed task must be created again, so is the one that follows it."""
    document = a_mesh(FOLLOWING)
    _, tasks = _apply(document, [])
    tasks = [
        task.model_copy(update={"state": "cancelled"}) if task.key == "fill/a/b" else task
        for task in tasks
    ]
    compared, tasks = _apply(document, tasks)
    assert {creation.key for creation in compared.create} == {"fill/a/b", "path/a/b"}
    assert [ending.task.key for ending in compared.end] == ["path/a/b"]
    found = _by_key(tasks)
    after = found["path/a/b"].after
    assert after is not None
    assert after.task == found["fill/a/b"].id
    compared, _ = _apply(document, tasks)
    assert compared.nothing


def test_depths_are_those_of_the_longest_chain() -> None:
    """Entries that follow others are created after all of these."""
    text = FOLLOWING + (
        '\n[[measure]]\nname = "last"\nshape = "full-mesh"\nmembers = "all"\ntest = "path"\n'
        'after = { key = "path" }\n'
    )
    document = a_mesh(text)
    assert depths_of(document) == {"fill": 0, "path": 1, "last": 2}
    assert [terms.depth for terms in all_terms(document)] == [0, 1, 2]


@pytest.mark.parametrize(
    ("text", "pointer", "detail"),
    [
        (FOLLOWING.replace('"fill", within', '"fil", within'), "after/key", "no entry fil"),
        (FOLLOWING.replace('"fill", within', '"path", within'), "after/key", "follow itself"),
        (
            FOLLOWING.replace("after =", 'schedule = "hourly"\nafter ='),
            "schedule",
            "is not for an entry that follows another one",
        ),
        (
            FOLLOWING.replace('"fill", within', '"fill/a/c", within'),
            "after/key",
            "2 of 2 pairs would follow a task that is not in the mesh",
        ),
        (
            FOLLOWING.replace('"fill", within', '"fill", when = "throughput > 1", within'),
            "after/when",
            "did you mean throughput_bps?",
        ),
    ],
)
def test_faults_are_found(text: str, pointer: str, detail: str) -> None:
    """A dependency on nothing, on itself, or beside a schedule is a fault at its place."""
    _, findings = lint(a_mesh(text), a_fleet("a", "b"), NOW)
    [found] = [finding for finding in findings if finding.pointer.startswith("/measure")]
    assert found.pointer == f"/measure/1/{pointer}"
    assert detail in found.detail
    assert found.stops


def test_a_task_that_follows_one_that_is_gone_differs() -> None:
    """A task that follows another task than that of its pair is edited."""
    document = a_mesh(FOLLOWING)
    _, tasks = _apply(document, [])
    tasks = [
        task
        if task.after is None
        else task.model_copy(update={"after": task.after.model_copy(update={"task": UUID(int=1)})})
        for task in tasks
    ]
    compared, _ = _apply(document, tasks)
    assert {edit.task.key for edit in compared.edit} == {"path/a/b", "path/b/a"}
    assert compared.edit[0].differences[0].startswith(f"task {UUID(int=1)} → ")


def test_a_file_may_have_thousands_of_entries() -> None:
    """A template has an entry for each source; a chain of as many is followed, and a ring told."""
    entries = "".join(
        f'[[measure]]\nname = "e{number}"\nshape = "pairs"\npairs = [["a", "b"]]\ntest = "fill"\n'
        f'after = {{ key = "e{number - 1}" }}\n'
        for number in range(1, 2000)
    )
    first = '[[measure]]\nname = "e0"\nshape = "pairs"\npairs = [["a", "b"]]\ntest = "fill"\n'
    head = MESH.partition("[[measure]]")[0]
    chain = a_mesh(head + first + entries)
    assert depths_of(chain)["e1999"] == 1999
    ring = a_mesh(head + first + 'after = { key = "e1999" }\n' + entries)
    assert set(depths_of(ring).values()) == {2000}
