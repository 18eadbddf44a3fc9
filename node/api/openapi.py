"""Build the OpenAPI 3.1 document from the route table that is served.

A route names its models, parameters and problems, and its handler's docstring is its description,
so the document cannot describe what is not served. The schemas are those of the models by pydantic,
changed where the wire differs: durations and instants have defaults as text, each test has its own
spec, and items of which a caller selects fields have a second schema in which all are optional.
Routes that only nodes call are left out. The document says nothing that depends on the state of a
node but for its tests.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue, models_json_schema
from pydantic_core import core_schema

from node.api.conditions import CONDITIONAL
from node.api.examples import EXAMPLES
from node.api.media import received_types
from node.api.problem_types import PROBLEM_TYPES
from node.api.responses import JSON
from node.api.routing import ID, NAME, TEXT, Query, Route
from node.model import times
from node.model.permissions import Access
from node.model.wire.fields import Document
from node.model.wire.problems import MEDIA_TYPE, Problem
from node.model.wire.tasks import TestChoice
from node.plugins.contracts import Test

_REFERENCE = "#/components/schemas/{model}"
_OK = 200
_NO_CONTENT = 204
_CREATED = 201

TAGS = {
    "tasks": ("Tasks", "What is to be measured, between whom, and when."),
    "runs": ("Runs", "Each time that a task measures: its state, result, and explanation."),
    "schedule": ("Runs", ""),
    "plans": ("Plans", "What a task would mean, without creating it."),
    "reservations": ("Reservations", "Time of the node that is kept free."),
    "campaigns": ("Campaigns", "Who shares nodes, and how much they have used."),
    "usage": ("Campaigns", ""),
    "pools": ("Pools", "Sets of nodes, of which the node chooses some for a task."),
    "policysets": ("Pools", ""),
    "meshes": ("Meshes", "Measurements between many nodes, defined by one file."),
    "archives": ("Archives", "Where results are delivered, and the deliveries."),
    "archivers": ("Archives", ""),
    "archivings": ("Archives", ""),
    "nodes": ("Nodes", "This node, and those that it knows."),
    "directories": ("Nodes", ""),
    "keys": ("Nodes", ""),
    "introductions": ("Nodes", ""),
    "clock": ("Nodes", ""),
    "shares": ("Limits", ""),
    "limits": ("Limits", "What others may have of this host."),
    "tests": ("Tests", "What can be measured here, and with which tools."),
    "tools": ("Tests", ""),
    "tokens": ("Users", "The tokens of users, and who did what."),
    "audit": ("Users", ""),
    "webhooks": ("Webhooks", "Who is told when something is wrong, and when it is over."),
    "secrets": ("Secrets", "What specs of tests name, and nobody but the tool is told."),
    "events": ("Events", "Changes on this node as they happen."),
    "healthz": ("Operation", "Health, metrics, and descriptions."),
    "readyz": ("Operation", ""),
    "status": ("Operation", ""),
    "outcomes": ("Operation", ""),
    "checks": ("Operation", ""),
    "metrics": ("Operation", ""),
    "openapi": ("Operation", ""),
    "problems": ("Operation", ""),
    "lists": ("Operation", ""),
}
"""By the first word of a path: the tag of its operations, and its description at one of them."""


class _Schemas(GenerateJsonSchema):
    """Write defaults of durations and instants as documents do, not in microseconds."""

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> JsonSchemaValue:
        """Return the schema of a field with a default."""
        made = super().default_schema(schema)
        if made.get("type") == "string" and type(made.get("default")) is int:
            made["default"] = times.format_duration(made["default"])
        return made


def openapi_document(
    routes: Sequence[Route], version: str, tests: Mapping[str, Test] | None = None
) -> dict[str, Any]:
    """Return the document for these routes, except those that only nodes can call.

    ``tests`` are those that tasks can request; their specs are described.
    """
    public = [route for route in routes if route.access is not Access.PEER]
    schemas, named = _schemas(public, tests or {})
    for model, example in EXAMPLES.items():
        if model in named:
            schemas[named[model]["$ref"].rsplit("/", 1)[-1]]["examples"] = [example]
    _distinguish_tests(schemas, tests or {}, named)
    _describe_field_selection(schemas, public, named)
    paths: dict[str, dict[str, Any]] = {}
    for route in public:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, public, named)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Parley",
            "version": version,
            "summary": "Schedules measurements between hosts of different owners.",
            "description": _DESCRIPTION,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/", "description": "This node."}],
        "tags": [{"name": tag, "description": text} for tag, text in TAGS.values() if text],
        "paths": paths,
        "components": {
            "schemas": schemas,
            "responses": {str(status): _problems(status, named) for status in _STATUSES},
            "securitySchemes": {
                "token": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "A token has a role: read, run, operate, or own.",
                }
            },
        },
    }


_DESCRIPTION = (
    "Everything but a node's card, its health, and this document needs a token with the role that "
    "the operation names, or one that includes it: read, run, operate, own. A token with the role "
    "run reaches the tasks and runs of its own label only. With PARLEY_READ_LOCAL, programs on the "
    "node's host read without a token. Times are RFC 3339, durations ISO 8601. Lists come in "
    "pages: `next` is the `cursor` of the next page, and null on the last one. HEAD is answered "
    "like GET, answers are compressed for those who accept gzip, and `traceparent` (W3C) is passed "
    "on to other nodes and into logs. Users who are not owners have a number of requests in a "
    "minute, which the headers RateLimit and RateLimit-Policy tell. Whatever is not a success is a "
    "problem document (RFC 9457), whose `type` is the path of a page about it."
)


def _schemas(
    routes: Sequence[Route], tests: Mapping[str, Test]
) -> tuple[dict[str, Any], dict[type[Document], Any]]:
    """Return the schemas of all models by name, and a reference to each."""
    models: set[type[Document]] = {Problem}
    received: set[type[Document]] = {test.spec_model for test in tests.values()}
    for route in routes:
        kinds = (route.body, route.answer, *(route.several or ()))
        models |= {model for model in kinds if model is not None}
        received |= {model for model in (route.body, *(route.several or ())[:1]) if model}
    pairs: list[tuple[type[Document], Any]] = [
        (model, "validation" if model in received else "serialization")
        for model in sorted(models | received, key=lambda model: model.__name__)
    ]
    references, schemas = models_json_schema(
        pairs, ref_template=_REFERENCE, schema_generator=_Schemas
    )
    for name, schema in schemas["$defs"].items():
        if "-" in name:  # received and answered in two forms, which a generator names by the title
            schema["title"] = name.replace("-", "")
    return schemas["$defs"], {model: references[(model, mode)] for model, mode in pairs}


def _distinguish_tests(
    schemas: dict[str, Any], tests: Mapping[str, Test], named: Mapping[type[Document], Any]
) -> None:
    """Give each test its own spec in the schemas of posted tasks, told apart by ``type``."""
    posted = next(
        (name for name in (f"{TestChoice.__name__}-Input", TestChoice.__name__) if name in schemas),
        None,
    )
    if posted is None or not tests:
        return
    options = {}
    for name, test in sorted(tests.items()):
        option = f"{test.spec_model.__name__.removesuffix('Spec')}Choice"
        spec = {**named[test.spec_model]}
        fields = {"type": {"const": name, "type": "string"}, "spec": spec}
        required = ["type", "spec"] if _has_required_fields(test) else ["type"]
        schemas[option] = {
            "title": option,
            "description": f"{test.title}.",
            "type": "object",
            "properties": fields,
            "required": required,
            "additionalProperties": False,
        }
        options[name] = _REFERENCE.format(model=option)
    schemas[posted] = {
        "title": TestChoice.__name__,
        "description": inspect.getdoc(TestChoice) or "",
        "oneOf": [{"$ref": reference} for reference in options.values()],
        "discriminator": {"propertyName": "type", "mapping": options},
    }


def _describe_field_selection(
    schemas: dict[str, Any], routes: Sequence[Route], named: Mapping[type[Document], Any]
) -> None:
    """Add schemas for items of which a caller selects fields: each of them is optional there."""
    for route in routes:
        if route.answer is None or not _has_fields(route):
            continue
        item = named[route.answer]
        if not route.listed:
            page = schemas[_schema_name(item)]["properties"]["items"]
            item, page["items"] = page["items"], _partial_item_schema(page["items"])
        whole = schemas[_schema_name(item)]
        schemas[_schema_name(item) + _SOME] = {
            "title": f"{whole['title']}{_SOME}",
            "description": f"{whole['title']} with the fields that `fields` names, and no others.",
            "type": "object",
            "properties": whole["properties"],
            "additionalProperties": False,
        }


_SOME = "Fields"


def _has_fields(route: Route) -> bool:
    return any(query.name == "fields" for query in route.query)


def _schema_name(reference: Mapping[str, str]) -> str:
    return reference["$ref"].rsplit("/", 1)[-1]


def _partial_item_schema(reference: Mapping[str, str]) -> dict[str, Any]:
    """Return the schema of an item that has all of its fields, or the selected ones only."""
    some = _REFERENCE.format(model=_schema_name(reference) + _SOME)
    return {"anyOf": [dict(reference), {"$ref": some}]}


def _has_required_fields(test: Test) -> bool:
    return any(field.is_required() for field in test.spec_model.model_fields.values())


def tag_of(route: Route) -> str:
    """Return the tag under which OpenAPI tools group a route, from the first word of its path."""
    word = re.split(r"[/.]", route.path.removeprefix("/v1").removeprefix("/"))[0]
    return TAGS.get(word, TAGS["healthz"])[0]


def _operation(
    route: Route, routes: Sequence[Route], named: dict[type[Document], Any]
) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "tags": [tag_of(route)],
        "summary": route.summary,
        "description": _description(route),
        "operationId": route.name,
        "parameters": [
            *(_path_parameter(name) for name in re.findall(r"\{(\w+)\}", route.path)),
            *(_parameter(query, "query") for query in route.query),
            *(_parameter(header, "header") for header in (*route.headers, *_conditions(route))),
        ],
        "responses": _responses(route, routes, named),
        "security": [],
    }
    if route.access.role is not None:
        operation["security"] = [{"token": [str(route.access.role)]}]
        if route.access.reads:
            operation["security"].append({})
    if route.body is not None:
        content = _request_body(route, route.body, named)
        operation["requestBody"] = {"required": True, "content": content}
    return operation


def _description(route: Route) -> str:
    """Return what the handler says of itself, and which token it takes."""
    said = inspect.getdoc(route.handler) or route.summary
    role = route.access.role
    return said if role is None else f"{said}\n\nNeeds a token with the role `{role}`."


def _request_body(
    route: Route, body: type[Document], named: dict[type[Document], Any]
) -> dict[str, Any]:
    schema: dict[str, Any] = named[body]
    content: dict[str, Any] = {"schema": schema}
    if body in EXAMPLES:
        content["examples"] = {"one": {"value": EXAMPLES[body]}}
    if route.several is not None:
        listed = {"type": "array", "minItems": 1, "items": named[route.several[0]]}
        content["schema"] = {"oneOf": [schema, listed]}
    return dict.fromkeys(received_types(route.method), content)


def _conditions(route: Route) -> Iterator[Query]:
    """Yield the descriptions of If-None-Match and If-Match, where a route heeds them."""
    if route.method == "GET" and route.media_type == JSON:
        text = "The ETag of an answer that the caller has; if it is the same still, 304."
        yield Query("If-None-Match", text, TEXT)
    if route.operation in CONDITIONAL:
        text = "The ETag with which it was read; if somebody changed it since, 412."
        yield Query("If-Match", text, TEXT)


def _path_parameter(name: str) -> dict[str, Any]:
    if name == "id":
        schema, description = ID, "The id, a whole UUID."
    else:
        schema, description = NAME, "The name."
    return {
        "name": name,
        "in": "path",
        "required": True,
        "description": description,
        "schema": schema,
    }


def _parameter(query: Query, where: str) -> dict[str, Any]:
    style = {"style": "form", "explode": False} if query.schema.get("type") == "array" else {}
    return {
        "name": query.name,
        "in": where,
        "required": False,
        "description": query.description,
        "schema": query.schema,
        **style,
    }


# -- answers ---------------------------------------------------------------------------------------

_STATUSES = sorted({each.status for each in PROBLEM_TYPES.values()})
_ALWAYS = {400, 403, 404, 406, 408, 413, 422, 500, 503, 507}
_OF_CHANGES = {409, 412, 429, 502}
_FURTHER = {"/v1/nodes/{name}/limits": (409, 502), "/v1/runs/{id}/bundle": (409,)}


def _statuses(route: Route) -> Iterator[int]:
    """Yield the statuses of problems with which a route may answer."""
    yield from _ALWAYS
    if route.access.role is not None:
        yield from (401, 429)
    if route.method != "GET":
        yield from _OF_CHANGES
    yield from _FURTHER.get(route.path, ())
    if route.body is not None:
        yield 415


def _links(route: Route, routes: Sequence[Route]) -> dict[str, Any]:
    """Return what can be done with what a route creates, by the id or name in its answer."""
    if route.status != _CREATED:
        return {}
    links = {}
    for other in routes:
        match = re.match(re.escape(route.path) + r"/\{(\w+)\}", other.path)
        if match is not None:
            word = match[1]
            links[other.name] = {
                "operationId": other.name,
                "parameters": {f"path.{word}": f"$response.body#/{word}"},
            }
    return links


def _responses(
    route: Route, routes: Sequence[Route], named: dict[type[Document], Any]
) -> dict[str, Any]:
    success: dict[str, Any] = {"description": _success_description(route)}
    if route.status != _NO_CONTENT:
        success["content"] = {route.media_type: _content(route, named)}
    if headers := _headers(route):
        success["headers"] = headers
    if links := _links(route, routes):
        success["links"] = links
    responses: dict[str, Any] = {str(route.status): success}
    if route.several is not None:
        _describe_list(responses, _page_schema(named[route.several[1]]))
    if route.method == "GET":
        responses["304"] = {"description": "It is still as If-None-Match says."}
    for status in sorted(set(_statuses(route))):
        responses[str(status)] = {"$ref": f"#/components/responses/{status}"}
    return responses


def _describe_list(responses: dict[str, Any], page: dict[str, Any]) -> None:
    """Add the answer to a list; a route may answer one document with the same status."""
    words = "For a list: the answers to its items, in their order."
    alone = responses.get(str(_OK))
    if alone is None:
        responses[str(_OK)] = {"description": words, "content": {JSON: {"schema": page}}}
        return
    alone["description"] += f" {words}"
    content = alone["content"][JSON]
    content["schema"] = {"oneOf": [content["schema"], page]}


def _success_description(route: Route) -> str:
    if route.status == _CREATED:
        return "It was created, or was created before by the same request."
    return "It is done." if route.status == _NO_CONTENT else f"{route.summary}."


def _headers(route: Route) -> dict[str, Any]:
    headers = {}
    if route.status == _CREATED:
        headers["Location"] = ("The path of what was created.", {"type": "string"})
    if route.method == "GET" and route.media_type == JSON:
        headers["ETag"] = (
            "For If-None-Match; where there is a revision, for If-Match.",
            {"type": "string"},
        )
    return {
        name: {"description": description, "schema": schema}
        for name, (description, schema) in headers.items()
    }


def _content(route: Route, named: dict[type[Document], Any]) -> dict[str, Any]:
    if route.answer is None:
        return {"schema": {"type": "object" if route.media_type == JSON else "string"}}
    schema: dict[str, Any] = named[route.answer]
    example = EXAMPLES.get(route.answer)
    if route.listed:
        schema = _page_schema(_partial_item_schema(schema) if _has_fields(route) else schema)
        example = None if example is None else {"items": [example], "next": None}
    return (
        {"schema": schema}
        if example is None
        else {"schema": schema, "examples": {"one": {"value": example}}}
    )


def _page_schema(item: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "required": ["items"],
        "properties": {
            "items": {"type": "array", "items": item},
            "next": {
                "type": ["string", "null"],
                "description": "The cursor of the next page; null on the last one.",
            },
        },
    }


def _problems(status: int, named: Mapping[type[Document], Any]) -> dict[str, Any]:
    """Return the response of a status: the problems that have it, told apart by their type.

    The schema is a plain reference, because generators of clients drop answers that narrow one.
    """
    kinds = [each for each in PROBLEM_TYPES.values() if each.status == status]
    described = "; ".join(f"[{each.code}]({each.type}): {each.title}" for each in kinds)
    response: dict[str, Any] = {
        "description": f"{described}.",
        "content": {
            MEDIA_TYPE: {
                "schema": named[Problem],
                "examples": {each.code: {"value": _example(each.code)} for each in kinds},
            }
        },
    }
    if headers := _HEADERS.get(status):
        response["headers"] = {
            name: {"description": text, "schema": {"type": kind}}
            for name, (text, kind) in headers.items()
        }
    return response


def _example(code: str) -> dict[str, Any]:
    kind = PROBLEM_TYPES[code]
    made = Problem(type=kind.type, title=kind.title, status=kind.status, detail=kind.meaning)
    return made.model_dump(mode="json", exclude_defaults=True)


_RETRY = {"Retry-After": ("Seconds after which to ask again.", "integer")}
_HEADERS: dict[int, dict[str, tuple[str, str]]] = {
    401: {"WWW-Authenticate": ("The scheme: Bearer.", "string")},
    405: {"Allow": ("The methods of this path.", "string")},
    429: {
        **_RETRY,
        "RateLimit": ("What is left, and the seconds until there is more.", "string"),
    },
    503: _RETRY,
}
