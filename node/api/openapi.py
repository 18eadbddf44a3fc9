"""Build the OpenAPI 3.1 document from the route table that is served."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from pydantic.json_schema import models_json_schema

from node.api.routing import ID, TEXT, Query, Route
from node.model.permissions import Access
from node.model.wire.fields import Document
from node.model.wire.problems import MEDIA_TYPE, Problem

_REFERENCE = "#/components/schemas/{model}"


def describe(routes: Sequence[Route], version: str) -> dict[str, Any]:
    """Return the document for these routes, except those that only nodes can call."""
    public = [route for route in routes if route.access is not Access.PEER]
    models: set[type[Document]] = {Problem}
    for route in public:
        kinds = (route.body, route.answer, *(route.several or ()))
        models |= {model for model in kinds if model is not None}
    received = {route.body for route in public} | {r.several[0] for r in public if r.several}
    pairs: list[tuple[type[Document], Any]] = [
        (model, "validation" if model in received else "serialization")
        for model in sorted(models, key=lambda model: model.__name__)
    ]
    references, schemas = models_json_schema(pairs, ref_template=_REFERENCE)
    named = {model: references[(model, mode)] for model, mode in pairs}
    paths: dict[str, dict[str, Any]] = {}
    for route in public:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, named)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Parley",
            "version": version,
            "description": "Schedules measurements between hosts of different owners. "
            "Everything but a node's card and its health needs a token with the role that the "
            "operation names, or one that includes it: read, run, operate, own. A token with the "
            "role run reaches the tasks and runs of its own label only. With "
            "PARLEY_READ_LOCAL, programs on the node's host read without a token.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "paths": paths,
        "components": {
            "schemas": schemas["$defs"],
            "securitySchemes": {
                "token": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "A token has a role: read, run, operate, or own.",
                }
            },
        },
    }


def _operation(route: Route, named: dict[type[Document], Any]) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "summary": route.summary,
        "operationId": route.name,
        "parameters": [
            *(_path_parameter(name) for name in re.findall(r"\{(\w+)\}", route.path)),
            *(_parameter(query, "query") for query in route.query),
            *(_parameter(header, "header") for header in route.headers),
        ],
        "responses": _responses(route, named),
    }
    if route.access.role is not None:
        operation["security"] = [{"token": [str(route.access.role)]}]
        if route.access.reads:
            operation["security"].append({})
    if route.body is not None:
        schema: dict[str, Any] = named[route.body]
        if route.several is not None:
            listed = {"type": "array", "minItems": 1, "items": named[route.several[0]]}
            schema = {"oneOf": [schema, listed]}
        operation["requestBody"] = {
            "required": True,
            "content": {"application/json": {"schema": schema}},
        }
    return operation


def _path_parameter(name: str) -> dict[str, Any]:
    schema = ID if name == "id" else TEXT
    return {"name": name, "in": "path", "required": True, "schema": schema}


def _parameter(query: Query, where: str) -> dict[str, Any]:
    return {
        "name": query.name,
        "in": where,
        "required": False,
        "description": query.description,
        "schema": query.schema,
    }


def _responses(route: Route, named: dict[type[Document], Any]) -> dict[str, Any]:
    problem = {
        "description": "The error, its reason, and the remedy (RFC 9457).",
        "content": {MEDIA_TYPE: {"schema": named[Problem]}},
    }
    success: dict[str, Any] = {"description": route.summary}
    if route.status != 204:  # noqa: PLR2004 - no content
        success["content"] = {route.media_type: _content(route, named)}
    responses = {str(route.status): success, "default": problem}
    if route.several is not None:
        items = _page_of(named[route.several[1]])
        responses["200"] = {
            "description": "For a list: the answers to its items, in their order.",
            "content": {"application/json": {"schema": items}},
        }
    return responses


def _content(route: Route, named: dict[type[Document], Any]) -> dict[str, Any]:
    if route.answer is None:
        return {}
    if not route.listed:
        return {"schema": named[route.answer]}
    return {"schema": _page_of(named[route.answer])}


def _page_of(item: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "required": ["items"],
        "properties": {
            "items": {"type": "array", "items": item},
            "next": {"type": ["string", "null"]},
        },
    }
