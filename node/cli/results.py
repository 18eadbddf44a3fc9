"""The result of any test as lines for a person: names, values, units. Pure.

Nothing here knows a test. The unit is the last word of a field's name (``rtt_ms``, ``rate_bps``)
and holds for all that lies inside the field, until another name says otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from node.cli.output import pairs, printable

_LONGEST_LIST = 8


def _scaled(*steps: tuple[float, str]) -> Callable[[float], str]:
    """A formatter that takes the largest unit that leaves at least 1."""

    def written(value: float) -> str:
        for size, unit in steps:
            if abs(value) >= size:
                return f"{_digits(value / size)} {unit}"
        return f"{_digits(value)} {steps[-1][1]}"

    return written


def _digits(value: float) -> str:
    """Four digits or so that count, and never an exponent."""
    if isinstance(value, int):
        return str(value)
    decimals = 1 if abs(value) >= 100 else 2 if abs(value) >= 10 else 3  # noqa: PLR2004
    text = f"{value:.{decimals}f}".rstrip("0").rstrip(".")
    return "0" if text == "-0" else text


def _percent(fraction: float) -> str:
    return f"{100 * fraction:.3g} %"


_UNITS: dict[str, Callable[[float], str]] = {
    "ms": lambda value: f"{_digits(value)} ms",
    "us": lambda value: f"{_digits(value)} µs",
    "s": lambda value: f"{_digits(value)} s",
    "seconds": lambda value: f"{_digits(value)} s",
    "bps": _scaled((1e9, "Gb/s"), (1e6, "Mb/s"), (1e3, "kb/s"), (1, "b/s")),
    "bytes": _scaled((1e9, "GB"), (1e6, "MB"), (1, "B")),  # of packets each one counts
    "loss": _percent,
    "cpu": _percent,
    "share": _percent,
}
"""How numbers are written, by the last word of the field's name."""

_NAMED_BY_THE_UNIT_ALONE = frozenset({"ms", "us", "s", "bps"})
"""Units that are dropped from the name; the others are words that say what is measured."""


def result_view(result: Mapping[str, Any], indent: str = "  ") -> str:
    """The whole result in two aligned columns; long lists are only counted."""
    return pairs(_entries(result, (), None), indent)


def in_order(result: Mapping[str, Any], schema: Mapping[str, Any]) -> dict[str, Any]:
    """The result with its fields in the order of the test's schema; the database keeps none."""
    return _sorted(result, schema, schema.get("$defs", {}))


def _sorted(
    fields: Mapping[str, Any], schema: Mapping[str, Any], definitions: Mapping[str, Any]
) -> dict[str, Any]:
    properties = _resolved(schema, definitions).get("properties", {})
    names = [name for name in properties if name in fields]
    names += [name for name in fields if name not in properties]
    return {
        name: _sorted(fields[name], properties.get(name, {}), definitions)
        if isinstance(fields[name], Mapping)
        else fields[name]
        for name in names
    }


def _resolved(schema: Mapping[str, Any], definitions: Mapping[str, Any]) -> Mapping[str, Any]:
    """The object that a schema stands for, through references and through "or null"."""
    for choice in (schema, *schema.get("anyOf", ()), *schema.get("allOf", ())):
        if "$ref" in choice:
            target: Mapping[str, Any] = definitions.get(choice["$ref"].rsplit("/", 1)[-1], {})
            return target
        if "properties" in choice:
            found: Mapping[str, Any] = choice
            return found
    return {}


def _entries(
    fields: Mapping[str, Any], path: tuple[str, ...], unit: Callable[[float], str] | None
) -> Iterator[tuple[str, str]]:
    for name, value in fields.items():
        words = name.split("_")
        own = _UNITS.get(words[-1], unit)
        if words[-1] in _NAMED_BY_THE_UNIT_ALONE and len(words) > 1:
            words = words[:-1]
        here = (*path, " ".join(words))
        if isinstance(value, Mapping):
            yield from _entries(value, here, own)
        elif value is not None:
            yield " ".join(here), _written(value, own)


def _within(name: str, value: object, unit: Callable[[float], str] | None) -> str:
    """A field of an object in a list: texts and measures speak for themselves, others are named."""
    if value is None or value == []:
        return ""
    words = name.split("_")
    own = _UNITS.get(words[-1], unit)
    written = _written(value, own)
    named = isinstance(value, bool | int | float) and own is None
    return f"{' '.join(words)} {written}" if named else written


def _written(value: object, unit: Callable[[float], str] | None) -> str:
    if value is None or isinstance(value, bool):
        return {None: "-", True: "yes", False: "no"}[value]
    if isinstance(value, (int, float)):
        return unit(value) if unit else _digits(value)
    if isinstance(value, Mapping):
        return " ".join(filter(None, (_within(name, item, unit) for name, item in value.items())))
    if isinstance(value, list):
        if len(value) <= _LONGEST_LIST and not any(isinstance(item, list) for item in value):
            nested = any(isinstance(item, Mapping) for item in value)
            return ("; " if nested else ", ").join(_written(item, unit) for item in value)
        return "1 entry" if len(value) == 1 else f"{len(value)} entries"
    return printable(value)
