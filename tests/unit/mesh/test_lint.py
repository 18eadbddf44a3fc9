"""Faults in a mesh file: each finding has its place and its remedy."""

from __future__ import annotations

from typing import Any

import pytest

from node.mesh.findings import line_of
from node.mesh.lint import lint
from tests.unit.mesh.kept import MESH, NOW, a_fleet, a_mesh

STAR = '\n[[measure]]\nname = "star"\nshape = "star"\ntest = "fill"\nmembers = "all"\n'


def _found(text: str, **fleet: Any) -> list[tuple[str, str, str]]:
    _, findings = lint(a_mesh(text), a_fleet(**fleet), NOW)
    return [(f.pointer, f.detail, f.remedy) for f in findings]


def test_an_unresolved_group_is_not_reported_as_empty() -> None:
    """An unresolved group, for which there is a finding already, is not reported as empty."""
    text = MESH.replace('["a", "b", "c"]', '{ pool = "europe" }')
    found = _found(text, unresolved=frozenset({"all"}))
    assert "is empty" not in [detail for _, detail, _ in found]


def test_a_sound_file() -> None:
    """A correct file has no findings."""
    expansion, findings = lint(a_mesh(), a_fleet(), NOW)
    assert (findings, len(expansion.pairs)) == ([], 6)


@pytest.mark.parametrize(
    ("text", "pointer", "text_of_detail", "remedy"),
    [
        (MESH.replace('"c"', '"cc"'), "/groups/all/2", "cc is not a node", "parley node add"),
        (MESH.replace('"c"', '"a"'), "/groups/all", "names a 2 times", "once"),
        (MESH.replace('["a", "b", "c"]', "[]"), "/groups/all", "is empty", "name the nodes"),
        (
            MESH.replace('["a", "b", "c"]', '["a"]'),
            "/measure/0/members",
            "a full mesh of a alone",
            "another node",
        ),
        (
            MESH.replace('["a", "b", "c"]', '{ match = { country = "NL" } }'),
            "/groups/all",
            "is empty",
            "no node meets",
        ),
        (
            MESH.replace('["a", "b", "c"]', '{ pool = "europe" }'),
            "/groups/all",
            "is empty",
            "parley pool show europe",
        ),
        (MESH.replace("all =", "a ="), "/groups/a", "of a group and of a node", "another name"),
        (
            MESH.replace('members = "all"', 'members = "al"'),
            "/measure/0/members/0",
            "al",
            "mean all",
        ),
        (MESH.replace('"throughput"', '"thruput"'), "/tests/fill/type", "no test", "throughput?"),
        (MESH.replace("duration =", "durtion ="), "/tests/fill/spec/durtion", "no f", "duration?"),
        (
            MESH.replace("duration =", "source ="),
            "/tests/fill/spec/source",
            "names an end",
            "remove it",
        ),
        (
            MESH.replace("priority = 3", 'tools = ["ping"]'),
            "/tests/fill/tools/0",
            "there is no tool ping for throughput",
            "iperf3",
        ),
        (MESH.replace('test = "fill"', 'test = "fil"'), "/measure/0/test", "[tests.fil]", "fill?"),
        (
            MESH.replace('schedule = "hourly"', 'schedule = "daily"'),
            "/measure/0/schedule",
            "[schedules.daily]",
            "hourly",
        ),
        (
            MESH.replace('slip = "PT50M"', 'until = "2026-11-01T00:00:00Z"'),
            "/schedules/hourly/until",
            "not later than the start",
            "future run",
        ),
        (
            MESH.replace(
                'slip = "PT50M"', "start = 2026-10-01T00:00:00Z\nuntil = 2026-11-01T00:00:00Z"
            ),
            "/schedules/hourly",
            "has no future run",
            "future run",
        ),
        (MESH.replace('name = "lab"', 'name = "lab"\ncampaign = "op"'), "/campaign", "op", "ops?"),
        (MESH + 'centre = "a"', "/measure/0/centre", "a full-mesh has no centre", "remove it"),
        (MESH + 'direction = "in"', "/measure/0/direction", "no direction in", "both, one"),
        (MESH + STAR, "/measure/1/centre", "a star needs centre", "name a group"),
        (
            MESH + STAR.replace('"all"', '["a"]') + 'centre = "a"',
            "/measure/1",
            "no pair of different ends",
            "different nodes",
        ),
        (MESH + '[tests.more]\ntype = "rtt"', "/tests/more", "is not used", "remove it"),
        (MESH + '[schedules.more]\nrepeat = "PT1H"', "/schedules/more", "is not used", "remove"),
        (MESH.replace("[tests", "x = []\n[tests"), "/groups/x", "not used, and empty", "remove it"),
        (MESH.replace("[tests", 'x = ["b"]\n[tests'), "/groups/x", "is not used", "remove it"),
        ('name = "lab"', "/measure", "is empty", "[[measure]]"),
    ],
)
def test_each_fault_is_found(text: str, pointer: str, text_of_detail: str, remedy: str) -> None:
    """Each fault has a finding with its place, detail, and remedy."""
    found = [each for each in _found(text) if each[0] == pointer]
    assert len(found) >= 1, _found(text)
    assert any(text_of_detail in d and remedy in r for _, d, r in found), found


def test_an_empty_group_that_nothing_uses_does_not_stop_a_mesh() -> None:
    """A mesh is applied although a group is empty, as long as no entry names the group."""
    text = MESH.replace("[tests", 'edge = { match = { tier = "edge" } }\n[tests')
    _, findings = lint(a_mesh(text), a_fleet(groups={"edge": ()}), NOW)
    assert [(it.pointer, it.stops) for it in findings] == [("/groups/edge", False)]


def test_hosts_that_are_no_nodes_are_far_ends() -> None:
    """Hosts that are not nodes can be the destination, but not the source."""
    hosts = MESH.replace("[tests.fill]", 'far = { hosts = ["192.0.2.7"] }\n[tests.fill]')
    star = STAR.replace('"all"', '"far"') + 'centre = "all"\n'
    assert _found(hosts + star + 'direction = "out"') == []
    [(pointer, detail, remedy)] = _found(hosts + star)
    expected = detail.startswith("192.0.2.7 cannot be the source")
    assert (pointer, expected) == ("/measure/1", True)
    assert 'direction = "out"' in remedy


@pytest.mark.parametrize(
    ("pointer", "line"),
    [
        ("/name", 2),
        ("/groups/all/2", 5),
        ("/tests/fill/spec/durtion", 9),
        ("/tests/fill/tools", 7),
        ("/schedules/hourly/slip", 14),
        ("/measure/0/members/1", 18),
        ("/measure/0", 16),
        ("/measure/1/centre", 22),
        ("/campaign", None),
    ],
)
def test_the_line_of_a_place(pointer: str, line: int | None) -> None:
    """A pointer has the nearest line around it, or none."""
    assert line_of(MESH + STAR, pointer) == line
