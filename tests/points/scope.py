"""The await points of what books, found in the source.

An await point is a place at which a coroutine may be suspended, and therefore a place at which the
rest of the world sees what it has done so far. An ``async with`` has two: its beginning and its
end, which for a transaction is the commit.
"""

from __future__ import annotations

import ast
import gc
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]

SCOPE = (
    "lead/exchange/*.py",
    "lead/pool/*.py",
    "lead/assembly/lead.py",
    "node/runtime/batching.py",
    "node/execution/forwarder.py",
    "node/execution/intervals.py",
    "node/execution/launcher.py",
    "node/execution/parts.py",
    "node/journal/outbox.py",
    "node/tasks/*.py",
    "node/timetable/*.py",
)
"""The modules that book, and those that run and collect what was booked.

Stores are not in it: each of their statements lies between two points of their callers, in a
transaction whose commit is such a point, or is the only one that its caller awaits.
"""


class Kind(StrEnum):
    """The forms of an await point."""

    AWAIT = "await"
    ENTER = "async with"
    EXIT = "end of async with"
    NEXT = "async for"


@dataclass(frozen=True, order=True)
class Point:
    """One await point: where it is, in which function, and its form."""

    file: str
    line: int
    column: int
    kind: Kind
    inside: str

    def __str__(self) -> str:
        """Return ``file:line function (form)``, with the column that tells two of a line apart."""
        return f"{self.file}:{self.line}:{self.column} {self.inside} ({self.kind})"


@dataclass(frozen=True)
class Named:
    """An expression of the source that is awaited, entered, or iterated, with its points."""

    expression: ast.expr
    points: tuple[Point, ...]


def files() -> list[str]:
    """Return the files in scope, relative to the repository."""
    found = {path for pattern in SCOPE for path in REPOSITORY.glob(pattern)}
    return sorted(path.relative_to(REPOSITORY).as_posix() for path in found)


@cache
def points() -> Sequence[Point]:
    """Return all await points in scope, in the order of files and lines."""
    return sorted(
        point for file in files() for named in awaited(parsed(file), file) for point in named.points
    )


def parsed(file: str) -> ast.Module:
    """Parse a file.

    No garbage is collected meanwhile: coroutines that are finalised while CPython 3.11 converts a
    tree confuse its count of the recursion depth, and it raises a SystemError.
    """
    text = (REPOSITORY / file).read_text("utf-8")
    collecting = gc.isenabled()
    gc.disable()
    try:
        return ast.parse(text)
    finally:
        if collecting:
            gc.enable()


def awaited(tree: ast.AST, file: str, inside: Sequence[str] = ()) -> Iterator[Named]:
    """Yield what is awaited, entered, or iterated below ``tree``."""
    for node in ast.iter_child_nodes(tree):
        yield from _named(node, file, ".".join(inside))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield from awaited(node, file, (*inside, node.name))
        else:
            yield from awaited(node, file, inside)


def _named(node: ast.AST, file: str, inside: str) -> Iterator[Named]:
    def of(place: ast.expr, expression: ast.expr, *kinds: Kind) -> Named:
        at = (file, place.lineno, place.col_offset + 1)
        return Named(expression, tuple(Point(*at, kind, inside) for kind in kinds))

    if isinstance(node, ast.Await):
        yield of(node, node.value, Kind.AWAIT)
    elif isinstance(node, ast.AsyncWith):
        for item in node.items:
            yield of(item.context_expr, item.context_expr, Kind.ENTER, Kind.EXIT)
    elif isinstance(node, ast.AsyncFor) or (isinstance(node, ast.comprehension) and node.is_async):
        yield of(node.iter, node.iter, Kind.NEXT)
