"""``parley simulate`` as its users see it."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from lead.simulation.history import History
from node.cli.main import parley
from node.cli.progress import Progress
from node.cli.simulate import _Watch
from node.model import times
from tests.support.clocks import ManualClock

WORLD = """
days = 0.01
settle = "PT10M"
[nodes]
count = 3
horizon = "PT30M"
[[tasks]]
length = "PT10S"
every = "PT5M"
slip = "PT2M"
[network]
loss = 0.05
[faults]
crashes = 20
cuts = 10
"""


SHARED = """
days = 0.05
settle = "PT10M"
nodes = { count = 2, horizon = "PT2H" }
campaigns = [{ name = "ops" }, { name = "idle" }]
shares = { pool = "all", after = "PT0S", within = 0.9 }
[[pools]]
name = "all"
match = { name = { exists = true } }
choice = "rotating"
[[tasks]]
campaign = "ops"
count = 2
participants = { pool = "all", k = 1 }
every = "PT10M"
slip = "PT5M"
[[tasks]]
campaign = "idle"
count = 1
participants = { pool = "all", k = 1 }
every = "PT10M"
start = "PT3H"
"""


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the file of a small world."""
    path = tmp_path_factory.mktemp("worlds") / "world.toml"
    path.write_text(WORLD)
    return path


def simulated(*words: object) -> Result:
    """Run the command in this process."""
    return CliRunner().invoke(parley, ["simulate", *map(str, words)])


def report(*words: object) -> dict[str, Any]:
    """Run the command and return its JSON report."""
    result = simulated(*words, "-o", "json")
    assert result.exit_code == 0, result.output
    document: dict[str, Any] = json.loads(result.stdout)
    return document


@pytest.mark.nightly
def test_a_world_is_told_and_drawn_and_the_same_again(world: Path, tmp_path: Path) -> None:
    """Every promised slot is delivered or has a reason, in a document, a table, and a drawing."""
    one, other = tmp_path / "one.svg", tmp_path / "other.svg"
    done = report(world, "--svg", one)
    lost = sum(reason["slots"] for reason in done["not_delivered"])
    assert done["promised"] == done["delivered"] + lost > 0
    assert done["violations"] == []
    assert done["messages"]["proposals"] > 0
    assert f"{done['promised']:,} runs promised" in one.read_text()
    again = simulated(world, "-o", "table", "--svg", other)
    assert again.exit_code == 0
    assert "delivered" in again.stdout
    assert "✓ no forbidden overlap on any node" in again.stdout
    assert one.read_bytes() == other.read_bytes()


def test_a_drawing_needs_a_folder(world: Path, tmp_path: Path) -> None:
    """A drawing in a folder that does not exist is refused before anything is played."""
    result = simulated(world, "--svg", tmp_path / "nowhere" / "x.svg")
    assert result.exit_code == 2
    assert "there is no folder" in result.stderr


@pytest.mark.timeout(180)
@pytest.mark.nightly
def test_the_same_seed_is_the_same_world_in_any_process(world: Path) -> None:
    """A seed gives the same report byte for byte, regardless of the hash seed."""
    argv = [sys.executable, "-m", "node.cli.main", "simulate", str(world), "--days", "0.01"]
    reports = {
        subprocess.run(
            [*argv, "-o", form],
            capture_output=True,
            check=True,
            env={**os.environ, "PYTHONHASHSEED": seed, "PARLEY_HORIZON": "PT1H"},
        ).stdout
        for form, seed in (("json", "0"), ("json", "1"), ("table", "4711"))
    }
    assert len(reports) == 2


@pytest.mark.nightly
def test_another_seed_is_another_world(world: Path) -> None:
    """Another seed or another number of days gives another report."""
    one, other = report(world, "--seed", 1), report(world, "--seed", 2)
    assert one["messages"] != other["messages"]
    assert report(world, "--days", 0.005)["promised"] < one["promised"]


@dataclass
class _Turning:
    """The parts of a world that the progress report uses."""

    now: float
    created: int = 5
    wished: int = 20

    @property
    def loop(self) -> _Turning:
        return self

    @property
    def network(self) -> _Turning:
        return self

    @property
    def sent(self) -> dict[str, int]:
        return {"proposals": 1234}


def test_progress_is_reported_now_and_then() -> None:
    """A file gets a line every half minute, without a guess at the remaining time."""
    clock, stream = ManualClock(), io.StringIO()
    watch = _Watch(Progress(stream=stream), clock, 7)
    world: Any = _Turning(1.5 * times.DAY)
    for second in range(61):
        watch(second / 240, world)
        clock.advance(times.SECOND)
    assert stream.getvalue().splitlines() == [
        " 12% done, day 1.50 of 7, 5 of 20 tasks, 1,234 messages, 30 s so far",
        " 25% done, day 1.50 of 7, 5 of 20 tasks, 1,234 messages, 60 s so far",
    ]


@pytest.mark.nightly
def test_a_broken_promise_says_how_to_see_it_again(
    world: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broken promise gives exit code 8 and the command that simulates the same world again."""
    monkeypatch.setattr(History, "begins", lambda self, *_: self.record_violation("two at once"))
    result = simulated(world, "--seed", 5, "--days", 0.004, "-o", "table")
    assert result.exit_code == 8
    assert "✗ two at once" in result.stdout
    assert f"again with: parley simulate {world} --seed 5 --days 0.004" in result.stderr


@pytest.mark.timeout(180)
@pytest.mark.nightly
def test_shares_of_a_pool_are_told_and_drawn(tmp_path: Path) -> None:
    """The report has a table of promised and found shares, and broken ones count."""
    world, drawing = tmp_path / "world.toml", tmp_path / "world.svg"
    world.write_text(SHARED)
    result = simulated(world, "-o", "table", "--svg", drawing)
    assert result.exit_code == 8, result.output
    assert "shares: Each campaign gets of pool all what it was promised" in result.stdout
    assert "campaign-default  ops" in result.stdout
    assert "✗ shares, campaign-default, idle: 0 %" in result.stdout
    assert "campaign-default" in drawing.read_text()


def test_the_scenarios_are_listed_and_shown() -> None:
    """Every listed scenario can be printed as a file."""
    result = simulated("--list", "-o", "json")
    names = [record["name"] for record in json.loads(result.stdout)]
    rounds = ["absence", "contention", "faults", "leads", "mesh", "pools", "shares", "small"]
    assert names == [*rounds, "fleet", "pool"]
    assert all("title = " in simulated(name, "--show").stdout for name in names)


def fleet(file: Path, lengths: Sequence[tuple[int, str]], nodes: int = 2) -> Path:
    """Write a fleet shared by campaigns of these weights, with runs of these lengths."""
    groups = [f'[[campaigns]]\nname = "c{w}"\nweight = {w}\nlength = "{it}"' for w, it in lengths]
    head = f'fleet = true\nnodes = {nodes}\nruns = 100\nsets = ["gridserver-usage"]'
    file.write_text("\n".join([head, *groups]))
    return file


@pytest.mark.nightly
def test_a_fleet_is_played_and_drawn(tmp_path: Path) -> None:
    """A fleet gives a table of promises for people, and a drawing."""
    small = fleet(tmp_path / "small.toml", ((1, "PT10M"), (3, "PT10M")), nodes=3)
    drawing = tmp_path / "fleet.svg"
    result = simulated(small, "--svg", drawing, "-o", "table")
    assert result.exit_code == 0, result.output
    assert "All promises were kept" in result.stdout
    assert "gridserver-usage" in drawing.read_text()


@pytest.mark.nightly
def test_a_fleet_is_told_to_programs(tmp_path: Path) -> None:
    """The document of a fleet names the sets that were played."""
    small = fleet(tmp_path / "small.toml", ((1, "PT10M"), (3, "PT10M")), nodes=3)
    assert report(small)["sets"] == ["gridserver-usage"]


@pytest.mark.nightly
@pytest.mark.timeout(180)
def test_a_broken_promise_of_a_fleet_is_told(tmp_path: Path) -> None:
    """A broken promise of a fleet gives exit code 8 and the command that simulates it again."""
    crowded = fleet(tmp_path / "crowded.toml", ((1, "PT60M"), (9, "PT1M")))
    result = simulated(crowded, "-o", "table")
    assert result.exit_code == 8
    assert "Broken promises" in result.stdout
    assert "again with: parley simulate" in result.stderr


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        ((), 2, "name a scenario"),
        (("fleet", "--days", "1"), 2, "--set and --runs are for fleets"),
        (("mesh", "--set", "pscheduler"), 2, "--set and --runs are for fleets"),
        (("fleet", "--set", "maui-magic"), 2, "there is no policy set 'maui-magic'"),
        (("mehs",), 6, "there is no scenario 'mehs'"),
        (("mesh", "--days", "0"), 2, "--days"),
    ],
)
def test_usage_errors(words: tuple[str, ...], code: int, text: str) -> None:
    """Usage errors have the exit code and the text that explain them."""
    result = simulated(*words)
    assert result.exit_code == code
    assert text in result.stderr


def test_a_wrong_field_is_reported(tmp_path: Path) -> None:
    """A wrong field is named by its place in the document."""
    path = tmp_path / "wrong.toml"
    path.write_text("[network]\nloss = 7\n")
    result = simulated(path)
    assert result.exit_code == 2
    assert "/network/loss" in result.stderr


@pytest.mark.nightly
def test_two_sets_are_compared_on_a_file(tmp_path: Path) -> None:
    """A pool is played under both, with a table by campaign and a drawing of each."""
    drawing = tmp_path / "pool.svg"
    result = simulated("pool", "--compare", "shares", "gridserver-time", "--svg", drawing)
    plan = json.loads(result.stdout)
    assert (plan["before"]["policy"]["set"], plan["after"]["policy"]["set"]) == (
        "shares",
        "in-order",
    )
    students = [
        next(it["runs"] for it in plan[side]["campaigns"] if it["campaign"] == "students")
        for side in ("before", "after")
    ]
    assert students[0] < students[1]
    assert drawing.read_text("utf-8").count('class="ink heading"') == 2
    assert simulated("pool").exit_code == 2
    assert simulated("small", "--compare", "shares", "turns").exit_code == 2
    wrong = simulated("pool", "--compare", "shares", "turns laid=up")
    assert (wrong.exit_code, "round-robin" in wrong.stderr) == (2, True)
