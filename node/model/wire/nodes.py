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

from node.model.nodekinds import NodeKind, pscheduler_identity
from node.model.predicates import NAME, WORDS
from node.model.urls import split_url
from node.model.wire.fields import Document, Duration, Host, Instant, Name

_URL = re.compile(r"https?://[^\s/?#@]{1,280}", re.ASCII)


def _url(value: str) -> str:
    if _URL.fullmatch(value.removesuffix("/")) is None or split_url(value) is None:
        raise ValueError("not the URL of a node's API; write http://HOST:PORT without a path")
    return value.removesuffix("/")


Url = Annotated[str, AfterValidator(_url)]
"""Scheme, host, and port of a node's API, without a path."""


def _url_to_add(value: str) -> str:
    return value.removesuffix("/") if pscheduler_identity(value) is not None else _url(value)


UrlToAdd = Annotated[str, AfterValidator(_url_to_add)]
"""The URL of a node's API, or that of a host's pScheduler: ``https://HOST[:PORT]/pscheduler``."""

Identity = Annotated[
    str, StringConstraints(pattern=r"^ed25519:[A-Za-z0-9_-]{42}[AEIMQUYcgkosw048]$")
]
"""A node's public key: 32 bytes, so two bits of the last of the 43 characters are always 0."""

NodeName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?$")]


LANES = 8
ATTRIBUTES_MAX = 100
_LARGEST = 2**53
DERIVED = frozenset({"name", "lanes", "version"})
"""Attributes that the node itself defines, apart from those called ``tool:…``."""


def _attribute_name(value: str) -> str:
    if NAME.fullmatch(value) is None or value in WORDS:
        syntax = (
            f"a small letter, then small letters, digits and _.:- (not {', '.join(sorted(WORDS))})"
        )
        msg = f"is not a valid attribute name; use {syntax}"
        raise ValueError(msg)
    return value


AttributeName = Annotated[str, AfterValidator(_attribute_name)]
_LONGEST = 200


def _attribute_value(value: object) -> object:
    if isinstance(value, str) and len(value) <= _LONGEST:
        return value
    # bool is a kind of int, so this accepts true and false as well.
    if isinstance(value, int | float) and abs(value) <= _LARGEST:
        return value
    msg = (
        f"must be true, false, a number from -{_LARGEST} to {_LARGEST}, "
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
"""Texts, numbers, true or false, by name."""

Lanes = Annotated[int, Field(ge=1, le=1000)]


class NodeCard(Document):
    """A node's description of itself; other nodes pin its key."""

    identity: Identity
    name: NodeName
    url: Url | None = Field(description="Null if no other node can reach it and it fetches work.")
    address: Host = Field(description="The address that measurements use.")
    version: str = Field("", max_length=100)
    attributes: Attributes = Field(
        default_factory=dict, description="What predicates of pools compare; see /v1/pools."
    )
    lanes: Lanes = Field(
        LANES, description="This many concurrent normal runs are charged like an exclusive one."
    )


class HostState(Document):
    """The state of another host, as its node told it last; it is asked every five minutes."""

    at: Instant = Field(description="When it was told.")
    synchronised: bool | None = Field(description="Its clock, as its kernel reports it.")
    error_bound_ms: float | None = Field(description="Its kernel's bound on the error.")
    ahead_ms: float = Field(description="How far its clock is ahead of this one; negative: behind.")
    uncertain_ms: float = Field(description="By how much `ahead_ms` may be wrong.")
    load: float = Field(description="Processes that run or wait, in the last minute.")
    processors: int
    needs_attention: int = Field(
        description="Number of things that need the attention of its owner."
    )


class LastCheck(Document):
    """The result of the last check of a node, by whomever; forgotten when the program restarts."""

    at: Instant
    faults: int
    warnings: int
    passed: int
    skipped: int


class Node(NodeCard):
    """A node as this node knows it."""

    identity: str = Field(
        description="Its public key; pscheduler://HOST for a host that runs pScheduler, which has "
        "none."
    )
    url: UrlToAdd | None = Field(
        description="Null if no other node can reach it and it fetches work; of a host that runs "
        "pScheduler the URL of that."
    )
    kind: NodeKind = Field(
        NodeKind.PARLEY,
        description="The program that it runs. A host that runs pScheduler has no key, and its "
        "certificate proves nothing; it takes part in tasks, and leads none here by this way.",
    )
    keys: tuple[Identity, ...] = Field(
        (),
        description="Its public keys in their order, as far as they are known here: the last one "
        "is that of today, and the first one is its identity.",
    )
    is_self: bool
    added_at: Instant
    seen_at: Instant | None
    unreachable_since: Instant | None
    last_error: str | None
    knows_this: bool | None = Field(
        None,
        description="Whether it knows this node, too: false if it is known here, but not there; "
        "null for this node itself, and while that is not known.",
    )
    busy_until: Instant | None = Field(
        None, description="The end of its bookings in a row from now on, as it told last."
    )
    shortfall: Duration | None = Field(
        None, description="Its free time for exclusive runs up to its horizon, as it told last."
    )
    heard_at: Instant | None = Field(
        None,
        description="When it last sent or answered a signed request, to the minute; null for this "
        "node itself, and if it never did.",
    )
    lease_until: Instant | None = Field(
        None,
        description="When the tasks that it leads here end, if it sends nothing before; null for "
        "this node itself.",
    )
    backlog: int = Field(0, description="Messages that wait to be sent to it.")
    host: HostState | None = Field(
        None,
        description="The state of its host; null for this node itself (/v1/status has that), and "
        "for nodes that have not told it.",
    )
    checked: LastCheck | None = Field(
        None, description="Its last check (/v1/checks); null if there was none."
    )


class NodeRemoval(Document):
    """The answer to the removal of a node: all open tasks between it and this one have ended."""

    identity: str
    name: NodeName
    tasks_led_there: int = Field(description="Tasks that it led here.")
    tasks_led_here: int = Field(description="Tasks led here that it took part in.")
    runs: int = Field(description="Runs of these tasks that were not over; their time is free.")


class NodeAddition(Document):
    """A node to register: its card is fetched from the URL and its key is pinned.

    A node that fetches its work has no URL: it is registered by its key and sends its card itself.
    A host that runs pScheduler is registered by the URL of that; it has no key.
    """

    url: UrlToAdd | None = None
    identity: Identity | None = Field(
        None, description="The expected key; without it the key found at the URL is trusted."
    )

    @model_validator(mode="after")
    def _check_identification(self) -> Self:
        if self.url is None and self.identity is None:
            msg = "needs the url of a node, or the identity of a node that fetches its work"
            raise ValueError(msg)
        if self.identity is not None and self.url and pscheduler_identity(self.url) is not None:
            msg = "identity: a host that runs pScheduler has no key; leave it out"
            raise ValueError(msg)
        return self


class NodePatch(Document):
    """Changes of this node's attributes, as a JSON merge patch: null removes one."""

    attributes: dict[AttributeName, AttributeValue | None] = Field(max_length=ATTRIBUTES_MAX)


class ClockState(Document):
    """This node's clock."""

    now: Instant
    synchronised: bool | None = Field(description="As the kernel reports it; null if unknown.")
    error_bound_ms: float | None = Field(description="The kernel's bound on the error.")


class TestDescription(Document):
    """A test that tasks can request."""

    name: Name
    title: str
    spec: dict[str, Any] = Field(description="JSON Schema of the spec.")
    result: dict[str, Any] = Field(description="JSON Schema of the result.")
    interval: dict[str, Any] | None = Field(
        None, description="JSON Schema of an interval's result, if the test has intervals."
    )
    tools: tuple[str, ...] = Field(description="Tools for it on this node, best first.")


class ToolDescription(Document):
    """A tool that this program knows, and whether this host has it."""

    name: Name
    tests: tuple[Name, ...]
    available: bool
    tried: tuple[str, ...] = Field(
        description="The versions it was tested with, oldest first; none for Parley's own "
        "programs, and for a tool that was never run and is used only if a task names it."
    )
    reason: str | None = Field(description="What is missing, and the package that provides it.")
