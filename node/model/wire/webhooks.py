"""Webhooks: addresses of the owner's that are told when something is wrong, and when it is over."""

from __future__ import annotations

from typing import Annotated, Literal
from uuid import UUID

from pydantic import AfterValidator, Field, StringConstraints

from node.model import times
from node.model.webhooks import WebhookEvent, key_of
from node.model.wire.fields import Document, Duration, Instant, Name, Url


def _secret(value: str) -> str:
    key_of(value)
    return value


def _span(value: int) -> int:
    if not times.MINUTE <= value <= 7 * times.DAY:
        msg = f"is {times.duration_text(value)}; give 1 min to 7 d"
        raise ValueError(msg)
    return value


class WebhookTerms(Document):
    """The address of a webhook, and what it is told of."""

    name: Name
    url: Url = Field(description="Where to post, such as https://alerts.example/parley.")
    events: tuple[WebhookEvent, ...] = Field(
        tuple(WebhookEvent),
        min_length=1,
        max_length=len(WebhookEvent),
        description="node-away: another node does not answer. task-failing: the last runs of a "
        "task had no result, or nothing arrived; tasks with a common cause are told as one. "
        "mesh-below: a mesh delivers less than it should. alert: a rule of a task was raised. All "
        "by default.",
    )
    failures: int = Field(
        3, ge=1, le=100, strict=True, description="Number of failed runs of a task in a row."
    )
    mesh: Name | None = Field(None, description="The only mesh to be told of; by default all.")
    percent: float = Field(
        95, ge=0, le=100, description="The part of what was due that a mesh has to deliver."
    )
    span: Annotated[Duration, AfterValidator(_span)] = Field(
        times.HOUR, description="The time before now in which that is counted, 1 min to 7 d."
    )


class WebhookDocument(WebhookTerms):
    """A webhook as posted."""

    secret: Annotated[str, StringConstraints(max_length=200), AfterValidator(_secret)] | None = (
        Field(
            None,
            description="whsec_ and at least 24 bytes in base64, by which deliveries are signed; "
            "by default a new one.",
        )
    )


class Webhook(WebhookTerms):
    """A webhook as the API shows it."""

    created_at: Instant
    waiting: int = Field(description="Number of messages that it has not accepted yet.")
    delivered_at: Instant | None = Field(description="When it last accepted a message.")
    last_error: str | None = Field(description="Why the last attempt failed, if it did.")


class NewWebhook(Webhook):
    """A webhook that was just added, with its secret, which is shown this once."""

    secret: str


class WebhookTested(Document):
    """A webhook that has accepted a message of the type test."""

    name: Name
    message: UUID = Field(description="The id of the message.")


class WebhookMessage(Document):
    """The body of a delivery, as the receiver gets it."""

    id: UUID = Field(description="The same in all attempts, and in the header Webhook-Id.")
    type: WebhookEvent | Literal["test"]
    state: Literal["begun", "over"]
    at: Instant = Field(description="When it was noticed.")
    node: str = Field(description="The name of the node that sends it.")
    subject: str = Field(
        description="The name of the node or mesh, or the id of the task or alert; of several "
        "tasks with a common cause its kind and names, such as `host d`."
    )
    sentence: str = Field(description="What has happened.")
