"""Tests with unmet needs are skipped and counted; a run of pytest in a folder shows it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from deploy.packages import NEEDS
from tests.support.needs import closing

ROOT = Path(__file__).parents[2]

CONFTEST = """
import pytest
from deploy import packages
from tests.support.needs import fixture_needs

pytest_plugins = ["tests.support.needs"]
HERE = {"jq", "curl"}
for name in packages.NEEDS:
    packages.NEEDS[name] = packages.Need(name, lambda name=name: name in HERE)

@pytest.fixture
@fixture_needs("prometheus")
def server():
    raise AssertionError("nothing of it is started")
"""
TESTS = """
import pytest

@pytest.mark.needs("jq", "curl")
def test_here(): pass

@pytest.mark.needs("jq", "scamper", "mtr")
def test_two_missing(): raise AssertionError

def test_fixture(server): raise AssertionError

@pytest.mark.parametrize("tool", ["own", pytest.param("mtr", marks=pytest.mark.needs("mtr"))])
def test_parameter(tool): assert tool == "own"
"""


def run(folder: Path, *options: str, tests: str = TESTS) -> subprocess.CompletedProcess[str]:
    """Run pytest in a folder where only jq and curl count as installed."""
    (folder / "conftest.py").write_text(CONFTEST)
    (folder / "test_some.py").write_text(tests)
    argv = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-c", "/dev/null"]
    argv += [f"--rootdir={folder}", *options, str(folder)]
    environment = {"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"}
    return subprocess.run(
        argv, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize("options", [(), ("--numprocesses", "2")], ids=["alone", "workers"])
@pytest.mark.nightly
def test_what_is_missing_is_counted_in_the_last_line(
    tmp_path: Path, options: tuple[str, ...]
) -> None:
    """The run succeeds; the reasons for skipped tests follow pytest's own last line."""
    finished = run(tmp_path, *options)
    *_, own, last = finished.stdout.splitlines()
    assert finished.returncode == 0, finished.stdout + finished.stderr
    assert re.search(r"= 2 passed, 3 deselected.* in [\d.]+s =", own)
    assert last == "2 passed, 3 not run: mtr missing (2), prometheus missing (1)"


@pytest.mark.nightly
def test_without_anything_missing_the_last_line_is_pytests(tmp_path: Path) -> None:
    """Without skipped tests the last line is pytest's own."""
    finished = run(tmp_path, tests="def test_one(): pass")
    assert re.search(r"= 1 passed.* in [\d.]+s =", finished.stdout.splitlines()[-1])


@pytest.mark.nightly
def test_a_failure_stays_one(tmp_path: Path) -> None:
    """A skipped test hides no failure, neither in the exit code nor in the last line."""
    finished = run(tmp_path, tests=f"{TESTS}\ndef test_wrong(): assert False")
    assert finished.returncode == 1
    assert finished.stdout.splitlines()[-1].startswith("2 passed, 1 failed, 3 not run: ")


@pytest.mark.nightly
def test_a_need_that_nobody_knows_is_an_error(tmp_path: Path) -> None:
    """An unknown need is a usage error."""
    tests = 'import pytest\n@pytest.mark.needs("promtheus")\ndef test_one(): pass'
    finished = run(tmp_path, tests=tests)
    assert finished.returncode == pytest.ExitCode.USAGE_ERROR
    assert "no need called promtheus" in finished.stderr


def test_numbers_are_written_for_people() -> None:
    """Thousands have separators, and the most frequent reason comes first."""
    counts = {"prometheus missing": 12, "jq missing": 70}
    assert closing(5298, 0, counts) == (
        "5,298 passed, 82 not run: jq missing (70), prometheus missing (12)"
    )


def test_every_need_has_a_package() -> None:
    """Every need can be checked, and its package has a valid name for apt-get."""
    for need in NEEDS.values():
        assert need.present() in {True, False}
        assert re.fullmatch(r"[a-z0-9.+-]+", need.package)
