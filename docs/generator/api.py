"""The operations of the API, from the OpenAPI document, and the problems, from the errors."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import Any

from docs.generator.markdown import code, page, plain, table
from node.api.app import ROUTES
from node.api.openapi import openapi_document
from node.api.problem_types import PROBLEM_TYPES, ProblemType
from node.runtime.version import program_version

_METHODS = ("get", "post", "put", "patch", "delete")


def operations() -> str:
    """Return a section for each resource, with a table of its operations."""
    paths: dict[str, dict[str, Any]] = openapi_document(ROUTES, program_version())["paths"]
    found = sorted(
        (_resource(path), path, method, item[method])
        for path, item in paths.items()
        for method in _METHODS
        if method in item
    )
    return page(
        *(
            page(f"### {resource}", _table(rows))
            for resource, rows in groupby(found, key=lambda row: row[0])
        )
    )


def _resource(path: str) -> str:
    words = path.strip("/").split("/")
    return words[1] if words[0] == "v1" and len(words) > 1 else "others"


def _table(rows: Iterator[tuple[str, str, str, dict[str, Any]]]) -> str:
    return table(
        ("operation", "role", "parameters", ""),
        (
            (
                code(f"{method.upper()} {path}"),
                _role(operation),
                ", ".join(code(name) for name in _parameters(operation)),
                plain(operation["summary"]),
            )
            for _, path, method, operation in rows
        ),
    )


def _role(operation: dict[str, Any]) -> str:
    roles = [role for way in operation.get("security", ()) for role in way.get("token", ())]
    return ", ".join(roles) or "none"


def _parameters(operation: dict[str, Any]) -> list[str]:
    places = ("query", "header")
    given = [each for each in operation.get("parameters", ()) if "$ref" not in each]
    return [each["name"] for each in given if each["in"] in places]


def problems() -> str:
    """Return a section for each type of problem."""
    return page(*map(_problem, PROBLEM_TYPES.values()))


def _problem(problem: ProblemType) -> str:
    return page(
        f"## {problem.code}",
        f"{code(problem.type)}, status {problem.status}: {plain(problem.title)}.",
        plain(problem.meaning.replace("``", "")),
        plain(problem.remedy.replace("``", "")),
    )
