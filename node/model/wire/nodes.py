"""Nodes, clocks, tests and tools, tokens: the smaller resources of the API."""

from __future__ import annotations

import re
from typing import Annotated, Any, Self

from pydantic import AfterValidator, Field, StringConstraints, model_validator

from node.model.wire.fields import Document, Duration, Instant, Name

_URL = re.compile(r"https?://[^\s/?#@]{1,280}", re.ASCII)


def _url(value: str) -> str:
    if _URL.fullmatch(value.removesuffix("/")) is None:
        raise ValueError("not the URL of a node's API; write http://HOST:PORT, nothing behind it")
    return value.removesuffix("/")


Url = Annotated[str, AfterValidator(_url)]
"""Scheme, host and port of a node's API, nothing behind it."""

Identity = Annotated[str, StringConstraints(pattern=r"^ed25519:[A-Za-z0-9_-]{43}$")]
"""A node's public key."""

NodeName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?$")]


class NodeCard(Document):
    """What a node says of itself; the key is what others pin."""

    identity: Identity
    name: NodeName
    url: Url | None = Field(description="Null where no other node reaches it: it fetches its work.")
    address: Annotated[str, StringConstraints(min_length=1, max_length=253)]
    version: str = ""


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
    tools: tuple[str, ...] = Field(description="Tools for it on this node, best first.")


class ToolDescription(Document):
    """A tool this program knows, and whether this host has it."""

    name: Name
    tests: tuple[Name, ...]
    available: bool
    reason: str | None = Field(description="What is missing, and the package that brings it.")
