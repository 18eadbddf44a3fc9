"""The table of the seeds names modules and tests that exist."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from tests.architecture.sources import REPOSITORY

PAGE = REPOSITORY / "lead" / "policy" / "SEEDS.md"
ROW = re.compile(r"\| (\d+) \|")
QUOTED = re.compile(r"`([^`]+)`")
COLUMNS = 6
BASES = [PAGE.parent, REPOSITORY, REPOSITORY / "lead", REPOSITORY / "node"]


def rows() -> list[list[str]]:
    """Return the cells of each row that states something."""
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    return [
        [cell.strip() for cell in line.strip("|").split(" | ")] for line in lines if ROW.match(line)
    ]


@cache
def _tests(path: Path) -> set[str]:
    """Return the names of the tests of a module; none if it does not exist."""
    if not path.exists():
        return set()
    tree = ast.parse(path.read_text(encoding="utf-8"))
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    return {part.name for part in tree.body if isinstance(part, functions)}


@pytest.mark.parametrize("row", rows(), ids=lambda row: row[1])
def test_each_statement_has_its_place(row: list[str]) -> None:
    """Each row names existing modules, existing tests, and a reason unless it works as stated."""
    assert len(row) == COLUMNS, row
    modules, tests = QUOTED.findall(row[2]), QUOTED.findall(row[3])
    assert modules
    assert tests
    assert [name for name in modules if not any((base / name).is_file() for base in BASES)] == []
    named = [test.partition("::") for test in tests]
    missing = [test for file, _, test in named if test not in _tests(REPOSITORY / "tests" / file)]
    assert missing == []
    assert row[4] == "W" or (row[4] in {"A", "D"} and row[5])
