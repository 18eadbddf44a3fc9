"""Field types and the base of every document: instants, durations, host names.

In memory an instant or a duration is an ``int`` of microseconds (``node.model.times``); in JSON it
is a string. A :data:`Host` is a name or an address that can never be taken for an option.
"""

from __future__ import annotations

import ipaddress
import re
from datetime import UTC
from functools import lru_cache
from typing import Annotated, Any, Protocol, Self
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    StringConstraints,
    ValidationInfo,
    WithJsonSchema,
)

from node.model import times
from node.model.moments import parse_moment

HEADLINE = "Test and ends in one line, the same everywhere: rtt  a → 192.0.2.7"
"""The description of the headline of a task or a run (:mod:`node.model.headline`)."""


class Row(Protocol):
    """A row of a query."""

    def __getitem__(self, key: str, /) -> Any:
        """Return the column of this name."""
        ...


class Document(BaseModel):
    """Base of all documents: frozen, with unknown fields refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    @classmethod
    def from_row(cls, row: Row, **others: Any) -> Self:
        """Return a document whose fields are the columns of the same names, but for the others."""
        return cls(**{name: row[name] for name in cls.model_fields if name not in others}, **others)


class Patch(Document):
    """Base of changes to a resource, as a JSON merge patch (RFC 7396): absent fields stay."""

    revision: int | None = Field(
        None,
        ge=1,
        lt=2**31,
        strict=True,
        description="The revision that was read. If the resource has changed since, nothing is "
        "changed and the answer is 409. Without it, the newest revision is changed.",
    )

    def changes(self) -> dict[str, Any]:
        """Return the fields of the patch that were sent."""
        return self.model_dump(mode="json", exclude_unset=True, exclude={"revision"})


FROM_OUTSIDE = {"from_outside": True}
"""Validation context for documents from users and other programs, whose times must be strings."""


KIND = "\0"
"""Prefix of union tags; it cannot occur in a document, so not in a pointer into one either."""


def is_absent(value: object) -> bool:
    """Leave a field out: nodes of earlier versions refuse fields that they do not know."""
    return value is None


def _is_inside(info: ValidationInfo) -> bool:
    return not (info.context or {}).get("from_outside")


def _instant(value: object, info: ValidationInfo) -> object:
    if isinstance(value, str):
        return times.parse_instant(value)
    if isinstance(value, int) and not isinstance(value, bool) and _is_inside(info):
        return value
    raise ValueError("is not an RFC 3339 time; write 2026-12-01T00:00:00Z")


def _moment(value: object, info: ValidationInfo) -> object:
    if not isinstance(value, str):
        return _instant(value, info)
    moment = parse_moment(value, toward=1)
    return moment.at(0, UTC) if moment.is_fixed else value


def _duration(value: object, info: ValidationInfo) -> object:
    if isinstance(value, str):
        return times.parse_duration(value)
    if isinstance(value, int) and not isinstance(value, bool) and _is_inside(info):
        return value
    raise ValueError(f"is not a duration; {times.DURATION_HINT}")


_LABEL = re.compile(r"(?!-)[A-Za-z0-9_-]{1,63}(?<!-)", re.ASCII)
_LONGEST_NAME = 253
_LONGEST_LABEL = 63


def fault_of_name(name: str) -> str | None:
    """Return what is wrong with the length or alphabet of a DNS name; None if nothing is."""
    if not name:
        return "is empty; write a name or an address"
    if len(name) > _LONGEST_NAME:
        return f"has {len(name)} characters; use at most {_LONGEST_NAME}"
    if not name.isascii():
        try:
            ascii_name = name.encode("idna").decode()
        except UnicodeError:
            return "has characters that are not allowed in DNS names"
        return f"has characters that are not allowed in DNS names; write it as {ascii_name}"
    longest = max(map(len, name.split(".")))
    if longest > _LONGEST_LABEL:
        return f"has {longest} characters between two dots; use at most {_LONGEST_LABEL}"
    return None


def _host(value: object) -> object:
    if not isinstance(value, str):
        msg = "not a host name or an address"
        raise ValueError(msg)  # noqa: TRY004 - pydantic reports ValueError with the field's pointer
    if not is_address(value):
        labels = value.removesuffix(".").split(".")
        if len(value) > _LONGEST_NAME or not all(_LABEL.fullmatch(label) for label in labels):
            msg = (
                "not a host name or an address: use letters, digits, '-' within words, and dots "
                "between them"
            )
            raise ValueError(fault_of_name(value) or msg)
    elif "%" in value:
        address, _, zone = value.partition("%")
        interface = zone if zone.isascii() and zone.isalnum() else "NAME"
        raise ValueError(
            f"an address with a zone is not accepted; write {address}, and name the interface as "
            f"the context to measure from: --context NODE=interface:{interface}"
        )
    return value


def is_host(value: object) -> bool:
    """Return whether the value has the form of a host name or of an address."""
    try:
        _host(value)
    except ValueError:
        return False
    return True


def is_address(text: str) -> bool:
    """Return whether the text has the form of an IP address."""
    if ":" not in text and not text[:1].isdigit():
        return False
    return len(text) <= _LONGEST_NAME and _is_parsed(text)


@lru_cache(maxsize=4096)
def _is_parsed(text: str) -> bool:
    """Parse an address once: that costs more than validating the rest of a document.

    A task is validated a dozen times on its way, and tasks of a mesh have the same addresses.
    """
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


Instant = Annotated[
    int,
    BeforeValidator(_instant),
    PlainSerializer(times.format_instant, return_type=str),
    WithJsonSchema({"type": "string", "format": "date-time", "examples": ["2026-12-01T00:00:00Z"]}),
]
"""Microseconds since 1970 in memory, RFC 3339 in JSON."""

Moment = Annotated[
    int | str,
    BeforeValidator(_moment),
    PlainSerializer(
        lambda moment: moment if isinstance(moment, str) else times.format_instant(moment),
        return_type=str,
    ),
    WithJsonSchema(
        {
            "type": "string",
            "format": "moment",
            "examples": ["2026-12-01T00:00:00Z", "2026-12-01", "10m", "@1h"],
        }
    ),
]
"""An :data:`Instant`, or a text that becomes one later: see :func:`instant_of`."""


def instant_of(moment: int | str, now: int) -> int:
    """Return the instant (µs) of a :data:`Moment` that is read at ``now``."""
    return parse_moment(moment, toward=1).at(now, UTC) if isinstance(moment, str) else moment


Duration = Annotated[
    int,
    BeforeValidator(_duration),
    PlainSerializer(times.format_duration, return_type=str),
    WithJsonSchema(
        {
            "type": "string",
            "format": times.DURATION_FORMAT,
            "pattern": times.WRITTEN_DURATION,
            "examples": ["10s"],
        }
    ),
]
"""Microseconds in memory, ISO 8601 in JSON."""

Host = Annotated[
    str,
    BeforeValidator(_host),
    WithJsonSchema({"type": "string", "examples": ["a.example", "192.0.2.7"]}),
]
"""A node's name, a host name, or an address."""

Name = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9-]{0,62}$")]
"""The name of a test, tool, archiver, or campaign."""

Count = Annotated[int, Field(ge=1, le=1_000_000, strict=True)]


def _check_url(value: str) -> str:
    parts = urlsplit(value)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        msg = "not an address such as https://collector.example/in"
        raise ValueError(msg)
    if parts.username is not None or parts.password is not None:
        msg = "must not contain a user or password, which would be shown; put them into headers"
        raise ValueError(msg)
    if parts.fragment or any(ord(letter) <= 0x20 for letter in value):  # noqa: PLR2004 - a blank
        msg = "must contain neither blanks nor a fragment"
        raise ValueError(msg)
    _ = parts.port  # raises ValueError if it is invalid
    return value


Url = Annotated[str, StringConstraints(max_length=2000), AfterValidator(_check_url)]
"""An address to post to, without user, password, blanks and fragment."""
