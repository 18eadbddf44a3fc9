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
days = 0.02
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
    """A small world's file."""
    path = tmp_path_factory.mktemp("worlds") / "world.toml"
    path.write_text(WORLD)
    return path


def simulated(*words: object) -> Result:
    """The command, in this process."""
    return CliRunner().invoke(parley, ["simulate", *map(str, words)])


def report(*words: object) -> dict[str, Any]:
    """Its report, for programs."""
    told = simulated(*words, "-o", "json")
    assert told.exit_code == 0, told.output
    found: dict[str, Any] = json.loads(told.stdout)
    return found


def test_the_report_counts_every_slot(world: Path) -> None:
    """What was promised is delivered, or has a reason."""
    done = report(world)
    lost = sum(reason["slots"] for reason in done["not_delivered"])
    assert done["promised"] == done["delivered"] + lost > 0
    assert done["violations"] == []
    assert done["messages"]["proposals"] > 0


@pytest.mark.timeout(180)
def test_the_same_seed_is_the_same_world_in_any_process(world: Path) -> None:
    """Byte for byte, whatever the order of sets and hashes is."""
    argv = [sys.executable, "-m", "node.cli.main", "simulate", str(world), "--days", "0.01"]
    told = {
        subprocess.run(
            [*argv, "-o", form],
            capture_output=True,
            check=True,
            env={**os.environ, "PYTHONHASHSEED": seed, "PARLEY_HORIZON": "PT1H"},
        ).stdout
        for form, seed in (("json", "0"), ("json", "1"), ("table", "2"), ("table", "4711"))
    }
    assert len(told) == 2


def test_another_seed_is_another_world(world: Path) -> None:
    """The seed can be given, and so can the days."""
    one, other = report(world, "--seed", 1), report(world, "--seed", 2)
    assert one["messages"] != other["messages"]
    assert report(world, "--days", 0.01)["promised"] < one["promised"]


def test_people_get_a_table(world: Path) -> None:
    """It says what was promised, delivered, and checked."""
    told = simulated(world, "-o", "table")
    assert told.exit_code == 0
    assert "delivered" in told.stdout
    assert "✓ no forbidden overlap on any node" in told.stdout


def test_the_report_is_drawn_too(world: Path, tmp_path: Path) -> None:
    """The same drawing for the same seed, beside the report; not without a folder to put it in."""
    files = [tmp_path / "one.svg", tmp_path / "other.svg"]
    for file in files:
        done = report(world, "--svg", file)
        assert f"{done['promised']:,} runs promised" in file.read_text()
    one, other = (file.read_bytes() for file in files)
    assert one == other
    told = simulated(world, "--svg", tmp_path / "nowhere" / "x.svg")
    assert told.exit_code == 2
    assert "there is no folder" in told.stderr


@dataclass
class _Turning:
    """As much of a world as is told of."""

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


def test_who_waits_is_told_how_far_it_is_now_and_then() -> None:
    """In a file a line every half minute; how long it took is known, the rest is not guessed."""
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


def test_a_broken_promise_says_how_to_see_it_again(
    world: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exit code 8, the promise, and the command that plays the same world again."""
    monkeypatch.setattr(History, "begins", lambda self, *_: self.violated("two at once"))
    told = simulated(world, "--seed", 5, "-o", "table")
    assert told.exit_code == 8
    assert "✗ two at once" in told.stdout
    assert f"again with: parley simulate {world} --seed 5 --days 0.02" in told.stderr


@pytest.mark.timeout(180)
def test_shares_of_a_pool_are_told_and_drawn(tmp_path: Path) -> None:
    """A table of what was promised and found beside the rest of the report; broken ones count."""
    world, drawing = tmp_path / "world.toml", tmp_path / "world.svg"
    world.write_text(SHARED)
    told = simulated(world, "-o", "table", "--svg", drawing)
    assert told.exit_code == 8, told.output
    assert "shares: Each campaign gets of pool all what it was promised" in told.stdout
    assert "campaign-default  ops" in told.stdout
    assert "✗ shares, campaign-default, idle: 0 %" in told.stdout
    assert "campaign-default" in drawing.read_text()


def test_the_scenarios_are_listed_and_shown() -> None:
    """Each name can be shown as a file to start one's own from."""
    told = simulated("--list", "-o", "json")
    names = [record["name"] for record in json.loads(told.stdout)]
    assert names == ["contention", "faults", "mesh", "pools", "shares", "small", "fleet"]
    assert all("title = " in simulated(name, "--show").stdout for name in names)


def fleet(file: Path, lengths: Sequence[tuple[int, str]], nodes: int = 2) -> Path:
    """Write a fleet shared by campaigns of these weights, with runs of these lengths."""
    groups = [f'[[campaigns]]\nname = "c{w}"\nweight = {w}\nlength = "{it}"' for w, it in lengths]
    head = f'fleet = true\nnodes = {nodes}\nruns = 100\nsets = ["gridserver-usage"]'
    file.write_text("\n".join([head, *groups]))
    return file


def test_a_fleet_is_played_and_drawn(tmp_path: Path) -> None:
    """A fleet gives a table of promises for people, a document for programs, and a drawing."""
    small = fleet(tmp_path / "small.toml", ((1, "PT10M"), (3, "PT10M")), nodes=6)
    drawing = tmp_path / "fleet.svg"
    result = simulated(small, "--svg", drawing, "-o", "table")
    assert result.exit_code == 0, result.output
    assert "All of it holds" in result.stdout
    assert "gridserver-usage" in drawing.read_text()
    assert report(small)["sets"] == ["gridserver-usage"]


@pytest.mark.timeout(60)
def test_a_broken_promise_of_a_fleet_is_told(tmp_path: Path) -> None:
    """The exit code says so, and the command that plays it again."""
    crowded = fleet(tmp_path / "crowded.toml", ((1, "PT60M"), (9, "PT1M")))
    told = simulated(crowded, "-o", "table")
    assert told.exit_code == 8
    assert "Broken promises" in told.stdout
    assert "again with: parley simulate" in told.stderr


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ((), 2, "which scenario?"),
        (("fleet", "--days", "1"), 2, "--set and --runs are for fleets"),
        (("mesh", "--set", "pscheduler"), 2, "--set and --runs are for fleets"),
        (("fleet", "--set", "maui-magic"), 2, "there is no set maui-magic"),
        (("mehs",), 6, "there is no scenario 'mehs'"),
        (("mesh", "--days", "0"), 2, "--days"),
    ],
)
def test_what_is_wrong_is_said(words: tuple[str, ...], code: int, said: str) -> None:
    """With the exit code that all commands have for it."""
    told = simulated(*words)
    assert told.exit_code == code
    assert said in told.stderr


def test_a_wrong_field_is_said(tmp_path: Path) -> None:
    """By its place in the document."""
    path = tmp_path / "wrong.toml"
    path.write_text("[network]\nloss = 7\n")
    told = simulated(path)
    assert told.exit_code == 2
    assert "/network/loss" in told.stderr
