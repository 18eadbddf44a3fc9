"""OTLP over HTTP with protobuf bodies: what the requests of all signals have in common.

https://opentelemetry.io/docs/specs/otlp/#otlphttp
"""

from __future__ import annotations

import gzip
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from google.protobuf.message import Message

HEADERS = {"Content-Type": "application/x-protobuf", "Content-Encoding": "gzip"}

_NANOSECONDS = 1000  # in a microsecond


def compressed_body(request: Message) -> bytes:
    """Return the body of a request with :data:`HEADERS`."""
    return gzip.compress(request.SerializeToString(), compresslevel=5, mtime=0)


def nanoseconds(instant: int) -> int:
    """Return an instant (µs) as OTLP has it."""
    return instant * _NANOSECONDS


def name_sender(resource: Any, scope: Any, attributes: Iterable[tuple[str, str]]) -> None:
    """Say in a request who sends it: the attributes of the resource, and the program."""
    add_attributes(resource, sorted(attributes))
    scope.scope.name = "parley"


def add_attributes(message: Any, attributes: Iterable[tuple[str, str]]) -> None:
    """Add attributes with texts as values to a message that has such."""
    for key, value in attributes:
        message.attributes.add(key=key).value.string_value = value
