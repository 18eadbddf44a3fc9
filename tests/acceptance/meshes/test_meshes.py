"""A mesh of three nodes: previewed, applied, edited, interrupted, measured, and removed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.acceptance.commands import parley
from tests.acceptance.hostility import newest
from tests.acceptance.outsider import Json, Outsider

pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.timeout(180),
    pytest.mark.usefixtures("tidy"),
]

MESH = """
name = "story"

[groups]
all = ["a", "b", "c"]

[tests.quiet]
type = "idle"
spec = { duration = "PT1S", class = "normal" }

[schedules.often]
repeat = "PT5S"
slip = "PT2S"

[[measure]]
shape = "full-mesh"
members = "all"
test = "quiet"
schedule = "often"
"""

FEW = MESH.replace('slip = "PT2S"', 'slip = "PT2S"\nmax_runs = 60')
"""The mesh for 5 minutes, longer than its test: a whole day is 100,000 runs for nothing."""


async def _parley(node: Outsider, *arguments: str) -> tuple[int, Json]:
    """Run the command; return its exit code and the document it prints."""
    ended = await parley(node, *arguments)
    assert ended.out, ended.err
    return ended.code, ended.document


def _done(record: Json) -> tuple[int, ...]:
    return tuple(record[word] for word in ("created", "edited", "ended", "unchanged"))


async def test_the_life_of_a_mesh(a: Outsider, nodes: list[Outsider], tmp_path: Path) -> None:
    """A preview books nothing, applying is idempotent, and the status shows the delivery."""
    file = tmp_path / "story.toml"
    file.write_text(FEW)
    before = await newest(nodes)
    code, plan = await _parley(a, "plan", "mesh", str(file))
    assert (code, plan["findings"]) == (0, []), plan["findings"]
    assert (plan["tasks"], len(plan["create"]), plan["asked"]) == (6, 6, 6)
    assert {answer["outcome"] for answer in plan["plans"]} == {"found"}
    assert {node["name"] for node in plan["nodes"]} == {"a", "b", "c"}
    assert await newest(nodes) == before

    code, done = await _parley(a, "mesh", "apply", str(file))
    assert (code, _done(done), done["failed"]) == (0, (6, 0, 0, 0), [])
    code, done = await _parley(a, "mesh", "apply", str(file))
    assert (code, _done(done)) == (0, (0, 0, 0, 6))
    code, plan = await _parley(a, "plan", "mesh", str(file))
    assert (code, plan["sentence"]) == (0, "the existing tasks match the file: 6 tasks")

    def delivered(mesh: Json) -> bool:
        return bool(mesh["delivery"]["delivered"] >= 6)

    await a.until("/v1/meshes/story", delivered)
    code, status = await _parley(a, "mesh", "status", str(file), "--since", "1h")
    assert (code, status["drift"]["create"]) == (0, [])
    assert {(pair["source"], pair["dest"]) for pair in status["pairs"]} == {
        (one.name, other.name) for one in nodes for other in nodes if one is not other
    }
    # A run may end between the question for the mesh and the one for its pairs.
    while sum(pair["delivered"] for pair in status["pairs"]) != status["delivery"]["delivered"]:
        _, status = await _parley(a, "mesh", "status", str(file), "--since", "1h")

    changed = FEW.replace('"PT5S"', '"PT10S"').replace(', "c"', "")
    file.write_text(changed)
    code, status = await _parley(a, "mesh", "status", str(file))
    assert (code, len(status["drift"]["end"]), len(status["drift"]["edit"])) == (1, 4, 2)
    assert status["drift"]["edit"][0]["differences"] == ["repeat 5 s → 10 s"]
    # A part of it is done already, as after an interrupted apply.
    await a.cancel({"id": status["drift"]["end"][0]["task"]})
    code, done = await _parley(a, "mesh", "apply", str(file))
    assert (code, _done(done)) == (0, (0, 2, 3, 0))
    code, done = await _parley(a, "mesh", "apply", str(file))
    assert (code, _done(done)) == (0, (0, 0, 0, 2))

    code, done = await _parley(a, "mesh", "remove", "story")
    assert (code, _done(done)) == (0, (0, 0, 2, 0))
    mesh = await a.get("/v1/meshes/story")
    assert mesh["tasks"] == {"cancelled": 6}
    # Tasks cancelled manually are created again, although the requests equal those of a minute ago.
    code, done = await _parley(a, "mesh", "apply", str(file))
    assert (code, _done(done)) == (0, (2, 0, 0, 0))


@pytest.mark.nightly
async def test_exclusive_runs_of_a_mesh_leave_no_time_between_them(
    a: Outsider, tmp_path: Path
) -> None:
    """Six runs in turn fill an interval of six, without any slip, as the plan says they do."""
    file = tmp_path / "tight.toml"
    tight = MESH.replace('"story"', '"tight"').replace('"normal"', '"exclusive"')
    tight = tight.replace('"PT1S"', '"PT4S"').replace('"PT5S"', '"PT24S"')
    file.write_text(tight.replace('slip = "PT2S"', 'slip = "PT0S"\nmax_runs = 10'))
    code, plan = await _parley(a, "plan", "mesh", str(file))
    assert (code, plan["findings"]) == (0, [])
    # A start that is so near that nobody can book it any more does not count.
    assert [answer["placed"] for answer in plan["plans"]] == [10] * 6
    code, done = await _parley(a, "mesh", "apply", str(file))
    assert (code, _done(done)) == (0, (6, 0, 0, 0))

    def placed(runs: Json) -> list[Json]:
        return [run for run in runs["items"] if run["state"] != "unplaced"]

    runs = placed(await a.until("/v1/runs?mesh=tight&limit=100", lambda it: len(placed(it)) == 60))
    assert all(run["starts_at"] == run["slot"] for run in runs)
    starts = sorted({run["starts_at"] for run in runs})
    assert len(starts) == 60
    # Another one is added: the six keep their starts, and the plan says what would fit.
    more = file.read_text() + MESH[MESH.index("[[measure]]") :].replace(
        "test =", 'name = "more"\ntest ='
    )
    file.write_text(more)
    code, plan = await _parley(a, "plan", "mesh", str(file))
    assert (code, plan["edit"], plan["unchanged"]) == (4, [], 6)
    [finding] = [each for each in plan["findings"] if "booked" in each["detail"]]
    assert "an interval of 2 min would fit" in finding["remedy"]
    code, _ = await _parley(a, "mesh", "remove", "tight")
    assert code == 0


@pytest.mark.nightly
async def test_a_mesh_that_asks_for_too_much(a: Outsider, tmp_path: Path) -> None:
    """A preview shows overbooked nodes, what would fit, and the faults with their lines."""
    file = tmp_path / "full.toml"
    full = MESH.replace('"story"', '"full"').replace('"normal"', '"exclusive"')
    full = full.replace('"PT1S"', '"PT2S"')
    file.write_text(full)
    code, plan = await _parley(a, "plan", "mesh", str(file))
    assert code == 4
    [finding] = [each for each in plan["findings"] if "booked" in each["detail"]]
    assert all(
        abs(node["exclusive"] - 1.6) < 0.01 and node["booked"] > 1.59 for node in plan["nodes"]
    )
    assert (finding["pointer"], finding["line"]) == ("/measure/0/schedule", 19)
    assert "would fit" in finding["remedy"]
    file.write_text(full.replace('"c"]', '"d"]').replace("duration", "durtion"))
    code, plan = await _parley(a, "plan", "mesh", str(file))
    assert (code, plan["sentence"]) == (2, "the file has errors that must be corrected first")
    assert [(f["pointer"], f["line"]) for f in plan["findings"]] == [
        ("/groups/all/2", 5),
        ("/tests/quiet/spec/durtion", 9),
    ]
    code, _ = await _parley(a, "mesh", "apply", str(file))
    assert code == 2
    assert (await a.get("/v1/meshes/full/tasks"))["items"] == []
