"""The source files of the product and the tests, with their names."""

from __future__ import annotations

import ast
import gc
from collections.abc import Iterator
from functools import cache
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
PRODUCT = ("node", "lead")


def files(*folders: str) -> list[Path]:
    """Return every Python file below these folders of the repository, sorted."""
    return sorted(path for folder in folders for path in (REPOSITORY / folder).rglob("*.py"))


def parsed(*folders: str) -> Iterator[tuple[str, ast.Module]]:
    """Yield every file below these folders: its path in the repository and its syntax tree."""
    for folder in folders:
        yield from _trees(folder)


@cache
def _trees(folder: str) -> list[tuple[str, ast.Module]]:
    """Parse the files of a folder, once for all tests: that takes most of their time."""
    # Nothing of a new tree is garbage; looking for some takes twice as long as parsing.
    collects = gc.isenabled()
    gc.disable()
    try:
        return [
            (where(path), ast.parse(path.read_text(), filename=str(path))) for path in files(folder)
        ]
    finally:
        if collects:
            gc.enable()


@cache
def nodes(tree: ast.Module) -> tuple[ast.AST, ...]:
    """Return all nodes of a file's syntax tree."""
    return tuple(ast.walk(tree))


def where(path: Path) -> str:
    """Return a file's path in the repository."""
    return path.relative_to(REPOSITORY).as_posix()


def module_name(path: Path) -> str:
    """Return the module name of a file: ``node/model/__init__.py`` is ``node.model``."""
    parts = path.relative_to(REPOSITORY).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def functions(tree: ast.Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Yield every function and method in a tree, however deep."""
    for node in nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def dotted(node: ast.AST) -> str:
    """Return a dotted name as written, such as ``asyncio.sleep``, or "" for other expressions."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and (owner := dotted(node.value)):
        return f"{owner}.{node.attr}"
    return ""
