"""Entries of a mesh file have more than pairs: archives, contexts, and tasks of one node."""

from __future__ import annotations

from node.mesh.answers import fault_in_mesh_file
from node.mesh.comparison import compare
from node.mesh.expansion import expand, members_of
from node.mesh.findings import FindingKind
from node.mesh.lint import lint
from node.model.changes import patched_document
from node.model.errors import FieldFault
from tests.unit.mesh.kept import NOW, a_fleet, a_mesh, all_terms, everything, kept, pairs_of

ARCHIVED = """
name = "lab"

[tests.reach]
type = "rtt"

[tests.name]
type = "dns"
spec = { name = "www.example.org" }

[tests.idle]
type = "idle"
spec = { duration = "PT1S" }

[archives.hook]
archiver = "http"
spec = { url = "https://collector.example/in" }
format = "pscheduler"

[[measure]]
shape = "full-mesh"
members = ["a", "b"]
test = "reach"
archives = ["hook"]
contexts = { a = "namespace:wa" }

[[measure]]
shape = "each"
members = ["a", "b"]
test = "name"

[[measure]]
shape = "each"
members = ["c"]
test = "idle"
"""


def test_tasks_have_archives_and_contexts_of_their_entry() -> None:
    """Archives go to each task; a context to those in which its node takes part."""
    document = a_mesh(ARCHIVED)
    terms = all_terms(document)
    posted = {
        key: terms[pair.measure].document(key, pair.source, pair.dest)
        for key, pair in pairs_of(document).items()
    }
    hook = {"spec": {"url": "https://collector.example/in"}, "format": "pscheduler"}
    assert posted["reach/a/b"]["archives"] == [{"archiver": "http", **hook}]
    assert posted["reach/a/b"]["contexts"] == {"a": "namespace:wa"}
    assert "contexts" not in posted["reach/b/a"]
    assert posted["name/b/b"]["test"]["spec"] == {"name": "www.example.org", "source": "b"}
    assert posted["idle/c/c"]["test"]["spec"]["participants"] == ["c"]


def test_applying_again_changes_nothing_until_an_archive_is_another() -> None:
    """An archive that was changed is edited; the reference tells it without telling the secret."""
    document = a_mesh(ARCHIVED)
    existing = everything(document)
    assert compare(pairs_of(document), all_terms(document), existing).nothing
    other = a_mesh(ARCHIVED.replace('format = "pscheduler"', 'runs = "all"'))
    compared = compare(pairs_of(other), all_terms(other), existing)
    assert {edit.task.key for edit in compared.edit} == {"reach/a/b", "reach/b/a"}
    assert all("archives" in edit.patch for edit in compared.edit)
    assert not compared.create
    assert not compared.end
    terms = all_terms(other)
    for edit in compared.edit:
        _, source, dest = edit.task.key.split("/")
        posted = all_terms(document)[0].document(edit.task.key, source, dest)
        patch = {name: value for name, value in edit.patch.items() if name != "revision"}
        after = kept(patched_document(posted, patch))
        assert after.reference == terms[0].reference(edit.task.key)
    removed = a_mesh(ARCHIVED.replace('archives = ["hook"]\n', ""))
    cleared = compare(pairs_of(removed), all_terms(removed), existing)
    assert all(edit.patch["archives"] == [] for edit in cleared.edit)


def test_thresholds_are_in_the_reference_and_edited_there() -> None:
    """Thresholds of an entry are in the reference of its tasks; an edit tells what has changed."""
    written = "thresholds = { loss = { fair = 0.01, bad = 0.05 }, hops = { fair = 9, bad = 20 } }\n"
    begin = 'shape = "each"\nmembers = ["a", "b"]\n'
    document = a_mesh(ARCHIVED.replace(begin, begin + written))
    existing = everything(document)
    assert compare(pairs_of(document), all_terms(document), existing).nothing
    reference = next(task.reference for task in existing if task.key == "name/a/a")
    assert reference["thresholds"]["loss"] == {"fair": 0.01, "bad": 0.05}
    other = written.replace("0.05", "0.1").partition(", hops")[0] + " }\n"
    changed = a_mesh(ARCHIVED.replace(begin, begin + other))
    edits = compare(pairs_of(changed), all_terms(changed), existing).edit
    told = "thresholds loss 0.01 / 0.05, hops 9 / 20 → loss 0.01 / 0.1"
    assert [edit.differences for edit in edits] == [(told,), (told,)]
    assert set(edits[0].patch) == {"reference", "revision"}
    after = patched_document(reference, edits[0].patch["reference"])
    assert after["thresholds"] == {"loss": {"fair": 0.01, "bad": 0.1}}


def test_a_task_is_made_anew_when_it_measures_from_elsewhere() -> None:
    """A context cannot be edited, so the task ends and another one is created."""
    other = a_mesh(ARCHIVED.replace("namespace:wa", "namespace:wb"))
    compared = compare(pairs_of(other), all_terms(other), everything(a_mesh(ARCHIVED)))
    assert [ending.task.key for ending in compared.end] == ["reach/a/b"]
    assert [creation.key for creation in compared.create] == ["reach/a/b"]
    assert not compared.edit


def test_faults_of_archives_and_shapes_are_found() -> None:
    """An archive that is missing or unused, and a test with a far end in ``each``, are told."""
    text = ARCHIVED.replace('["hook"]', '["hock"]').replace(
        'shape = "each"\nmembers = ["c"]\ntest = "idle"',
        'shape = "each"\nmembers = ["c"]\ntest = "reach"\nname = "x"',
    )
    document = a_mesh(text)
    expansion, findings = lint(document, a_fleet(), NOW)
    assert expansion.pairs == expand(document, members_of(document, a_fleet())).pairs
    told = {(finding.pointer, finding.cause) for finding in findings}
    assert told == {
        ("/archives/hook", FindingKind.IDLE),
        ("/measure/0/archives/0", FindingKind.INVALID),
        ("/measure/2", FindingKind.INVALID),
        ("/tests/idle", FindingKind.IDLE),
    }


def test_a_fault_that_a_node_finds_is_at_its_archive() -> None:
    """A field of an archive that the node refuses is shown in the section of the archive."""
    finding = fault_in_mesh_file(a_mesh(ARCHIVED), 0, FieldFault("/archives/0/spec/url", "is bad"))
    assert finding.pointer == "/archives/hook/spec/url"
