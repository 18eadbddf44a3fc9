"""The table of the seeds names sets of policies, modules, and tests that exist."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from lead.policy.sets import SETS
from lead.policy.settings import configured_set
from node.model.policysets import ALIASES, COMMON_OPTIONS, parsed
from tests.architecture.sources import REPOSITORY

PAGE = REPOSITORY / "lead" / "policy" / "SEEDS.md"
ROW = re.compile(r"\| (\d+) \|")
QUOTED = re.compile(r"`([^`]+)`")
COLUMNS = 7
STATEMENTS = 103 + 1 + 7 + 12
"""Number of statements: of the seeds, one that no list had, of what Parley was built of, and of
other coordinators."""
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
    modules, tests = QUOTED.findall(row[3]), QUOTED.findall(row[4])
    assert modules
    assert tests
    assert [name for name in modules if not any((base / name).is_file() for base in BASES)] == []
    named = [test.partition("::") for test in tests]
    missing = [test for file, _, test in named if test not in _tests(REPOSITORY / "tests" / file)]
    assert missing == []
    assert row[5] == "W" or (row[5] in {"A", "D"} and row[6])


@pytest.mark.parametrize("row", rows(), ids=lambda row: row[1])
def test_each_statement_has_its_set(row: list[str]) -> None:
    """Each row names sets and options that a pool can have, unless all sets do what it states."""
    recipes = [parsed(written) for written in QUOTED.findall(row[2])]
    assert bool(recipes) is (row[2] != "all")
    for recipe in recipes:
        configured_set(recipe.set, options=recipe.options)
        assert recipe.set in SETS


def test_no_statement_is_lost() -> None:
    """All statements of the five seeds are there, and of what Parley was to be built of."""
    assert len(rows()) == STATEMENTS


def test_each_former_set_is_a_recipe_of_the_table() -> None:
    """The table has what each of the former sets adds, by the same set and options."""
    listed = [parsed(it) for row in rows() for it in QUOTED.findall(row[2])]
    for recipe in ALIASES.values():
        for option in recipe.options.items():
            names = [it for it in listed if it.set == recipe.set and option[0] in it.options]
            assert names or option[0] in COMMON_OPTIONS, (recipe, option)
