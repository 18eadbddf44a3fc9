"""Comparing existing tasks with the file: equal ones stay, and applying once is enough."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from node.mesh.comparison import Comparison, compare
from node.mesh.document import MeshDocument
from node.mesh.terms import idempotency_key
from node.model import times
from node.model.changes import patched_document
from node.model.wire.meshes import MeshTask
from tests.unit.mesh.kept import MESH, NOW, a_mesh, all_terms, everything, kept, pairs_of

SPECS: dict[str, dict[str, list[Any]]] = {
    "throughput": {
        "duration": ["PT10S", "PT20S", "PT0H0M20S"],
        "omit": ["PT1S"],
        "protocol": ["udp"],
        "streams": [1, 4],
        "rate_bps": [1000],
        "reverse": [True, False],
    },
    "latency": {"count": [10, 20], "interval": ["PT0.1S", "PT0.05S"], "timeout": ["PT2S"]},
    "rtt": {"count": [3], "interval": ["PT1S", "PT0.2S"], "ttl": [7]},
    "idle": {"duration": ["PT60S", "PT1M"], "class": ["exclusive", "background"]},
}
SCHEDULES = st.fixed_dictionaries(
    {"repeat": st.sampled_from(["PT1H", "PT3600S", "PT30M"])},
    optional={
        "slip": st.sampled_from(["PT5M", "PT300S", "PT1M"]),
        "slip_random": st.booleans(),
        "start": st.sampled_from(["@PT1H", "PT10M", "2026-12-01T00:00:00Z"]),
        "until": st.sampled_from(["P30D", "2027-01-01T00:00:00Z"]),
        "max_runs": st.sampled_from([5, 500]),
    },
) | st.just({"cron": "*/10 * * * *", "timezone": "Europe/Berlin"})


@st.composite
def documents(draw: st.DrawFn) -> MeshDocument:
    """Small meshes of any test."""
    kind = draw(st.sampled_from(sorted(SPECS)))
    fields = draw(st.lists(st.sampled_from(sorted(SPECS[kind])), unique=True))
    spec = {field: draw(st.sampled_from(SPECS[kind][field])) for field in fields}
    if spec.get("protocol") == "udp" or kind != "throughput":
        spec.pop("omit", None)
    measure = {"shape": "full-mesh", "test": "x", "schedule": "s"}
    return MeshDocument.model_validate(
        {
            "name": "lab",
            "campaign": draw(st.sampled_from([None, "ops"])),
            "tests": {"x": {"type": kind, "spec": spec, "priority": draw(st.integers(-1, 1))}},
            "schedules": {"s": draw(SCHEDULES)},
            "measure": [{**measure, "members": draw(st.sampled_from([["a", "b"], ["b", "c"]]))}],
        }
    )


def _compared(document: MeshDocument, existing: list[MeshTask]) -> Comparison:
    return compare(pairs_of(document), all_terms(document), existing)


def _applied(document: MeshDocument, existing: list[MeshTask], now: int) -> list[MeshTask]:
    """Return the tasks after a comparison was applied, as nodes would do it."""
    compared, terms = _compared(document, existing), all_terms(document)
    ended = {ending.task.id for ending in compared.end}
    edited = {edit.task.id: edit for edit in compared.edit}
    tasks = []
    for task in existing:
        if task.id in ended:
            tasks.append(task.model_copy(update={"state": "cancelled"}))
        elif task.id in edited:
            tasks.append(_patched(task, edited[task.id].patch, now))
        else:
            tasks.append(task)
    created = [
        kept(terms[c.pair.measure].document(c.key, c.pair.source, c.pair.dest), now)
        for c in compared.create
    ]
    return tasks + created


def _patched(task: MeshTask, patch: dict[str, Any], now: int) -> MeshTask:
    """Patch a task like node/tasks/editing.py: null leaves a field to its default."""
    changes = dict(patch)
    assert changes.pop("revision") == task.revision
    document = {
        "test": {"type": task.test, "spec": task.spec},
        "tools": list(task.tools),
        "schedule": task.schedule_kept,
        "priority": task.priority,
        "campaign": task.campaign,
        "reference": task.reference,
    }
    return kept(patched_document(document, changes), now, id=task.id, revision=task.revision + 1)


@given(document=documents())
def test_created_tasks_match_their_file(document: MeshDocument) -> None:
    """Defaults, other spellings, and moments that became instants are not differences."""
    compared = _compared(document, everything(document))
    assert compared.nothing
    assert compared.unchanged == 2


@given(before=documents(), after=documents(), seed=st.integers(0, 99))
def test_applying_once_is_enough(before: MeshDocument, after: MeshDocument, seed: int) -> None:
    """From any state, even after a crash, one complete apply leaves nothing to do."""
    rng = Random(seed)
    existing = [
        task.model_copy(update={"state": rng.choice(["active", "active", "paused", "cancelled"])})
        for task in everything(before)
        if rng.random() < 0.8
    ]
    existing = _applied(after, existing, NOW + times.HOUR)
    compared = _compared(after, existing)
    assert compared.nothing, compared
    assert compared.unchanged == 2


def test_differences_are_listed_field_by_field() -> None:
    """An edit lists its differences, and its patch has only these fields and the revision."""
    changed = (
        MESH.replace('"PT20S"', '"PT30S"')
        .replace('slip = "PT50M"', "")
        .replace("priority = 3", 'tools = ["iperf3"]')
    )
    compared = _compared(a_mesh(changed), everything(a_mesh()))
    assert (len(compared.edit), compared.create, compared.end) == (6, (), ())
    edit = compared.edit[0]
    assert edit.differences == (
        "duration 20 s → 30 s",
        "slip 50 min → 5 min",
        "tools none → iperf3",
        "priority 3 → 0",
    )
    assert edit.patch == {
        "test": {"spec": {"duration": "PT30S"}},
        "schedule": {"slip": None},
        "tools": ["iperf3"],
        "priority": 0,
        "revision": 1,
    }


def test_tasks_that_are_not_in_the_file_end() -> None:
    """A task ends if the file does not have it, it is a duplicate, or its test has changed."""
    document = a_mesh()
    existing = everything(document)
    smaller = a_mesh(MESH.replace(', "c"', ""))
    compared = _compared(smaller, existing)
    assert [ending.task.key for ending in compared.end] == [
        "fill/a/c", "fill/b/c", "fill/c/a", "fill/c/b",
    ]  # fmt: skip
    again = existing[0].model_copy(update={"id": existing[1].id})
    assert [e.task.id for e in _compared(document, [*existing, again]).end] == [again.id]
    other = a_mesh(MESH.replace('"throughput"', '"idle"'))
    compared = _compared(other, existing)
    assert (len(compared.end), len(compared.create)) == (6, 6)
    assert compared.create[0].predecessor == existing[0].id


@pytest.mark.parametrize(
    ("state", "made", "unchanged"),
    [("cancelled", 6, 0), ("refused", 6, 0), ("finished", 0, 6), ("paused", 0, 6)],
)
def test_tasks_that_are_over(state: str, made: int, unchanged: int) -> None:
    """Cancelled tasks are created again, finished ones are not, and paused ones stay paused."""
    existing = [t.model_copy(update={"state": state}) for t in everything(a_mesh())]
    compared = _compared(a_mesh(), existing)
    assert (len(compared.create), compared.unchanged) == (made, unchanged)
    assert compared.paused == (6 if state == "paused" else 0)
    longer = a_mesh(MESH.replace('"PT1H"', '"PT2H"'))
    compared = _compared(longer, existing)
    assert len(compared.create) == (0 if state == "paused" else 6)


def test_keys_of_requests() -> None:
    """A task has the same key until another has replaced it and ended."""
    document = a_mesh()
    [terms] = all_terms(document)
    posted = terms.document("fill/a/b", "a", "b")
    assert idempotency_key(posted, None) == idempotency_key(dict(reversed(posted.items())), None)
    task = everything(document)[0]
    keys = {
        idempotency_key(posted, None),
        idempotency_key(posted, task.id),
        idempotency_key(terms.document("fill/b/a", "b", "a"), None),
    }
    assert len(keys) == 3
    assert all(len(key) <= 200 for key in keys)


SECRETS = """
name = "lab"

[groups]
all = ["a"]

[tests.site]
type = "http"
spec = { url = "https://h.example/", headers = { A = "%s", B = { secret = "door" } } }

[[measure]]
shape = "each"
members = "all"
test = "site"
"""


def _with_secret(word: str, before: str) -> Comparison:
    """Compare a file with a secret with the task that one with another secret has made."""
    [task] = everything(a_mesh(SECRETS % before))
    headers = {"A": "(secret)", "B": {"secret": "door"}}
    task = task.model_copy(update={"spec": {**task.spec, "headers": headers}})
    document = a_mesh(SECRETS % word)
    return compare(pairs_of(document), all_terms(document), [task])


def test_a_secret_of_the_file_is_no_difference() -> None:
    """A node tells no secret again: a file with the same one changes nothing."""
    assert not _with_secret("hush", "hush").edit


def test_another_secret_is_posted_and_not_shown() -> None:
    """A secret that was changed in the file is posted, and its difference does not show it."""
    [edit] = _with_secret("hush", "before").edit
    assert edit.patch["test"]["spec"]["headers"] == {"A": "hush", "B": {"secret": "door"}}
    assert "hush" not in " ".join(edit.differences)
    assert edit.differences
