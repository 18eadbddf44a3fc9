"""Random documents by the schemas of the API never cause an internal error."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import aiohttp
import pytest
import pytest_asyncio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.acceptance.hostility import FAR, IDLE, complains_of, is_problem
from tests.acceptance.outsider import Json, Outsider

pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.timeout(120),
    pytest.mark.usefixtures("nothing_made"),
]

# Values by the JSON types of a schema: a value of none of the allowed types is wrong.
ANYTHING: dict[str, st.SearchStrategy[Any]] = {
    "null": st.none(),
    "boolean": st.booleans(),
    "integer": st.integers(-(2**70), 2**70),
    "number": st.floats(allow_nan=False, allow_infinity=False).map(lambda x: x + 0.5),
    "string": st.text(max_size=40),
    "array": st.lists(st.none() | st.integers(0, 9) | st.text(max_size=5), max_size=4),
    "object": st.dictionaries(st.text(max_size=8), st.integers(0, 9), max_size=4),
}


def resolved(schema: Json, whole: Json) -> Json:
    """Return the schema behind a reference."""
    while "$ref" in schema:
        place = whole
        for step in schema["$ref"].removeprefix("#/").split("/"):
            place = place[step]
        schema = place
    return schema


def types(schema: Json, whole: Json) -> set[str]:
    """Return the JSON types that a schema allows; all if it has no type."""
    schema = resolved(schema, whole)
    if "anyOf" in schema:
        return set[str]().union(*(types(each, whole) for each in schema["anyOf"]))
    if "enum" in schema or "const" in schema:
        return {"string"}
    return {schema["type"]} if "type" in schema else set(ANYTHING)


def fields(schema: Json, whole: Json, pointer: str = "") -> Iterator[tuple[str, set[str]]]:
    """Yield every field of a document by its pointer, with the types it allows."""
    schema = resolved(schema, whole)
    for name, below in schema.get("properties", {}).items():
        yield f"{pointer}/{name}", types(below, whole)
        yield from fields(below, whole, f"{pointer}/{name}")
    for option in schema.get("anyOf", []):
        yield from fields(option, whole, pointer)


def wrong_values(allowed: set[str]) -> st.SearchStrategy[Any]:
    """Return values of types that are not allowed."""
    if "number" in allowed:
        allowed = allowed | {"integer"}
    return st.one_of([ANYTHING[name] for name in sorted(set(ANYTHING) - allowed)])


def with_value(document: Json, pointer: str, value: Json) -> Json:
    """Return a copy of a document with another value at a pointer."""
    copy = json.loads(json.dumps(document))
    *way, last = pointer.removeprefix("/").split("/")
    place = copy
    for step in way:
        place = place.setdefault(step, {})
    place[last] = value
    return copy


SPECS: dict[str, Json] = {
    "clock": {"dest": "b"},
    "dns": {"name": "www.example"},
    "http": {"url": "http://127.0.0.1:9/"},
    "ntp": {"dest": "127.0.0.1"},
    "tcp": {"dest": "127.0.0.1", "port": 9},
    "tls": {"dest": "127.0.0.1"},
    "idle": {},
    "idlebg": {},
    "simplestream": {"dest": "b"},
    "snmp": {"dest": "127.0.0.1", "interface": "lo"},
    "interface": {},
    "latencybg": {"dest": "b"},
    "mtu": {"dest": "b"},
    "trace": {"dest": "b"},
    "rtt": {"dest": "b"},
    "latency": {"dest": "b"},
    "throughput": {"dest": "b"},
}


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def places(a: Outsider) -> list[tuple[Json, str, set[str]]]:
    """Return valid documents, each with a pointer to a field and the types it allows."""
    whole = await a.get("/v1/openapi.json")
    task = whole["components"]["schemas"]["TaskDocument"]
    found = [
        ({"test": IDLE, "schedule": FAR}, pointer, allowed)
        for pointer, allowed in fields(task, whole)
        if allowed != set(ANYTHING)
    ]
    for test in (await a.get("/v1/tests"))["items"]:
        document = {"test": {"type": test["name"], "spec": SPECS[test["name"]]}, "schedule": FAR}
        for pointer, allowed in fields(test["spec"], test["spec"], "/test/spec"):
            found.append((document, pointer, allowed))
    return found


@settings(
    max_examples=250, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
@pytest.mark.nightly
async def test_wrong_types_everywhere(
    a: Outsider, places: list[tuple[Json, str, set[str]]], data: st.DataObject
) -> None:
    """A value of a type that the description does not allow is refused in every field."""
    document, pointer, allowed = data.draw(st.sampled_from(places))
    value = data.draw(wrong_values(allowed))
    complains_of(await a.ask("POST", "/v1/tasks", with_value(document, pointer, value)), pointer)


@settings(
    max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
@pytest.mark.nightly
async def test_any_question(a: Outsider, data: st.DataObject) -> None:
    """Every query with any parameters is answered by a document, never by an internal error."""
    paths = (await a.get("/v1/openapi.json"))["paths"]
    asked = sorted(path for path in paths if "get" in paths[path] and path != "/v1/events")
    path = data.draw(st.sampled_from(asked))
    words = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)
    query = {
        each["name"]: data.draw(words, each["name"])
        for each in paths[path]["get"].get("parameters", [])
        if each["in"] == "query" and data.draw(st.booleans())
    }
    for name in ("id", "name"):
        path = path.replace(f"{{{name}}}", quote(data.draw(words), safe=""))
    try:
        answer = await a.ask("GET", path, query=query)
    except aiohttp.InvalidURL:
        return
    if answer.status != 200:
        is_problem(answer, 400, 404, 405, 409, 422)


@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    body=st.binary(max_size=200) | st.text(max_size=200).map(lambda t: t.encode("utf-8", "replace"))
)
@pytest.mark.nightly
async def test_any_bytes(a: Outsider, body: bytes) -> None:
    """Arbitrary bytes in a POST are answered by a problem document."""
    is_problem(await a.ask("POST", "/v1/tasks", body), 400, 422)
