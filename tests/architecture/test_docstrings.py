"""Docstrings are sentences or noun phrases of plain English."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from tests.architecture.sources import nodes, parsed

OPENING = re.compile(
    r"(Who|Whom|Whose|Whoever|What|Whatever|Which|Whether|How|Why|When|Where|That|Those|So|As|Of"
    r"|It is)\b"
)
"""A docstring that opens so is a fragment, or a sentence whose subject comes last."""


def _docstrings(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield the docstrings of a module with their lines, also those below assignments."""
    for node in nodes(tree):
        body = getattr(node, "body", None)
        if not isinstance(body, list):
            continue
        documented = isinstance(
            node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
        )
        before = [None, *body]
        for previous, statement in zip(before, body, strict=False):
            if (
                isinstance(statement, ast.Expr)
                and isinstance(statement.value, ast.Constant)
                and isinstance(statement.value.value, str)
                and (documented if previous is None else isinstance(previous, _ASSIGNMENTS))
            ):
                yield statement.lineno, statement.value.value.strip()


_ASSIGNMENTS = (ast.Assign, ast.AnnAssign)


def test_docstrings_begin_with_a_verb_or_a_noun() -> None:
    """A docstring says what something is or does, and does not open with a relative clause."""
    fragments = [
        f"{path}:{line} {text.splitlines()[0]}"
        for path, tree in parsed("node", "lead", "tests", "deploy")
        for line, text in _docstrings(tree)
        if OPENING.match(text)
    ]
    assert fragments == []
