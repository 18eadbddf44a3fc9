"""Checks of nodes and pairs of nodes, and what nodes tell each other for them."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import Field, StringConstraints

from node.model.wire.fields import Document, Duration, Instant
from node.model.wire.nodes import ClockState, Identity, NodeName

_Text = Annotated[str, Field(max_length=1000)]
CHECKS_MAX = 200
"""Maximum number of checks in one view."""


class CheckState(StrEnum):
    """The outcome of a check."""

    OK = "ok"
    WARNING = "warning"
    """It works, but something limits it, or may be wrong soon."""
    FAULT = "fault"
    SKIPPED = "skipped"
    """It could not be checked; the sentence says why."""


class Check(Document):
    """One check: what was found and, if something is wrong, the cause and the next command."""

    subject: Annotated[str, Field(max_length=40)]
    state: CheckState
    what: _Text = Field(description="What was found, in one sentence.")
    cause: _Text | None = Field(None, description="What is probably the cause.")
    command: _Text | None = Field(None, description="The command to type next.")
    where: NodeName | None = Field(
        None, description="The node on whose host to type it; null for that of this view."
    )


class Diagnosis(Document):
    """The checks that one node has made: of itself, or of the way to another one."""

    node: NodeName
    towards: NodeName | None = None
    checks: Annotated[tuple[Check, ...], Field(max_length=CHECKS_MAX)]


class DiagnosisRequest(Document):
    """A request to check this node, or, with ``to``, the way there and back."""

    from_: NodeName | None = Field(
        None, alias="from", description="One end of the pair; null for this node."
    )
    to: NodeName | None = Field(None, description="The other end; null to check this node alone.")


class DiagnosisAnswer(Document):
    """The views of those that were asked, in the order of the request."""

    views: tuple[Diagnosis, ...]


# Between nodes


class PeerCheckRequest(Document):
    """A request to check the way to a node that is known there."""

    towards: Identity


class PeerFacts(Document):
    """The state of a host, as far as other nodes need it to measure with it."""

    received_at: Instant = Field(description="Its time when the request came.")
    answered_at: Instant = Field(description="Its time when it answered.")
    clock: ClockState
    processors: Annotated[int, Field(ge=1, le=100_000)]
    load: Annotated[float, Field(ge=0, le=1_000_000)]
    needs_attention: Annotated[int, Field(ge=0, le=100_000)] = Field(
        description="Number of things that need the attention of its owner."
    )


class ProbeRequest(Document):
    """A request to answer for some seconds at a port that tools use."""

    nonce: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{32}$")] = Field(
        description="What is sent to the port, and is to be sent back."
    )


class ProbeOffer(Document):
    """The port at which it is answered, over TCP and UDP."""

    port: Annotated[int, Field(ge=1, le=65535)]
    lasts: Duration
