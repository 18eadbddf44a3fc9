"""Field types shared by the specs and results of tests. Pure.

Limits on durations are here because pydantic's own messages would show bare microseconds.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeVar

from pydantic import AfterValidator, BeforeValidator, Discriminator, Field, Tag
from pydantic.json_schema import SkipJsonSchema

from node.model import times
from node.model.errors import HostError
from node.model.wire.fields import KIND, Document, Duration, Host, Name
from node.plugins.plausibility import COUNT_MAX, FIGURE_MAX

IpVersion = Literal[4, 6]
"""The version of the Internet Protocol."""

Asker = Annotated[Host | None, Field(description="The host that asks; by default the lead itself.")]
"""The field ``source`` of what one participant asks a target."""
Connector = Annotated[
    Host | None, Field(description="The host that connects; by default the lead itself.")
]
"""The field ``source`` of what one participant connects to."""
VersionOfDest = Annotated[
    IpVersion | None, Field(description="4 or 6; by default the version of dest's address.")
]
"""The field ``ip_version`` of a spec with one dest."""

Fraction = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
"""A part of a whole, 0 to 1."""

Finite = Annotated[float, Field(ge=-FIGURE_MAX, le=FIGURE_MAX, allow_inf_nan=False)]
"""A number of either sign that arithmetic can handle."""

NonNegative = Annotated[float, Field(ge=0, le=FIGURE_MAX, allow_inf_nan=False)]
"""A number not below zero that arithmetic can handle."""

CountField = Annotated[int, Field(ge=0, le=COUNT_MAX)]
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


NAMED_SECRET: dict[str, Any] = {**SECRET, "named": True}
"""The same for texts that must not be in a task: it names secrets in the store of an owner."""


class NamedSecret(Document):
    """A secret in the store of the owner of the host that sends it; its value is told to nobody."""

    secret: Name = Field(description="Its name, as 'parley secret list' shows it there.")


class SealedText(Document):
    """A text as the node stores it (:mod:`node.model.secrets`)."""

    sealed: str
    here: str | None = Field(None, exclude_if=lambda value: value is None)


def _form(value: object) -> str:
    if isinstance(value, Mapping):
        return f"{KIND}{'sealed' if 'sealed' in value else 'named'}"
    return f"{KIND}{_FORMS.get(type(value), 'text')}"


_FORMS: Mapping[type, str] = {NamedSecret: "named", SealedText: "sealed"}

Text = TypeVar("Text")

SecretText = Annotated[
    Annotated[Text, Tag(f"{KIND}text")]
    | Annotated[NamedSecret, Tag(f"{KIND}named")]
    | SkipJsonSchema[Annotated[SealedText, Tag(f"{KIND}sealed")]],
    Discriminator(_form),
]
"""A text of a spec's field that is marked with :data:`SECRET`, in any of its forms; the tool that
sends it gets the text itself (:func:`texts`)."""


def texts(values: Mapping[str, str | NamedSecret | SealedText]) -> dict[str, str]:
    """Return the texts of a secret map, which the node has opened for the tool.

    :raises HostError: it has not.
    """
    if closed := [name for name, value in values.items() if not isinstance(value, str)]:
        raise HostError(f"{', '.join(closed)}: a secret was not opened for the tool")
    return {name: str(value) for name, value in values.items()}


def between(least: int, most: int) -> AfterValidator:
    """Refuse durations (microseconds) outside ``[least, most]``, with both limits."""

    def check(value: int) -> int:
        if not least <= value <= most:
            limits = f"{times.duration_text(least)} to {times.duration_text(most)}"
            raise ValueError(f"{times.duration_text(value)} is outside {limits}")
        return value

    return AfterValidator(check)


def check_packet_total(count: int, interval: int) -> None:
    """Refuse more packets than fit into an hour, with ``interval`` microseconds for each.

    :raises ValueError: says how long they would take.
    """
    if count * interval > times.HOUR:
        total = times.duration_text(count * interval)
        raise ValueError(f"count times interval is {total}, longer than 1 h")


def duration_field(default: int, description: str) -> Any:
    """Return a field with a default duration (microseconds), shown as ISO 8601 in JSON schemas."""
    shown: dict[str, Any] = {"default": times.format_duration(default)}
    return Field(default=default, description=description, json_schema_extra=shown)


def whole_field(
    default: int | None, least: int, most: int, description: str, *, later: bool = False
) -> Any:
    """Return a field with a whole number from ``least`` to ``most``.

    A ``later`` field is one that version 0.2 does not know: it is not told it unless it is set, so
    that it refuses only tasks that set it.
    """
    limits: dict[str, Any] = {"ge": least, "le": most, "strict": True}
    return Field(default=default, description=description, **limits, **_exclusion(later=later))


def flag_field(description: str, *, default: bool = False, later: bool = False) -> Any:
    """Return a field with true or false; ``later`` as of :func:`whole_field`."""
    exclusion = {"exclude_if": bool} if later and default else _exclusion(later=later)
    return Field(default=default, strict=True, description=description, **exclusion)


def _exclusion(*, later: bool) -> dict[str, Any]:
    return {"exclude_if": operator.not_} if later else {}


ArchiverTimeout = Annotated[Duration, between(times.SECOND, 2 * times.MINUTE)]
"""Timeout of an archiver's requests to its destination."""


def whole_seconds(value: int) -> int:
    """Refuse a duration (microseconds) that is not a whole number of seconds."""
    if value % times.SECOND:
        raise ValueError(f"{times.duration_text(value)} is not a whole number of seconds")
    return value


WholeSeconds = Annotated[Duration, AfterValidator(whole_seconds)]
"""A duration for programs that count in seconds."""
