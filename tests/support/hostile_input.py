"""Hostile words for fields that expect a host, a name, or a time, and where such fields are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from node.plugins.contracts import Test

WORDS = [
    "-",
    "--",
    "-oX",
    "-f",
    "--help",
    "--version=1",
    "-c1 -s60000",
    "\N{FULLWIDTH HYPHEN-MINUS}f",
    "$(reboot)",
    "`id`",
    "${PATH}",
    "a;id",
    "a|id",
    "a&&id",
    "a>b",
    "a\nid",
    "a.example\n",
    "a\r\nHost: b",
    "a b",
    "\ta",
    "a\0b",
    "a'b",
    'a"b',
    "a\\b",
    "*",
    "~root",
    "../../etc/passwd",
    "/etc/passwd",
    "@/etc/passwd",
    "file:///etc/passwd",
    "http://a@b/",
    "http://-oX/",
    "http://$(id)/",
    "http://a.example/$(id)",
    "http://a.example/[1-9]{a,b}",
    "http://a.example/\n-oX",
    "http://a.example/ -oX",
    "gopher://a.example/",
    "{}",
    '{"host":"a"}',
    "%s%n",
    "fe80::1%eth0",
    "fe80::1%$(id)",
    "127.0.0.1:80",
    "127.0.0.1/8",
    "[::1]",
    "\N{FULLWIDTH LATIN SMALL LETTER A}",
    "\N{FULLWIDTH DIGIT ONE}92.0.2.1",
    "\N{ARABIC-INDIC DIGIT ONE}.2.3.4",
    "\N{CYRILLIC SMALL LETTER A}.example",
    "a\N{ZERO WIDTH SPACE}b",
    "a\N{RIGHT-TO-LEFT OVERRIDE}b",
    "a\N{SOFT HYPHEN}b",
    "a\N{IDEOGRAPHIC FULL STOP}example",
    "\N{PILE OF POO}",
    "\ud800",
    "\x1b[2J",
    "a" * 64,
    "a." * 200,
    "a" * 100_000,
    "..",
    ".",
]

Path = tuple[str, ...]


def _kinds(schema: Any, kinds: Any) -> Iterator[Any]:
    """Yield the possible kinds of a field, through unions and references."""
    if "$ref" in schema:
        yield from _kinds(kinds[schema["$ref"].rpartition("/")[2]], kinds)
    yield schema
    for name in ("anyOf", "oneOf", "allOf"):
        for each in schema.get(name, ()):
            yield from _kinds(each, kinds)


def _words(schema: Any, kinds: Any, path: Path = ()) -> Iterator[Path]:
    """Yield where a document may have words of the user; ``*`` is an index or key."""
    for kind in _kinds(schema, kinds):
        if kind.get("type") == "string" and "enum" not in kind and "const" not in kind:
            yield path
        for name, inner in kind.get("properties", {}).items():
            yield from _words(inner, kinds, (*path, name))
        for name in ("items", "additionalProperties"):
            if isinstance(kind.get(name), dict):
                yield from _words(kind[name], kinds, (*path, name))


def words_in(test: Test) -> list[Path]:
    """Return all fields of a test's spec that accept words."""
    schema = test.spec_model.model_json_schema()
    return list(dict.fromkeys(_words(schema, schema.get("$defs", {}))))


def placed(test: Test, path: Path, word: str) -> dict[str, Any]:
    """Return the test's example with a word in a field."""
    value: Any = word
    for step in reversed(path[1:]):
        value = {"items": [value], "additionalProperties": {word: value}}.get(step, {step: value})
    return {**test.example, path[0]: value}
