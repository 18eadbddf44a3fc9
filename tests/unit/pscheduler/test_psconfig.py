"""Templates of psConfig become mesh files that pass the checks, with a report of the rest."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import pytest

from node.mesh.document import parse
from node.mesh.expansion import MeshInventory
from node.mesh.lint import lint
from node.mesh.terms import terms_of
from node.model.errors import InvalidDocument
from node.plugins.registry import tests as parley_tests
from node.plugins.registry import tools as parley_tools
from node.pscheduler.psconfig import template as templates
from node.pscheduler.psconfig.nodes import KnownNode, NodeFinder
from node.pscheduler.psconfig.template import Report
from node.pscheduler.psconfig.translation import Fleet, Translated, translate
from node.pscheduler.psconfig.writing import to_toml
from node.pscheduler.tests.registry import LANGUAGES
from tests.unit.mesh.kept import NOW, SCHEMAS

NODES = [KnownNode(name, f"{name}.example") for name in "abcd"]
TOOLS = {name: tool.tests for name, tool in parley_tools().items()}

TEMPLATE: dict[str, Any] = {
    "addresses": {name: {"address": f"{name}.example", "tags": [name]} for name in "abc"},
    "groups": {"all": {"type": "mesh", "addresses": [{"name": name} for name in "abc"]}},
    "tests": {
        "ping": {
            "type": "rtt",
            "spec": {"source": "{% address[0] %}", "dest": "{% address[1] %}", "count": 5},
        }
    },
    "schedules": {"often": {"repeat": "PT10M", "slip": "PT10M", "sliprand": True}},
    "tasks": {"pings": {"group": "all", "test": "ping", "schedule": "often"}},
}


def no_jq(program: str, document: Any) -> Any:
    """Fail: this template has no program of jq."""
    pytest.fail(f"jq was asked for {program} on {document}")


def changed(*steps: tuple[str, Any]) -> dict[str, Any]:
    """Return the template with other values at these places, such as ``tasks/pings/tools``."""
    whole: dict[str, Any] = json.loads(json.dumps(TEMPLATE))
    for path, value in steps:
        *way, last = path.split("/")
        place = whole
        for step in way:
            place = place.setdefault(step, {})
        place[last] = value
    return whole


def translated(
    template: Mapping[str, Any],
    nodes: Sequence[KnownNode] = NODES,
    *,
    own: str | None = None,
    ips: Mapping[str, Sequence[str]] | None = None,
    jq: Any = no_jq,
    included: Mapping[str, Any] | None = None,
    foreign: Sequence[str] = (),
) -> Translated:
    """Return the mesh of a template."""
    report = Report()
    whole = templates.with_includes(
        templates.parse(json.dumps(template)), dict(included or {}), report
    )
    fleet = Fleet(
        NodeFinder(nodes, {}, ips or {}),
        {node.name for node in nodes},
        TOOLS,
        LANGUAGES,
        ips or {},
        own,
        None if own is None else [f"{own}.example"],
        foreign,
    )
    return translate(whole, "Example Mesh", fleet, jq, now=NOW)


def pairs_of(mesh: Translated, nodes: Sequence[KnownNode] = NODES) -> set[str]:
    """Return the keys of the tasks of a mesh file, which must pass all checks."""
    text = to_toml(mesh.mesh, mesh.omissions, "https://example/psconfig.json")
    parsed = parse(text, toml=True)
    assert parsed.faults == (), text
    assert parsed.document is not None
    inventory = MeshInventory(
        nodes={node.name: 8 for node in nodes}, tests=SCHEMAS, tools=TOOLS, campaigns=frozenset()
    )
    expansion, findings = lint(parsed.document, inventory, NOW)
    assert findings == [], text
    terms = terms_of(parsed.document, SCHEMAS)
    for key, pair in expansion.pairs.items():
        spec = terms[pair.measure].document(key, pair.source, pair.dest)["test"]["spec"]
        parley_tests()[terms[pair.measure].test].spec_model.model_validate(spec)
    return set(expansion.pairs)


SCHEDULES: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"repeat": "P1M"}, {"cron": "0 0 1 * *"}),
    ({"repeat": "P3M", "start": "2026-12-15T06:30:00+01:00"}, {"cron": "30 5 15 3,6,9,12 *"}),
    ({"repeat": "P1Y", "start": "2027-02-28T00:00:00Z"}, {"cron": "0 0 28 2 *"}),
    ({"repeat": "P12M"}, {"cron": "0 0 1 1 *"}),
    ({"repeat-cron": "*/10 * * * *"}, {"cron": "*/10 * * * *"}),
    ({"repeat": "P1W", "slip": "P8D"}, {"repeat": "P7D", "slip": "P8D"}),
    ({"repeat": "PT1H", "until": "P1D"}, {"repeat": "PT1H", "until": "P1D"}),
    ({"until": "2027-01-01T00:00:00Z"}, {"slip": "PT0S"}),
    ({"start": "2026-12-24T00:00:00Z", "max-runs": 2}, {"max_runs": 2}),
]


@pytest.mark.parametrize(("theirs", "ours"), SCHEDULES)
def test_schedules_are_kept(theirs: dict[str, Any], ours: dict[str, Any]) -> None:
    """A schedule of a template has one of ours, also with months, which become cron fields."""
    mesh = translated(changed(("schedules/often", theirs)))
    assert len(pairs_of(mesh)) == mesh.tasks == 6
    found = mesh.mesh["schedules"]["often"]
    assert {name: found.get(name) for name in ours} == ours
    assert ("until" in found) == ("until" in ours)
    assert mesh.left_out == 0


UNUSABLE: list[tuple[dict[str, Any], str]] = [
    ({"repeat": "P5M"}, "/repeat"),
    ({"repeat": "P1M2D"}, "/repeat"),
    ({"repeat": "often"}, "/repeat"),
    ({"repeat": "PT0S"}, "/repeat"),
    ({"repeat": "P1M", "start": "2026-12-31T00:00:00Z"}, "/start"),
    ({"repeat": "PT1H", "until": "2020-01-01T00:00:00Z"}, "/until"),
    ({"until": "2020-01-01T00:00:00Z"}, "/until"),
    ({"repeat": "P1D", "start": "2027-01-02T00:00:00Z", "until": "2027-01-01T00:00:00Z"}, "/until"),
    ({"start": "2020-01-01T00:00:00Z"}, "/start"),
    ({"repeat": "PT1H", "slip": "-PT1M"}, "/slip"),
    ({"repeat": "PT1H", "max-runs": 0}, "/max-runs"),
    ({"repeat-cron": "0 0 31 2 *"}, "/repeat-cron"),
]


@pytest.mark.parametrize(("theirs", "member"), UNUSABLE)
def test_a_schedule_that_cannot_be_kept_leaves_its_tasks_out(
    theirs: dict[str, Any], member: str
) -> None:
    """Tasks whose schedule is over, or cannot be read, are told and left out; the others apply."""
    template = changed(("schedules/bad", theirs), ("tasks/bad", TEMPLATE["tasks"]["pings"]))
    template["tasks"]["bad"] = {**template["tasks"]["pings"], "schedule": "bad"}
    mesh = translated(template)
    assert len(pairs_of(mesh)) == mesh.tasks == 6
    [left] = mesh.omissions
    assert (left.pointer, left.tasks) == (f"/schedules/bad{member}", 6)
    assert mesh.effect_lines == ("6 tasks are left out; 6 apply",)


def test_members_of_both_sides_are_paired_once() -> None:
    """A disjoint group with common members has each ordered pair once, as it is counted."""
    both = {
        "type": "disjoint",
        "a-addresses": [{"name": "a"}, {"name": "b"}],
        "b-addresses": [{"name": "a"}, {"name": "b"}, {"name": "c"}],
    }
    mesh = translated(changed(("groups/all", both)))
    assert len(pairs_of(mesh)) == mesh.tasks == 6


def test_two_addresses_of_one_node_measure_once() -> None:
    """Tasks that would be the same here are made once, and that is told."""
    mesh = translated(
        changed(
            ("addresses/also", {"address": "A.example."}),
            ("groups/all/addresses", [{"name": "a"}, {"name": "also"}, {"name": "b"}]),
        )
    )
    assert len(pairs_of(mesh)) == mesh.tasks == 2
    assert "2 tasks are the same as others here" in why(mesh)["/tasks/pings"]
    assert (mesh.left_out, "measures to itself" in why(mesh)["/groups/all"]) == (2, True)


def test_names_that_become_equal_stay_names() -> None:
    """Long names that differ at their ends are numbered within what a mesh file allows."""
    long = "Österreich-Schweiz: Verlust- und Laufzeitmeßung für das Partnernetz 2026"
    template = changed()
    template["tasks"] = {f"{long} {each}": TEMPLATE["tasks"]["pings"] for each in range(12)}
    mesh = translated(template)
    assert len(pairs_of(mesh)) == 72
    names = [measure["name"] for measure in mesh.mesh["measure"]]
    assert names[0] == "osterreich-schweiz-verlust-und-laufzeitmessung-fur-das-partnern"
    assert names[11] == "osterreich-schweiz-verlust-und-laufzeitmessung-fur-das-partn-12"


@pytest.mark.parametrize("empty", [("addresses",), ("addresses", "groups", "tests", "tasks")])
def test_an_emptied_template_has_no_tasks(empty: tuple[str, ...]) -> None:
    """Sections may be empty, so that all tasks end; one without sections is broken."""
    mesh = translated(changed(*((section, {}) for section in empty)))
    assert (mesh.tasks, mesh.mesh.get("measure")) == (0, None)
    with pytest.raises(InvalidDocument):
        translated({"addresses": {}, "groups": {}, "tests": {}})


def test_an_archive_may_be_at_the_address_that_schedules() -> None:
    """An IPv6 address has brackets in a URL, and variables have their own values in one text."""
    url = "https://{% address[0] %}/{% address[1] %}"
    own = {"archiver": "http", "data": {"_url": url, "_meta": {"old_url": "https://a.example"}}}
    template = changed(
        ("archives/own", own),
        ("tasks/pings/archives", ["own"]),
        ("addresses/a/address", "2001:db8::1"),
    )
    nodes = [KnownNode("a", "2001:db8::1"), *NODES[1:]]
    mesh = translated(template, nodes)
    urls = {archive["spec"]["url"] for archive in mesh.mesh["archives"].values()}
    assert "https://[2001:db8::1]/b.example" in urls
    assert "https://b.example/2001:db8::1" in urls
    assert mesh.omissions == ()


def test_a_list_has_the_address_of_a_host_towards_itself() -> None:
    """An address of its own towards itself counts in a list, as it does there."""
    template = changed(
        ("groups/all/type", "list"),
        ("addresses/a/remote-addresses", {"a": {"address": "192.0.2.65"}}),
        ("tests/ping", {"type": "idle", "spec": {"duration": "PT1S", "host": "{% address[0] %}"}}),
    )
    mesh = translated(template)
    assert pairs_of(mesh) == {"pings/a/a", "pings/b/b", "pings/c/c"}
    assert [each["contexts"] for each in mesh.mesh["measure"] if "contexts" in each] == [
        {"a": "address:192.0.2.65"}
    ]


def test_an_archive_of_the_lead_is_told() -> None:
    """An archive at localhost is that of the lead, which is another one unless nodes follow."""
    here = {"archiver": "http", "data": {"schema": 2, "_url": "http://localhost/x", "op": "put"}}
    template = changed(("archives/here", here), ("tasks/pings/archives", ["here", "here"]))
    template["archives"]["again"] = here
    template["tasks"]["pings"]["archives"].append("again")
    mesh = translated(template)
    assert [measure["archives"] for measure in mesh.mesh["measure"]] == [["here"]]
    assert "on the host that leads" in why(mesh)["/archives/here"]
    assert why(translated(template, own="a")) == {}


def references_of(mesh: Translated) -> dict[str, Any]:
    """Return the references of the tasks of a mesh file by their keys."""
    text = to_toml(mesh.mesh, mesh.omissions, "x")
    document = parse(text, toml=True).document
    assert document is not None
    found = {}
    for key in pairs_of(mesh):
        label, source, dest = key.split("/")
        [terms] = [
            each
            for each, entry in zip(terms_of(document, SCHEMAS), document.measure, strict=True)
            if entry.label == label
        ]
        found[key] = terms.document(key, source, dest)["reference"].get("reference")
    return found


def test_references_are_kept_by_pair() -> None:
    """Each task has the reference that it has there, with the values of its own variables."""
    reference = {
        "display-task-name": "Pings",
        "display-set-source": '{% jq .addresses[0]._meta."display-name" %}',
        "display-set-dest": "{% address[1] %}",
        "ways": {"each": ["{% address[0] %} to {% address[1] %}", None, 1.5], "none": None},
        "none": None,
        "big": 2**70,
        "far": 1e300,
    }
    template = changed(
        ("tasks/pings/reference", reference),
        ("tasks/pings/_meta", {"display-name": "P"}),
        ("addresses/a/_meta", {"display-name": "Ämter"}),
    )

    def jq(_: str, facts: Any) -> Any:
        return facts["addresses"][0].get("_meta", {}).get("display-name")

    mesh = translated(template, jq=jq)
    [measure] = mesh.mesh["measure"]
    assert measure["references"]["*/*"] == {
        "display-task-name": "Pings",
        "big": str(2**70),
        "far": "1e+300",
        "_meta": {"display-name": "P"},
    }
    assert measure["references"]["a/*"] == {"display-set-source": "Ämter"}
    assert measure["references"]["*/b"] == {"display-set-dest": "b.example"}
    found = references_of(mesh)
    assert found["pings/a/b"] == {
        "display-task-name": "Pings",
        "display-set-source": "Ämter",
        "display-set-dest": "b.example",
        "ways": {"each": ["a.example to b.example", 1.5]},
        "big": str(2**70),
        "far": "1e+300",
        "_meta": {"display-name": "P"},
    }
    assert "display-set-source" not in found["pings/b/c"]


def test_a_reference_may_be_anything() -> None:
    """A reference that is no object is kept, too."""
    mesh = translated(changed(("tasks/pings/reference", ["x", "{% address[0] %}"])))
    assert references_of(mesh)["pings/a/b"] == {"pscheduler": ["x", "a.example"]}


def test_members_of_many_entries_are_told_once() -> None:
    """Members of all entries that a mesh file has no place for are one line of the report."""
    addresses = {
        f"h{number}": {"address": f"{'abcd'[number % 4]}.example", "_meta": {"site": number}}
        for number in range(40)
    }
    mesh = translated(changed(("addresses", addresses), ("groups/all/addresses", [])))
    assert why(mesh)["/addresses"].startswith("_meta of 40 entries serves variables alone")


def why(mesh: Translated) -> dict[str, str]:
    """Return what is left out, by its place."""
    return {omission.pointer: omission.why for omission in mesh.omissions}


def test_a_mesh_becomes_a_full_mesh() -> None:
    """Each ordered pair of a mesh is a task, and the schedule is the same."""
    mesh = translated(TEMPLATE)
    assert mesh.omissions == ()
    assert mesh.mesh["name"] == "example-mesh"
    [measure] = mesh.mesh["measure"]
    assert (measure["shape"], measure["members"]) == ("full-mesh", ["a", "b", "c"])
    assert mesh.mesh["schedules"] == {
        "often": {"repeat": "PT10M", "slip": "PT10M", "slip_random": True}
    }
    assert mesh.tasks == 6
    assert pairs_of(mesh) == {f"pings/{s}/{d}" for s in "abc" for d in "abc" if s != d}


GROUPS: list[tuple[dict[str, Any], set[str]]] = [
    (
        {"type": "disjoint", "a-addresses": [{"name": "a"}], "b-addresses": [{"name": "b"}]},
        {"a/b", "b/a"},
    ),
    (
        {
            "type": "disjoint",
            "unidirectional": True,
            "a-addresses": [{"name": "a"}, {"name": "b", "disabled": True}],
            "b-addresses": [{"name": "b"}, {"name": "c"}],
        },
        {"a/b", "a/c"},
    ),
    (
        {
            "type": "mesh",
            "addresses": [{"name": "a"}, {"name": "b"}, {"name": "c"}],
            "excludes": [
                {"local-address": {"name": "a"}, "target-addresses": [{"name": "b"}]},
            ],
        },
        {"a/c", "b/a", "b/c", "c/a", "c/b"},
    ),
    ({"type": "mesh", "addresses": [{"class": "some"}]}, {"a/b", "b/a"}),
]


@pytest.mark.parametrize(("group", "pairs"), GROUPS)
def test_groups_give_the_pairs_that_they_give_there(group: dict[str, Any], pairs: set[str]) -> None:
    """Disjoint groups, exclusions, classes, and disabled addresses give the same pairs."""
    classes = {
        "some": {
            "data-source": {"type": "current-config"},
            "match-filter": {
                "type": "or",
                "filters": [{"type": "tag", "tag": "a"}, {"type": "tag", "tag": "b"}],
            },
        }
    }
    mesh = translated(changed(("groups/all", group), ("address-classes", classes)))
    assert pairs_of(mesh) == {f"pings/{pair}" for pair in pairs}
    assert mesh.omissions == ()


FILTERS: list[tuple[dict[str, Any], str]] = [
    ({"type": "netmask", "netmask": "192.0.2.0/24"}, "ab"),
    ({"type": "ip-version", "ip-version": 6}, "c"),
    ({"type": "not", "filter": {"type": "ip-version", "ip-version": 6}}, "ab"),
    ({"type": "host", "tag": "big"}, "b"),
    ({"type": "host", "no-agent": True}, "b"),
    ({"type": "address-class", "class": "tagged"}, "a"),
    ({"type": "jq", "jq": {"script": ".tags[0]"}}, "abc"),
    ({"type": "unknown"}, ""),
]


@pytest.mark.parametrize(("wanted", "members"), FILTERS)
def test_filters_of_classes_choose_addresses(wanted: dict[str, Any], members: str) -> None:
    """Each filter of an address class chooses the addresses that it chooses there."""
    classes = {
        "some": {"data-source": {"type": "current-config"}, "match-filter": wanted},
        "tagged": {
            "data-source": {"type": "current-config"},
            "match-filter": {"type": "tag", "tag": "a"},
        },
    }
    group = {
        "type": "disjoint",
        "unidirectional": True,
        "excludes-self": "disabled",
        "a-addresses": [{"class": "some"}],
        "b-addresses": [{"name": "d"}],
    }
    mesh = translated(
        changed(
            ("address-classes", classes),
            ("addresses/d", {"address": "d.example"}),
            ("addresses/b/host", "large"),
            ("hosts/large", {"tags": ["big"], "no-agent": True}),
            ("groups/all", group),
        ),
        ips={
            "a.example": ["192.0.2.1"],
            "b.example": ["192.0.2.2"],
            "c.example": ["2001:db8::3"],
            "d.example": ["192.0.2.4"],
        },
        jq=lambda _, document: document.get("tags"),
    )
    chosen = {key.split("/")[1] for key in pairs_of(mesh)} if mesh.mesh.get("measure") else set()
    assert chosen == set(members)


def test_a_target_that_is_no_node_is_a_far_end() -> None:
    """An address without agent and node is measured to, but measures nothing."""
    mesh = translated(
        changed(
            ("addresses/far", {"address": "192.0.2.7", "no-agent": True}),
            (
                "groups/all",
                {
                    "type": "disjoint",
                    "a-addresses": [{"name": "a"}, {"name": "b"}],
                    "b-addresses": [{"name": "far"}],
                },
            ),
        )
    )
    assert pairs_of(mesh) == {"pings/a/192.0.2.7", "pings/b/192.0.2.7"}
    assert why(mesh) == {
        "/addresses/far": "192.0.2.7 is no node that is known here: parley node add "
        "https://192.0.2.7:8642, or https://192.0.2.7/pscheduler if it runs that"
    }


@pytest.mark.parametrize("kind", ["latency", "latencybg"])
def test_delays_to_a_host_that_stays_are_asked_by_owamp(kind: str) -> None:
    """A series to a host that is no node yet goes on; the way back is the host's own."""
    ends = {"source": "{% address[0] %}", "dest": "{% address[1] %}"}
    more = {"tests/ping": {"type": kind, "spec": {**ends, "ctrl-port": 8610}}}
    staying = changed(*more.items(), ("addresses/c/address", "stays.example"))
    mesh = translated(staying)
    assert pairs_of(mesh) == {
        *("pings/a/b", "pings/b/a"),
        *("pings-owamp/a/stays.example", "pings-owamp/b/stays.example"),
    }
    asked = [each for each in mesh.mesh["tests"].values() if "responder" in each["spec"]]
    assert [(it["spec"]["responder"], it["spec"]["port"]) for it in asked] == [("owamp", 8610)]
    assert mesh.strangers == ("stays.example",)
    told = [it.why for it in mesh.omissions if it.pointer == "/addresses/c"]
    assert [text.endswith("until then it is asked by OWAMP") for text in told] == [True, False]
    assert mesh.left_out == 2
    moved = translated(staying, [*NODES[:2], KnownNode("c", "stays.example")])
    assert moved.left_out == 0
    assert all("responder" not in it["spec"] for it in moved.mesh["tests"].values())


def test_delays_to_a_host_that_runs_pscheduler_are_asked_by_owamp() -> None:
    """It takes no part in them as a participant, and is known, so that nothing is left out."""
    ends = {"source": "{% address[0] %}", "dest": "{% address[1] %}"}
    whole = changed(("tests/ping", {"type": "latencybg", "spec": ends}))
    mesh = translated(whole, own="a", foreign=["c"])
    assert pairs_of(mesh) == {"pings/a/b", "pings-owamp/a/c.example"}
    assert (mesh.omissions, mesh.left_out) == ((), 0)


def test_delays_that_no_owamp_measures_are_left_out() -> None:
    """A pair is left out, as before, of which only a node at the other end measures a part."""
    ends = {"source": "{% address[0] %}", "dest": "{% address[1] %}", "reverse": True}
    far = changed(
        ("tests/ping", {"type": "latency", "spec": {**ends, "schema": 2}}),
        ("addresses/c/address", "stays.example"),
    )
    mesh = translated(far)
    assert pairs_of(mesh) == {"pings/a/b", "pings/b/a"}
    assert mesh.left_out == 4


def test_a_list_measures_without_far_end() -> None:
    """Tests of one host alone are tasks of each node."""
    mesh = translated(
        changed(
            ("groups/all/type", "list"),
            (
                "tests/ping",
                {"type": "dns", "spec": {"host": "{% address[0] %}", "query": "x", "record": "a"}},
            ),
        )
    )
    assert mesh.mesh["measure"][0]["shape"] == "each"
    assert pairs_of(mesh) == {"pings/a/a", "pings/b/b", "pings/c/c"}


def test_archives_are_kept_for_the_address_that_schedules() -> None:
    """Variables of archives have the value of each pair, so entries are divided by it."""
    archive = {
        "archiver": "http",
        "data": {
            "schema": 3,
            "_url": "https://archive.example/logstash",
            "op": "put",
            "_headers": {"x-ps-observer": "{% scheduled_by_address %}"},
        },
        "ttl": "P1D",
        "_meta": {"esmond_url": "https://archive.example/esmond"},
    }
    mesh = translated(
        changed(
            ("archives", {"main": archive, "old": {"archiver": "esmond", "data": {"url": "x"}}}),
            ("tasks/pings/archives", ["main", "old", "none"]),
        )
    )
    assert len(pairs_of(mesh)) == 6
    observers = {
        name: choice["spec"]["headers"]["x-ps-observer"]
        for name, choice in mesh.mesh["archives"].items()
    }
    assert set(observers.values()) == {"a.example", "b.example", "c.example"}
    for measure in mesh.mesh["measure"]:
        [used] = measure["archives"]
        assert measure["name"] == f"pings-{observers[used].removesuffix('.example')}"
        assert measure["shape"] == "star"
    assert set(why(mesh)) == {"/archives/main/_meta", "/archives/old", "/tasks/pings/archives"}


def test_labels_and_remote_addresses_say_where_to_measure() -> None:
    """A labelled address is a context of its node, which refuses what is none of its host."""
    template = changed(
        ("addresses/a/labels", {"fast": {"address": "192.0.2.65"}}),
        ("addresses/b/labels", {"fast": {"address": "192.0.2.66"}}),
        ("groups/all/default-address-label", "fast"),
    )
    nodes = [
        KnownNode("a", "a.example", contexts={"address:192.0.2.65": "192.0.2.65"}),
        KnownNode("b", "b.example", contexts={"interface:eth1": "192.0.2.66"}),
        *NODES[2:],
    ]
    mesh = translated(template, nodes)
    assert pairs_of(mesh, nodes) == {"pings/a/192.0.2.66", "pings/b/192.0.2.65"}
    [measure] = mesh.mesh["measure"]
    assert measure["contexts"] == {"a": "address:192.0.2.65", "b": "interface:eth1"}
    untold = translated(template)
    assert pairs_of(untold) == {"pings/a/192.0.2.66", "pings/b/192.0.2.65"}
    assert untold.mesh["measure"][0]["contexts"] == {
        "a": "address:192.0.2.65",
        "b": "address:192.0.2.66",
    }
    unknown = translated(
        changed(
            ("addresses/a/labels", {"fast": {"address": "fast.example"}}),
            ("addresses/b/labels", {"fast": {"address": "192.0.2.66"}}),
            ("groups/all/default-address-label", "fast"),
        )
    )
    assert pairs_of(unknown) == {"pings/b/fast.example"}
    assert "whose address is not known here" in why(unknown)["/addresses/a"]


def test_a_circuit_has_addresses_of_its_own() -> None:
    """Towards one far end a host may measure from another address, which needs no word."""
    remote = {"a": {"b": "192.0.2.65"}, "b": {"a": "192.0.2.66"}}
    template = changed(
        *(
            (f"addresses/{near}/remote-addresses/{far}", {"address": address})
            for near, towards in remote.items()
            for far, address in towards.items()
        ),
        ("tests/ping/type", "throughput"),
        ("tests/ping/spec", {"source": "{% address[0] %}", "dest": "{% address[1] %}"}),
    )
    mesh = translated(template)
    assert len(pairs_of(mesh)) == mesh.tasks == 6
    [circuit] = [each for each in mesh.mesh["measure"] if each.get("contexts")]
    assert circuit["contexts"] == {"a": "address:192.0.2.65", "b": "address:192.0.2.66"}


def test_addresses_of_one_host_are_one_node() -> None:
    """An address that is not known is that of a node whose host it shares in the template."""
    mesh = translated(
        changed(
            ("addresses/a/host", "one"),
            ("addresses/a6", {"address": "2001:db8::1", "host": "one"}),
            ("groups/all/addresses", [{"name": "a6"}, {"name": "b"}]),
            ("tests/ping/type", "throughput"),
            ("tests/ping/spec", {"source": "{% address[0] %}", "dest": "{% address[1] %}"}),
        )
    )
    assert pairs_of(mesh) == {"pings/a/b", "pings/b/a"}
    assert mesh.mesh["measure"][0]["contexts"] == {"a": "address:2001:db8::1"}


def test_contexts_become_contexts() -> None:
    """A network namespace is one of ours; another context leaves the pairs out."""
    contexts = {
        "inner": {"context": "linuxnns", "data": {"namespace": "wa"}},
        "odd": {"context": "vrf", "data": {}},
    }
    mesh = translated(
        changed(
            ("contexts", contexts),
            ("addresses/a/contexts", ["inner"]),
            ("addresses/c/contexts", ["odd"]),
        )
    )
    assert pairs_of(mesh) == {"pings/a/b", "pings/a/c", "pings/b/a", "pings/b/c"}
    assert mesh.mesh["measure"][0]["contexts"] == {"a": "namespace:wa"}
    assert why(mesh) == {"/contexts/odd": "the context vrf has no counterpart"}


def test_jq_in_variables_sees_the_task() -> None:
    """A program of jq gets the task's addresses, and may give another type than text."""
    asked: list[tuple[str, Any]] = []

    def jq(program: str, document: Any) -> Any:
        asked.append((program, document))
        return 7

    mesh = translated(changed(("tests/ping/spec/count", "{% jq .test._meta.count %}")), jq=jq)
    assert {entry["spec"]["count"] for entry in mesh.mesh["tests"].values()} == {7}
    program, facts = asked[0]
    assert program == ".test._meta.count"
    assert [address["address"] for address in facts["addresses"]] == ["a.example", "b.example"]
    assert set(facts) >= {"addresses", "archives", "contexts", "hosts", "task", "test", "schedule"}


USUAL: list[tuple[str, dict[str, Any], dict[str, Any], set[str]]] = [
    ("throughput", {"duration": "PT20S"}, {"duration": "PT20S"}, set()),
    (
        "throughput",
        {
            "source-node": "{% pscheduler_address[0] %}",
            "dest-node": "{% pscheduler_address[1] %}",
            "udp": True,
            "bandwidth": 50_000_000,
        },
        {"protocol": "udp", "rate_bps": 50_000_000},
        set(),
    ),
    ("latency", {"packet-count": 100, "flip": "{% flip %}"}, {"count": 100}, set()),
    (
        "latencybg",
        {"packet-count": 600, "packet-interval": 0.1, "packet-timeout": 10, "bucket-width": 0.001},
        {"interval": "PT0.1S", "each": "PT1M"},
        {"packet-timeout"},
    ),
    ("trace", {"wait": "PT5S", "sendwait": "PT30S"}, {"wait": "PT5S"}, {"sendwait"}),
    ("clock", {}, {}, set()),
]


@pytest.mark.parametrize(("test", "spec", "ours", "left_out"), USUAL)
def test_usual_tests_are_measured(
    test: str, spec: dict[str, Any], ours: dict[str, Any], left_out: set[str]
) -> None:
    """The tests of usual templates are taken over; members that matter less may be left out."""
    ends = {"source": "{% address[0] %}", "dest": "{% address[1] %}"}
    mesh = translated(changed(("tests/ping", {"type": test, "spec": {**ends, **spec}})))
    assert len(pairs_of(mesh)) == 6
    [entry] = mesh.mesh["tests"].values()
    assert {name: entry.get("spec", {}).get(name) for name in ours} == ours
    told = {omission.pointer for omission in mesh.omissions if "left out" in omission.why}
    assert told == {f"/tests/ping/spec/{member}" for member in left_out}


def test_a_stream_without_schedule_is_repeated() -> None:
    """Continuous measurements have no schedule there, and follow each other here."""
    template = changed(("tests/ping/type", "latencybg"), ("tests/ping/spec/count", None))
    del template["tests"]["ping"]["spec"]["count"]
    del template["tasks"]["pings"]["schedule"]
    mesh = translated(template)
    assert len(pairs_of(mesh)) == 6
    [schedule] = mesh.mesh["schedules"].values()
    [entry] = mesh.mesh["tests"].values()
    assert schedule["repeat"] == entry["spec"]["duration"]


LEFT_OUT: list[tuple[list[tuple[str, Any]], str, str]] = [
    ([("tests/ping/type", "snmpget")], "/tests/ping/type", "there is no test snmpget here"),
    ([("tests/ping/spec/other", 1)], "/tests/ping/spec", "other"),
    ([("tests/ping/spec/dest", "{% address[2] %}")], "/tests/ping/spec", "gives 2 addresses"),
    ([("tests/ping/spec/dest", "{% nonsense %}")], "/tests/ping/spec", "no variable"),
    ([("tasks/pings/tools", ["paping"])], "/tasks/pings/tools", "any tool may measure instead"),
    ([("tasks/pings/group", "none")], "/tasks/pings/group", "there is no group none"),
    ([("tasks/pings/test", "none")], "/tasks/pings/test", "there is no test none"),
    ([("tasks/pings/schedule", "none")], "/tasks/pings/schedule", "none (6 tasks left out)"),
    ([("tasks/pings/scheduled-by", 2)], "/tasks/pings/scheduled-by", "(6 tasks left out)"),
    ([("groups/all/excludes-self", "disabled")], "/groups/all", "no node measures to itself"),
    ([("schedules/often/until", "2026-01-01T00:00:00Z")], "/schedules/often/until", "is over"),
    ([("tasks/pings/reference", "{% x %}")], "/tasks/pings/reference", "have no reference"),
    ([("schedules/often/start", "soon")], "/schedules/often/start", "has no counterpart"),
    ([("groups/all/type", "ring")], "/groups/all/type", "there is no type 'ring'"),
    ([("groups/all/addresses/0", {"name": "z"})], "/groups/all/addresses/0", "no address z"),
    ([("addresses/c/address", "z.example")], "/addresses/c", "parley node add https://z.example"),
    ([("_meta", {"display-name": "x"})], "/_meta", "no descriptions"),
    ([("subtasks", {"s": {"test": "ping"}})], "/subtasks/s", "no counterpart"),
]


@pytest.mark.parametrize(("changes", "place", "words"), LEFT_OUT)
def test_nothing_is_left_out_in_silence(
    changes: list[tuple[str, Any]], place: str, words: str
) -> None:
    """A part that has no counterpart is told with its place in the template, and why."""
    if changes[0][0].endswith("addresses/0"):
        changes = [("groups/all/addresses", [{"name": "z"}, {"name": "a"}, {"name": "b"}])]
    mesh = translated(changed(*changes))
    assert words in {each.pointer: each.sentence for each in mesh.omissions}[place]
    text = to_toml(mesh.mesh, mesh.omissions, "x.json")
    assert re.search(rf"^#   {re.escape(place)}: .*{re.escape(words)}", text, re.MULTILINE)


def test_a_node_has_the_part_that_it_schedules() -> None:
    """A node's part is what its own address schedules, and the agent's place if that has none."""
    assert pairs_of(translated(TEMPLATE, own="b")) == {"pings/b/a", "pings/b/c"}
    flipped = changed(("addresses/c/no-agent", True))
    assert pairs_of(translated(flipped, own="b")) == {"pings/b/a", "pings/b/c", "pings/c/b"}


def test_included_templates_add_what_is_missing() -> None:
    """Entries of included templates are used, unless the including one has its own."""
    included = {"addresses": {"d": {"address": "d.example"}}, "schedules": {"often": {}}}
    group = {"type": "mesh", "addresses": [{"name": "a"}, {"name": "d"}]}
    template = changed(("groups/all", group), ("includes", ["https://x/d.json"]))
    report = Report()
    whole = templates.with_includes(template, {"https://x/d.json": included}, report)
    assert [omission.pointer for omission in report.omissions] == ["/schedules/often"]
    assert pairs_of(translated(whole)) == {"pings/a/d", "pings/d/a"}


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("{", ""),
        ("[]", ""),
        ('{"tasks": []}', "/tasks"),
        ('{"tasks": {"x": 1}}', "/tasks/x"),
        ('{"includes": [1]}', "/includes"),
        ('{"tests": {"a/b": {"type": 1, "spec": {}}}}', "/tests/a~1b/type"),
        (
            '{"addresses": {"x": {"labels": {"y": {"address": 1}}}}}',
            "/addresses/x/labels/y/address",
        ),
        ('{"tasks": {"x": {"priority": true}}}', "/tasks/x/priority"),
        ('{"x": NaN}', ""),
        ('{"x": "\\ud800"}', ""),
        ("[" * 5000, ""),
        ('{"x":' * 50 + "1" + "}" * 50, ""),
    ],
)
def test_a_broken_template_is_refused(text: str, place: str) -> None:
    """A text that is no template is refused, with the place of the fault."""
    with pytest.raises(InvalidDocument) as refused:
        templates.parse(text)
    assert [fault.pointer for fault in refused.value.faults] == [place]


def test_a_text_that_nests_without_end_is_no_template() -> None:
    """A text that is nested deeper than can be read is no template, and no fault of ours."""
    assert not templates.is_template('{"x":' * 90_000)


RICH = changed(
    ("addresses/a/labels", {"v6": {"address": "2001:db8::1", "contexts": ["inner"]}}),
    ("addresses/b/remote-addresses", {"a": {"address": "b.example", "labels": {}}}),
    ("addresses/b/host", "large"),
    ("hosts", {"large": {"tags": ["big"], "archives": ["main"], "no-agent": False}}),
    ("contexts", {"inner": {"context": "linuxnns", "data": {"namespace": "wa"}}}),
    ("archives", {"main": {"archiver": "udp", "data": {"host": "h", "port": 1}, "ttl": "P1D"}}),
    (
        "address-classes",
        {
            "some": {
                "data-source": {"type": "current-config"},
                "match-filter": {"type": "and", "filters": [{"type": "tag", "tag": "a"}]},
                "exclude-filter": {"type": "not", "filter": {"type": "host", "tag": "big"}},
            }
        },
    ),
    (
        "groups/more",
        {
            "type": "disjoint",
            "a-addresses": [{"name": "a", "label": "v6"}],
            "b-addresses": [{"class": "some"}, {"name": "b"}],
            "excludes": [{"local-address": {"name": "a"}, "target-addresses": [{"name": "c"}]}],
        },
    ),
    (
        "tasks/more",
        {
            "group": "more",
            "test": "ping",
            "tools": ["ping"],
            "archives": ["main"],
            "priority": 3,
            "scheduled-by": 1,
        },
    ),
)


def _places(value: Any, *steps: Any) -> Iterator[tuple[Any, ...]]:
    """Yield the places of all values in a document."""
    if steps:
        yield steps
    inner: Iterable[tuple[Any, Any]] = ()
    if isinstance(value, dict | list):
        inner = value.items() if isinstance(value, dict) else enumerate(value)
    for name, child in inner:
        yield from _places(child, *steps, name)


@pytest.mark.parametrize("junk", [None, True, -1, 1e300, "", "{% x", [], {}, [[]], {"a": {"b": 1}}])
@pytest.mark.nightly
def test_no_template_breaks_the_translation(junk: Any) -> None:
    """A template with anything in any place leads to a mesh file, or to faults with places."""
    for steps in list(_places(RICH)):
        template = json.loads(json.dumps(RICH))
        place = template
        for step in steps[:-1]:
            place = place[step]
        place[steps[-1]] = junk
        with contextlib.suppress(InvalidDocument):
            mesh = translated(template, jq=lambda program, _: program)
            if mesh.tasks:
                assert pairs_of(mesh)


def test_texts_of_a_template_cannot_break_the_file() -> None:
    """The file is TOML with just the names and texts of the template, whatever these are."""
    name = 'x"\n[tasks]\x7f é'
    template = changed(("addresses/a/tags", [name]), (f"tasks/{name.replace('/', '')}", {}))
    template["tasks"] = {name: TEMPLATE["tasks"]["pings"]}
    assert len(pairs_of(translated(template))) == 6


def test_delays_in_reverse_are_measured_at_the_address_of_each_node() -> None:
    """The dest begins a reverse measurement, and measures at its own address."""
    ends = {"source": "{% address[0] %}", "dest": "{% address[1] %}", "reverse": True}
    mesh = translated(changed(("tests/ping", {"type": "latency", "spec": {**ends, "schema": 2}})))
    assert mesh.omissions == ()
    assert len(pairs_of(mesh)) == 6
