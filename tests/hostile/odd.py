"""Odd values, and documents with one of them in one place."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

from tests.support.hostile_input import WORDS

Json = Any
DEEP_LEVELS = 200


def _deep(levels: int) -> Json:
    value: Json = 1
    for number in range(levels):
        value = [value] if number % 2 else {"a": value}
    return value


SMALL: list[Json] = [
    None,
    True,
    False,
    0,
    -1,
    1,
    2**15,
    2**31 - 1,
    2**31,
    -(2**31) - 1,
    2**53 + 1,
    2**63 - 1,
    2**63,
    10**30,
    -(10**400),
    0.5,
    -0.0,
    1e308,
    float("nan"),
    float("inf"),
    "",
    " ",
    "0",
    "null",
    "true",
    "NaN",
    "-1",
    "1e9",
    "9" * 500,
    "\x00",
    "a\x00b",
    "\ud800",
    "\udfff\ud800",
    "\u2028",
    "\ufeff",
    "é" * 50,
    "e\u0301" * 30,
    "'; DROP TABLE task; --",
    "' OR '1'='1",
    "%00",
    "\\u0000",
    "{{7*7}}",
    "${jndi:ldap://192.0.2.1/a}",
    "<script>alert(1)</script>",
    "P1D",
    "PT0S",
    "-PT1S",
    "P1Y",
    "PT9999999999999H",
    "P" + "9" * 60 + "D",
    "PT1E5S",
    "2026-02-30T00:00:00Z",
    "0000-00-00T00:00:00Z",
    "9999-12-31T23:59:60Z",
    "2026-01-01T00:00:00+99:99",
    "@PT1H",
    "@",
    "* * * * *",
    "0 0 31 2 *",
    "00000000-0000-0000-0000-000000000000",
    "ed25519:" + "A" * 43,
    [],
    [[]],
    [None],
    [1, "a", None],
    {},
    {"": ""},
    {"a": 1},
    {"__proto__": {"x": 1}},
    {"__class__": "object"},
    {"$ref": "#/"},
    {"type": "idle"},
    {"\x00": 1},
    {"=": None},
    {"and": []},
    {"not": {"not": {"not": {}}}},
    ["a"] * 100,
    [{}] * 50,
    _deep(30),
    *WORDS[:-3],
]
"""Values that fit no field, or hardly one."""

LARGE: list[Json] = [
    "a" * 100_000,
    "\U0001f4a9" * 20_000,
    list(range(20_000)),
    ["a"] * 39_000,
    {f"key{number}": number for number in range(10_000)},
    _deep(DEEP_LEVELS),
    [[[0] * 50] * 50] * 10,
]
"""Values that cost something."""


def resolved(schema: Json, whole: Json) -> Json:
    """Return the schema behind a reference."""
    while "$ref" in schema:
        place = whole
        for step in schema["$ref"].removeprefix("#/").split("/"):
            place = place[step]
        schema = place
    return schema


def pointers(schema: Json, whole: Json, pointer: str = "", depth: int = 6) -> Iterator[str]:
    """Yield each field of the documents of a schema, as a JSON pointer."""
    if depth == 0:
        return
    schema = resolved(schema, whole)
    for name, below in schema.get("properties", {}).items():
        yield f"{pointer}/{name}"
        yield from pointers(below, whole, f"{pointer}/{name}", depth - 1)
    for each in ("items", "additionalProperties"):
        if isinstance(schema.get(each), dict):
            yield f"{pointer}/0"
            yield from pointers(schema[each], whole, f"{pointer}/0", depth - 1)
    for option in [*schema.get("anyOf", []), *schema.get("oneOf", [])]:
        yield from pointers(option, whole, pointer, depth - 1)


def placed(document: Json, pointer: str, value: Json) -> Json:
    """Return a copy of a document with a value at a pointer, whatever was on the way there."""
    made = copy.deepcopy(document)
    if not pointer:
        return value
    *way, last = pointer.removeprefix("/").split("/")
    place = made
    for step in way:
        place = _child(place, step)
    _put(place, last, value)
    return made


def _child(place: Json, step: str) -> Json:
    if isinstance(place, list):
        if not place or not isinstance(place[0], dict | list):
            place[:] = [{}]
        return place[0]
    if not isinstance(place.get(step), dict | list):
        place[step] = {}
    return place[step]


def _put(place: Json, last: str, value: Json) -> None:
    if isinstance(place, list):
        place[:] = [value]
    else:
        place[last] = value


def brief(value: Json) -> str:
    """Return a value, or the beginning of a large one, for people."""
    if isinstance(value, str):
        return repr(value[:60])
    if isinstance(value, dict | list) and any(value is each for each in LARGE):
        return f"{type(value).__name__} of {len(value)}"
    return repr(value)[:60]


def as_word(value: Json) -> str:
    """Return a value as it stands in a path or a query, percent-encoded."""
    text = value if isinstance(value, str) else str(value)
    return quote(text.encode("utf-8", "surrogatepass"), safe="")
