"""The documentation builds without a warning, and its reference has what the program has."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from docs.generator.pages import PARTS
from node.api.app import ROUTES
from node.api.problem_types import PROBLEM_TYPES
from node.cli.commands import COMMANDS
from node.model.permissions import Access
from node.runtime.settings import Settings
from tests.architecture.sources import REPOSITORY


@pytest.mark.timeout(180)
@pytest.mark.nightly
def test_it_builds_without_a_warning(tmp_path: Path) -> None:
    """Sphinx builds each page; a link to a page or a heading that is not there is an error."""
    options = ["--quiet", "--fail-on-warning", "--keep-going", "--builder", "html"]
    folders = [str(REPOSITORY / "docs"), str(tmp_path)]
    argv = [sys.executable, "-m", "sphinx", *options, *folders]
    built = subprocess.run(argv, check=False, capture_output=True, text=True, cwd=REPOSITORY)
    assert (built.returncode, built.stderr) == (0, "")
    assert "tutorial.html" in (tmp_path / "index.html").read_text()
    for name in COMMANDS:
        page = (tmp_path / "generated" / "commands" / f"{name}.html").read_text()
        assert f"parley {name}" in page
    assert "PARLEY_HOLD_LIFE" in (tmp_path / "reference" / "settings.html").read_text()


def test_the_reference_is_complete() -> None:
    """Every setting, every operation for users, and every problem has its place."""
    settings = {f"`PARLEY_{name.upper()}`" for name in Settings.model_fields}
    operations = {f"`{route.operation}`" for route in ROUTES if route.access is not Access.PEER}
    problems = {f"## {code}\n" for code in PROBLEM_TYPES}
    for part, expected in (
        ("settings", settings),
        ("operations", operations),
        ("problems", problems),
    ):
        text = PARTS[part]()
        assert {words for words in expected if words not in text} == set()
