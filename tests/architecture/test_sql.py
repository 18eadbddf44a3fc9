"""SQL lives in .sql files, where it has a name, a reason, and a test that prepares it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest

from tests.architecture.sources import PRODUCT, nodes, parsed

STATEMENT = re.compile(
    r"""\s*(
        select\s+(.+\sfrom\s|\w+\(|\d)
      | insert\s+into\s
      | update\s+\S+\s+set\s
      | delete\s+from\s
      | (create|drop|alter)\s+(or\s+replace\s+)?
        (database|domain|extension|function|index|role|schema|table|type|user|view)\b
      | with\s+\w+\s+as\s*\(
      | (listen|notify)\s+[a-z_]+\s*;?\s*$
    )""",
    re.IGNORECASE | re.VERBOSE | re.DOTALL,
)


def prose(tree: ast.Module) -> set[int]:
    """Return the ids of docstrings, which may contain phrases such as "create a task"."""
    return {
        id(node.value)
        for node in nodes(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }


def statements(tree: ast.Module) -> Iterator[ast.Constant]:
    """Yield the strings in a module that Postgres would understand."""
    spoken = prose(tree)
    for node in nodes(tree):
        if (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and id(node) not in spoken
            and STATEMENT.match(node.value)
        ):
            yield node


def test_no_sql_in_python() -> None:
    """No string in node or lead is an SQL statement."""
    found = [
        f"{path}:{node.lineno} {str(node.value)[:60]!r}"
        for path, tree in parsed(*PRODUCT)
        for node in statements(tree)
    ]
    assert found == []


@pytest.mark.parametrize(
    "text",
    [
        "SELECT id FROM run",
        "select pg_notify($1, $2)",
        "\n  INSERT INTO run (id) VALUES ($1)",
        "update run set state = $1",
        "CREATE DATABASE ",
        "with due as (select 1) select 2",
        "LISTEN planned",
    ],
)
def test_sql_is_recognised(text: str) -> None:
    """Statements are recognised in any form, including the first piece of an f-string."""
    assert list(statements(ast.parse(f"query = {text!r}"))) != []


@pytest.mark.parametrize(
    "text", ["Listen beyond loopback.", "Update the task", "Select a tool", "delete", "listen"]
)
def test_words_are_not_mistaken_for_sql(text: str) -> None:
    """A sentence that begins with a verb of SQL is not an SQL statement."""
    assert list(statements(ast.parse(f"help = {text!r}"))) == []
