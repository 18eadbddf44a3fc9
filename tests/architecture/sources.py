"""Where the product's and the tests' source files are, and what they are called."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
PRODUCT = ("node", "lead")


def files(*folders: str) -> list[Path]:
    """Every Python file below these folders of the repository, sorted."""
    found = (path for folder in folders for path in (REPOSITORY / folder).rglob("*.py"))
    return sorted(found)


def parsed(*folders: str) -> Iterator[tuple[str, ast.Module]]:
    """Every file below these folders as its path in the repository and its syntax tree."""
    for path in files(*folders):
        yield where(path), _tree(path)


@cache
def _tree(path: Path) -> ast.Module:
    """A file's syntax tree, parsed once for all tests: that takes most of their time."""
    return ast.parse(path.read_text(), filename=str(path))


def where(path: Path) -> str:
    """A file as a reader of this repository names it."""
    return path.relative_to(REPOSITORY).as_posix()


def module_name(path: Path) -> str:
    """``node/model/__init__.py`` as ``node.model``."""
    parts = path.relative_to(REPOSITORY).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def functions(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Every function and method in a tree, however deep."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def dotted(node: ast.AST) -> str:
    """``asyncio.sleep`` as written, or an empty string for what is not a dotted name."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and (owner := dotted(node.value)):
        return f"{owner}.{node.attr}"
    return ""
