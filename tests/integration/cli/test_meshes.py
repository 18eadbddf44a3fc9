"""``parley plan mesh`` and ``parley mesh``: requests, output, and exit codes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from node.model.errors import RefusedByParticipant
from tests.integration.cli.test_planning import a_plan
from tests.unit.mesh.kept import MESH, SCHEMAS, a_mesh, everything

START = "2026-12-01T10:00:00Z"


def _node(name: str) -> dict[str, Any]:
    return {
        "identity": f"ed25519:{name * 42}A",
        "name": name,
        "url": f"http://{name}:1",
        "address": name,
        "is_self": name == "a",
        "added_at": START,
        "seen_at": None,
        "unreachable_since": None,
        "last_error": None,
    }


def _page(*items: Any) -> dict[str, Any]:
    return {"items": list(items), "next": None}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Write a mesh file."""
    path = tmp_path / "lab.toml"
    path.write_text(MESH)
    return path


@pytest.fixture
def meshed(node: Any) -> Any:
    """A node that knows three nodes and has no task of the mesh yet."""
    describe = {"title": "", "result": {}, "tools": []}
    tests = [{"name": name, "spec": spec, **describe} for name, spec in SCHEMAS.items()]
    tool = {
        "name": "iperf3",
        "tests": ["throughput"],
        "available": True,
        "reason": None,
        "tried": [],
    }
    node.documents |= {
        "/v1/nodes": _page(_node("a"), _node("b"), _node("c")),
        "/v1/tests": _page(*tests),
        "/v1/tools": _page(tool),
        "/v1/campaigns": _page(),
        "/v1/meshes/lab/tasks": _page(),
        "/v1/plans": a_plan(outcome="found", duration="PT20S", occupancy=[]),
    }
    return node


def _created(node: Any) -> list[Any]:
    """Return what was posted with a key of its own; previews have none."""
    return [(document, key) for document, key in node.posted if key]


def _existing() -> list[Any]:
    return [task.model_dump(mode="json") for task in everything(a_mesh())]


async def test_a_plan_says_what_would_change(parley: Any, meshed: Any, file: Path) -> None:
    """A plan previews each new task, one first to know how long it takes; no unchanged ones."""
    ended = await parley("plan", "mesh", str(file))
    plan = json.loads(ended.out)
    assert (ended.code, plan["findings"]) == (0, [])
    assert (plan["sentence"], plan["sampled"]) == ("6 to create, 0 unchanged", False)
    posted = [document["reference"]["key"] for document, _ in meshed.posted]
    assert sorted(posted) == sorted(["fill/a/b", *plan["create"]])
    tasks = _existing()
    tasks[0]["priority"] = 9
    meshed.documents["/v1/meshes/lab/tasks"] = _page(*tasks[:-1])
    ended = await parley("plan", "mesh", str(file), "-o", "table")
    assert ended.code == 0
    assert "1 to create, 1 to edit, 4 unchanged" in ended.out
    assert "Create 1\n  fill/c/b" in ended.out
    assert "Edit 1\n  fill/a/b  priority 9 → 3" in ended.out


async def test_a_file_with_faults_is_told_where(parley: Any, meshed: Any, file: Path) -> None:
    """Faults are reported with line, place, and remedy, before any preview or post."""
    file.write_text(MESH.replace('"c"]', '"cc"]').replace("duration", "durtion"))
    ended = await parley("plan", "mesh", str(file), "-o", "table")
    assert ended.code == 2
    assert f"✗ {file}:5: /groups/all/2: cc is not a node known here\n  did you mean" in ended.out
    assert f"✗ {file}:9: /tests/fill/spec/durtion: throughput has no field durtion" in ended.out
    for command in (("apply", str(file)), ("status", str(file))):
        assert (await parley("mesh", *command)).code == 2
    assert meshed.posted == []
    file.write_text(
        MESH.replace('"c"]', '"zz"]')
        .replace("duration", "durtion")
        .replace("[tests.", "[ofen]\n[tests.")
        + '\n[[measure]]\nshape = "ring"\ntest = "fill"\n'
        + '\n[[measure]]\nshape = "full-mesh"\nmembers = "al"\ntest = "fil"\n'
    )
    ended = await parley("mesh", "apply", str(file), "-o", "table")
    places = ("/ofen", "/measure/1/shape", "/groups/all/2", "/tests/fill/spec/durtion")
    for place in (*places, "/measure/2/test", "/measure/2/members/0"):
        assert f": {place}: " in ended.out
    assert "/measure/1/test" not in ended.out
    assert "nothing is booked" not in ended.out
    file.write_text("name = ")
    assert (await parley("plan", "mesh", str(file))).code == 2
    ended = await parley("plan", "mesh", str(file) + "x")
    assert (ended.code, "cannot be read" in ended.err) == (2, True)


@pytest.mark.parametrize(
    ("outcome", "code", "text"),
    [
        ("refused", 3, "no pair can run this: all 6 previewed pairs are refused"),
        ("unreachable", 5, "unreachable"),
        ("no-time", 4, "without free time"),
        ("partly", 0, None),
    ],
)
async def test_refusing_nodes(
    parley: Any, meshed: Any, file: Path, outcome: str, code: int, text: str | None
) -> None:
    """Refusals are counted by reason, and the exit code is that of the worst."""
    meshed.documents["/v1/plans"] |= {"outcome": outcome, "sentence": "b: iperf3 is missing"}
    ended = await parley("plan", "mesh", str(file))
    findings = json.loads(ended.out)["findings"]
    assert (ended.code, [text in each["detail"] for each in findings]) == (
        code,
        [True] if text else [],
    )
    if text:
        assert "b: iperf3 is missing (6 times)" in findings[0]["detail"]
        assert findings[0]["pointer"] == "/measure/0"


@pytest.mark.nightly
async def test_applying_posts_what_is_missing(parley: Any, meshed: Any, file: Path) -> None:
    """Applying creates, edits and cancels tasks, each request with its own key."""
    tasks = _existing()
    for task, change in ((tasks[0], {"priority": 9}), (tasks[1], {"key": "fill/a/gone"})):
        meshed.add_task(task["id"])
        task.update(change)
    meshed.documents["/v1/meshes/lab/tasks"] = _page(*tasks)
    meshed.created = meshed.tasks[0]
    ended = await parley("mesh", "apply", str(file), "--dry-run")
    assert (ended.code, _created(meshed)) == (0, [])
    assert [document["reference"]["key"] for document, _ in meshed.posted] == ["fill/a/c"]
    assert json.loads(ended.out)["sentence"] == "1 to create, 1 to edit, 1 to end, 4 unchanged"
    ended = await parley("mesh", "apply", str(file))
    done = json.loads(ended.out)
    assert (ended.code, done["failed"], done["left"]) == (0, [], 0)
    assert [done[word] for word in ("created", "edited", "ended", "unchanged")] == [1, 1, 1, 4]
    [(document, key)] = _created(meshed)
    assert document["reference"] == {"mesh": "lab", "key": "fill/a/c"}
    assert meshed.patched == [({"priority": 3, "revision": 1}, "")]
    assert meshed.tasks[1]["state"] == "cancelled"
    await parley("mesh", "apply", str(file))
    assert meshed.posted[-1] == (document, key)


@pytest.mark.parametrize(("slip", "code"), [("PT50M", 0), ("PT7M", 3)])
async def test_an_edit_whose_answer_was_lost_is_done(
    parley: Any, meshed: Any, file: Path, slip: str, code: int
) -> None:
    """A task at a later revision counts as edited if it matches the edit."""
    tasks = _existing()
    tasks[0]["schedule"]["slip"] = "PT2M"
    meshed.documents["/v1/meshes/lab/tasks"] = _page(*tasks)
    meshed.add_task(tasks[0]["id"], schedule={"slip": slip}, revision=2)
    ended = await parley("mesh", "apply", str(file))
    done = json.loads(ended.out)
    assert (ended.code, done["edited"]) == (code, 1 if code == 0 else 0)
    assert [failure["code"] for failure in done["failed"]] == ["conflict"] * (code != 0)
    assert meshed.patched == [
        ({"schedule": {"slip": "PT50M"}, "revision": 1}, ""),
        ({"schedule": {"slip": "PT50M"}, "revision": 2}, "true"),
    ]


async def test_failures_are_told_by_cause(parley: Any, meshed: Any, file: Path) -> None:
    """Failures are reported by cause, all others are attempted, and the exit code is theirs."""
    meshed.created = RefusedByParticipant("b: iperf3 is not installed on b")
    ended = await parley("mesh", "apply", str(file), "-o", "table")
    assert ended.code == 3
    assert "✗ 6 not created, fill/a/b for example: b: iperf3 is not installed on b" in ended.out
    assert "run it again" in ended.out
    meshed.token = "another"
    ended = await parley("mesh", "apply", str(file), "--jobs", "1")
    assert ended.code == 3


async def test_a_mesh_is_removed(parley: Any, meshed: Any) -> None:
    """Removing a mesh cancels all its tasks that are not over."""
    tasks = _existing()
    tasks[0]["state"] = "finished"
    meshed.documents["/v1/meshes/lab/tasks"] = _page(*tasks)
    for task in tasks:
        meshed.add_task(task["id"])
    assert json.loads((await parley("mesh", "remove", "lab", "--dry-run")).out)["unchanged"] == 5
    assert {task["state"] for task in meshed.tasks} == {"active"}
    ended = await parley("mesh", "remove", "lab")
    assert (ended.code, json.loads(ended.out)["ended"]) == (0, 5)
    assert [task["state"] for task in meshed.tasks] == ["active"] + ["cancelled"] * 5
    meshed.documents["/v1/meshes/none/tasks"] = _page()
    assert (await parley("mesh", "remove", "none")).code == 6


def _pair(source: str, dest: str, delivered: int) -> dict[str, Any]:
    cause = {"state": "unplaced", "cause": "b: busy", "example": "b: busy", "count": 10 - delivered}
    return {
        "key": f"fill/{source}/{dest}",
        "test": "throughput",
        "source": source,
        "dest": dest,
        "state": "active",
        "due": 10,
        "delivered": delivered,
        "bad": 0,
        "outcome": {"judgement": "good", "code": None, "reason": None},
        "open": 1,
        "causes": [] if delivered == 10 else [cause],
    }


async def test_the_status_of_a_mesh(parley: Any, meshed: Any, file: Path) -> None:
    """The status shows delivery, causes, worst pairs, and a matrix, and for a file the drift."""
    pairs = [_pair(s, d, 4 if d == "c" else 10) for s in "abc" for d in "abc" if s != d]
    meshed.documents |= {
        "/v1/meshes/lab": {
            "name": "lab",
            "tasks": {"active": 6},
            "campaigns": ["default"],
            "created_at": START,
            "changed_at": START,
            "since": START,
            "until": "2026-12-02T10:00:00Z",
            "delivery": {
                "due": 60,
                "delivered": 48,
                "bad": 0,
                "open": 6,
                "causes": [{"state": "unplaced", "cause": "b: busy", "example": "x", "count": 12}],
            },
        },
        "/v1/meshes/lab/pairs": _page(*pairs),
    }
    ended = await parley("mesh", "status", "lab", "-o", "table", "--since", "7d")
    assert ended.code == 0
    assert "mesh lab: 80 % of 60 due delivered, 6 in progress" in ended.out
    assert "  12  20.0 %  unplaced  b: busy" in ended.out
    [query] = [query for _, path, query in meshed.asked if path.startswith("/v1/meshes/lab?")]
    assert query["from"].endswith(":00:00Z")  # whole hours are summed up
    assert "fill     a       c     active  10   40 %       6 unplaced: b: busy" in ended.out
    matrix = ended.out.split("fill: delivered in %, from row to column (now ✗ wrong")[1]
    matrix = matrix.partition("\n")[2]
    assert [line.split() for line in matrix.splitlines()] == [
        ["a", "b", "c"],
        ["a", "100", "40"],
        ["b", "100", "40"],
        ["c", "100", "100"],
    ]
    meshed.documents["/v1/meshes/lab/tasks"] = _page(*_existing()[:1])
    ended = await parley("mesh", "status", str(file), "-o", "table")
    assert (ended.code, "Compared with the file: 5 to create, 1 unchanged" in ended.out) == (
        1,
        True,
    )
    ended = await parley("mesh", "status", "lab", "-o", "csv")
    assert ended.out.splitlines()[1].startswith("fill/a/b,throughput,a,b,active,10,10,1")
    meshed.documents["/v1/meshes"] = _page(meshed.documents["/v1/meshes/lab"] | {})
    for extra in ("since", "until", "delivery"):
        meshed.documents["/v1/meshes"]["items"][0].pop(extra)
    assert json.loads((await parley("mesh", "list")).out)[0]["name"] == "lab"


async def test_the_status_of_a_file_before_it_is_applied(
    parley: Any, meshed: Any, file: Path
) -> None:
    """The status of a file that was never applied shows what it would create, and exits with 1."""
    ended = await parley("mesh", "status", str(file))
    status = json.loads(ended.out)
    assert (ended.code, status["name"], len(status["drift"]["create"])) == (1, "lab", 6)
    ended = await parley("mesh", "status", str(file), "-o", "table")
    assert ended.code == 1
    assert "mesh lab: nothing was applied yet; apply it: parley mesh apply" in ended.out
    assert "Compared with the file: 6 to create, 0 unchanged\n  to create  fill/a/b" in ended.out
    assert (await parley("mesh", "status", str(file), "-o", "csv")).code == 1
    assert (await parley("mesh", "status", "lab")).code == 6
