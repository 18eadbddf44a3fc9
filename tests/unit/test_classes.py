"""The scheduling classes; the table in the module's docstring is the rule."""

from __future__ import annotations

import re
from itertools import product
from pathlib import Path

import pytest

from node.model import classes
from node.model.classes import SchedulingClass, blockers


def documented() -> dict[tuple[SchedulingClass, SchedulingClass], bool]:
    """Return which class may overlap which, according to the table in the module's docstring."""
    assert classes.__doc__ is not None
    lines = classes.__doc__.splitlines()
    rules = [number for number, line in enumerate(lines) if line.startswith("===")]
    columns = [SchedulingClass(word) for word in lines[rules[0] + 1].split()[3:]]
    rows = [line.split() for line in lines[rules[1] + 1 : rules[2]]]
    return {
        (SchedulingClass(row), column): word == "yes"
        for row, *words in rows
        for column, word in zip(columns, words, strict=True)
    }


@pytest.mark.parametrize(("left", "right"), list(product(SchedulingClass, repeat=2)))
def test_the_documented_table_is_the_rule(left: SchedulingClass, right: SchedulingClass) -> None:
    """A class blocks another exactly where the table says that they may not overlap."""
    assert (right in blockers(left)) is not documented()[left, right]


@pytest.mark.parametrize(("left", "right"), list(product(SchedulingClass, repeat=2)))
def test_conflicts_are_mutual(left: SchedulingClass, right: SchedulingClass) -> None:
    """If one class blocks another, the other blocks it as well."""
    assert (left in blockers(right)) == (right in blockers(left))


def test_the_classes_are_those_of_the_schema() -> None:
    """The SQL enum has the same classes in the same order."""
    schema = (Path(__file__).parents[2] / "schema.sql").read_text("utf-8")
    found = re.search(r"CREATE TYPE scheduling_class AS ENUM \(([^)]*)\)", schema)
    assert found is not None
    assert re.findall(r"'([a-z-]+)'", found[1]) == list(SchedulingClass)
