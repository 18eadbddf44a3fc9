"""The bundle of a run: one file with everything about it, signed by its participants and its lead.

A bundle is checked as the JSON it is (:mod:`node.results.bundles.verification`); these models
describe it, and refuse what is none.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal
from uuid import UUID

from pydantic import Field

from node.model.classes import SchedulingClass
from node.model.verdict import Level
from node.model.wire.fields import Document, Duration, Instant
from node.model.wire.runs import Decision, MetricView

MEDIA_TYPE: Final = "application/vnd.parley.run-bundle+json"
VERSION: Final = 1

_Index = Annotated[int, Field(ge=0, strict=True)]
_SIGNATURE = "statement, a compact JWS (RFC 7515) with Ed25519; null if its node signs none."


class BundleMaker(Document):
    """The program that made a bundle, and the node that signed it."""

    at: Instant
    name: str
    node: str = Field(description="Identity of the lead: its public key.")
    version: str = Field(description="The version of Parley.")
    test_plugin: str = Field(description="The distribution of the test, with its version.")


class BundleTask(Document):
    """The task of a run, as its lead had it when the bundle was made."""

    id: UUID
    revision: int
    tools: tuple[str, ...]
    schedule: dict[str, Any]
    duration: Duration
    campaign: str | None
    reference: Any
    requester: str | None
    created_at: Instant
    parent: UUID | None = Field(description="The pool task that it has seats of, if any.")


class BundleRun(Document):
    """The run: what was to be measured, and when."""

    id: UUID
    test: str
    tool: str | None
    spec: dict[str, Any]
    scheduling_class: SchedulingClass
    priority: int
    slot: Instant
    attempt: int
    starts_at: Instant
    ends_at: Instant
    finished_at: Instant | None
    displaced_by: UUID | None


class BundleParticipant(Document):
    """A participant, as its lead knew it."""

    name: str
    node: str = Field(description="Identity: its public key.")
    address: str
    context: str | None


class BundlePart(Document):
    """One participant's part, and what it signed about it."""

    participant: _Index = Field(description="Its place among the participants, from 0.")
    result: dict[str, Any] | None
    reason: str | None
    started_at: Instant | None
    finished_at: Instant | None
    command: tuple[str, ...] | None
    output: str | None
    circumstances: dict[str, Any] | None
    signature: str | None = Field(description=f"The participant's {_SIGNATURE}")


class BundleShare(Document):
    """One participant's share of an interval."""

    participant: _Index
    result: dict[str, Any] | None
    reason: str | None
    signature: str | None = Field(description=f"The participant's {_SIGNATURE}")


class BundleInterval(Document):
    """An interval of a long run: the participants' shares, and what was merged of them."""

    number: _Index
    starts_at: Instant
    ends_at: Instant
    shares: tuple[BundleShare, ...]
    result: dict[str, Any] | None
    summary: str | None
    reason: str | None


class BundleOutcome(Document):
    """The outcome that the lead made of the parts."""

    state: str
    reason: str | None
    result: dict[str, Any] | None
    summary: str | None
    verdict: Level | None
    verdict_reasons: tuple[str, ...]
    metrics: tuple[MetricView, ...]


class RunBundle(Document):
    """A run with its task, decisions, parts, and outcome, in a form that anybody can check."""

    type: Literal["application/vnd.parley.run-bundle+json"]
    version: Literal[1]
    about: tuple[str, ...] = Field(description="How to check it.")
    made: BundleMaker
    task: BundleTask
    run: BundleRun
    participants: tuple[BundleParticipant, ...]
    decisions: tuple[Decision, ...] = Field(
        description="The planning attempts of its slot, newest first."
    )
    parts: tuple[BundlePart, ...]
    intervals: tuple[BundleInterval, ...]
    outcome: BundleOutcome
    missing: tuple[str, ...] = Field(description="What the bundle lacks, and why: sentences.")
    signature: str = Field(
        description="The lead's statement about all other members, a compact JWS with Ed25519."
    )
