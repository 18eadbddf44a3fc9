"""Pull mode: messages by which a node that nobody can reach fetches its questions itself.

A question is a request under ``/v1/participant/`` exactly as it would have been sent, including its
signature, so the node that hands it over can neither forge nor alter one.
"""

from __future__ import annotations

from typing import Annotated, Literal
from uuid import UUID

from pydantic import Field, StringConstraints

from node.model import times
from node.model.wire.fields import Document
from node.model.wire.nodes import Identity, NodeCard
from node.model.wire.participants import Micros

QUESTIONS_MAX = 64
"""Maximum questions handed over at once, and maximum that a node works on for one lead."""

WAIT_MAX = 60 * times.SECOND
"""Maximum time that a node waits for a question (µs): proxies close silent connections."""

_HeaderName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z-]{1,40}$")]
_HeaderValue = Annotated[str, StringConstraints(pattern=r"^[ -~]{0,4000}$")]


class Question(Document):
    """A request; ``headers`` are those of its signature."""

    method: Literal["GET", "POST", "PUT"]
    path: Annotated[str, StringConstraints(pattern=r"^/v1/participant/[a-z0-9/-]{1,200}$")]
    headers: Annotated[dict[_HeaderName, _HeaderValue], Field(max_length=8)]
    body: str = ""


class AssignedQuestion(Document):
    """A question that is handed over, with an id for its answer."""

    id: UUID
    question: Question


class Reply(Document):
    """The response to a request."""

    status: Annotated[int, Field(ge=200, le=599, strict=True)]
    body: str = ""


class AnsweredQuestion(Document):
    """The reply to one question."""

    id: UUID
    reply: Reply


class WorkRequest(Document):
    """A node's request for its questions; ``wait`` (µs) is how long to wait if there are none.

    ``shortfall`` and ``busy_until`` are those of ``node/model/shortfall.py``. ``working`` lists the
    questions that the node has and will answer; any other question handed over before was lost.
    """

    card: NodeCard
    now: Micros
    shortfall: Micros
    busy_until: Micros
    wait: Annotated[int, Field(ge=0, le=WAIT_MAX, strict=True)]
    answers: Annotated[
        tuple[AnsweredQuestion, ...], Field(fail_fast=True, max_length=2 * QUESTIONS_MAX)
    ] = ()
    working: Annotated[tuple[UUID, ...], Field(fail_fast=True, max_length=2 * QUESTIONS_MAX)] = ()


class WorkResponse(Document):
    """The questions that wait for a node."""

    questions: Annotated[tuple[AssignedQuestion, ...], Field(max_length=QUESTIONS_MAX)] = ()


class ForwardedQuestion(Document):
    """A question from a lead in a separate process to its node, which hands questions over."""

    node: Identity
    name: str
    question: Question
