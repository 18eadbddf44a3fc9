"""Nodes, clocks, tests and tools, tokens: the smaller resources of the API."""

from __future__ import annotations

import re
from typing import Annotated, Any, Self

from pydantic import (
    AfterValidator,
    Field,
    PlainValidator,
    StringConstraints,
    WithJsonSchema,
    model_validator,
)

from node.model.predicates import NAME, WORDS
from node.model.wire.fields import Document, Duration, Instant, Name

_URL = re.compile(r"https?://[^\s/?#@]{1,280}", re.ASCII)


def _url(value: str) -> str:
    if _URL.fullmatch(value.removesuffix("/")) is None:
        raise ValueError("not the URL of a node's API; write http://HOST:PORT, nothing behind it")
    return value.removesuffix("/")


Url = Annotated[str, AfterValidator(_url)]
"""Scheme, host and port of a node's API, nothing behind it."""

Identity = Annotated[
    str, StringConstraints(pattern=r"^ed25519:[A-Za-z0-9_-]{42}[AEIMQUYcgkosw048]$")
]
"""A node's public key, 32 bytes: two bits of the last of the 43 characters are never set."""

NodeName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?$")]


LANES = 8
ATTRIBUTES_MAX = 100
_LARGEST = 2**53
DERIVED = frozenset({"name", "lanes"})
"""Attributes that a node has by being itself, beside those called ``tool:…``."""


def _attribute_name(value: str) -> str:
    if NAME.fullmatch(value) is None or value in WORDS:
        said = (
            f"a small letter, then small letters, digits and _.:- (not {', '.join(sorted(WORDS))})"
        )
        msg = f"is no name of an attribute; write {said}"
        raise ValueError(msg)
    return value


AttributeName = Annotated[str, AfterValidator(_attribute_name)]
_LONGEST = 200


def _attribute_value(value: object) -> object:
    if isinstance(value, str) and len(value) <= _LONGEST:
        return value
    if isinstance(value, int | float) and abs(value) <= _LARGEST:  # true and false are numbers
        return value
    msg = (
        f"must be true, false, a number up to {_LARGEST} of either sign, "
        f"or a text of at most {_LONGEST} characters"
    )
    raise ValueError(msg)


AttributeValue = Annotated[
    str | int | float | bool,
    PlainValidator(_attribute_value),
    WithJsonSchema({"type": ["string", "number", "boolean"]}),
]
Attributes = Annotated[
    dict[AttributeName, AttributeValue],
    Field(max_length=ATTRIBUTES_MAX, examples=[{"country": "DE"}]),
]
"""Text, numbers, true or false by name."""

Lanes = Annotated[int, Field(ge=1, le=1000)]


class NodeCard(Document):
    """What a node says of itself; the key is what others pin."""

    identity: Identity
    name: NodeName
    url: Url | None = Field(description="Null where no other node reaches it: it fetches its work.")
    address: Annotated[str, StringConstraints(min_length=1, max_length=253)]
    version: str = ""
    attributes: Attributes = Field(
        default_factory=dict, description="What pools may ask for; see /v1/pools."
    )
    lanes: Lanes = Field(
        LANES, description="So many normal runs side by side are charged like an exclusive one."
    )


class Node(NodeCard):
    """A node as this node knows it."""

    is_self: bool
    added_at: Instant
    seen_at: Instant | None
    unreachable_since: Instant | None
    last_error: str | None
    busy_until: Instant | None = Field(
        None, description="Of one that fetches its work: no exclusive run can begin earlier there."
    )
    shortfall: Duration | None = Field(
        None, description="Of the same: how much of its horizon is free for exclusive runs."
    )


class NodeAddition(Document):
    """Who to make known: its card is fetched from the URL and its key pinned.

    A node that fetches its work has no URL: it is made known by its key, and says the rest itself.
    """

    url: Url | None = None
    identity: Identity | None = Field(
        None, description="The key to expect; without it the key found at the URL is trusted."
    )

    @model_validator(mode="after")
    def _is_somebody(self) -> Self:
        if self.url is None and self.identity is None:
            msg = "needs the url of a node, or the identity of one that fetches its work itself"
            raise ValueError(msg)
        return self


class NodePatch(Document):
    """Changes of this node's own attributes, as a JSON merge patch: null takes one back."""

    attributes: dict[AttributeName, AttributeValue | None] = Field(max_length=ATTRIBUTES_MAX)


class ClockState(Document):
    """This node's clock."""

    now: Instant
    synchronised: bool | None = Field(description="What the kernel says; null if it does not say.")
    error_bound_ms: float | None = Field(description="The kernel's bound on the error.")


class TestDescription(Document):
    """A test that can be asked for."""

    name: Name
    title: str
    spec: dict[str, Any] = Field(description="JSON Schema of the spec.")
    result: dict[str, Any] = Field(description="JSON Schema of the result.")
    interval: dict[str, Any] | None = Field(
        None, description="JSON Schema of what each interval gives, if it measures by intervals."
    )
    tools: tuple[str, ...] = Field(description="Tools for it on this node, best first.")


class ToolDescription(Document):
    """A tool this program knows, and whether this host has it."""

    name: Name
    tests: tuple[Name, ...]
    available: bool
    tried: tuple[str, ...] = Field(
        description="The versions it was tried with, oldest first; none for Parley's own programs, "
        "and for one that is used only where a task names it, as it was never run."
    )
    reason: str | None = Field(description="What is missing, and the package that brings it.")
