"""Format the result of any test for a person: names, values, units. Pure.

This module knows no test. The unit is the last word of a field's name (``rtt_ms``, ``rate_bps``)
and applies to everything inside the field, unless an inner name has its own unit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from math import ceil
from typing import Any

from node.cli.output import aligned_text, pairs_text, printable_text

_LONGEST_LIST = 8
_LONGEST_TABLE = 64
_WIDEST_CELL = 60


def _scaled_formatter(*steps: tuple[float, str]) -> Callable[[float], str]:
    """Return a formatter that uses the largest unit in which the value is at least 1."""

    def scaled_text(value: float) -> str:
        for size, unit in steps:
            if abs(value) >= size:
                return f"{_digits_text(value / size)} {unit}"
        return f"{_digits_text(value)} {steps[-1][1]}"

    return scaled_text


def _digits_text(value: float) -> str:
    """Return a number with about four significant digits, never with an exponent."""
    if isinstance(value, int):
        return str(value)
    decimals = 1 if abs(value) >= 100 else 2 if abs(value) >= 10 else 3  # noqa: PLR2004
    text = f"{value:.{decimals}f}".rstrip("0").rstrip(".")
    return "0" if text == "-0" else text


def _percent(fraction: float) -> str:
    return f"{100 * fraction:.3g} %"


_UNITS: dict[str, Callable[[float], str]] = {
    "ms": lambda value: f"{_digits_text(value)} ms",
    "us": lambda value: f"{_digits_text(value)} µs",
    "s": lambda value: f"{_digits_text(value)} s",
    "seconds": lambda value: f"{_digits_text(value)} s",
    "bps": _scaled_formatter((1e9, "Gb/s"), (1e6, "Mb/s"), (1e3, "kb/s"), (1, "b/s")),
    "bytes": _scaled_formatter((1e9, "GB"), (1e6, "MB"), (1, "B")),  # no kB: packet sizes are exact
    "loss": _percent,
    "cpu": _percent,
    "share": _percent,
}
"""Formatters of numbers, by the last word of the field's name."""

_NAMED_BY_THE_UNIT_ALONE = frozenset({"ms", "us", "s", "bps"})
"""Units that are dropped from the name; the others are words that describe the value."""


def figure_text(name: str, unit: str, value: float) -> str:
    """Format one figure of a run, whose unit the API tells.

    >>> figure_text("throughput_bps", "bit/s", 941_300_000.0)
    '941.3 Mb/s'
    """
    if unit == "bit/s":
        return _UNITS["bps"](value)
    if unit == "1":
        return _UNITS.get(name.rpartition("_")[2], _digits_text)(value)
    return f"{_digits_text(value)} {unit}"


def result_view(result: Mapping[str, Any], indent: str = "  ") -> str:
    """Format a result in two aligned columns, and lists of objects as tables below.

    Lists that are too long for a screen are only counted.
    """
    result = _with_one_clock(result)
    tables = [
        f"{indent}{' '.join(path)}:\n{_table(rows, indent + '  ')}"
        for path, rows in _tables(result, ())
    ]
    return "\n".join(filter(None, (pairs_text(_entries(result, (), None), indent), *tables)))


def _with_one_clock(result: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a result that tells the clock that both ends share once, and that it is one.

    Otherwise people read "synchronised no" twice, and "clocks synchronised yes" below.
    """
    ends = result.get("clocks")
    known = list(ends.values()) if isinstance(ends, Mapping) else []
    if len(known) < len("AB") or not all(isinstance(end, Mapping) for end in known):
        return result
    if len({end.get("identity") for end in known}) > 1 or not result.get("clocks_synchronised"):
        return result
    shared = "yes, both ends read the same clock"
    return {**result, "clocks": {"both": known[0]}, "clocks_synchronised": shared}


def _is_table(value: object) -> bool:
    """Return whether it is a list of objects that fits on a screen."""
    return (
        isinstance(value, list)
        and 0 < len(value) <= _LONGEST_TABLE
        and all(isinstance(item, Mapping) for item in value)
    )


def _tables(
    fields: Mapping[str, Any], path: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], Sequence[Mapping[str, Any]]]]:
    for name, value in fields.items():
        here = (*path, name.replace("_", " "))
        if isinstance(value, Mapping):
            yield from _tables(value, here)
        elif _is_table(value):
            yield here, value


def _table(rows: Sequence[Mapping[str, Any]], indent: str) -> str:
    """Format a line for each object, with a column for each field that any object has."""
    lines = [dict(_entries(row, (), None, within_table=True)) for row in rows]
    columns = list(dict.fromkeys(name for line in lines for name in line))
    cells = [[_shortened_text(line.get(column, "")) for column in columns] for line in lines]
    return aligned_text([columns, *cells], indent)


def _shortened_text(cell: str) -> str:
    return cell if len(cell) <= _WIDEST_CELL else f"{cell[: _WIDEST_CELL - 1]}…"


def sorted_result(result: Mapping[str, Any], schema: Mapping[str, Any]) -> dict[str, Any]:
    """Sort the fields of a result as in the test's schema; the database keeps no order."""
    return _sorted_members(result, schema, schema.get("$defs", {}))


def _sorted_members(
    fields: Mapping[str, Any], schema: Mapping[str, Any], definitions: Mapping[str, Any]
) -> dict[str, Any]:
    properties = _resolved_schema(schema, definitions).get("properties", {})
    names = [name for name in properties if name in fields]
    names += [name for name in fields if name not in properties]
    return {
        name: _sorted_value(fields[name], properties.get(name, {}), definitions) for name in names
    }


def _sorted_value(value: Any, schema: Mapping[str, Any], definitions: Mapping[str, Any]) -> Any:
    if isinstance(value, Mapping):
        return _sorted_members(value, schema, definitions)
    if isinstance(value, list):
        return [_sorted_value(item, schema.get("items", {}), definitions) for item in value]
    return value


def _resolved_schema(
    schema: Mapping[str, Any], definitions: Mapping[str, Any]
) -> Mapping[str, Any]:
    """Return the object schema to which references and "or null" lead."""
    for choice in (schema, *schema.get("anyOf", ()), *schema.get("allOf", ())):
        if "$ref" in choice:
            target: Mapping[str, Any] = definitions.get(choice["$ref"].rsplit("/", 1)[-1], {})
            return target
        if "properties" in choice:
            schema_of_object: Mapping[str, Any] = choice
            return schema_of_object
    return {}


def _entries(
    fields: Mapping[str, Any],
    path: tuple[str, ...],
    unit: Callable[[float], str] | None,
    *,
    within_table: bool = False,
) -> Iterator[tuple[str, str]]:
    for name, value in fields.items():
        words = name.split("_")
        own = _UNITS.get(words[-1], unit)
        if words[-1] in _NAMED_BY_THE_UNIT_ALONE and len(words) > 1:
            words = words[:-1]
        here = (*path, " ".join(words))
        if isinstance(value, Mapping) and value.keys() == _HISTOGRAM:
            yield " ".join(here), histogram_text(value)
        elif isinstance(value, Mapping):
            yield from _entries(value, here, own, within_table=within_table)
        elif value is not None and (within_table or not _is_table(value)):
            yield " ".join(here), _value_text(value, own)


_HISTOGRAM = {"width_ms", "buckets"}
_BARS = " ▁▂▃▄▅▆▇█"
_COLUMNS = 24


def histogram_text(histogram: Mapping[str, Any]) -> str:
    """Draw the number of packets by delay in one line, and tell the range of the delays.

    >>> histogram_text({"width_ms": 0.5, "buckets": [[40, 9], [41, 3], [43, 1]]})
    '█▃ ▁ 20 to 22 ms'
    """
    buckets, width = histogram["buckets"], histogram["width_ms"]
    if not buckets:
        return "-"
    first, last = buckets[0][0], buckets[-1][0]
    per_column = (last - first) // _COLUMNS + 1
    columns = [0] * ((last - first) // per_column + 1)
    for bucket, packets in buckets:
        columns[(bucket - first) // per_column] += packets
    steps = (len(_BARS) - 1) / max(columns)
    drawn = "".join(_BARS[ceil(count * steps)] for count in columns)
    return f"{drawn} {_digits_text(first * width)} to {_digits_text((last + 1) * width)} ms"


def _inner_text(name: str, value: object, unit: Callable[[float], str] | None) -> str:
    """Format a field of an object in a list; numbers without a unit get the name of the field."""
    if value is None or value == []:
        return ""
    words = name.split("_")
    own = _UNITS.get(words[-1], unit)
    written = _value_text(value, own)
    named = isinstance(value, bool | int | float) and own is None
    return f"{' '.join(words)} {written}" if named else written


def _value_text(value: object, unit: Callable[[float], str] | None) -> str:
    if value is None or isinstance(value, bool):
        return {None: "-", True: "yes", False: "no"}[value]
    if isinstance(value, (int, float)):
        return unit(value) if unit else _digits_text(value)
    if isinstance(value, Mapping):
        return " ".join(
            filter(None, (_inner_text(name, item, unit) for name, item in value.items()))
        )
    if isinstance(value, list):
        if len(value) <= _LONGEST_LIST and not any(isinstance(item, list) for item in value):
            nested = any(isinstance(item, Mapping) for item in value)
            return ("; " if nested else ", ").join(_value_text(item, unit) for item in value)
        return "1 entry" if len(value) == 1 else f"{len(value)} entries"
    return printable_text(value)
