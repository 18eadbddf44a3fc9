"""Field types shared by the specs and results of tests. Pure.

Limits on durations are here because pydantic's own messages would show bare microseconds.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from node.model import times
from node.model.wire.fields import Duration

IpVersion = Literal[4, 6]
"""The version of the Internet Protocol."""

Fraction = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
"""A part of a whole, 0 to 1."""

Finite = Annotated[float, Field(ge=-1e15, le=1e15, allow_inf_nan=False)]
"""A number of either sign that arithmetic can handle."""

NonNegative = Annotated[float, Field(ge=0, le=1e15, allow_inf_nan=False)]
"""A number not below zero that arithmetic can handle: no measurement exceeds the limit."""

CountField = Annotated[int, Field(ge=0, le=2**63 - 1)]
"""A count; every database and JSON library can hold it."""

Port = Annotated[int, Field(ge=1024, le=65_535, strict=True)]
"""A UDP or TCP port that needs no privilege."""

AnyPort = Annotated[int, Field(ge=1, le=65_535, strict=True)]
"""A UDP or TCP port of a measured host."""

_FOREIGN_TEXT_MAX = 1000


def _plain(value: object) -> object:
    """Replace characters that are unsafe for terminals and databases, and truncate the text."""
    if not isinstance(value, str):
        return value
    cut = value[:_FOREIGN_TEXT_MAX]
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in cut)


ForeignText = Annotated[str, BeforeValidator(_plain), Field(max_length=_FOREIGN_TEXT_MAX)]
"""Text from outside, such as a target's message: made printable, and truncated."""


SECRET: dict[str, Any] = {"secret": True}
"""Marks (as ``json_schema_extra``) a text, or a map's values, to be stored but never shown."""


def between(least: int, most: int) -> AfterValidator:
    """Refuse durations (microseconds) outside ``[least, most]``, with both limits as ISO 8601."""

    def check(value: int) -> int:
        if not least <= value <= most:
            limits = f"{times.format_duration(least)} to {times.format_duration(most)}"
            raise ValueError(f"{times.format_duration(value)} is outside {limits}")
        return value

    return AfterValidator(check)


def check_packet_total(count: int, interval: int) -> None:
    """Refuse more packets than fit into an hour, with ``interval`` microseconds for each.

    :raises ValueError: says how long they would take.
    """
    if count * interval > times.HOUR:
        total = times.format_duration(count * interval)
        raise ValueError(f"count times interval is {total}, longer than PT1H")


def duration_field(default: int, description: str) -> Any:
    """Return a field with a default duration (microseconds), shown as ISO 8601 in JSON schemas."""
    shown: dict[str, Any] = {"default": times.format_duration(default)}
    return Field(default=default, description=description, json_schema_extra=shown)


ArchiverTimeout = Annotated[Duration, between(times.SECOND, 2 * times.MINUTE)]
"""Timeout of an archiver's requests to its destination."""


def whole_seconds(value: int) -> int:
    """Refuse a duration (microseconds) that is not a whole number of seconds."""
    if value % times.SECOND:
        raise ValueError(f"{times.format_duration(value)} is not a whole number of seconds")
    return value


WholeSeconds = Annotated[Duration, AfterValidator(whole_seconds)]
"""A duration for programs that count in seconds."""
