"""How a node that nobody can reach is asked all the same: it fetches the questions itself.

A question is a request under ``/v1/participant/`` exactly as it would have been sent: its
signature comes with it, so whoever hands it over can neither make one up nor alter one.
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
"""Most questions handed over at once, and most that a node works on for one lead."""

WAIT_MAX = 60 * times.SECOND
"""A node is not kept waiting longer for a question: proxies end what is silent for long."""

_HeaderName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z-]{1,40}$")]
_HeaderValue = Annotated[str, StringConstraints(pattern=r"^[ -~]{0,500}$")]


class Question(Document):
    """One request; ``headers`` are those of its signature."""

    method: Literal["GET", "POST", "PUT"]
    path: Annotated[str, StringConstraints(pattern=r"^/v1/participant/[a-z0-9/-]{1,200}$")]
    headers: Annotated[dict[_HeaderName, _HeaderValue], Field(max_length=8)]
    body: str = ""


class AssignedQuestion(Document):
    """A question that is handed over, with the name by which it is answered."""

    id: UUID
    question: Question


class Reply(Document):
    """What the request was answered with."""

    status: Annotated[int, Field(ge=200, le=599, strict=True)]
    body: str = ""


class AnsweredQuestion(Document):
    """The reply to one question."""

    id: UUID
    reply: Reply


class WorkRequest(Document):
    """Give me what waits for me; ``wait`` (µs) is how long I wait where nothing does.

    ``shortfall`` and ``busy_until`` are ``node/model/shortfall.py``'s. ``working`` are questions
    that I have and shall answer: whatever else was given to me before never came here.
    """

    card: NodeCard
    now: Micros
    shortfall: Micros
    busy_until: Micros
    wait: Annotated[int, Field(ge=0, le=WAIT_MAX, strict=True)]
    answers: Annotated[tuple[AnsweredQuestion, ...], Field(max_length=2 * QUESTIONS_MAX)] = ()
    working: Annotated[tuple[UUID, ...], Field(max_length=2 * QUESTIONS_MAX)] = ()


class WorkResponse(Document):
    """The questions that wait."""

    questions: Annotated[tuple[AssignedQuestion, ...], Field(max_length=QUESTIONS_MAX)] = ()


class ForwardedQuestion(Document):
    """From a lead in a process of its own to its node, which has the questions to hand over."""

    node: Identity
    name: str
    question: Question
