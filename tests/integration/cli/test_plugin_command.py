"""``parley plugin``: a working skeleton, plugins of others, and why one is unusable."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from node.cli.main import parley
from node.cli.tasks import task_group
from node.runtime.extras import install_command
from tests.support.command_line import CommandResult, run_command

PARLEY = Path(sys.executable).with_name("parley")
REPOSITORY = Path(__file__).parents[3]


def run(
    *argv: str | Path, folder: Path, site: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a program in a folder, with the packages in ``site`` installed."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (site, REPOSITORY)))}
    argv_ = [str(word) for word in argv]
    return subprocess.run(
        argv_, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


def plugin(*words: str | Path) -> CommandResult:
    """Run ``parley plugin`` with nothing but our own plugins."""
    arguments = ("plugin", *map(str, words))
    return asyncio.run(run_command(arguments, os.environ))


def new(folder: Path, name: str, *options: str) -> Path:
    """Write a new plugin, and return its folder."""
    package = folder / f"parley-{name}"
    done = plugin("new", name, "--directory", package, *options)
    assert done.code == 0, done.err
    assert f"parley plugin test {name} --run" in done.out
    return package


def installed(package: Path, folder: Path) -> Path:
    """Install the package into a folder, and return the folder."""
    options = ("--no-deps", "--no-build-isolation", "--quiet", "--disable-pip-version-check")
    done = run(
        *(sys.executable, "-m", "pip", "install", *options, "--target", folder, package),
        folder=package,
    )
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a new plugin ``lookup-time``, and return its folder."""
    return new(tmp_path_factory.mktemp("new"), "lookup-time")


@pytest.fixture(scope="module")
def site(made: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install that plugin into a folder, and return the folder."""
    return installed(made, tmp_path_factory.mktemp("site"))


@pytest.mark.nightly
def test_the_skeletons_own_tests_pass(made: Path) -> None:
    """The tests of the skeleton pass."""
    done = run(sys.executable, "-m", "pytest", "-q", "-p", "no:randomly", folder=made)
    assert done.returncode == 0, done.stdout
    assert "3 passed" in done.stdout


@pytest.mark.nightly
def test_it_is_found_and_measures(made: Path, site: Path) -> None:
    """An installed plugin is listed with its distribution, keeps the contract, and measures."""
    listed = run(PARLEY, "plugin", "list", "-o", "json", folder=made.parent, site=site)
    rows = [each for each in json.loads(listed.stdout) if each["name"] == "lookup-time"]
    assert [(each["kind"], each["from"], each["fault"]) for each in rows] == [
        ("test", "parley-lookup-time 0.1.0", None),
        ("tool", "parley-lookup-time 0.1.0", None),
    ]
    done = run(PARLEY, "plugin", "test", "lookup-time", "--run", folder=made.parent, site=site)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "lookup-time keeps the contract" in done.stdout
    assert "answered" in done.stdout
    refused = run(
        *(PARLEY, "plugin", "test", "lookup-time", "--run", "--spec", '{"host": "-x"}'),
        folder=made.parent,
        site=site,
    )
    assert refused.returncode == 2
    assert "host" in refused.stderr


def test_untried_tools_are_marked() -> None:
    """No tool of this program was never tried, which the list would tell as a caveat."""
    listed = plugin("list", "-o", "json")
    caveats = {each["name"]: each["but"] for each in json.loads(listed.out) if each["but"]}
    assert caveats == {}


@pytest.mark.nightly
def test_an_archiver_is_made_that_works(tmp_path: Path) -> None:
    """The archiver of the skeleton passes its tests, is listed, and can be tried."""
    package = new(tmp_path, "kept-rows", "--kind", "archiver")
    done = run(sys.executable, "-m", "pytest", "-q", "-p", "no:randomly", folder=package)
    assert "4 passed" in done.stdout, done.stdout
    site = installed(package, tmp_path / "site")
    listed = run(PARLEY, "plugin", "list", "-o", "json", folder=tmp_path, site=site)
    rows = [each for each in json.loads(listed.stdout) if each["name"] == "kept-rows"]
    assert [(each["kind"], each["from"], each["fault"]) for each in rows] == [
        ("archiver", "parley-kept-rows 0.1.0", None)
    ]
    spec = json.dumps({"path": str(tmp_path / "results.sqlite")})
    tried = run(
        *(PARLEY, "plugin", "test", "kept-rows", "--run", "--spec", spec),
        folder=tmp_path,
        site=site,
    )
    assert tried.returncode == 0, tried.stdout + tried.stderr
    assert "kept-rows keeps the contract" in tried.stdout
    assert "can be written to; nothing was added" in tried.stdout


@pytest.mark.nightly
def test_a_broken_plugin_stops_nothing(tmp_path: Path) -> None:
    """A plugin that cannot be imported, or has a name of ours, is listed with the reason."""
    info = tmp_path / "parley_broken-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: parley-broken\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[parley.tests]\nbroken = parley_broken:TEST\nrtt = parley_broken_not:TEST\n"
        "[parley.tools]\nping = node.plugins.tools.ping:TOOL\n"
        "[parley.archivers]\nfile = node.plugins.archivers.file:ARCHIVER\n"
        "kept = parley_kept:ARCHIVER\n"
    )
    (tmp_path / "parley_broken.py").write_text("raise RuntimeError('no licence found')\n")
    (tmp_path / "parley_kept.py").write_text(
        "from node.plugins.archivers.file import FileArchiver\n"
        "ARCHIVER = FileArchiver()\nARCHIVER.name = 'kept'\n"
    )
    listed = run(PARLEY, "plugin", "list", "-o", "json", folder=tmp_path, site=tmp_path)
    faults = {
        (each["kind"], each["name"]): each["fault"]
        for each in json.loads(listed.stdout)
        if each["from"] == "parley-broken 1.0"
    }
    assert "RuntimeError: no licence found" in faults["test", "broken"]
    assert "cannot be imported: ModuleNotFoundError" in faults["test", "rtt"]
    assert "Parley itself has one called ping" in faults["tool", "ping"]
    assert "Parley itself has one called file" in faults["archiver", "file"]
    assert faults["archiver", "kept"] is None
    spec = json.dumps({"path": str(tmp_path / "results.jsonl")})
    tried = run(
        *(PARLEY, "plugin", "test", "kept", "--run", "--spec", spec), folder=tmp_path, site=tmp_path
    )
    assert tried.returncode == 0, tried.stdout + tried.stderr
    assert "kept keeps the contract" in tried.stdout
    checked = run(PARLEY, "plugin", "test", "ping", folder=tmp_path, site=tmp_path)
    assert "✗ ping of parley-broken can be used\n    Parley itself has one" in checked.stdout
    assert checked.returncode == 1


@pytest.mark.nightly
def test_exceptions_of_plugins_are_reported(tmp_path: Path) -> None:
    """An exception in a summary, a merge or a destination is reported, with exit code 1."""
    info = tmp_path / "parley_silent-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: parley-silent\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[parley.tests]\nsilent = parley_silent:SILENT\nwild = parley_silent:WILD\n"
        "[parley.tools]\nnap = parley_silent:NAP\n[parley.archivers]\npit = parley_silent:PIT\n"
    )
    (tmp_path / "parley_silent.py").write_text(_SILENT)

    def tried(*words: str) -> str:
        done = run(PARLEY, "plugin", "test", *words, folder=tmp_path, site=tmp_path)
        assert (done.returncode, done.stderr) == (1, ""), done.stdout + done.stderr
        return done.stdout

    short = ("--run", "--spec", '{"duration": "PT1S"}')
    assert "it raised KeyError: 'rate'\nsilent: 1 fault to fix" in tried("silent")
    output = tried("silent", *short)
    assert "✓ the result matches its model\n✗ it has a summary" in output
    assert "duration_ms" in output
    assert re.search(
        r"wild raised OSError: gone\n    .*/parley_silent.py, line \d+, in merge",
        tried("wild", *short),
    )
    spec = json.dumps({"path": str(tmp_path / "results.jsonl")})
    assert "✗ pit raised OSError: full\n" in tried("pit", "--run", "--spec", spec)


_SILENT = """
from node.plugins.archivers.file import FileArchiver
from node.plugins.tests.idle import IdleTest
from node.plugins.tools.sleep import SleepTool

class Silent(IdleTest):
    name = "silent"

    def summary(self, result):
        return f"{result['rate']} b/s"

class Wild(IdleTest):
    name = "wild"

    def merge(self, spec, parts):
        raise OSError("gone")

class Nap(SleepTool):
    name = "nap"
    tests = ("silent", "wild")

class Pit(FileArchiver):
    name = "pit"

    def open(self, spec, host):
        raise OSError("full")

SILENT, WILD, NAP, PIT = Silent(), Wild(), Nap(), Pit()
"""


def test_a_client_that_is_not_installed_is_listed_as_lacking(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An archiver whose extra is missing is listed with how to install it."""
    monkeypatch.setattr("node.results.archivers.find_spec", lambda _: None)
    done = CliRunner().invoke(parley, ["plugin", "list", "-o", "json"], catch_exceptions=False)
    faults = {each["name"]: each["fault"] for each in json.loads(done.stdout)}
    assert install_command("kafka") in faults["kafka"]
    assert faults["file"] is None


def test_the_readme_of_a_plugin_can_be_followed(made: Path) -> None:
    """The README of the skeleton has a valid command, and its tests' requirements are declared."""
    readme = (made / "README.md").read_text()
    [words] = re.findall(r"`parley task create ([^`]*)`", readme)
    context = task_group.commands["create"].make_context("create", words.split())
    assert context.params["test"] == "lookup-time"
    assert "'.[test]'" in readme
    assert 'test = ["pytest"]' in (made / "pyproject.toml").read_text()


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("rtt", "rtt exists already"),
        ("kafka", "kafka exists already"),
        ("Übermess", "characters other than"),
        ("../x", "characters other than"),
    ],
)
def test_invalid_names(tmp_path: Path, name: str, words: str) -> None:
    """A name that is taken or invalid is refused before anything is written."""
    with contextlib.chdir(tmp_path):
        done = plugin("new", name)
    assert done.code == 2
    assert words in done.err
    assert list(tmp_path.iterdir()) == []


def test_a_folder_with_something_in_it_is_left_alone(tmp_path: Path) -> None:
    """A folder that is not empty is refused."""
    (tmp_path / "mine.txt").write_text("keep")
    done = plugin("new", "fresh", "--directory", tmp_path)
    assert done.code == 2
    assert "is not empty" in done.err


def test_unknown_plugins() -> None:
    """An unknown name is refused with the known ones."""
    done = plugin("test", "astrology")
    assert done.code == 6
    assert re.search(r"choose one of: .*\bidle,", done.err)


@pytest.mark.nightly
def test_ours_can_be_tried_too() -> None:
    """A test with two participants runs both parts here."""
    spec = json.dumps({"dest": "b.example", "count": 20, "interval": "PT0.01S"})
    done = plugin("test", "latency", "--run", "--spec", spec)
    assert done.code == 0, done.out + done.err
    assert "loss 0 % / 0 %" in done.out


@pytest.mark.nightly
def test_one_that_gives_a_result_each_interval_can_be_tried() -> None:
    """The intervals of a streaming test are merged when it has ended."""
    spec = json.dumps({"interface": "lo", "duration": "PT2S", "each": "PT1S"})
    done = plugin("test", "interface", "--run", "--spec", spec)
    assert done.code == 0, done.out + done.err
    assert "lo: " in done.out
    assert re.search(r"^ +intervals +2$", done.out, re.MULTILINE), done.out
