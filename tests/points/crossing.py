"""Functions of the program, compiled anew so that they report each await point that they cross.

``await x`` becomes ``await __cross__(number, x)``, and ``async with`` and ``async for`` likewise.
The code of the functions that exist is exchanged, and put back at the end: nothing is imported
again, and nobody who holds such a function notices. Nothing else changes, least of all the order in
which tasks run: a crossing suspends only the process that dies there.
"""

from __future__ import annotations

import ast
import asyncio
import contextlib
import gc
import importlib
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager
from enum import StrEnum
from functools import lru_cache
from types import CodeType, FunctionType, TracebackType
from typing import Any, TypeVar

from tests.points.scope import REPOSITORY, Kind, Point, awaited, files, parsed

T = TypeVar("T")


class Phase(StrEnum):
    """The side of a point: before or after what is awaited has happened."""

    BEFORE = "before"
    AFTER = "after"


Arrived = Callable[[int, Phase], bool]
"""Called at each crossing with the number of the point (:func:`numbered`).

Returns whether the process has just died there.
"""


class Crossings:
    """The functions that the rewritten code calls."""

    def __init__(self, arrived: Arrived) -> None:
        """Report to ``arrived``."""
        self._arrived = arrived

    async def cross(self, number: int, awaiting: Awaitable[T]) -> T:
        """Await in the place of the program."""
        await self.arrive(number, Phase.BEFORE)
        answered = await awaiting
        await self.arrive(number, Phase.AFTER)
        return answered

    def within(self, number: int, manager: AbstractAsyncContextManager[T]) -> _Within[T]:
        """Return a context manager that reports its beginning and its end."""
        return _Within(self, number, manager)

    async def with_session(self, number: int, items: AsyncIterator[T]) -> AsyncIterator[T]:
        """Yield the items, and report each."""
        await self.arrive(number, Phase.BEFORE)
        async for item in items:
            await self.arrive(number, Phase.AFTER)
            yield item
            await self.arrive(number, Phase.BEFORE)

    async def arrive(self, number: int, phase: Phase) -> None:
        """Report a crossing; in a process that died here, wait until its tasks are cancelled."""
        if self._arrived(number, phase):
            await asyncio.get_running_loop().create_future()


class _Within(AbstractAsyncContextManager[T]):
    def __init__(
        self, crossings: Crossings, number: int, manager: AbstractAsyncContextManager[T]
    ) -> None:
        self._crossings = crossings
        self._enter, self._exit = number, number + 1
        self._manager = manager

    async def __aenter__(self) -> T:
        await self._crossings.arrive(self._enter, Phase.BEFORE)
        entered = await self._manager.__aenter__()
        try:
            await self._crossings.arrive(self._enter, Phase.AFTER)
        except BaseException as error:
            await self._manager.__aexit__(type(error), error, error.__traceback__)
            raise
        return entered

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool | None:
        try:
            await self._crossings.arrive(self._exit, Phase.BEFORE)
        except BaseException as death:
            await self._manager.__aexit__(type(death), death, death.__traceback__)
            raise
        swallowed = await self._manager.__aexit__(kind, error, trace)
        await self._crossings.arrive(self._exit, Phase.AFTER)
        return swallowed


_SUSPENDING = inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
_CALLED = {Kind.AWAIT: "__cross__", Kind.ENTER: "__within__", Kind.NEXT: "__through__"}


class _Rewriter(ast.NodeTransformer):
    """Puts a call around each expression that is awaited, entered, or iterated."""

    def __init__(self, tree: ast.Module, file: str, first: int) -> None:
        self.numbered: dict[int, Point] = {}
        self._calls: dict[ast.expr, tuple[str, int]] = {}
        for named in awaited(tree, file):
            number = first + len(self.numbered)
            self._calls[named.expression] = (_CALLED[named.points[0].kind], number)
            self.numbered.update(enumerate(named.points, number))

    def visit(self, node: ast.AST) -> Any:
        """Rewrite the parts first: an awaited expression may await others."""
        visited = self.generic_visit(node)
        if not isinstance(node, ast.expr) or node not in self._calls:
            return visited
        name, number = self._calls[node]
        call = ast.Call(ast.Name(name, ast.Load()), [ast.Constant(number), node], [])
        return ast.fix_missing_locations(ast.copy_location(call, node))


_Place = tuple[str, str, int]
"""A function: its file, qualified name, and first line."""


@lru_cache(maxsize=1)
def _rewritten() -> tuple[dict[_Place, CodeType], dict[int, Point]]:
    """Return the rewritten code of all functions in scope, and the points by number."""
    codes: dict[_Place, CodeType] = {}
    numbered: dict[int, Point] = {}
    for file in files():
        path = REPOSITORY / file
        tree = parsed(file)
        rewriter = _Rewriter(tree, file, len(numbered))
        module = compile(rewriter.visit(tree), path, "exec", dont_inherit=True)
        numbered |= rewriter.numbered
        codes |= {_place(code): code for code in _codes(module) if _suspends(code)}
    return codes, numbered


def numbered() -> Mapping[int, Point]:
    """Return the points by the numbers that stand in the rewritten code."""
    return _rewritten()[1]


def _codes(code: CodeType) -> Iterator[CodeType]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            yield from _codes(constant)


def _place(code: CodeType) -> _Place:
    return code.co_filename, code.co_qualname, code.co_firstlineno


def _suspends(code: CodeType) -> bool:
    """Return whether a function, or one inside it, has await points."""
    return bool(code.co_flags & _SUSPENDING) or any(_suspends(inner) for inner in _codes(code))


@lru_cache(maxsize=1)
def _functions() -> list[tuple[FunctionType, CodeType, CodeType]]:
    """Return the functions to be exchanged, each with its code as written and as rewritten."""
    for file in files():
        importlib.import_module(
            file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        )
    codes, _ = _rewritten()
    return [
        (it, it.__code__, codes[_place(it.__code__)])
        for it in gc.get_objects()
        if isinstance(it, FunctionType) and _place(it.__code__) in codes
    ]


@contextlib.contextmanager
def watched(arrived: Arrived) -> Iterator[None]:
    """Report all crossings inside the block."""
    crossings = Crossings(arrived)
    called = {
        "__cross__": crossings.cross,
        "__within__": crossings.within,
        "__through__": crossings.with_session,
    }
    for function, _, rewritten in _functions():
        function.__code__ = rewritten
        function.__globals__.update(called)
    try:
        yield
    finally:
        for function, written, _ in _functions():
            function.__code__ = written
            for name in called:
                function.__globals__.pop(name, None)
