"""Expanding a mesh file into tasks: every pair once, none to itself, and samples of them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from node.mesh.document import MeshDocument
from node.mesh.expansion import MeasurementPair, MeshInventory, expand, members_of
from node.mesh.sampling import covering_keys, first_keys
from node.mesh.spreading import phase_of, start_of
from node.model.errors import InvalidDocument
from node.model.times import HOUR
from tests.unit.mesh.kept import MESH, a_mesh, all_terms, pairs_of

NAMES = st.lists(st.sampled_from("abcdefgh"), max_size=6)


def _document(**measure: Any) -> MeshDocument:
    test = {"fill": {"type": "throughput"}}
    return MeshDocument.model_validate(
        {"name": "lab", "tests": test, "measure": [{"test": "fill", **measure}]}
    )


def _ends(document: MeshDocument) -> list[tuple[str, str]]:
    return [(pair.source, pair.dest) for pair in pairs_of(document).values()]


@given(names=NAMES, both=st.booleans())
def test_a_full_mesh_has_every_pair_once(names: list[str], both: bool) -> None:  # noqa: FBT001
    """A full mesh has each ordered pair in both directions, or each unordered pair in one."""
    way = "both" if both else "one"
    ends = _ends(_document(shape="full-mesh", members=names, direction=way))
    wanted = {(one, other) for one in names for other in names if one != other}
    assert len(ends) == len(set(ends))
    assert (set(ends) if both else {*ends, *((d, s) for s, d in ends)}) == wanted
    assert len(ends) == len(wanted) // (1 if both else 2)


@given(
    centres=NAMES,
    members=NAMES,
    way=st.sampled_from(["both", "out", "in"]),
)
def test_a_star_has_its_centre_at_one_end(centres: list[str], members: list[str], way: str) -> None:
    """A star has pairs out of its centre, into it, or both."""
    ends = _ends(_document(shape="star", centre=centres, members=members, direction=way))
    out = {(c, m) for c in centres for m in members if c != m}
    into = {(m, c) for c, m in out}
    assert set(ends) == {"both": out | into, "out": out, "in": into}[way]
    assert len(ends) == len(set(ends))


def test_pairs_are_as_they_are_written() -> None:
    """A group in a pair stands for its members, and pairs have both directions only on request."""
    groups = {"left": ("a", "b"), "right": ("b", "c")}
    document = _document(shape="pairs", pairs=[["left", "right"], ["x", "a"]])
    ends = [pair[1:] for pair in expand(document, groups).pairs.values()]
    assert ends == [("a", "b"), ("a", "c"), ("b", "c"), ("x", "a")]
    document = _document(shape="pairs", pairs=[["left", "x"]], direction="both")
    ends = [pair[1:] for pair in expand(document, groups).pairs.values()]
    assert ends == [("a", "x"), ("x", "a"), ("b", "x"), ("x", "b")]


def test_two_entries_may_not_want_the_same_task() -> None:
    """Two entries may not have the same task, unless one has its own name."""
    again = '\n[[measure]]\nshape = "star"\ncentre = "a"\nmembers = "all"\ntest = "fill"\n'
    document = a_mesh(MESH + again)
    [finding] = expand(document, members_of(document, MeshInventory({}))).findings
    assert (finding.pointer, finding.stops) == ("/measure/1", True)
    assert finding.detail == "measures fill from a to b, and so does measure 1"
    document = a_mesh(MESH + again + 'name = "more"\n')
    expansion = expand(document, members_of(document, MeshInventory({})))
    assert (expansion.findings, len(expansion.pairs)) == ((), 10)
    assert expansion.pairs["more/a/b"] == MeasurementPair(1, "a", "b")


@given(
    ends=st.lists(
        st.tuples(st.integers(0, 2), st.sampled_from("abcdef"), st.sampled_from("uvwxab"))
    )
)
def test_a_covering_asks_everybody(ends: list[tuple[int, str, str]]) -> None:
    """Each end of each entry is in a sampled pair, and there are at most as many pairs."""
    pairs = {f"{m}/{s}/{d}": MeasurementPair(m, s, d) for m, s, d in ends}
    chosen = [pairs[key] for key in covering_keys(pairs)]
    covered = {(p.measure, end) for p in chosen for end in (p.source, p.dest)}
    assert covered == {(p.measure, end) for p in pairs.values() for end in (p.source, p.dest)}
    assert len(chosen) <= len(covered)
    first = [pairs[key].measure for key in first_keys(pairs)]
    assert sorted(first) == sorted({m for m, _, _ in ends})


@pytest.mark.nightly
def test_a_full_mesh_is_covered_by_half_of_its_nodes() -> None:
    """A sample of a full mesh has half as many pairs as nodes."""
    names = [f"n{number}" for number in range(300)]
    pairs = pairs_of(_document(shape="full-mesh", members=names))
    assert (len(pairs), len(covering_keys(pairs))) == (89_700, 150)


def test_the_document_of_a_task() -> None:
    """The ends are in the fields of the test's schema, and the reference identifies the task."""
    document = a_mesh()
    [terms] = all_terms(document)
    assert terms.document("fill/a/b", "a", "b") == {
        "test": {
            "type": "throughput",
            "spec": {"duration": "PT20S", "source": "a", "dest": "b"},
        },
        "schedule": {
            "repeat": "PT1H",
            "slip": "PT50M",
            "start": start_of(phase_of("lab", "fill/a/b", HOUR)),
        },
        "priority": 3,
        "reference": {"mesh": "lab", "key": "fill/a/b"},
    }
    idle = MESH.replace('"throughput"', '"idle"').replace('"PT50M"', '"PT50M"\nstart = "@PT1H"')
    [terms] = all_terms(a_mesh(idle))
    document_of_idle = terms.document("fill/a/b", "a", "b")
    assert document_of_idle["test"]["spec"] == {"duration": "PT20S", "participants": ["a", "b"]}
    assert document_of_idle["reference"]["moments"] == {"start": "@PT1H"}


@pytest.mark.parametrize(
    ("text", "pointer", "detail"),
    [
        ("name = ", "", "is not TOML"),
        (f"deep = {'[' * 41}{']' * 41}", "", "is nested more than 40 times"),
        (f"deep = {'[' * 9_000}", "", "is not TOML: lists and tables are nested"),
        ('name = "Lab"', "/name", "write a small letter"),
        ('name = "lab"\n[schedules.x]\nrepeat = "5"', "/schedules/x/repeat", "no unit"),
        ('name = "lab"\n[groups]\nx = { mach = 1 }', "/groups/x/match", "is required"),
        ('name = "lab"\n[[measure]]\nshape = "ring"\ntest = "x"', "/measure/0/shape", "full-mesh"),
        (MESH + "frequency = 3", "/measure/0/frequency", "no such field"),
    ],
)
def test_a_file_that_cannot_be_read(text: str, pointer: str, detail: str) -> None:
    """A file that cannot be parsed is refused with the place and the fault."""
    with pytest.raises(InvalidDocument) as refused:
        a_mesh(text)
    assert refused.value.faults[0].pointer == pointer
    assert detail in refused.value.faults[0].detail


def test_toml_and_json_say_the_same() -> None:
    """TOML's instants are read like quoted ones."""
    dated = MESH.replace('slip = "PT50M"', "start = 2026-12-01T01:00:00+01:00")
    schedule = a_mesh(dated).schedules["hourly"]
    assert schedule.model_dump(mode="json")["start"] == "2026-12-01T00:00:00Z"
