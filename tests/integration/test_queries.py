"""The named queries on a real server."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Collection, Iterator, Mapping, Sequence
from dataclasses import is_dataclass
from decimal import Decimal
from enum import EnumType
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from inspect import getfullargspec, isfunction
from itertools import chain, zip_longest
from pathlib import Path
from types import GenericAlias, NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints
from uuid import UUID

import asyncpg
import pytest
import pytest_asyncio

from node.store.queries import PostgresConnection, Queries
from tests.conftest import Lender
from tests.support.worlds import ON_ONE_LOOP

ROOT = Path(__file__).parents[2]
FILES = sorted(chain(ROOT.glob("node/store/sql/*.sql"), ROOT.glob("lead/store/sql/*.sql")))


@pytest_asyncio.fixture(scope="module", loop_scope="session", name="connection")
async def _connection(lender: Lender) -> AsyncIterator[PostgresConnection]:
    """Return one connection for all: nothing here changes the database."""
    database = await lender.lend(1)
    async with database.connection() as connection:
        yield connection
    await lender.take_back(database)


def _package(file: Path) -> str:
    return ".".join(file.relative_to(ROOT).parts[:2])


@pytest.mark.parametrize("file", FILES, ids=lambda file: f"{_package(file)}:{file.stem}")
@ON_ONE_LOOP
@pytest.mark.mostly_nightly
async def test_every_query_prepares(connection: PostgresConnection, file: Path) -> None:
    """Postgres accepts each named query with its tables, columns and types."""
    queries = Queries(_package(file), file.stem).items()
    assert queries
    for _, query in queries:
        await connection.prepare(query)


@pytest.mark.parametrize("file", FILES, ids=lambda file: f"{_package(file)}:{file.stem}")
def test_every_query_is_used(file: Path) -> None:
    """Every query in the files is used by the Python modules beside them."""
    folder = ROOT / _package(file).replace(".", "/")
    python = "".join(path.read_text("utf-8") for path in folder.glob("*.py"))
    texts = re.findall(r"(?:_SQL|queries)\[[^\]]+\]", python)
    declared = re.findall(r"_SQL\.\w+\(\s*\"\w+\"", python)
    used = set(re.findall(r'"(\w+)"', "".join(texts + declared)))
    names = {name for name, _ in Queries(_package(file), file.stem).items()}
    assert names - used == set()


_ACCEPTED: dict[Any, set[str]] = {
    bool: {"bool"},
    int: {"int2", "int4", "int8", "timestamptz", "interval"},
    str: {"text", "name", "json"},
    UUID: {"uuid"},
    Decimal: {"numeric"},
    float: {"float8"},
    dict: {"jsonb"},
    list: {"jsonb"},
    Mapping: {"jsonb"},
}
"""The types of Postgres whose values asyncpg reads and writes as values of a type."""


def _fits(annotation: Any, found: asyncpg.Type) -> bool:
    """Return whether values of a type of Postgres are what an annotation says."""
    if get_origin(annotation) in {Union, UnionType}:
        return any(_fits(each, found) for each in get_args(annotation))
    if annotation is Any or get_origin(annotation) is tuple:
        return True
    kind = get_origin(annotation) or annotation
    if found.kind == "array":
        return kind in {list, Sequence, Collection}
    if isinstance(kind, EnumType) or get_origin(annotation) is Literal:
        kind = str
    return found.name in _ACCEPTED.get(kind, set()) or (kind is str and found.schema == "public")


def _spread(annotation: Any) -> Iterator[Any]:
    """Return the types of the arguments of a query for which one value is given."""
    if is_dataclass(annotation):
        yield from get_type_hints(annotation).values()
    elif get_origin(annotation) is Mapping:
        yield from (GenericAlias(list, each) for each in get_args(annotation))
    else:
        yield annotation


def _columns(kind: str, returned: Any, make: Any) -> list[Any]:
    """Return the types of the columns from which a declared function makes what it returns."""
    inner = [each for each in get_args(returned) if each is not NoneType]
    if kind == "value":
        return [returned]
    if kind in {"column", "distinct", "by_key"}:
        return inner
    key, made = ([], returned) if kind == "only_row" else (inner[:-1], inner[-1])
    if kind == "lists_by_key":
        [made] = get_args(made)
    if get_origin(made) is tuple:
        return [*key, *get_args(made)]
    if made is str:
        return [*key, made]
    hints = get_type_hints(vars(make).get("__init__", make))
    return [*key, *(hint for name, hint in hints.items() if name != "return")]


def _declared() -> Iterator[Any]:
    """Return each function that the stores declare, and its type, by its name."""
    for name in (f"{_package(file)}.{file.stem}" for file in FILES):
        module = vars(import_module(name)) if find_spec(name) else {}
        for word, function in module.items():
            if isinstance(function, partial):
                annotations = {word: module["__annotations__"][word]}
                holder = type(word, (), {"__annotations__": annotations, "__module__": name})
                yield pytest.param(function, get_type_hints(holder)[word], id=f"{name}.{word}")


@pytest.mark.parametrize(("function", "declared"), list(_declared()))
@ON_ONE_LOOP
@pytest.mark.mostly_nightly
async def test_a_declared_function_has_the_types_of_its_query(
    connection: PostgresConnection, function: Any, declared: Any
) -> None:
    """A declaration takes what Postgres takes for its query, and what that returns fits."""
    (_, *taken), coroutine = get_args(declared)
    if function.func.__name__ == "_spread":
        [function], taken = function.args, [each for one in taken for each in _spread(one)]
    query, *make = function.args
    statement = await connection.prepare(query)
    parameters, columns = statement.get_parameters(), statement.get_attributes()
    assert len(taken) == len(parameters)
    for annotation, found in zip(taken, parameters, strict=True):
        assert _fits(annotation, found), (annotation, found)
    kind = function.func.__name__.removeprefix("_")
    if kind not in {"execute", "finds", "records", "record"}:
        wanted = _columns(kind, get_args(coroutine)[2], *make or [None])
        if make and isfunction(make[0]) and getfullargspec(make[0]).varargs:
            wanted += [Any] * (len(columns) - len(wanted))
        for annotation, column in zip_longest(wanted, columns):
            assert _fits(annotation, column.type), (annotation, column)
