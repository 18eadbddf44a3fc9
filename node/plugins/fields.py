"""Field types shared by the specs and results of tests. Pure.

Limits on durations live here because pydantic's own would speak of bare microseconds.
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
"""A number of either sign that can be reckoned with."""

NonNegative = Annotated[float, Field(ge=0, le=1e15, allow_inf_nan=False)]
"""A number not below zero that can be reckoned with: no measurement exceeds the limit."""

CountField = Annotated[int, Field(ge=0, le=2**63 - 1)]
"""A number of things; every database and JSON library can hold it."""

Port = Annotated[int, Field(ge=1024, le=65_535, strict=True)]
"""A UDP or TCP port that needs no privilege."""

AnyPort = Annotated[int, Field(ge=1, le=65_535, strict=True)]
"""A UDP or TCP port of a host that is measured."""

_LONGEST_TOLD = 1000


def _plain(value: object) -> object:
    """Text without what no terminal and no database should get, cut to the longest that is kept."""
    if not isinstance(value, str):
        return value
    cut = value[:_LONGEST_TOLD]
    return "".join(it if it.isprintable() else "\N{REPLACEMENT CHARACTER}" for it in cut)


ForeignText = Annotated[str, BeforeValidator(_plain), Field(max_length=_LONGEST_TOLD)]
"""What a stranger said, such as a target: its characters are made printable, and it is cut."""


SECRET: dict[str, Any] = {"secret": True}
"""Marks, as ``json_schema_extra``, a text or the values of a map that are kept and never shown."""


def between(least: int, most: int) -> AfterValidator:
    """Refuse durations (microseconds) outside ``[least, most]`` in a sentence with ISO 8601."""

    def check(value: int) -> int:
        if not least <= value <= most:
            limits = f"{times.format_duration(least)} to {times.format_duration(most)}"
            raise ValueError(f"{times.format_duration(value)} is outside {limits}")
        return value

    return AfterValidator(check)


def an_hour_at_most(count: int, interval: int) -> None:
    """Refuse more packets than an hour has room for, with ``interval`` microseconds to each.

    :raises ValueError: says how long they would take.
    """
    if count * interval > times.HOUR:
        took = times.format_duration(count * interval)
        raise ValueError(f"count times interval is {took}, longer than PT1H")


def duration_field(default: int, description: str) -> Any:
    """A duration's default (microseconds), written as ISO 8601 in the JSON schema."""
    shown: dict[str, Any] = {"default": times.format_duration(default)}
    return Field(default=default, description=description, json_schema_extra=shown)


ArchiverTimeout = Annotated[Duration, between(times.SECOND, 2 * times.MINUTE)]
"""How long an archiver may take for what it asks of the other side."""


def whole_seconds(value: int) -> int:
    """Refuse a duration (microseconds) that is not a whole number of seconds."""
    if value % times.SECOND:
        raise ValueError(f"{times.format_duration(value)} is not a whole number of seconds")
    return value


WholeSeconds = Annotated[Duration, AfterValidator(whole_seconds)]
"""A duration for programs that count in seconds."""
