"""The types of members of specs, as checks that return a complaint or None. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from node.model.wire.fields import is_host
from node.pscheduler import times
from node.pscheduler.refusals import invalid

Check = Callable[[Any], str | None]
"""Returns what is wrong with a value, as the rest of a sentence; None if nothing is."""

_WHOLE_MAX = 2**63 - 1
_SI = re.compile(r"(?P<number>\d{1,30}(?:\.\d{1,30})?)\s*(?P<unit>[kmgtpezy]i?)?", re.IGNORECASE)
_POWERS = {unit: power for power, unit in enumerate("kmgtpezy", 1)}
_NAME_AND_PORT = re.compile(r"(?P<host>[^\s\[\]/]+?)(?::(?P<port>\d{1,5}))?", re.ASCII)
_ADDRESS_AND_PORT = re.compile(r"\[(?P<host>[^\[\]]+)\](?::(?P<port>\d{1,5}))?", re.ASCII)
_PORT_MAX = 65_535


def text(value: Any) -> str | None:
    """Return a complaint unless the value is a text."""
    return None if isinstance(value, str) else "must be a text"


def boolean(value: Any) -> str | None:
    """Return a complaint unless the value is true or false."""
    return None if isinstance(value, bool) else "must be true or false"


def whole(least: int, most: int = _WHOLE_MAX) -> Check:
    """Return a check that accepts whole numbers from ``least`` to ``most``."""
    span = f"of at least {least}" if most == _WHOLE_MAX else f"from {least} to {most}"

    def check(value: Any) -> str | None:
        if _is_whole(value) and least <= value <= most:
            return None
        return f"must be a whole number {span}"

    return check


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


integer = whole(-_WHOLE_MAX)
cardinal = whole(1)
cardinal_or_zero = whole(0)
port = whole(0, _PORT_MAX)
octet = whole(0, 255)


def ip_version(value: Any) -> str | None:
    """Return a complaint unless the value is 4 or 6."""
    return None if _is_whole(value) and value in (4, 6) else "must be 4 or 6"


def number(value: Any) -> str | None:
    """Return a complaint unless the value is a finite number."""
    if isinstance(value, int | float) and not isinstance(value, bool) and _is_finite(value):
        return None
    return "must be a number"


def _is_finite(value: float) -> bool:
    try:
        return math.isfinite(float(value))
    except OverflowError:
        return False


def probability(value: Any) -> str | None:
    """Return a complaint unless the value is a number from 0 to 1."""
    return None if number(value) is None and 0 <= value <= 1 else "must be a number from 0 to 1"


def duration(value: Any) -> str | None:
    """Return a complaint unless the value is an ISO 8601 duration of weeks to seconds."""
    if not isinstance(value, str):
        return "must be an ISO 8601 duration, such as PT10S"
    try:
        times.parse_duration(value)
    except ValueError as fault:
        return str(fault)
    return None


def host(value: Any) -> str | None:
    """Return a complaint unless the value is a name or an address, without a port."""
    return None if is_host(value) else "must be the name or address of a host"


def host_and_port(value: Any) -> str | None:
    """Accept names and addresses, with a port if need be; with one, IPv6 stands in brackets."""
    if host(value) is None:
        return None
    if isinstance(value, str):
        match = _ADDRESS_AND_PORT.fullmatch(value) or _NAME_AND_PORT.fullmatch(value)
        if match and is_host(match["host"]) and int(match["port"] or 0) <= _PORT_MAX:
            return None
    return "must be the name or address of a host, with or without a port"


def host_of(value: str) -> str:
    """Return a host without its port and brackets."""
    if is_host(value):
        return value
    match = _ADDRESS_AND_PORT.fullmatch(value) or _NAME_AND_PORT.fullmatch(value)
    return match["host"] if match else value


def one_of(*values: str) -> Check:
    """Return a check that accepts these words only."""

    def check(value: Any) -> str | None:
        return None if value in values else f"must be one of {', '.join(values)}"

    return check


def si_number(value: Any) -> str | None:
    """Return a complaint unless the value is a number, perhaps with a unit such as 10M or 1Ki."""
    if isinstance(value, str):
        return None if _SI.fullmatch(value) else "must be a number, such as 10M or 1Ki"
    return None if _is_whole(value) and abs(value) <= _WHOLE_MAX else "must be a number"


def si_value(value: float | str) -> int:
    """Return the whole number that ``10M`` stands for.

    :raises ValueError: it is no such number.
    """
    if not isinstance(value, str):
        return int(value)
    match = _SI.fullmatch(value.strip())
    if match is None:
        raise ValueError(f"'{value}' is not a number; write 1000, 10M or 1Ki")
    unit = (match["unit"] or "").lower()
    base = 1024 if unit.endswith("i") and len(unit) > 1 else 1000
    factor: int = base ** _POWERS.get(unit[:1], 0)
    whole_, _, decimals = match["number"].partition(".")
    total = int(whole_) * factor
    if decimals:
        total += int(decimals) * factor // 10 ** len(decimals)
    if total > _WHOLE_MAX:
        raise ValueError(f"'{value}' is too large")
    return total


@dataclass(frozen=True)
class Member:
    """A member of a spec: its check, and the schema number that brought it.

    ``since`` may depend on the value: some members took more values later. ``ours`` is the member
    of our test that means the same, in the same form; ``default`` is what ours is left out for.
    """

    check: Check
    since: int | Callable[[Any], int] = 1
    required: bool = False
    ours: str = ""
    default: Any = None

    def schema_of(self, value: Any) -> int:
        """Return the least schema number that knows the member with this value."""
        return self.since(value) if callable(self.since) else self.since

    def fault(self, value: Any, schema: int, *, is_open: bool) -> str | None:
        """Return what is wrong with a value in a spec of this schema; None if nothing is.

        To an open spec, a member that came later is one of those that it may have besides.
        """
        wrong = self.check(value)
        least = 1 if wrong else self.schema_of(value)
        if least <= schema:
            return wrong
        return None if is_open else f"needs schema {least}, and the spec says {schema}"


def least_schema(members: Mapping[str, Member], spec: Mapping[str, Any]) -> int:
    """Return the least schema number that knows all members of a spec."""
    known = (members[name].schema_of(value) for name, value in spec.items() if name in members)
    return max(known, default=1)


def check_spec(members: Mapping[str, Member], highest: int, spec: Any, *, is_open: bool) -> None:
    """Refuse what is no spec of these members.

    ``highest`` is the highest schema number; an open spec may have unknown members.

    :raises Refusal: 400, with a sentence that names the member.
    """
    schema = _schema_of(spec, highest)
    for name, member in members.items():
        if name in spec:
            fault = member.fault(spec[name], schema, is_open=is_open)
            if fault is not None:
                raise invalid(" ".join(f"At /{name}: {fault}".split()))  # a value may have lines
        elif member.required:
            raise invalid(f"The member '{name}' is missing")
    unknown = sorted(str(name) for name in spec.keys() - members.keys() - {"schema"})
    if unknown and not is_open:
        raise invalid(f"Unknown members: {', '.join(unknown)}")


def _schema_of(spec: Any, highest: int) -> int:
    if not isinstance(spec, dict):
        raise invalid("The spec must be a JSON object")
    schema = spec.get("schema", 1)
    if not _is_whole(schema) or schema < 1:
        raise invalid("At /schema: must be a whole number of at least 1")
    if schema > highest:
        raise invalid(f"Schema version {schema} is not supported (highest is {highest})")
    return int(schema)
